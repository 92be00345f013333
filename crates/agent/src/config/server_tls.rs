//! TLS with an NBD server behind a disk or an exchange: what its URI and `[volume.disk.nbd]` say.

use std::path::PathBuf;

use parda_address::{Certificates, Place, Uri, UriTls};
use parda_config::{Error, TablePart};
use parda_tls::{ClientError, FileRole};

use crate::file::ServerTls;

/// The key of a disk that adds TLS settings to its URI.
const TABLE: &str = "nbd.tls";

/// Completes the URI of a place by the disk's table. `path` is the key of the URI.
pub(super) fn check(
    at: &TablePart<'_>,
    place: &mut Place,
    path: &str,
    written: Option<&ServerTls>,
) -> Result<(), Error> {
    let tls = match place {
        Place::Nbd(uri) => uri.tls.as_mut(),
        Place::Path(_) => None,
    };
    let Some(tls) = tls else {
        let message = format!(
            "is for a {path} that begins with nbds:// or nbds+unix://; this one does not, and \
             would be used without TLS"
        );
        return at.refuse_if(written.is_some(), TABLE, message);
    };
    let written = written.cloned().unwrap_or_default();
    take(at, tls, path, &written)?;
    at.refuse_if(tls.certificates == Certificates::Unsaid, path, no_authority(path))?;
    let key = if written.name.is_some() { "nbd.tls.name" } else { path };
    let message = format!("{:?} is no name that a certificate can have", tls.name);
    at.refuse_if(!parda_tls::is_name(&tls.name), key, message)
}

/// A certificate and its private key, of which none is without the other.
pub(super) fn identity(
    at: &TablePart<'_>,
    certificate: Option<&PathBuf>,
    key: Option<&PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>, Error> {
    let alone = certificate.is_some() && key.is_none();
    at.refuse_if(alone, "certificate", "needs its private key: add key")?;
    let alone = certificate.is_none() && key.is_some();
    at.refuse_if(alone, "key", "is the key of no certificate: add certificate")?;
    Ok(certificate.cloned().zip(key.cloned()))
}

/// Reads the certificates for one server, and points at the key that named a file that is wrong.
pub(super) fn read(at: &TablePart<'_>, place: &Place, path: &str) -> Result<(), Error> {
    let Place::Nbd(Uri { tls: Some(tls), .. }) = place else { return Ok(()) };
    parda_tls::check(tls).map_err(|error| match error {
        ClientError::NoAuthority => at.error(path, no_authority(path)),
        ClientError::File(file) => match (at.part(TABLE), key_of(file.role, "ca")) {
            (table, key) if table.has(key) => table.error(key, file.message),
            _ => at.error(path, file.to_string()),
        },
    })
}

/// Key that names a file of this role. `authorities`: that of CAs.
pub(super) fn key_of(role: FileRole, authorities: &'static str) -> &'static str {
    match role {
        FileRole::Certificate => "certificate",
        FileRole::Key => "key",
        FileRole::Authorities => authorities,
    }
}

fn no_authority(path: &str) -> String {
    let table = match path {
        "path" => "nbd.tls = { ca = \"ca.pem\" } to the disk, or ",
        _ => "",
    };
    format!(
        "asks for TLS, and nothing says which CA the server's certificate must come from: add \
         {table}?tls-certificates=DIRECTORY to the URI. No CA is trusted unless it is named"
    )
}

/// Takes over the values of the table.
fn take(
    at: &TablePart<'_>,
    tls: &mut UriTls,
    path: &str,
    written: &ServerTls,
) -> Result<(), Error> {
    let ServerTls { ca, certificate, key, name } = written;
    if let Some(name) = name {
        tls.name.clone_from(name);
    }
    let identity = identity(&at.part(TABLE), certificate.as_ref(), key.as_ref())?;
    if ca.is_none() && identity.is_none() {
        return Ok(());
    }
    let message = format!("names files, and so does tls-certificates in {path}: one is enough");
    at.refuse_if(tls.certificates != Certificates::Unsaid, TABLE, message)?;
    let missing = "has no ca: the CA that the server's certificate must come from";
    let ca = at.read(TABLE, ca.clone().ok_or(missing))?;
    tls.certificates = Certificates::Files { ca, identity };
    Ok(())
}
