//! Hosts that are not heard, as they stand in the sums over the cluster.
//!
//! A host that falls silent without a goodbye is dead, or cut off, and its peers cannot tell which: the load of a dead host is gone,
//! one that is cut off still loads the array. So an absent host stands in the sums with its active shares, and with what these
//! had outstanding when all were heard last. Where it is dead, latency falls, and the others take up its part by
//! the law itself. Where it is cut off, each side holds the latency that it sees by windows that are anchored in what the others are
//! known to have, so that no side pushes out the other by the least difference between two latencies.
//!
//! With S_a the shares of absent hosts, and p the window per share of those that are heard, in the n-th period of absence:
//!
//! ```text
//! outstanding += S_a · activity · anchor,   active += S_a · activity
//! anchor      += (p − anchor) / (n + FIRST)
//! ```
//!
//! The anchor follows ever more slowly: what is left by a dead host is taken up as a whole, and sides of a partition
//! drift apart by the logarithm of the time.

use crate::cluster::Load;

/// The first steps of the anchor are 1 / (FIRST + 1), 1 / (FIRST + 2), …
const FIRST: f64 = 3.0;

/// Part of their shares that absent hosts lose in a period once the exchange has forgotten them.
const FORGETS: f64 = 1.0 / 600.0;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Absent {
    /// Shares of the other hosts, absent ones included, and of the absent ones alone.
    known: f64,
    shares: f64,
    /// Active shares over all shares, when all hosts were heard last.
    activity: f64,
    /// Outstanding slots for each active share of the absent hosts.
    anchor: Option<f64>,
    periods: u32,
}

impl Absent {
    /// Takes in a period. `heard`: the load of this host and those that are heard. `others`: shares of those. `missing`: shares of
    /// hosts of which the exchange knows that they fell silent; `None` if the exchange does not work.
    pub(crate) fn period(&mut self, heard: &Load, others: f64, missing: Option<f64>) {
        let returned = others > self.known - self.shares + 1e-9;
        let silent = match missing {
            None => self.known,
            // Who says goodbye is not absent. While somebody is, nobody can be told from those that the exchange has forgotten.
            Some(missing) if self.shares <= 0.0 || returned => missing,
            Some(missing) => missing.max((1.0 - FORGETS) * (self.known - others)),
        };
        self.shares = if silent > 1e-3 * (others + heard.shares) { silent } else { 0.0 };
        self.known = others + self.shares;
        let Some(now) = heard.window_per_share() else { return };
        if self.shares <= 0.0 {
            self.activity = (heard.active / heard.shares).min(1.0);
            (self.anchor, self.periods) = (Some(now), 0);
        } else if let Some(anchor) = &mut self.anchor {
            self.periods = self.periods.saturating_add(1);
            *anchor += (now - *anchor) / (f64::from(self.periods) + FIRST);
        }
    }

    /// What absent hosts are taken to have at the array.
    pub(crate) fn load(&self) -> Load {
        let active = self.shares * self.activity;
        let outstanding = active * self.anchor.unwrap_or(0.0);
        let active = if self.anchor.is_some() { active } else { 0.0 };
        Load { outstanding, active, shares: self.shares, ..Load::default() }
    }

    /// Whether most of the cluster's shares are heard. `own`: shares of this host.
    pub(crate) fn hears_most(&self, own: f64) -> bool {
        2.0 * self.shares < own + self.known || self.shares <= 0.0
    }

    /// Whether another host was ever heard.
    pub(crate) fn knows(&self) -> bool {
        self.known > 0.0
    }

    /// Whether all hosts are heard that are known.
    pub(crate) fn is_none(&self) -> bool {
        self.shares <= 0.0
    }

    /// Periods for which hosts have been absent.
    pub(crate) fn periods(&self) -> u32 {
        self.periods
    }
}
