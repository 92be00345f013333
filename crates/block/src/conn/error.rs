//! Reasons for which a connection is given up.

use parda_nbd::server::{HandshakeError, RequestError};

use crate::door::TurnedAway;

/// Reason for which a connection is given up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnError {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the client sent more after STARTTLS without waiting for its answer, or somebody did")]
    Injected,
    #[error("TLS cannot be begun: {0}")]
    Tls(std::io::Error),
    #[error("there is no memory for another connection with TLS: raise memory in the limits")]
    NoMemory,
    #[error("the handshake was not done in time")]
    Slow,
    #[error("it neither took its replies nor finished its request in time")]
    Stalled,
    #[error("{0}")]
    TurnedAway(#[from] TurnedAway),
    #[error("its handshake made room for another's")]
    MadeRoom,
    #[error("{0}")]
    Io(std::io::Error),
}
