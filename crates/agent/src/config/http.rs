//! `[http]`: where metrics and health are, checked.

use std::path::Path;

use parda_address::{Address, AddressError};
use parda_config::{Document, Error};
use parda_tls::ServerFiles;

use super::own;
use super::volume::Volume;
use crate::file;

/// A place of the HTTP server.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// Address of the server.
    pub address: Address,
    /// TLS of its clients. What is in the files is the server's to read: disks do not wait for a certificate.
    pub tls: Option<ServerFiles>,
}

/// Checks the `[http]` table of the file.
pub(super) fn check(doc: &Document, http: &file::Http) -> Result<Http, Error> {
    let address: Address =
        http.address.parse().map_err(|e: AddressError| doc.error("http.address", e.to_string()))?;
    if matches!(address, Address::Vhost(_)) {
        return Err(doc.error("http.address", "is for disks: vhost-user is not HTTP"));
    }
    if http.plain && matches!(address, Address::Unix(_)) {
        return Err(doc.error("http.plain", "is for TCP: no other host reaches a unix socket"));
    }
    let tls = http.tls.as_ref().map(|files| check_tls(doc, &address, http.plain, files));
    let tls = tls.transpose()?;
    if !address.is_local() && !http.plain && tls.is_none() {
        let message = "is not a loopback address, and whoever reaches it can read the names and the load of \
                       all disks: add tls and tokens, or plain = true for metrics and health alone";
        return Err(doc.error("http.address", message));
    }
    if !address.is_local() && tls.is_some() && http.tokens.is_none() {
        let message = "needs tokens, the file of those who may ask: other hosts reach the address";
        return Err(doc.error("http.tls", message));
    }
    if matches!(address, Address::Tcp { port: 0, .. }) {
        return Err(doc.error("http.address", "needs a port that Prometheus can be told: 0 is any"));
    }
    http.pages.as_ref().map_or(Ok(()), |pages| check_pages(doc, pages))?;
    Ok(Http { address, tls })
}

/// Checks the URL of the dashboards of all hosts: a browser follows it.
fn check_pages(doc: &Document, pages: &str) -> Result<(), Error> {
    let is_web = pages.starts_with("https://") || pages.starts_with("http://");
    if is_web && pages.contains("{host}") {
        return Ok(());
    }
    Err(doc.error("http.pages", "must be a URL with {host} in it, such as https://{host}:9843/"))
}

fn check_tls(
    doc: &Document,
    address: &Address,
    plain: bool,
    files: &file::HttpTls,
) -> Result<ServerFiles, Error> {
    if matches!(address, Address::Unix(_)) {
        return Err(doc.error("http.tls", "is for TCP: no other host reaches a unix socket"));
    }
    if plain {
        return Err(doc.error("http.plain", "contradicts tls: take one of them out"));
    }
    let file::HttpTls { certificate, key, clients } = files.clone();
    Ok(ServerFiles { certificate, key, clients })
}

/// Refuses the address of another socket of the agent.
pub(super) fn is_its_own(
    doc: &Document,
    http: &Address,
    status: Option<&Path>,
    volumes: &[Volume],
) -> Result<(), Error> {
    if let Some(taken) = own::taken(http, status) {
        return Err(doc.error("http.address", taken));
    }
    match volumes.iter().flat_map(Volume::disks).find(|disk| disk.listen == *http) {
        Some(disk) => {
            let message =
                format!("is where disk {} listens: give it an address of its own", disk.name);
            Err(doc.error("http.address", message))
        }
        None => Ok(()),
    }
}
