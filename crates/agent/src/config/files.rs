//! Files that a configuration names and that only `parda check` looks into: certificates, keys of exchanges, tokens.

use std::path::Path;

use parda_config::{Document, Error, TablePart};
use parda_exchange::udp::{KeySource, Keys};
use parda_tls::{Acceptor, FileError, ServerFiles};

use super::etcd::Etcd;
use super::exchange::Exchange;
use super::http::Http;
use super::server_tls::{self, key_of};
use super::udp::Udp;
use super::volume::Volume;
use crate::file;
use crate::tokens::Tokens;

/// Reads the certificates that clients are shown: those of disks, and of the HTTP server.
pub(super) fn shown(doc: &Document, http: Option<&Http>) -> Result<(), Error> {
    let file: file::File = doc.parse()?;
    for (i, listener) in file.listener.iter().enumerate() {
        if let Some(tls) = &listener.tls {
            server(&doc.part(format!("listener.{i}.tls")), tls.files())?;
        }
    }
    match http.and_then(|http| http.tls.clone()) {
        Some(files) => server(&doc.part("http.tls"), files),
        None => Ok(()),
    }
}

/// Reads a server's certificate and its key.
fn server(tls: &TablePart<'_>, files: ServerFiles) -> Result<(), Error> {
    let read = Acceptor::new(files).map(drop);
    read.map_err(|error| tls.error(key_of(error.role, "clients"), error.message))
}

/// Reads the certificates for all servers, and the keys and passwords of exchanges. An agent that starts skips this: even without keys, or
/// with an expired certificate, it must serve its disks.
pub(super) fn secrets(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    for (i, volume) in volumes.iter().enumerate() {
        let at = doc.part(format!("volume.{i}"));
        if let Some(exchange) = &volume.exchange {
            if let Some(slots) = exchange.slots() {
                server_tls::read(&at, &slots.place, exchange.file_key())?;
            }
            of_exchange(&at.part("exchange"), exchange)?;
        }
        for (j, disk) in volume.disks().iter().enumerate() {
            server_tls::read(&at.part(&format!("disk.{j}")), &disk.backend.place(), "path")?;
        }
    }
    Ok(())
}

/// Reads the key file of an exchange, or its certificates and its password.
pub(crate) fn of_exchange(at: &TablePart<'_>, exchange: &Exchange) -> Result<(), Error> {
    if let Some(Udp { keys: KeySource::File(file), .. }) = exchange.udp() {
        at.read("key_file", Keys::read(file))?;
    }
    exchange.etcd().map_or(Ok(()), |etcd| of_etcd(at, etcd))
}

/// Reads the certificates and the password for etcd, whose keys are in a table.
pub(super) fn of_etcd(at: &TablePart<'_>, etcd: &Etcd) -> Result<(), Error> {
    if let Some(tls) = &etcd.cluster.tls {
        let wrong =
            |error: FileError| at.part("tls").error(key_of(error.role, "ca"), error.message);
        tls.check().map_err(wrong)?;
    }
    if let Some(login) = &etcd.cluster.login {
        at.read("password_file", parda_etcd::password::read(&login.password_file))?;
    }
    Ok(())
}

/// Reads the file of tokens. The agent starts without: tokens can be taken away by emptying it.
pub(super) fn tokens(doc: &Document, tokens: Option<&Path>) -> Result<(), Error> {
    let Some(path) = tokens else { return Ok(()) };
    let wrong = |message| doc.error("http.tokens", message);
    if Tokens::read(path).map_err(wrong)?.is_empty() {
        let message = "has no token, so that nobody may ask: add a line NAME ROLE SECRET";
        return Err(wrong(format!("{}: {message}", path.display())));
    }
    Ok(())
}
