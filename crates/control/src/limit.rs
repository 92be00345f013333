//! Limits: IOs and bytes per second that a VM never exceeds.
//!
//! Each rate is a leaky bucket, as in QEMU. A bucket with the rate r and the tolerance τ has one state: the time T up to which the rate has
//! paid for the IOs that went:
//!
//! ```text
//! an IO goes:    T = max(T, now) + cost / r
//! none may go:   while T − τ > now
//! ```
//!
//! So any time t admits at most r · (t + τ), and the last IO: the generic cell rate algorithm. (T − now) · r is the level of the bucket. τ
//! · r is its size: a tenth of a second of the rate. A burst of `most` a second for `length` makes the size `most` · `length`. For a burst
//! of more than a second, a second bucket of the usual size enforces `most`. A burst that is used throughout lasts `length` · `most` /
//! (`most` − r).
//!
//! IOs that a limit holds back are no demand: they wait beside the fair queue, and neither slice nor window counts them. A limit releases
//! IOs that it has room for, and counts them when they go to the array. Until then released IOs keep their room. Limits are checked when 5
//! ms of the rate are back, so that IOs go in groups. The VMs of one tenant take turns at its limit by their shares, as in start-time fair
//! queuing. There, an IO costs the part of the limit that it takes.

mod aside;
mod bucket;

use crate::latency::Direction;
use crate::units::{Span, larger, smaller};

pub(crate) use self::aside::{AsideId, Limits, SharedId};
pub(crate) use self::bucket::way;

/// Size of a bucket without a burst, in time of its rate: a tenth of a second, as in QEMU.
pub const TOLERANCE: Span = Span::from_millis(100);

/// Longest burst without a cap of its own: all of it may be used at once.
pub const UNCAPPED: Span = Span::from_millis(1000);

/// A rate, and the burst that it allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Units per second in the long run.
    pub mean: f64,
    /// Burst of a VM that did nothing for long enough.
    pub burst: Option<Burst>,
}

/// A burst: more than the rate, for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Units per second, at least as many as of the rate itself.
    pub most: f64,
    /// Time for which the VM could have them, did the bucket not leak meanwhile.
    pub length: Span,
}

/// A rate without a burst.
impl From<f64> for Rate {
    fn from(mean: f64) -> Rate {
        Rate { mean, burst: None }
    }
}

impl Rate {
    fn times(self, part: f64) -> Rate {
        let burst = self.burst.map(|burst| Burst { most: burst.most * part, ..burst });
        Rate { mean: self.mean * part, burst }
    }

    /// The buckets that hold it, each a rate and a tolerance: that of the rate, and that of its burst.
    fn buckets(self) -> [Option<(f64, Span)>; 2] {
        let Some(Burst { most, length }) = self.burst else {
            return [Some((self.mean, TOLERANCE)), None];
        };
        let whole = Span::from_secs(length.secs() * most / self.mean);
        [Some((self.mean, whole.max(TOLERANCE))), (length > UNCAPPED).then_some((most, TOLERANCE))]
    }
}

/// Rates of one unit per second. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Largest rate of reads and writes together.
    pub total: Option<Rate>,
    /// Largest rate of reads alone.
    pub reads: Option<Rate>,
    /// Largest rate of writes alone.
    pub writes: Option<Rate>,
}

impl Rates {
    /// Each rate that is set, with its direction; no direction stands for both.
    pub fn each(&self) -> impl Iterator<Item = (Option<Direction>, Rate)> {
        let ways = [None, Some(Direction::Read), Some(Direction::Write)];
        let rates = [self.total, self.reads, self.writes];
        ways.into_iter().zip(rates).filter_map(|(way, rate)| Some((way, rate?)))
    }

    fn times(self, part: f64) -> Rates {
        let Rates { total, reads, writes } = self;
        let [total, reads, writes] =
            [total, reads, writes].map(|rate| rate.map(|rate| rate.times(part)));
        Rates { total, reads, writes }
    }

    fn or_less(self, other: Rates) -> Rates {
        let least = |a: Option<Rate>, b: Option<Rate>| {
            let means = a.into_iter().chain(b).map(|rate| rate.mean);
            means.reduce(smaller).map(Rate::from)
        };
        Rates {
            total: least(self.total, other.total),
            reads: least(self.reads, other.reads),
            writes: least(self.writes, other.writes),
        }
    }

    /// Largest used fraction of a rate at so many units a second of reads and writes.
    fn used(&self, [reads, writes]: [f64; 2]) -> f64 {
        self.each().fold(0.0, |most, (way, rate)| {
            let done = match way {
                None => reads + writes,
                Some(Direction::Read) => reads,
                Some(Direction::Write) => writes,
            };
            larger(most, done / rate.mean)
        })
    }
}

/// The most that a VM may do. The default limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limit {
    /// IOs per second. A flush is no IO, a trim or a write of zeroes is one write.
    pub iops: Rates,
    /// Bytes of data per second.
    pub bandwidth: Rates,
    /// Bytes from which on an IO counts as several: one of n bytes as n / `io_size`.
    pub io_size: Option<f64>,
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

    /// The lower of each of their rates, without bursts, of IOs that count as one each.
    #[must_use]
    pub fn or_less(self, other: Limit) -> Limit {
        Limit {
            iops: self.iops.or_less(other.iops),
            bandwidth: self.bandwidth.or_less(other.bandwidth),
            ..Limit::default()
        }
    }

    /// Largest used fraction of a rate, at these IOs and bytes a second of reads and of writes.
    pub(crate) fn used(&self, ios: [f64; 2], bytes: [f64; 2]) -> f64 {
        larger(self.iops.used(ios), self.bandwidth.used(bytes))
    }
}
