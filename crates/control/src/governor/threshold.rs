//! The threshold in force: votes, objectives, the search, and the answer to an outsider.

use super::Governor;
use crate::cluster::{Load, Report, Source, Thresholds, Totals};
use crate::law::{Estimation, Mode};
use crate::objective::{Price, Wants, strictest};
use crate::outsider::Answer;
use crate::settings::Ballot;
use crate::threshold::{Learner, Observation, Why};
use crate::units::Span;

/// Part of its largest window from which on a host's outstanding IOs are much, so that they say something about the threshold.
const LARGE: f64 = 0.25;

impl Governor {
    /// Counts votes ([`crate::settings`]). Only `mode = "parda"`, acting or observing, takes what is
    /// voted for: the other modes do what they are told.
    pub(super) fn agree(&mut self) {
        let own = self.config.settings();
        let number = self.learner.is_none().then_some(self.config.law.threshold);
        let mut ballot = self.others;
        let law = &self.config.law;
        let follows = matches!(law.mode, Mode::Parda { .. } | Mode::Observe)
            && law.estimation == Estimation::Global;
        if !follows {
            ballot = Ballot::default();
        }
        ballot.add(Some(own), number, self.shares);
        self.settings = ballot.settings().unwrap_or(own);
        if self.counts_ios {
            self.settings.slot_size = None;
        }
        let voted = number.and_then(|number| ballot.threshold.winner().or(Some(number)));
        let threshold = voted.or(self.learner.as_ref().map(Learner::threshold));
        self.own = threshold.unwrap_or(self.config.law.threshold);
        let floor = self.asked.floor.max(self.config.objective_floor);
        let asks = strictest(self.asked.least, self.wants.asks);
        // A host that knows of no objectives would take what the others leave.
        let asks = asks.filter(|_| follows && !self.asked.unheard);
        self.law.set_threshold(self.effect.in_force(self.own, asks, floor));
    }

    /// Says what the host's VMs with an objective ask for from now on. Gives it as it is to be published.
    pub fn want(&mut self, wants: Wants) -> Wants {
        self.wants = Wants { floor: self.config.objective_floor, ..wants };
        self.agree();
        self.wants
    }

    /// The volume's own threshold: what is in force while no VM's objective is.
    #[must_use]
    pub fn own_threshold(&self) -> Span {
        self.own
    }

    /// What the objective costs that is in force, if one is.
    #[must_use]
    pub fn objective_price(&self) -> Option<Price> {
        self.effect.price(self.own)
    }

    /// Lets the threshold move by what all hosts did in the period that ends.
    pub(super) fn learn(&mut self, totals: &Totals, source: Source, own: &Report) {
        // A window that is large enough for whoever asks for little says nothing. One that is large
        // beside the largest there may be does.
        let large = own.outstanding >= LARGE * self.law.bounds().1;
        let beyond = self.beyond;
        let Some(learner) = &mut self.learner else { return };
        let law = self.law.config();
        let governs = matches!(law.mode, Mode::Parda { .. });
        if !governs || law.estimation == Estimation::Local {
            learner.stay(Why::Idle);
        } else if self.own != law.threshold {
            learner.stay(Why::Objective);
        } else if source != Source::Cluster {
            learner.stay(Why::Silent);
        } else {
            let heard = totals.flows.heard(self.settings.signal);
            let all = totals.flows.all();
            let Load { outstanding, in_use, wants, windows, .. } = totals.governed;
            let (backlog, (light_rate, light)) = (totals.backlog, totals.backlog.light());
            let own_wants = own.wants();
            let seen = heard.scaled_mean().map(|latency| Observation {
                rate: backlog.rate().unwrap_or(totals.governed.rate),
                total: totals.governed.rate,
                light_rate,
                light: if wants { light } else { 0.0 },
                who: backlog.who.wrapping_add(u64::from(own_wants)),
                used: backlog.used(),
                ios: heard.ios * own.elapsed.secs(),
                latency: latency * beyond,
                beyond,
                outstanding,
                windows,
                in_use: in_use && (wants || large),
                least: law.cluster_min * self.unit,
                size: all.bytes / all.ios,
                reads: totals.flows.reads.ios / all.ios,
            });
            let pinned = self.others.threshold.winner();
            learner.period(&Thresholds { pinned, ..totals.thresholds }, seen.as_ref());
        }
        self.agree();
    }

    /// Says where the threshold goes beside an outsider, if it is not to hold.
    pub(super) fn answer(&mut self, load: &Load) {
        let answer = self.config.outsider;
        let Some(learner) = self.learner.as_mut().filter(|_| answer != Answer::Hold) else {
            return;
        };
        let own = self.config.law.threshold.secs();
        // The law holds the slowest VM: the mean is lower by as much as that one is slower.
        let alone = own / self.beyond.max(1.0);
        let factor = self.detector.beside(alone, answer.keeps(load.active)).unwrap_or(1.0);
        learner.aim(Span::from_secs(own * factor));
    }
}
