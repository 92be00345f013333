//! Absent hosts in the sums over the cluster.
//!
//! A host that falls silent without a goodbye is dead, or cut off, and its peers cannot tell which. The load of a dead host is gone; a host
//! that is cut off still loads the array. So an absent host stays in the sums with its active shares, and with their outstanding IOs at the
//! time when all hosts were last heard. If the host is dead, latency falls, and the law itself gives its part to the others. If it is cut
//! off, each side holds the latency that it measures with anchored windows. Then no side pushes out the other by the least difference
//! between two latencies.
//!
//! With S_a the shares of absent hosts, and h the headroom:
//!
//! ```text
//! outstanding += S_a · activity · anchor,   active += S_a · activity
//! ```
//!
//! The anchor stands still, so that no side of a partition drifts away.

use crate::cluster::Load;
use crate::latency::Flow;
use crate::mechanism::{Mechanism, on};

/// Periods over which the ratio of latencies is a mean.
const OVER: f64 = 20.0;

/// Fraction of all shares from which on absent hosts count. Nearly half, as only one side of a partition may continue as the cluster.
const LOST: f64 = 0.45;

/// Fraction of their shares that absent hosts lose in a period once the exchange has forgotten them.
const FORGETS: f64 = 1.0 / 3600.0;

/// Absent hosts, as the module's documentation describes them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Absent {
    /// Shares of the other hosts, absent ones included, and of the absent ones alone.
    known: f64,
    shares: f64,
    /// Active shares over all shares, when all hosts were last heard.
    activity: f64,
    /// Outstanding slots for each active share of the absent hosts.
    anchor: Option<f64>,
    periods: u32,
    /// This host's latency over the cluster's while all were heard, and the number of periods in the mean.
    ratio: f64,
    seen: f64,
}

impl Absent {
    /// Ends a period. `heard`: load of this host and of those that are heard. `others`: shares of those. `missing`: shares of hosts that
    /// the exchange lists as silent; `None` if the exchange does not work.
    pub(crate) fn period(&mut self, heard: &Load, others: f64, missing: Option<f64>) {
        let returned = others > self.known - self.shares + 1e-9;
        let silent = match missing {
            None => self.known,
            // A host that said goodbye is not absent. While some hosts are absent, a goodbye looks like a host that the exchange has
            // forgotten.
            Some(missing) if self.shares <= 0.0 || returned => missing,
            Some(missing) => missing.max((1.0 - FORGETS) * (self.known - others)),
        };
        self.shares = if silent > 1e-3 * (others + heard.shares) { silent } else { 0.0 };
        self.known = others + self.shares;
        let Some(now) = heard.window_per_share() else { return };
        if self.shares <= 0.0 {
            self.activity = (heard.active / heard.shares).min(1.0);
            (self.anchor, self.periods) = (Some(now), 0);
        } else {
            self.periods = self.periods.saturating_add(1);
        }
    }

    /// Converts to another size of slot. `factor`: new slots per old slot.
    pub(crate) fn convert(&mut self, factor: f64) {
        self.anchor = self.anchor.map(|anchor| anchor * factor);
    }

    /// Headroom while absent hosts stand in the sums. At low latency they are likely dead, and their anchor would hold back the hosts that
    /// take up their part.
    pub(crate) fn headroom(headroom: f64) -> f64 {
        let above = if on(Mechanism::AbsentDead) { headroom.max(1.0) } else { 1.0 };
        headroom * above * above
    }

    /// Assumed load of the absent hosts at the array.
    pub(crate) fn load(&self) -> Load {
        let Some(anchor) = self.anchor.filter(|_| on(Mechanism::Absent)) else {
            return Load::default();
        };
        let active = self.shares * self.activity;
        Load { outstanding: active * anchor, active, shares: self.shares, ..Load::default() }
    }

    /// The latency of the whole cluster, from the flow of this host alone (`own`) and of all that are heard. A host that hears no others
    /// corrects its own by the usual ratio. Data elsewhere on the array has other latencies at the same load.
    pub(crate) fn flow(&mut self, own: Flow, all: Flow, hears_most: bool) -> Flow {
        let means = own.scaled_mean().zip(all.scaled_mean()).filter(|(_, all)| *all > 0.0);
        if let (true, true, Some((own, all))) = (hears_most, self.shares <= 0.0, means) {
            self.seen = (self.seen + 1.0).min(OVER);
            self.ratio += (own / all - self.ratio) / self.seen;
        }
        if hears_most || all.ios > own.ios {
            return all;
        }
        let known = if on(Mechanism::AbsentRatio) { self.seen / OVER } else { 0.0 };
        let ratio = 1.0 + (self.ratio - 1.0) * known;
        Flow { latency: own.latency / ratio, scaled: own.scaled / ratio, ..own }
    }

    /// Whether most of the cluster's shares are heard. `own`: shares of this host.
    pub(crate) fn hears_most(&self, own: f64) -> bool {
        self.shares < LOST * (own + self.known) || self.shares <= 0.0
    }

    /// Periods for which hosts have been absent.
    pub(crate) fn periods(&self) -> u32 {
        self.periods
    }
}
