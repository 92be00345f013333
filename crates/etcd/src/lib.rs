//! A client of etcd's JSON gateway (`/v3/…`, since etcd 3.4). Reads, writes and leases over HTTP/1.1, with
//! TLS, a user and a password, and fail-over between endpoints.
//!
//! Calls block, for a bounded time at each endpoint, so they are for threads that may wait. There is
//! no watch and no async runtime.
//!
//! | file | subject |
//! | --- | --- |
//! | [`endpoint`] | the URL of a member |
//! | [`password`] | the file that holds a password |
//! | [`client`] | calls: fail-over, TLS, authentication |
//! | [`revisions`] | reads with revisions, transactions that compare them |
//! | `wire` | requests and answers as JSON |
//! | [`error`] | faults of a call |
#![forbid(unsafe_code)]

pub mod client;
pub mod endpoint;
pub mod error;
pub mod password;
pub mod revisions;
mod wire;

pub use client::{EtcdAccess, EtcdClient, Lease, Login, Tls, Traffic};
pub use endpoint::Endpoint;
pub use error::{EtcdError, EtcdFault};
pub use password::PasswordError;
pub use revisions::{Entry, EtcdKeys, LeaseTime, ReadResult, Write};

/// A name as one segment of a key: `/` and `%` are escaped, so that no name is a prefix of another's keys.
#[must_use]
pub fn segment(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}
