//! Limits: IOs and bytes per second that a VM never exceeds.
//!
//! Each rate r is a bucket with a tolerance τ. Its state is the time T up to which the rate has paid for what went:
//!
//! ```text
//! an IO goes:    T = max(T, now) + cost / r
//! none may go:   while T − τ > now
//! ```
//!
//! So in any time t at most r · (t + τ) go, and the last IO: the generic cell rate algorithm. A burst of `burst` times the rate for
//! `burst_for` is a second bucket: one with the rate and τ = (burst − 1) · burst_for, one with burst · rate and the least tolerance.
//!
//! What a limit holds back is no demand: its IOs wait beside the fair queue, and neither slice nor window knows of them. A limit lets go
//! what it has room for, and counts it when it goes to the array; until then what was let go keeps its room. Limits are looked at when
//! half of [`TOLERANCE`] is back, so that IOs go in groups. The VMs of one tenant take turns at its limit by their shares, as
//! in start-time fair queuing, where an IO costs the part of the limit that it takes.

mod aside;
mod bucket;

use crate::latency::Direction;
use crate::units::{Span, larger, smaller};

pub(crate) use self::aside::{AsideId, Limits, SharedId};
pub(crate) use self::bucket::way;

/// Tolerance of a rate without a burst: above the delay of a timer, below what a person notices.
pub const TOLERANCE: Span = Span::from_millis(10);

/// Rates of one unit per second. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Of reads and writes together.
    pub total: Option<f64>,
    /// Largest rate of reads alone.
    pub reads: Option<f64>,
    /// Largest rate of writes alone.
    pub writes: Option<f64>,
}

impl Rates {
    /// Each rate that is set, with its direction; no direction stands for both.
    pub fn each(&self) -> impl Iterator<Item = (Option<Direction>, f64)> {
        let ways = [None, Some(Direction::Read), Some(Direction::Write)];
        let rates = [self.total, self.reads, self.writes];
        ways.into_iter().zip(rates).filter_map(|(way, rate)| Some((way, rate?)))
    }

    fn times(self, part: f64) -> Rates {
        let Rates { total, reads, writes } = self;
        let [total, reads, writes] = [total, reads, writes].map(|rate| Some(rate? * part));
        Rates { total, reads, writes }
    }

    fn or_less(self, other: Rates) -> Rates {
        let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(smaller);
        Rates {
            total: least(self.total, other.total),
            reads: least(self.reads, other.reads),
            writes: least(self.writes, other.writes),
        }
    }

    /// The largest part of a rate that reads and writes of so many units a second are.
    fn used(&self, [reads, writes]: [f64; 2]) -> f64 {
        self.each().fold(0.0, |most, (way, rate)| {
            let done = match way {
                None => reads + writes,
                Some(Direction::Read) => reads,
                Some(Direction::Write) => writes,
            };
            larger(most, done / rate)
        })
    }
}

/// The most that a VM may do. The default limits nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// IOs per second. A flush is no IO, a trim or a write of zeroes is one write.
    pub iops: Rates,
    /// Bytes of data per second.
    pub bandwidth: Rates,
    /// Factor on the rates in a burst, at least 1.
    pub burst: f64,
    /// Time for which a VM that did nothing for long enough may have that.
    pub burst_for: Span,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            iops: Rates::default(),
            bandwidth: Rates::default(),
            burst: 1.0,
            burst_for: Span::ZERO,
        }
    }
}

impl Limit {
    /// Whether there is nothing that it limits.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.iops.each().chain(self.bandwidth.each()).next().is_none()
    }

    /// A part of all its rates.
    #[must_use]
    pub fn times(self, part: f64) -> Limit {
        Limit { iops: self.iops.times(part), bandwidth: self.bandwidth.times(part), ..self }
    }

    /// The lower of each of their rates, without bursts.
    #[must_use]
    pub fn or_less(self, other: Limit) -> Limit {
        Limit {
            iops: self.iops.or_less(other.iops),
            bandwidth: self.bandwidth.or_less(other.bandwidth),
            ..Limit::default()
        }
    }

    /// The largest part of a rate that so many IOs and bytes a second are, of reads and of writes.
    pub(crate) fn used(&self, ios: [f64; 2], bytes: [f64; 2]) -> f64 {
        larger(self.iops.used(ios), self.bandwidth.used(bytes))
    }
}
