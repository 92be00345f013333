//! `[http]`: where metrics and health are, checked.

use std::path::Path;

use parda_config::{Document, Error};
use parda_nbd::uri::{Address, AddressError};

use super::volume::Volume;
use crate::file;

/// Checks the table and gives the address.
pub(super) fn check(doc: &Document, http: &file::Http) -> Result<Address, Error> {
    let address: Address =
        http.address.parse().map_err(|e: AddressError| doc.error("http.address", e.to_string()))?;
    if http.plain && matches!(address, Address::Unix(_)) {
        return Err(doc.error("http.plain", "is for TCP: no other host reaches a unix socket"));
    }
    if !address.is_local() && !http.plain {
        let message = "is not a loopback address, and whoever reaches it can read the names and the load of \
                       all disks: add plain = true, if that is meant";
        return Err(doc.error("http.address", message));
    }
    if matches!(address, Address::Tcp { port: 0, .. }) {
        return Err(doc.error("http.address", "needs a port that Prometheus can be told: 0 is any"));
    }
    Ok(address)
}

/// Refuses the address of another socket of the agent.
pub(super) fn is_its_own(
    doc: &Document,
    http: &Address,
    status: Option<&Path>,
    volumes: &[Volume],
) -> Result<(), Error> {
    if matches!(http, Address::Unix(path) if Some(path.as_path()) == status) {
        return Err(doc.error("http.address", "is the status socket's: give it a path of its own"));
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
