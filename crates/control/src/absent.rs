//! Hosts that are not heard, as they stand in the sums over the cluster.
//!
//! A host that falls silent without a goodbye is dead, or cut off, and its peers cannot tell which: the load of a dead host is gone,
//! one that is cut off still loads the array. So an absent host stands in the sums with its active shares, and with what these
//! had outstanding when all were heard last. Where it is dead, latency falls, and the others take up its part by
//! the law itself. Where it is cut off, each side holds the latency that it sees by windows that are anchored in what the others are
//! known to have, so that no side pushes out the other by the least difference between two latencies.
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

/// Part of all shares from which on absent hosts count: nearly half, as both sides of a partition must not go on as the cluster.
const LOST: f64 = 0.45;

/// Part of their shares that absent hosts lose in a period once the exchange has forgotten them.
const FORGETS: f64 = 1.0 / 3600.0;

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
    /// This host's latency over the cluster's while all were heard, and the weight of what was seen.
    ratio: f64,
    seen: f64,
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
        } else {
            self.periods = self.periods.saturating_add(1);
        }
    }

    /// Counts in other slots from now on. `factor`: slots of now for one of before.
    pub(crate) fn convert(&mut self, factor: f64) {
        self.anchor = self.anchor.map(|anchor| anchor * factor);
    }

    /// The headroom that counts while absent hosts stand in the sums: where latency is low they are likely dead, and their anchor
    /// holds back who takes up their part.
    pub(crate) fn headroom(headroom: f64) -> f64 {
        let above = if on(Mechanism::AbsentDead) { headroom.max(1.0) } else { 1.0 };
        headroom * above * above
    }

    /// What absent hosts are taken to have at the array.
    pub(crate) fn load(&self) -> Load {
        let Some(anchor) = self.anchor.filter(|_| on(Mechanism::Absent)) else {
            return Load::default();
        };
        let active = self.shares * self.activity;
        Load { outstanding: active * anchor, active, shares: self.shares, ..Load::default() }
    }

    /// The latency of the whole cluster, by the flow of this host alone (`own`) and of all that are heard. Who hears nobody corrects its own
    /// by the usual ratio, as data that lie elsewhere on the array see other latencies at the same load.
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
