//! Files that a configuration names and that only `parda check` looks into: certificates, keys of exchanges, tokens.

use std::path::Path;

use parda_config::{Document, Error};
use parda_exchange::udp::{KeySource, Keys};

use parda_tls::{Acceptor, FileRole, ServerFiles};

use super::etcd::Etcd;
use super::http::Http;
use super::listener;
use super::server_tls;
use super::udp::Udp;
use super::volume::Volume;
use crate::file::{self, ServerTls};
use crate::tokens::Tokens;

/// Reads the certificates that clients are shown: those of disks, and of the HTTP server.
pub(super) fn shown(doc: &Document, http: Option<&Http>) -> Result<(), Error> {
    let file: file::File = doc.parse()?;
    for (i, listener) in file.listener.iter().enumerate() {
        if let Some(tls) = &listener.tls {
            server(doc, &format!("listener.{i}.tls"), listener::files(tls))?;
        }
    }
    match http.and_then(|http| http.tls.clone()) {
        Some(files) => server(doc, "http.tls", files),
        None => Ok(()),
    }
}

/// Reads a server's certificate and its key, and points at the key of the configuration that named a file that is wrong.
fn server(doc: &Document, table: &str, files: ServerFiles) -> Result<(), Error> {
    Acceptor::new(files).map(drop).map_err(|error| {
        let key = match error.role {
            FileRole::Certificate => "certificate",
            FileRole::Key => "key",
            FileRole::Authorities => "clients",
        };
        doc.error(&format!("{table}.{key}"), error.message)
    })
}

/// Reads the certificates for all servers. Only for who asks: one that has expired must not keep
/// the other disks of a host from starting.
pub(super) fn certificates(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let file: file::File = doc.parse()?;
    for (i, (volume, written)) in volumes.iter().zip(&file.volume).enumerate() {
        let wrong = |key: &str, message| doc.error(&format!("volume.{i}.{key}"), message);
        if let Some(exchange) = &volume.exchange {
            if let Some(slots) = exchange.slots() {
                let key = exchange.file_key();
                server_tls::read(&wrong, &slots.place, key, &ServerTls::default())?;
            }
            if let Some(etcd) = exchange.etcd() {
                etcd_certificates(doc, &format!("volume.{i}.exchange"), etcd)?;
            }
        }
        for (j, (disk, written)) in volume.disks().iter().zip(&written.disk).enumerate() {
            let wrong = |key: &str, message| wrong(&format!("disk.{j}.{key}"), message);
            let written = written.nbd.as_ref().and_then(|nbd| nbd.tls.clone());
            server_tls::read(&wrong, &disk.place, "path", &written.unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Reads the key files and the passwords of exchanges. Only for who asks: an agent whose keys are not there yet must serve its disks.
pub(super) fn keys(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    for (i, volume) in volumes.iter().enumerate() {
        let Some(exchange) = &volume.exchange else { continue };
        if let Some(Udp { keys: KeySource::File(file), .. }) = exchange.udp() {
            let key = format!("volume.{i}.exchange.key_file");
            Keys::read(file).map_err(|error| doc.error(&key, error.to_string()))?;
        }
        if let Some(etcd) = exchange.etcd() {
            etcd_password(doc, &format!("volume.{i}.exchange"), etcd)?;
        }
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

/// Reads the certificates and the password for the etcd of the policy.
pub(super) fn policy(doc: &Document, etcd: &Etcd) -> Result<(), Error> {
    etcd_certificates(doc, "policy", etcd)?;
    etcd_password(doc, "policy", etcd)
}

/// Reads certificates for etcd, whose keys are in a table.
fn etcd_certificates(doc: &Document, table: &str, etcd: &Etcd) -> Result<(), Error> {
    let Some(tls) = &etcd.cluster.tls else { return Ok(()) };
    tls.check().map_err(|file| {
        let key = match file.role {
            FileRole::Authorities => "ca",
            FileRole::Certificate => "certificate",
            FileRole::Key => "key",
        };
        doc.error(&format!("{table}.tls.{key}"), file.message)
    })
}

fn etcd_password(doc: &Document, table: &str, etcd: &Etcd) -> Result<(), Error> {
    let Some(login) = &etcd.cluster.login else { return Ok(()) };
    let wrong = |error: parda_etcd::PasswordError| {
        doc.error(&format!("{table}.password_file"), error.to_string())
    };
    parda_etcd::password::read(&login.password_file).map(|_| ()).map_err(wrong)
}
