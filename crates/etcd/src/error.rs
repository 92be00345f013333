//! Faults of a call.

use parda_tls::FileError;

use crate::password::PasswordError;

/// A call that failed, at the endpoint that was tried last.
#[derive(Debug, thiserror::Error)]
#[error("etcd {endpoint}: {fault}")]
pub struct EtcdError {
    /// URL of the endpoint.
    pub endpoint: String,
    /// Fault at that endpoint.
    pub fault: EtcdFault,
    /// Whether etcd may have executed the request. The request may have left this host, to this endpoint or to an earlier
    /// one, and no answer refused it.
    pub may_be_done: bool,
}

/// Reason why a call failed at an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EtcdFault {
    /// A certificate, key or CA file cannot be used.
    #[error(transparent)]
    Files(#[from] FileError),
    /// The password cannot be read.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// No answer within the time.
    #[error("no answer in time")]
    NoAnswer,
    /// There was no connection, or its TLS failed: nothing was asked.
    #[error("{0}")]
    Connection(String),
    /// The connection failed later, perhaps after the request was sent.
    #[error("{0}")]
    Lost(String),
    /// The member answers that it cannot serve now, as it has no leader or no quorum.
    #[error("cannot serve now: {0}")]
    Unavailable(String),
    /// The lease is unknown: it ran out, or etcd's data was replaced.
    #[error("the lease is gone")]
    NoLease,
    /// The user's token is unknown or too old.
    #[error("the user's token is not valid: {0}")]
    Token(String),
    /// The user lacks the right, or the call needs a user.
    #[error("{0}")]
    Denied(String),
    /// The member refuses the call for another reason.
    #[error("refuses: {0}")]
    Refused(String),
    /// The answer is no answer of etcd's JSON gateway.
    #[error("is no answer of etcd's JSON gateway: {0}")]
    NotUnderstood(String),
}

impl EtcdFault {
    /// Whether another endpoint may do better.
    pub(crate) fn is_of_the_endpoint(&self) -> bool {
        matches!(
            self,
            EtcdFault::NoAnswer
                | EtcdFault::Connection(_)
                | EtcdFault::Lost(_)
                | EtcdFault::Unavailable(_)
                | EtcdFault::NotUnderstood(_)
        )
    }

    /// Whether the endpoint may have executed the request. A member without a quorum may find one, and a proposal with it.
    pub(crate) fn leaves_open(&self) -> bool {
        self.is_of_the_endpoint() && !matches!(self, EtcdFault::Connection(_))
    }
}
