//! What hosts tell each other, and what follows from it.

use libm::{expm1, log1p};

use crate::backlog::Backlog;
use crate::latency::{Flows, Interval};
use crate::mechanism::{Mechanism, on};
use crate::objective::{Wants, strictest};
use crate::outsider::Finding;
use crate::rate::Throughput;
use crate::settings::{Ballot, Settings};
use crate::units::{Shares, Span, Window};

/// What a host says of itself once per period. The default is a host without IOs, shares and control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Length of the interval that this report covers.
    pub elapsed: Span,
    /// IOs completed in the interval.
    pub interval: Interval,
    /// Mean outstanding IOs at the array, in slots, over the interval.
    pub outstanding: f64,
    /// The window from now on; 0 if there is none, as no host with a window has one of 0. Of a host
    /// that observes: what it would be.
    pub window: Window,
    /// β of the step that computed the window, in slots.
    pub beta: f64,
    /// Sum of the shares of the host's VMs.
    pub shares: Shares,
    /// The same, scaled down for VMs that use less than their slice (PARDA §3: s' = n · s / w).
    pub active: f64,
    /// Bound of the host's outstanding IOs.
    pub bounded: Bounded,
    /// Whether a law governs the window.
    pub governed: Governed,
    /// Source of the latency that the window rests on.
    pub source: Source,
    /// The threshold that the host was told, or has found. The threshold in force may differ
    /// ([`crate::settings`]).
    pub threshold: Span,
    /// Source of that threshold.
    pub tuning: Tuning,
    /// Other settings that all hosts must have alike. `None`: its version is older.
    pub settings: Option<Settings>,
    /// Demands of its VMs with a latency objective.
    pub wants: Wants,
    /// What its VMs do that take part where throughput is balanced ([`crate::rate`]).
    pub saturated: Throughput,
    /// What its VMs with a reservation would have outstanding if nothing were short, in slots.
    pub reserved: f64,
    /// Mean pending IOs of its VMs, held and outstanding, in slots. 0: its version is older.
    pub pending: f64,
    /// Outstanding IOs of an outsider that it would keep its part beside ([`crate::outsider`]), counted in IOs. 0: there is none.
    pub beside: f64,
    /// What it finds of load that is not under control. It is not published.
    pub finding: Finding,
}

impl Report {
    /// The window that a law holds the host to.
    #[must_use]
    pub fn in_force(&self) -> Option<Window> {
        (self.governed == Governed::Yes).then_some(self.window)
    }

    /// Whether it came near to using its window.
    fn in_use(&self) -> bool {
        self.outstanding >= IN_USE * self.window.0
    }

    /// Whether it wants more than it has, for whatever reason it does not have it.
    pub(crate) fn wants(&self) -> bool {
        match self.bounded {
            Bounded::Unsaid => self.in_use(),
            Bounded::Nothing => false,
            Bounded::Slices | Bounded::Window => true,
        }
    }

    /// Casts the host's votes for settings that all hosts must have alike.
    pub fn vote(&self, ballot: &mut Ballot) {
        let number = Some(self.threshold).filter(|_| self.tuning == Tuning::Pinned);
        ballot.add(self.settings, number, self.shares);
    }

    /// The window that it would hold it to, if it did not only observe.
    #[must_use]
    pub fn would_be(&self) -> Option<Window> {
        (self.governed == Governed::Observes).then_some(self.window)
    }
}

/// Bound of a host's outstanding IOs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Bounded {
    /// Unknown: the host's version is older.
    #[default]
    Unsaid,
    /// Its VMs have what they want.
    Nothing,
    /// A VM could use more than its slice, and the host may have more than it has: a larger λ would
    /// be of use to it.
    Slices,
    /// The host has all that its largest window allows.
    Window,
}

/// Whether a law governs a host's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Governed {
    /// The host is without control. The host is heard, but the others do not count its IOs as
    /// theirs to share.
    #[default]
    No,
    /// A law sets its window, and the window is in force.
    Yes,
    /// No, but it finds what its window would be, as if all hosts that do so had theirs. For the
    /// others it is without control.
    Observes,
}

/// Liveness of another host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Liveness {
    /// Seen, but not yet seen to change: it may be alive, or have died before we came.
    #[default]
    Unproven,
    /// Its records change, as those of a living host do.
    Live,
    /// No change for a few of its periods.
    Stale,
    /// No change for so many of its periods that the host is given up.
    Gone,
    /// The host announced its stop.
    Left,
}

/// Source of the latency that a window rests on, in the order of fallback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Source {
    /// The mean over all hosts that are heard.
    #[default]
    Cluster,
    /// This host's latency, divided by its usual ratio to the cluster's mean. The hosts that are not heard stand in the sums with what
    /// they had.
    LastGood,
    /// This host's latency alone: as configured, or as no other host was ever heard.
    Local,
}

/// Where a host's threshold comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// Unknown: the host's version is older.
    #[default]
    Unsaid,
    /// A number from an operator.
    Pinned,
    /// A number found at run time ([`crate::threshold`]).
    Auto,
    /// The same, but the host has just started and has not yet heard what the others have.
    Joining,
}

/// Thresholds of the other live hosts whose windows a law governs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// The number that is in force among those that have one ([`crate::settings`]). Filled in by the
    /// [`Governor`](crate::governor::Governor), which counts the votes.
    pub pinned: Option<Span>,
    /// Threshold of the leader, if another host leads: the first one, before this host, that finds it while working.
    pub leader: Option<Span>,
    /// Threshold of the first other host that finds it while working, before or after this host.
    pub anyone: Option<Span>,
    /// Threshold that this host's previous run found, if the exchange still has it.
    pub before: Option<Span>,
    /// One of them does not say.
    pub unsaid: bool,
}

impl Thresholds {
    /// Takes in what a host says. `ahead`: it comes before this host.
    fn take(&mut self, governed: Governed, tuning: Tuning, threshold: Span, ahead: bool) {
        if governed != Governed::Yes {
            return;
        }
        match tuning {
            Tuning::Unsaid => self.unsaid = true,
            Tuning::Auto => self.take_found(threshold, ahead),
            // Numbers are voted for.
            Tuning::Pinned | Tuning::Joining => {}
        }
    }

    /// Takes in a threshold that a host found by itself.
    fn take_found(&mut self, threshold: Span, ahead: bool) {
        self.anyone.get_or_insert(threshold);
        if ahead {
            self.leader.get_or_insert(threshold);
        }
    }
}

/// Contents of the exchange at a tick.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in a period, and it is mostly large")]
pub enum View {
    /// The exchange works; this is what the other hosts that are alive said last, added up. Nothing
    /// of nobody, and nobody missing, means that this host is alone.
    Peers(Totals),
    /// The exchange does not work: it cannot be read, what this host writes does not get there, or hosts are seen
    /// there of which none is proven to live.
    Silent,
}

/// Input of the law from any number of hosts: the sum over them. In a large cluster every host hears every other in each period, so nobody
/// keeps their reports for the law.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Throughput of the hosts, per second.
    pub flows: Flows,
    /// Load of the governed hosts.
    pub governed: Load,
    /// Load of the hosts that observe.
    pub observing: Load,
    /// Votes of the governed hosts on settings that all must have alike.
    pub ballot: Ballot,
    /// Votes of the hosts that observe.
    pub observing_ballot: Ballot,
    /// Service of the hosts that want more.
    pub backlog: Backlog,
    /// Shares of the hosts under control, or that observe, that have fallen silent without saying
    /// goodbye. Not part of any sum: who hears them, or does not, fills it in.
    pub missing: f64,
    /// What they say of their thresholds. Not part of any sum: who hears them fills it in.
    pub thresholds: Thresholds,
    /// The parts of this host's own report that the others count ([`crate::belief`]). Filled in by who hears them.
    pub own: Weights,
}

/// Load of hosts at the array.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Mean outstanding IOs, in slots.
    pub outstanding: f64,
    /// Σ of their active shares.
    pub active: f64,
    /// Σ of the active shares of VMs that would use a larger λ.
    pub growing: f64,
    /// Σ of all their shares, of VMs that sleep, too.
    pub shares: f64,
    /// Whether any of them came near to using its window.
    pub in_use: bool,
    /// Whether any of them could use a larger λ.
    pub limited: bool,
    /// Whether any of them wants more than it has, for whatever reason it does not have it.
    pub wants: bool,
    /// IO/s that they completed.
    pub rate: f64,
    /// Σ of their windows, in slots.
    pub windows: f64,
    /// Demands of their VMs with a latency objective.
    pub asked: Asked,
    /// Throughput of their VMs that could use more than their slices.
    pub saturated: Throughput,
    /// Σ of outstanding slots that VMs with a reservation would have without any shortage.
    pub reserved: f64,
    /// Mean number of their pending IOs, held and outstanding, in slots.
    pub pending: f64,
    /// Σ of the shares of those that find an outsider.
    pub finders: f64,
    /// Σ of these shares · ln (1 + size of the outsider).
    pub found: f64,
}

/// Demands of hosts on behalf of VMs with a latency objective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// The least threshold that is asked for.
    pub least: Option<Span>,
    /// The largest `latency_target_min` of these hosts.
    pub floor: Span,
    /// IO/s of VMs that ask.
    pub rate: f64,
    /// One of them does not know of objectives: its version is older.
    pub unheard: bool,
}

impl Asked {
    /// Demands of the hosts of both.
    #[must_use]
    pub fn plus(self, other: Asked) -> Asked {
        Asked {
            least: strictest(self.least, other.least),
            floor: self.floor.max(other.floor),
            rate: self.rate + other.rate,
            unheard: self.unheard || other.unheard,
        }
    }
}

/// The target of a period is at most this many times the window, beyond what the cluster had outstanding at the threshold: a latency
/// far below the threshold does not say how far the window could rise.
pub(crate) const MAX_RISE: f64 = 2.0;

/// A host that used less than this part of its window on average was not held back by it. A window
/// may nearly double in one period, and a bursty client uses it for part of the time.
const IN_USE: f64 = 0.25;

impl Totals {
    /// Sums over all these reports.
    pub fn of<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Totals {
        let mut totals = Totals::default();
        reports.into_iter().for_each(|report| totals.add(report));
        totals
    }

    /// Adds the report of a host.
    pub fn add(&mut self, report: &Report) {
        self.add_part(&Part::of(report));
    }

    /// Adds this host's own report, as far as the others count it.
    pub(crate) fn add_own(&mut self, report: &Report) {
        let mut part = Part::of(report);
        part.scale(self.own);
        self.add_part(&part);
    }

    /// Takes in another host, with what it says of thresholds and its place in the backlog. To be called in the order of
    /// their ranks; `name`: a number that stands for the host, `ahead`: it comes before this one.
    pub fn hear(&mut self, part: &Part, name: u64, ahead: bool) {
        self.add_part(part);
        self.thresholds.take(part.governed, part.tuning, part.threshold, ahead);
        if part.backlogged {
            self.backlog.name(name);
        }
    }

    fn add_part(&mut self, part: &Part) {
        self.flows = self.flows.plus(part.flows);
        self.backlog = self.backlog.plus(part.backlog);
        let (load, ballot) = match part.governed {
            Governed::No => return,
            Governed::Yes => (&mut self.governed, &mut self.ballot),
            Governed::Observes => (&mut self.observing, &mut self.observing_ballot),
        };
        load.add(&part.load);
        ballot.add(part.settings, part.number(), part.shares);
    }
}

/// What a report adds to [`Totals`]. In a large cluster each report is added by all hosts, and what has to be divided for
/// that is divided once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub(crate) flows: Flows,
    pub(crate) backlog: Backlog,
    pub(crate) load: Load,
    pub(crate) settings: Option<Settings>,
    pub(crate) threshold: Span,
    pub(crate) shares: Shares,
    pub(crate) governed: Governed,
    pub(crate) tuning: Tuning,
    pub(crate) backlogged: bool,
}

impl Part {
    /// The part of the host that says this.
    #[must_use]
    pub fn of(report: &Report) -> Part {
        let flows = report.interval.per_second(report.elapsed);
        let in_use = report.in_use();
        let limited = match report.bounded {
            Bounded::Unsaid => in_use,
            Bounded::Slices => true,
            Bounded::Nothing | Bounded::Window => false,
        };
        let all = flows.all();
        let load = Load {
            outstanding: report.outstanding,
            active: report.active,
            // A steered device does not know which VMs want more.
            growing: match (limited, report.saturated.shares) {
                (false, _) => 0.0,
                (true, known) if known > 0.0 => known.min(report.active),
                (true, _) => report.active,
            },
            shares: f64::from(report.shares.0),
            in_use,
            limited,
            wants: report.wants(),
            rate: all.ios,
            windows: report.window.0,
            asked: Asked {
                least: report.wants.asks,
                floor: report.wants.floor,
                rate: report.wants.ios as f64 / report.elapsed.secs().max(1e-9),
                unheard: report.settings.is_none(),
            },
            saturated: report.saturated,
            reserved: report.reserved,
            pending: report.pending.max(report.outstanding),
            finders: if report.beside > 0.0 { f64::from(report.shares.0) } else { 0.0 },
            found: f64::from(report.shares.0) * log1p(report.beside),
        };
        Part {
            flows,
            backlog: Backlog::of(report),
            load,
            settings: report.settings,
            threshold: report.threshold,
            shares: report.shares,
            governed: report.governed,
            tuning: report.tuning,
            backlogged: report.governed == Governed::Yes && report.wants(),
        }
    }

    /// Shares of the host, if a law governs it or it observes one: what is missing where the host has fallen silent.
    #[must_use]
    pub fn counted(&self) -> Option<f64> {
        (self.governed != Governed::No).then_some(self.load.shares)
    }

    /// What the host was told that all must have alike.
    #[must_use]
    pub fn settings(&self) -> Option<Settings> {
        self.settings
    }

    /// Scales what is summed and is no number of shares.
    pub(crate) fn scale(&mut self, by: Weights) {
        if by != Weights::ALL {
            self.flows = self.flows.times(by.flows);
            self.load.scale(by.load);
            self.load.saturated.rate *= by.saturated;
            self.load.saturated.shares *= by.saturated;
        }
    }

    /// The threshold, if an operator gave it as a number.
    fn number(&self) -> Option<Span> {
        Some(self.threshold).filter(|_| self.tuning == Tuning::Pinned)
    }
}

/// Parts of a report that count: of load, of throughput and latency, and of what is saturated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    pub(crate) load: f64,
    pub(crate) flows: f64,
    pub(crate) saturated: f64,
}

impl Weights {
    /// The whole report counts.
    pub const ALL: Weights = Weights { load: 1.0, flows: 1.0, saturated: 1.0 };
}

impl Default for Weights {
    fn default() -> Weights {
        Weights::ALL
    }
}

impl Load {
    /// Sums over the hosts of both.
    #[must_use]
    pub fn plus(mut self, other: Load) -> Load {
        self.add(&other);
        self
    }

    /// Adds other hosts. In place, as a period of n hosts adds n² reports.
    fn add(&mut self, other: &Load) {
        self.outstanding += other.outstanding;
        self.active += other.active;
        self.growing += other.growing;
        self.shares += other.shares;
        self.in_use |= other.in_use;
        self.limited |= other.limited;
        self.wants |= other.wants;
        self.rate += other.rate;
        self.windows += other.windows;
        self.asked = self.asked.plus(other.asked);
        self.saturated = self.saturated.plus(other.saturated);
        self.reserved += other.reserved;
        self.pending += other.pending;
        self.finders += other.finders;
        self.found += other.found;
    }

    /// Scales what these hosts have and do. Their shares stay.
    pub(crate) fn scale(&mut self, by: f64) {
        let Load { outstanding, active, growing, rate, windows, reserved, .. } = self;
        for value in [outstanding, active, growing, rate, windows, reserved] {
            *value *= by;
        }
    }

    /// λ, the window per share at which the cluster would meet its threshold: outstanding IOs, times
    /// `headroom`, over active shares. Where VMs use less than λ · shares, their active shares say so, and λ
    /// solves Σ min(demand, λ · shares) = outstanding · headroom, as in water-filling.
    #[must_use]
    pub fn lambda(&self, headroom: f64) -> Option<f64> {
        let lambda = headroom * self.outstanding / self.active;
        (self.active > 1e-6 && lambda.is_finite() && lambda > 0.0).then_some(lambda)
    }

    /// The factor on λ at which outstanding IOs rise by `headroom`. VMs that have what they want do not rise with λ, so the
    /// others rise by more: a step of Newton's method for the water level, at most twofold unless the headroom is more.
    #[must_use]
    pub fn rise(&self, headroom: f64) -> f64 {
        if headroom <= 1.0 || self.growing <= 0.0 || !on(Mechanism::Filling) {
            return headroom;
        }
        headroom.max(MAX_RISE.min(1.0 + (headroom - 1.0) * self.active / self.growing))
    }

    /// Size of the outsider that these hosts keep their part beside, in IOs: the geometric mean by shares, so that one host alone moves it
    /// little; of those that find one, if these have most of the shares.
    #[must_use]
    pub fn beside(&self) -> f64 {
        let of = if 2.0 * self.finders > self.shares { self.finders } else { self.shares };
        if self.found > 0.0 { expm1(self.found / of) } else { 0.0 }
    }

    /// Mean window per share of these hosts: λ without headroom.
    #[must_use]
    pub fn window_per_share(&self) -> Option<f64> {
        self.lambda(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_that_want_more_rise_for_those_that_have_what_they_want() {
        let load = |growing| Load { active: 1000.0, growing, ..Load::default() };
        assert!((load(100.0).rise(1.05) - 1.5).abs() < 1e-9, "a tenth grows by half: all by 5 %");
        assert_eq!(load(1.0).rise(1.05), MAX_RISE);
        assert_eq!(load(1.0).rise(5.0), 5.0, "known to be possible");
        assert_eq!(load(1000.0).rise(1.05), 1.05);
        assert_eq!(load(1.0).rise(0.9), 0.9);
        assert_eq!(load(0.0).rise(1.05), 1.05);
    }
}
