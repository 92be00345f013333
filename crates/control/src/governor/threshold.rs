//! The threshold in force: votes, objectives, the search, and the answer to an outsider.

use super::Governor;
use crate::cluster::{Load, Report, Source, Thresholds, Totals};
use crate::forecast::Outlook;
use crate::io::Costs;
use crate::law::{Estimation, Mode};
use crate::mechanism::{Mechanism, on};
use crate::objective::{Price, Wants, strictest};
use crate::rate::Weight;
use crate::settings::Ballot;
use crate::threshold::{Learner, Observation, Why};
use crate::units::Span;

/// Part of its largest window from which on a host's outstanding IOs are much, so that they say something about the threshold.
const LARGE: f64 = 0.25;

/// Periods after a change of the unit in which what hosts report is partly counted in the unit of before.
const MIXED: u32 = 2;

impl Governor {
    /// Counts votes ([`crate::settings`]), and sets the threshold in force. Only `mode = "parda"`, acting or
    /// observing, follows the votes; other modes use their own configuration.
    pub(super) fn agree(&mut self) {
        let own = self.config.settings();
        let before = self.settings.costs;
        let number = self.learner.is_none().then_some(self.config.law.threshold);
        let mut ballot = self.others;
        let law = &self.config.law;
        let follows =
            matches!(law.mode, Mode::Parda | Mode::Observe) && law.estimation == Estimation::Global;
        if !follows || !on(Mechanism::Votes) {
            ballot = Ballot::default();
        }
        ballot.add(Some(own), number, self.shares);
        self.settings = ballot.settings().unwrap_or(own);
        if self.counts_ios {
            self.settings.costs = None;
        }
        if self.settings.costs != before {
            self.convert(before);
        }
        let voted = number.and_then(|number| ballot.threshold.winner().or(Some(number)));
        let threshold = voted.or(self.learner.as_ref().map(Learner::threshold));
        self.own = threshold.unwrap_or(self.config.law.threshold);
        let floor = self.asked.floor.max(self.config.objective_floor);
        let asks = strictest(self.asked.least, self.wants.asks);
        // A host of a version without objectives would take the throughput that the others leave.
        let asks = asks.filter(|_| follows && !self.asked.unheard);
        self.law.set_threshold(self.effect.in_force(self.own, asks, floor));
    }

    /// Counts in other slots from now on. The window is converted by what this host's IOs cost in the mean, so that as many of them stay
    /// outstanding; sums over the cluster by the mean of all. `before`: the costs until now.
    fn convert(&mut self, before: Option<Costs>) {
        let now = self.settings.costs;
        let [own, all] = self.flows.map(|flows| {
            let mean = |costs: Option<Costs>| costs.map_or(1.0, |costs| costs.mean(&flows));
            if flows.all().ios > 0.0 { (mean(before), mean(now)) } else { (1.0, 1.0) }
        });
        self.unit = own.1;
        self.law.convert(own.1 / own.0, all.1 / all.0, self.unit);
        self.absent.convert(all.1 / all.0);
        self.weight = Weight::default();
        self.outlook = Outlook::default();
        self.mixed = MIXED;
    }

    /// Sets the threshold that the host's VMs with an objective ask for. Returns it with the floor, to be published.
    pub fn want(&mut self, wants: Wants) -> Wants {
        self.wants = Wants { floor: self.config.objective_floor, ..wants };
        self.agree();
        self.wants
    }

    /// The volume's own threshold, which is in force while no VM's objective is.
    #[must_use]
    pub fn own_threshold(&self) -> Span {
        self.own
    }

    /// Cost of the objective in force, if there is one.
    #[must_use]
    pub fn objective_price(&self) -> Option<Price> {
        self.effect.price(self.own)
    }

    /// Moves the threshold by the throughput of all hosts in the period that ends, if it is searched for.
    pub(super) fn learn(&mut self, totals: &Totals, source: Source, own: &Report) {
        // Light load says nothing about the threshold, unless it is large beside the largest window.
        let large = own.outstanding >= LARGE * self.law.bounds().1;
        let Some(learner) = &mut self.learner else { return };
        let law = self.law.config();
        let governs = matches!(law.mode, Mode::Parda);
        if !governs || law.estimation == Estimation::Local {
            learner.stay(Why::Idle);
        } else if self.own != law.threshold {
            learner.stay(Why::Objective);
        } else if source != Source::Cluster {
            learner.stay(Why::Silent);
        } else {
            let heard = totals.flows.heard(self.settings.signal);
            let Load { outstanding, in_use, wants, windows, rate, .. } = totals.governed;
            let (throughput, class) = totals.backlog.judged(own.wants(), rate, &totals.flows);
            let seen = heard.scaled_mean().map(|latency| Observation {
                throughput,
                total: rate,
                class,
                in_use: in_use && (wants || large),
                latency,
                outstanding,
                windows,
                least: law.cluster_min * self.unit,
            });
            let pinned = self.others.threshold.winner();
            learner.period(&Thresholds { pinned, ..totals.thresholds }, seen.as_ref());
        }
        self.agree();
    }
}
