//! `[http]`: where metrics and health are, checked.

use parda_config::{Document, Error};
use parda_nbd::uri::{Address, AddressError};

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
    Ok(address)
}
