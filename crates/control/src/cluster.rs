//! What hosts tell each other, and what follows from it.

use crate::latency::Interval;
use crate::rate::Occupancy;
use crate::units::{Bytes, Shares, Span, Window};

/// What a host says of itself once per period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// How long the interval was that this speaks of.
    pub elapsed: Span,
    /// What completed in it.
    pub interval: Interval,
    /// Mean outstanding IOs at the array, in slots, over the interval.
    pub outstanding: f64,
    /// The window from now on; 0 if there is none, as no host with a window has one of 0. Of a host
    /// that observes: what it would be.
    pub window: Window,
    /// β as used for it, in slots.
    pub beta: f64,
    /// Sum of the shares of the host's VMs.
    pub shares: Shares,
    /// The same, scaled down for VMs that use less than their slice (PARDA §3: s' = n · s / w).
    pub active: f64,
    /// Whether a law governs the window.
    pub governed: Governed,
    /// Where the latency came from that the window rests on.
    pub source: Source,
    /// The threshold from now on.
    pub threshold: Span,
    /// Where that comes from.
    pub tuning: Tuning,
}

impl Report {
    /// The window that a law holds the host to.
    #[must_use]
    pub fn in_force(&self) -> Option<Window> {
        (self.governed == Governed::Yes).then_some(self.window)
    }

    /// Per second of the interval.
    fn per_second(&self, count: u64) -> f64 {
        let secs = self.elapsed.secs();
        if secs > 0.0 { count as f64 / secs } else { 0.0 }
    }

    /// The window that it would hold it to, if it did not only observe.
    #[must_use]
    pub fn would_be(&self) -> Option<Window> {
        (self.governed == Governed::Observes).then_some(self.window)
    }
}

/// Whether a law governs a host's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Governed {
    /// It is without control. It is heard, but the others do not count its IOs as theirs to share.
    #[default]
    No,
    /// Yes.
    Yes,
    /// No, but it finds what its window would be, as if all hosts that do so had theirs. For the
    /// others it is without control.
    Observes,
}

/// Where the latency comes from that a window rests on, in the order of falling back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The mean over all hosts that are heard now.
    #[default]
    Cluster,
    /// The exchange is silent: one's own latency now, with the peers' as last heard.
    LastGood,
    /// One's own only: chosen so, or the exchange has been silent for too long.
    Local,
}

/// Where a host's threshold comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// It does not say: its version is older.
    #[default]
    Unsaid,
    /// It is a number that an operator gave.
    Pinned,
    /// It is found while working ([`crate::threshold`]).
    Auto,
    /// The same, but the host has just started and has not yet heard what the others have.
    Joining,
}

/// What the other live hosts whose windows a law governs say of their thresholds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// Of the first host, in the order of names' hashes, that has a number.
    pub pinned: Option<Span>,
    /// Two of them have different numbers.
    pub differ: bool,
    /// Of the first one that finds it by itself, if it comes before this host: that one leads.
    pub leader: Option<Span>,
    /// Of the first one that finds it by itself, wherever it comes.
    pub anyone: Option<Span>,
    /// What this host's own run before found, if the exchange still has it.
    pub before: Option<Span>,
    /// One of them does not say.
    pub unsaid: bool,
}

impl Thresholds {
    /// Takes in what a host says. To be called in the order of their ranks; `ahead`: it comes before
    /// this host.
    pub fn hear(&mut self, report: &Report, ahead: bool) {
        if report.governed != Governed::Yes {
            return;
        }
        match report.tuning {
            Tuning::Unsaid => self.unsaid = true,
            Tuning::Pinned => {
                let first = *self.pinned.get_or_insert(report.threshold);
                self.differ |= first != report.threshold;
            }
            Tuning::Auto => {
                self.anyone.get_or_insert(report.threshold);
                if ahead {
                    self.leader.get_or_insert(report.threshold);
                }
            }
            Tuning::Joining => {}
        }
    }
}

/// What the exchange shows at a tick.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in a period, and it is mostly large")]
pub enum View {
    /// The exchange works; this is what the other hosts that are alive said last, added up. Nothing
    /// of nobody means that this host is alone.
    Peers(Totals),
    /// The exchange does not work.
    Silent,
}

/// What the law needs of any number of hosts: the sum over them. In a large cluster every host hears
/// every other in each period, so nobody keeps their reports for the law.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// What they completed.
    pub interval: Interval,
    /// What the governed hosts have.
    pub governed: Load,
    /// What those have that observe.
    pub observing: Load,
    /// What they say of their thresholds. Not part of any sum: who hears them fills it in.
    pub thresholds: Thresholds,
}

/// What hosts have at the array.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Mean outstanding IOs, in slots.
    pub outstanding: f64,
    /// Σ of their active shares.
    pub active: f64,
    /// Whether any of them came near to using its window.
    pub in_use: bool,
    /// IO/s that they completed.
    pub rate: f64,
    /// Bytes/s that they moved.
    pub bytes: f64,
    /// Σ of their windows, in slots.
    pub windows: f64,
}

/// A host that used less than this part of its window on average was not held back by it. A window
/// may nearly double in one period, and a bursty client uses it for part of the time.
const IN_USE: f64 = 0.25;

impl Totals {
    /// Over all `reports`.
    pub fn of<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Totals {
        let mut totals = Totals::default();
        reports.into_iter().for_each(|report| totals.add(report));
        totals
    }

    /// Adds a host.
    pub fn add(&mut self, report: &Report) {
        self.interval = self.interval.plus(report.interval);
        let load = match report.governed {
            Governed::No => return,
            Governed::Yes => &mut self.governed,
            Governed::Observes => &mut self.observing,
        };
        let all = report.interval.reads.plus(report.interval.writes);
        *load = load.plus(Load {
            outstanding: report.outstanding,
            active: report.active,
            in_use: report.outstanding >= IN_USE * report.window.0,
            rate: report.per_second(all.ios),
            bytes: report.per_second(all.bytes.0),
            windows: report.window.0,
        });
    }
}

impl Load {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Load) -> Load {
        Load {
            outstanding: self.outstanding + other.outstanding,
            active: self.active + other.active,
            in_use: self.in_use || other.in_use,
            rate: self.rate + other.rate,
            bytes: self.bytes + other.bytes,
            windows: self.windows + other.windows,
        }
    }

    /// What they had outstanding, and the slots of so many bytes that they completed per second. An
    /// IO takes one at least.
    #[must_use]
    pub fn occupancy(&self, slot: Bytes) -> Occupancy {
        let rate = (self.bytes / slot.0 as f64).max(self.rate);
        Occupancy { outstanding: self.outstanding, rate }
    }

    /// λ, the window per share at which the cluster would meet its threshold: what is outstanding
    /// now, times how much larger the latency may be, over the shares that use it. Where VMs
    /// use less than λ · shares, their active shares say so, and λ is the level of
    /// water-filling: Σ min(demand, λ · shares) = outstanding · headroom.
    #[must_use]
    pub fn level(&self, headroom: f64) -> Option<f64> {
        let level = headroom * self.outstanding / self.active;
        (self.active > 1e-6 && level.is_finite() && level > 0.0).then_some(level)
    }
}
