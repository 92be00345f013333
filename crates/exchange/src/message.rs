//! Messages between hosts: a publication with its sender and number.

use std::sync::OnceLock;

use parda_control::{Part, Report, Span, TenantPart};

use crate::identity::{Identity, Sequence};

/// A host's report of one period, with the period and the goodbye. What a look at all hosts needs comes first.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct Publication {
    /// Time to the next publication, by the host's own clock. Its silence is measured in these periods.
    pub period: Span,
    /// Whether that is longer than the host was told, as its rounds would be too much for the exchange.
    pub slowed: bool,
    /// Whether the host stops. If so, the others need not wait until it is stale.
    pub leaving: bool,
    /// Tenants whose VMs the host has: the first [`MOST_TENANTS`](crate::slot::MOST_TENANTS) are sent.
    pub tenants: Vec<TenantPart>,
    /// Results of the law and measurements of the period.
    pub report: Report,
}

/// A publication with its sender and its number, as the other hosts receive it. What a look at all hosts needs comes first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Message {
    /// Number of the publication within its run.
    pub sequence: Sequence,
    /// Host and run that publish the message.
    pub from: Identity,
    /// Content of the message.
    pub body: Publication,
    part: OnceLock<Part>,
}

impl Message {
    /// A message of a host.
    #[must_use]
    pub fn new(from: Identity, sequence: Sequence, body: Publication) -> Message {
        Message { sequence, from, body, part: OnceLock::new() }
    }

    /// Contribution of the report to the sums over all hosts. Computed once for all holders of the message, so the body must
    /// not change after the first call.
    #[must_use]
    pub fn part(&self) -> &Part {
        self.part.get_or_init(|| Part::of(&self.body.report))
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Message) -> bool {
        let same = (&self.from, self.sequence) == (&other.from, other.sequence);
        same && self.body == other.body
    }
}
