//! Reason why a connection cannot go on.

/// Reason why a connection cannot go on, as a sentence for people: the peer broke the protocol, or refuses. The connection is to be
/// closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(String);

/// Fails with that reason.
pub(crate) fn fail<T>(why: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(why.into()))
}
