//! TLS with an NBD server behind a disk or an exchange: what its URI and `[volume.disk.nbd]` say.

use parda_address::{Certificates, Uri, UriTls};
use parda_config::Error;
use parda_tls::{ClientError, FileError, FileRole};

use super::place::Place;
use crate::file::ServerTls;

/// The key of a disk that says more than its URI does.
const TABLE: &str = "nbd.tls";

/// Completes the URI of a place by what the disk says. `path` is the key of the URI.
pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    place: &mut Place,
    path: &str,
    written: Option<&ServerTls>,
) -> Result<(), Error> {
    let tls = match place {
        Place::Nbd(uri) => uri.tls.as_mut(),
        Place::Path(_) => None,
    };
    let (tls, written) = match (tls, written) {
        (None, None) => return Ok(()),
        (None, Some(_)) => {
            let message = format!(
                "is for a {path} that begins with nbds:// or nbds+unix://; this one does not, and \
                 would be used without TLS"
            );
            return Err(wrong(TABLE, message));
        }
        (Some(tls), written) => (tls, written.cloned().unwrap_or_default()),
    };
    take(wrong, tls, path, &written)?;
    if tls.certificates == Certificates::Unsaid {
        return Err(wrong(path, no_authority(path)));
    }
    if !parda_tls::is_name(&tls.name) {
        let key = if written.name.is_some() { "nbd.tls.name" } else { path };
        let message = format!("{:?} is no name that a certificate can have", tls.name);
        return Err(wrong(key, message));
    }
    Ok(())
}

/// Reads the certificates for one server, and points at the key that named a file that is wrong.
pub(super) fn read(
    wrong: &dyn Fn(&str, String) -> Error,
    place: &Place,
    path: &str,
    written: &ServerTls,
) -> Result<(), Error> {
    let Place::Nbd(Uri { tls: Some(tls), .. }) = place else { return Ok(()) };
    parda_tls::check(tls).map_err(|error| match error {
        ClientError::NoAuthority => wrong(path, no_authority(path)),
        ClientError::File(file) => blame(wrong, path, written, &file),
    })
}

/// Points at the key that named the file.
fn blame(
    wrong: &dyn Fn(&str, String) -> Error,
    path: &str,
    written: &ServerTls,
    file: &FileError,
) -> Error {
    let (key, written) = match file.role {
        FileRole::Authorities => ("ca", written.ca.is_some()),
        FileRole::Certificate => ("certificate", written.certificate.is_some()),
        FileRole::Key => ("key", written.key.is_some()),
    };
    match written {
        true => wrong(&format!("{TABLE}.{key}"), file.message.clone()),
        false => wrong(path, file.to_string()),
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

/// Takes over what the table says.
fn take(
    wrong: &dyn Fn(&str, String) -> Error,
    tls: &mut UriTls,
    path: &str,
    written: &ServerTls,
) -> Result<(), Error> {
    let at = |key: &str, message: &str| wrong(&format!("{TABLE}.{key}"), message.to_owned());
    let ServerTls { ca, certificate, key, name } = written;
    if let Some(name) = name {
        tls.name.clone_from(name);
    }
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        (Some(_), None) => return Err(at("certificate", "needs its private key: add key")),
        (None, Some(_)) => return Err(at("key", "is the key of no certificate: add certificate")),
    };
    if ca.is_none() && identity.is_none() {
        return Ok(());
    }
    if tls.certificates != Certificates::Unsaid {
        let message = format!("names files, and so does tls-certificates in {path}: one is enough");
        return Err(wrong(TABLE, message));
    }
    let Some(ca) = ca.clone() else {
        let message = "has no ca: the CA that the server's certificate must come from";
        return Err(wrong(TABLE, message.to_owned()));
    };
    tls.certificates = Certificates::Files { ca, identity };
    Ok(())
}
