//! A check of the IOs that a VM sent against its limit, in every interval of time. Independent of the code that enforces
//! the limit.

use parda_control::limit::{Limit, TOLERANCE, UNCAPPED};
use parda_control::{Instant, Io, IoKind, Span};

/// One rate of a limit. Any time t admits at most rate · (t + tolerance), and the last IO.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Kind of the IOs that it counts; `None`: reads and writes.
    write: Option<bool>,
    bytes: bool,
    /// Bytes from which on an IO counts as several.
    size: Option<f64>,
    /// IOs or bytes a nanosecond.
    rate: f64,
    /// Time by which IOs may be early, in nanoseconds.
    tolerance: f64,
    /// Sum of the IOs sent, as nanoseconds at the rate.
    went: f64,
    /// Least value of `went` less the time of an IO: an interval that begins there has the least room.
    least: f64,
}

impl Rate {
    /// Counts an IO. Returns the time by which it is early; 0 or less: it may go.
    fn take(&mut self, now: Instant, io: Io) -> f64 {
        let write = io.kind != IoKind::Read;
        if self.write.is_some_and(|mine| mine != write) {
            return 0.0;
        }
        let now = now.0 as f64;
        self.least = self.least.min(self.went - now);
        let early = self.went - now - self.least - self.tolerance;
        let data = if io.kind == IoKind::Discard { 0.0 } else { io.bytes.0 as f64 };
        let ios = self.size.map_or(1.0, |size| f64::max(1.0, data / size));
        let units = if self.bytes { data } else { ios };
        self.went += units / self.rate;
        early
    }
}

/// IOs that a VM sent against each rate of its limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limited(Vec<Rate>);

impl Limited {
    /// A VM that has sent nothing yet.
    pub(crate) fn new(limit: &Limit) -> Limited {
        let least = TOLERANCE.0 as f64;
        let size = limit.io_size;
        let kinds = [(&limit.iops, false), (&limit.bandwidth, true)];
        let rates = kinds.into_iter().flat_map(|(rates, bytes)| {
            [(None, rates.total), (Some(false), rates.reads), (Some(true), rates.writes)]
                .map(|(write, rate)| (write, bytes, rate))
        });
        let rates = rates.filter_map(|(write, bytes, rate)| {
            let of = |rate: f64, tolerance: f64| {
                let rate = rate / 1e9;
                Rate { write, bytes, size, rate, tolerance, went: 0.0, least: 0.0 }
            };
            let parda_control::Rate { mean, burst } = rate?;
            let Some(burst) = burst else { return Some(vec![of(mean, least)]) };
            let more = burst.most * burst.length.0 as f64 / mean;
            let cap = (burst.length > UNCAPPED).then(|| of(burst.most, least));
            Some([Some(of(mean, more.max(least))), cap].into_iter().flatten().collect())
        });
        Limited(rates.flatten().collect())
    }

    /// Whether its VM has no limit.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts an IO that goes to the array. Returns the time by which it goes too early, if it does.
    pub(crate) fn take(&mut self, now: Instant, io: Io) -> Option<Span> {
        let early = self.0.iter_mut().map(|rate| rate.take(now, io)).fold(0.0, f64::max);
        (early >= 1.0).then_some(Span(early as u64))
    }

    /// Restarts the count after a time without a limit in force.
    pub(crate) fn restart(&mut self) {
        for rate in &mut self.0 {
            (rate.went, rate.least) = (0.0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::Bytes;
    use parda_control::limit::{Burst, Rate as Mean, Rates};

    fn reads(limited: &mut Limited, at_ms: u64, count: u32) -> Option<Span> {
        let io = Io { kind: IoKind::Read, bytes: Bytes(4096) };
        let now = Instant(0) + Span::from_millis(at_ms);
        (0..count).filter_map(|_| limited.take(now, io)).last()
    }

    #[test]
    fn an_interval_has_its_rate_its_tolerance_and_one_io() {
        let iops = Rates { total: Some(1000.0.into()), ..Rates::default() };
        let limit = Limit { iops, ..Limit::default() };
        let mut limited = Limited::new(&limit);
        assert_eq!(reads(&mut limited, 500, 101), None, "nothing went before");
        assert!(reads(&mut limited, 500, 1).is_some());
        let mut limited = Limited::new(&limit);
        let steady = (0..1000).all(|ms| reads(&mut limited, ms, 1).is_none());
        assert!(
            steady && reads(&mut limited, 1000, 101).is_none(),
            "time since the start is no credit"
        );
        assert!(reads(&mut limited, 1000, 1).is_some());
    }

    #[test]
    fn a_burst_has_its_own_rate_and_ends() {
        let burst = Some(Burst { most: 300.0, length: Span::from_millis(2000) });
        let iops = Rates { reads: Some(Mean { mean: 100.0, burst }), ..Rates::default() };
        let limit = Limit { iops, ..Limit::default() };
        let mut limited = Limited::new(&limit);
        // 300 a second for three seconds, as the 600 of the bucket leak at 100; 100 a second afterwards.
        let burst = (0..300).all(|i| reads(&mut limited, 10 * i, 3).is_none());
        assert!(burst);
        assert!((0..20).any(|i| reads(&mut limited, 3000 + 10 * i, 3).is_some()));
        let at_once = reads(&mut Limited::new(&limit), 0, 32);
        assert!(at_once.is_some(), "also in a burst 300 a second");
    }
}
