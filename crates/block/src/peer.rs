//! Peer of a connection.

use std::net::IpAddr;

/// Peer of a connection, as far as the socket tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// A process on this host, by a unix socket.
    Process { uid: u32, pid: i32 },
    /// A host, by TCP.
    Host(IpAddr),
    /// The socket does not tell.
    Unknown,
}
