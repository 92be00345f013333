//! Reasons for which a connection is given up.

use parda_nbd::ProtocolError;

use crate::front::nbd::door::TurnedAway;

/// Reason for which a connection is given up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnError {
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(
        "plaintext follows STARTTLS before its answer: the client did not wait, or somebody injected it"
    )]
    Injected,
    #[error("TLS cannot be begun: {0}")]
    Tls(std::io::Error),
    #[error("there is no memory for another connection with TLS: raise memory in the limits")]
    NoMemory,
    #[error("the handshake was not done within handshake_timeout")]
    Slow,
    #[error(
        "the client moved less than 1 MiB of requests and replies in the time of progress_timeout"
    )]
    Stalled,
    #[error("{0}")]
    TurnedAway(#[from] TurnedAway),
    #[error("too many clients are in their handshake: this one was closed for a newer one")]
    MadeRoom,
    #[error("{0}")]
    Io(std::io::Error),
}
