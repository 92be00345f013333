//! Events, errors and the state of an exchange over UDP.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::slot::InvalidReport;

use super::counters::DatagramCounters;
use super::key::KeyFileError;
use super::refusals::Refusal;

/// An event of an exchange over UDP, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UdpEvent {
    /// Datagrams were refused for one reason.
    Refused(Refusal),
    /// A peer's name has no address. It is looked up again.
    UnknownName(String),
    /// The key file was read again, and other keys are in force.
    KeysRead {
        /// Number of keys in force.
        count: usize,
    },
    /// The key file could not be read again, and the keys from before stay in force. Holds the error.
    KeysKept(String),
}

impl UdpEvent {
    /// Whether the event is a fault. Otherwise it is information.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        !matches!(self, UdpEvent::KeysRead { .. })
    }
}

impl fmt::Display for UdpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UdpEvent::Refused(Refusal { why, count, from }) => write!(
                f,
                "the exchange ignored {count} datagram{} {why}, the last one from {from}; \
                 parda status counts them",
                if *count == 1 { "" } else { "s" }
            ),
            UdpEvent::UnknownName(fault) => write!(f, "{fault}; it is looked up again"),
            UdpEvent::KeysRead { count } => {
                write!(f, "the exchange's keys were read again: {count} in force")
            }
            UdpEvent::KeysKept(fault) => {
                write!(f, "{fault}; the exchange's keys from before stay in force")
            }
        }
    }
}

/// Reason why an exchange over UDP does not work, with its address.
#[derive(Debug, thiserror::Error)]
#[error("exchange udp {address}: {fault}")]
pub struct UdpError {
    /// Its address, as it is configured.
    pub address: SocketAddr,
    /// Reason why it does not work.
    pub fault: UdpFault,
}

/// Fault of an exchange over UDP.
#[derive(Debug, thiserror::Error)]
pub enum UdpFault {
    /// The keys cannot be read, so nothing is sent or believed.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The socket cannot be opened.
    #[error("cannot bind: {0}")]
    Bind(io::Error),
    /// The thread that reads the socket cannot be started.
    #[error("cannot start its thread: {0}")]
    Thread(io::Error),
    /// All peers are names, and none has an address.
    #[error("no peer has an address: {0}")]
    Names(String),
    /// No datagram of this period could be sent.
    #[error("cannot send to {to}, nor to any other host: {error}")]
    Send {
        /// The last address that was tried.
        to: SocketAddr,
        /// Error that the socket returned.
        error: io::Error,
    },
    /// The report has a value that the format cannot represent.
    #[error(transparent)]
    Report(#[from] InvalidReport),
}

/// The state of an exchange over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramStanding {
    /// Datagrams since the start.
    pub counters: DatagramCounters,
    /// Number of hosts that are heard now and have not shown that they hear this one.
    pub unproven: usize,
    /// Number of keys in force.
    pub keys: usize,
}
