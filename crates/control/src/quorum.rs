//! Whether the hosts that are heard are enough to take them for the cluster.
//!
//! Hosts that fall silent are dead, or cut off. Who stays cannot tell by what it hears: but the load of
//! a dead host is gone, and one that is cut off still loads the array. If the survivors then share the
//! array among themselves, in the first case they do right. In the second each side holds the latency
//! of its own IOs at the threshold, and by the least difference between these latencies one side pushes
//! the other out. So it goes by shares, as a vote does: those that have more than half of all shares
//! are the cluster, and go on without the others. The others, of whom there are at most half, keep their
//! window per share of the first periods apart as their anchor ([`crate::law`]), and use their own latency,
//! divided by its usual ratio to the cluster's mean: hosts whose data lie elsewhere on the array see other
//! latencies at the same load.

use crate::cluster::View;
use crate::latency::Flow;

/// Periods that the mean ratio of the host's own latency to the cluster's is over, at most.
const REMEMBERED: f64 = 20.0;

/// Latest periods that are left out of that ratio: a report heard in them may have been an old one.
const DOUBTED: usize = 4;

/// Periods after which silent hosts are no part of the cluster any more.
const FORGOTTEN: u32 = 3600;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Quorum {
    /// Shares of all hosts that are known to be, this one among them. `None` before any was heard.
    known: Option<f64>,
    /// Number of periods since when this host has been apart from the cluster, or heard nothing.
    apart: u32,
    /// One's own latency over the cluster's, and over how many periods.
    ratio: f64,
    periods: f64,
    /// There was somebody to compare it with.
    compared: bool,
    /// One's own latency over the cluster's in each of the last periods, latest last; `None` where nobody
    /// was heard. They do not count yet: a host that falls silent is still heard, by its last report, until
    /// it is found to be silent.
    recent: [Option<f64>; DOUBTED],
}

impl Quorum {
    /// Counts the hosts that are heard in a period. `own`: the host's shares. `observing`: whether hosts that
    /// observe count as part of the cluster.
    pub fn hear(&mut self, own: f64, view: &View, observing: bool) {
        let View::Peers(peers) = view else {
            self.apart = self.apart.saturating_add(1);
            return;
        };
        let others = if observing { peers.observing.shares } else { 0.0 };
        let heard = own + peers.governed.shares + others;
        let all = heard + peers.missing;
        let known = match self.known {
            Some(known) if (1..=FORGOTTEN).contains(&self.apart) => known.max(all),
            _ => all,
        };
        self.known = Some(known);
        let whole = heard >= known || 2.0 * heard > known;
        self.apart = if whole { 0 } else { self.apart.saturating_add(1) };
    }

    /// Whether the cluster was heard at least once.
    #[must_use]
    pub fn knows(&self) -> bool {
        self.known.is_some()
    }

    /// Number of periods since when the host has been apart from the cluster; 0 if it is not.
    #[must_use]
    pub fn apart(&self) -> u32 {
        self.apart
    }

    /// Compares this host's latency with the cluster's, in a period in which all hosts were heard.
    pub fn compare(&mut self, own: &Flow, all: &Flow) {
        let (Some(own), Some(all)) = (own.scaled_mean(), all.scaled_mean()) else { return };
        if own <= 0.0 || all <= 0.0 {
            return;
        }
        if let Some(ratio) = self.recent[0] {
            self.periods = (self.periods + 1.0).min(REMEMBERED);
            self.ratio += (ratio - self.ratio) / self.periods;
        }
        self.recent.rotate_left(1);
        self.compared |= own < 0.999 * all || own > 1.001 * all;
        self.recent[DOUBTED - 1] = Some(own / all);
    }

    /// Whether others were heard, but for too few periods to know the ratio of this host's latency to the cluster's.
    #[must_use]
    pub fn is_strange(&self) -> bool {
        self.compared && self.periods < 0.5 * REMEMBERED
    }

    /// Drops the latest comparisons, as a host is missing: what was heard of it last was old.
    pub fn doubt(&mut self) {
        self.recent = [None; DOUBTED];
    }

    /// What the latency of the cluster would be by one's own. A ratio of few periods counts for little:
    /// while windows rise, one's own latency is newer than that of the others.
    #[must_use]
    pub fn estimate(&self, own: Flow) -> Flow {
        let ratio = 1.0 + (self.ratio - 1.0) * self.periods / REMEMBERED;
        Flow { latency: own.latency / ratio, scaled: own.scaled / ratio, ..own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Load, Totals};

    fn peers(shares: f64, missing: f64) -> View {
        let governed = Load { shares, ..Load::default() };
        View::Peers(Totals { governed, missing, ..Totals::default() })
    }

    /// Number of periods apart after each of the views.
    fn apart<const N: usize>(own: f64, views: [View; N]) -> [u32; N] {
        let mut quorum = Quorum::default();
        views.map(|view| {
            quorum.hear(own, &view, false);
            quorum.apart()
        })
    }

    #[test]
    fn who_is_alone_is_the_cluster() {
        let alone = || peers(0.0, 0.0);
        assert_eq!(apart(1000.0, [alone(), alone(), View::Silent, alone()]), [0, 0, 1, 0]);
    }

    #[test]
    fn more_than_half_of_the_shares_go_on_without_the_others() {
        let views = || [peers(3000.0, 0.0), peers(2000.0, 1000.0), peers(1000.0, 2000.0)];
        assert_eq!(apart(1000.0, views()), [0, 0, 1]);
        assert_eq!(apart(1001.0, views()), [0, 0, 0]);
    }

    #[test]
    fn who_is_forgotten_by_the_exchange_is_still_missing() {
        let views = [peers(3000.0, 0.0), peers(0.0, 3000.0), peers(0.0, 0.0), View::Silent];
        assert_eq!(apart(1000.0, views), [0, 1, 2, 3]);
        let views =
            [peers(3000.0, 0.0), peers(1000.0, 2000.0), peers(1000.0, 0.0), peers(3000.0, 0.0)];
        assert_eq!(apart(1000.0, views), [0, 1, 2, 0], "they are back");
    }

    #[test]
    fn who_says_goodbye_is_not_missing() {
        assert_eq!(apart(1000.0, [peers(3000.0, 0.0), peers(0.0, 0.0)]), [0, 0]);
    }

    #[test]
    fn who_never_heard_anybody_is_apart() {
        assert_eq!(apart(1000.0, [View::Silent, View::Silent, peers(0.0, 0.0)]), [1, 2, 0]);
    }

    #[test]
    fn a_cluster_that_does_not_come_back_is_forgotten() {
        let mut quorum = Quorum::default();
        quorum.hear(1000.0, &peers(3000.0, 0.0), false);
        quorum.hear(1000.0, &peers(0.0, 3000.0), false);
        let periods = (2..10_000).find(|_| {
            quorum.hear(1000.0, &peers(0.0, 0.0), false);
            quorum.apart() == 0
        });
        assert_eq!(periods, Some(3602));
    }

    #[test]
    fn ones_own_latency_stands_for_the_clusters() {
        let flow = |latency| Flow { ios: 100.0, latency, scaled: latency, ..Flow::default() };
        let mut quorum = Quorum::default();
        assert_eq!(quorum.estimate(flow(3.0)), flow(3.0));
        for _ in 0..50 {
            quorum.compare(&flow(3.3), &flow(3.0));
        }
        quorum.compare(&flow(0.0), &flow(3.0));
        let scaled = quorum.estimate(flow(6.6)).scaled;
        assert!((scaled - 6.0).abs() < 1e-9, "{scaled}");
    }
}
