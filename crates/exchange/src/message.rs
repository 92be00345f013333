//! What hosts say to one another.

use parda_control::{Report, Span};

use crate::identity::{Identity, Sequence};

/// What a host says once per period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Publication {
    /// How soon the next one follows, by the host's own clock: what its silence is measured by.
    pub period: Span,
    /// The host stops: the others need not wait until it looks stale.
    pub leaving: bool,
    /// What the law found.
    pub report: Report,
}

/// A publication as the others get it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Host and run that publish the message.
    pub from: Identity,
    /// Which of its publications this is.
    pub sequence: Sequence,
    /// What it says.
    pub body: Publication,
}
