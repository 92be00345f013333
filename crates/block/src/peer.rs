//! Peer of a connection.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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

/// Whether the other end of a socket is closed. TCP tells only whether it sends no more, which is not asked.
pub(crate) fn is_hung_up(socket: &OwnedFd) -> bool {
    let mut socket = [PollFd::new(socket, PollFlags::empty())];
    // A hang-up is always among the answers.
    poll(&mut socket, Some(&Timespec::default())).is_ok_and(|n| n > 0)
}
