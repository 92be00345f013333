//! Messages between hosts: a publication with its sender and number.

use parda_control::{Report, Span, TenantPart};

use crate::identity::{Identity, Sequence};

/// A host's report of one period, with the period and the goodbye.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// Time to the next publication, by the host's own clock. Its silence is measured in these periods.
    pub period: Span,
    /// Whether that is longer than the host was told, as its rounds would be too much for the exchange.
    pub slowed: bool,
    /// Whether the host stops. If so, the others need not wait until it is stale.
    pub leaving: bool,
    /// Results of the law and measurements of the period.
    pub report: Report,
    /// What it says of the tenants whose VMs it has: the first [`MOST_TENANTS`](crate::slot::MOST_TENANTS) go.
    pub tenants: Vec<TenantPart>,
}

/// A publication with its sender and its number, as the other hosts receive it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Host and run that publish the message.
    pub from: Identity,
    /// Number of the publication within its run.
    pub sequence: Sequence,
    /// Content of the message.
    pub body: Publication,
}
