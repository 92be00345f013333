//! Addresses of servers: sockets, NBD URIs, and the certificates that a connection needs; places of data.
//!
//! Nothing here connects.
#![forbid(unsafe_code)]

mod address;
mod certificates;
mod export_name;
mod place;
mod uri;

pub use address::{Address, AddressError};
pub use certificates::{Certificates, UriTls};
pub use export_name::{ExportName, ExportNameError};
pub use place::Place;
pub use uri::{Uri, UriError};
