//! Device latency: of one interval, and over intervals by eq. 1.
//!
//! Latency runs from dispatch to completion; time held in the host's own queue is no part of it.
//! Reads and writes are kept apart, because writes may be acknowledged from the array's cache and
//! RAID writes may cost several times a read.

use crate::size::{Line, Moments, SizeModel, Sums};
use crate::units::{Bytes, Span};

/// IOs whose latency the law uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Signal {
    /// Reads and writes together.
    #[default]
    All,
    /// Reads only: for arrays whose write cache hides how busy the disks are.
    Reads,
    /// Writes alone, or all IOs while no host writes.
    Writes,
}

/// IOs of one direction in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Number of completed IOs.
    pub ios: u64,
    /// Bytes that these IOs moved.
    pub bytes: Bytes,
    /// Sum of their device latencies.
    pub latency: Span,
    /// The same sum, each latency scaled to the reference size.
    pub scaled: Span,
    /// Further sums for fitting the line of latency against size.
    pub moments: Moments,
}

impl Sample {
    /// Sums over the IOs of both samples.
    #[must_use]
    pub fn plus(self, other: Sample) -> Sample {
        Sample {
            ios: self.ios + other.ios,
            bytes: Bytes(self.bytes.0 + other.bytes.0),
            latency: self.latency + other.latency,
            scaled: self.scaled + other.scaled,
            moments: self.moments.plus(other.moments),
        }
    }

    /// Mean device latency as measured, in seconds. `None` without IOs.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.ios > 0).then(|| self.latency.secs() / self.ios as f64)
    }

    fn per_second(&self, secs: f64) -> Flow {
        Flow {
            ios: self.ios as f64 / secs,
            bytes: self.bytes.0 as f64 / secs,
            latency: self.latency.secs() / secs,
            scaled: self.scaled.secs() / secs,
            sizes: Sums::of(self.ios, self.bytes, self.latency, self.moments).times(1.0 / secs),
        }
    }
}

/// Rates of one direction. Hosts may have periods of different lengths, so counts become rates before
/// they are added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Completed IOs per second.
    pub ios: f64,
    /// Bytes per second that these IOs moved.
    pub bytes: f64,
    /// Sum of their device latencies, in seconds.
    pub latency: f64,
    /// The same sum, each latency scaled to the reference size.
    pub scaled: f64,
    /// Sums for fitting the line of latency against size.
    pub sizes: Sums,
}

impl Flow {
    /// The sum of two flows.
    #[must_use]
    pub fn plus(self, other: Flow) -> Flow {
        Flow {
            ios: self.ios + other.ios,
            bytes: self.bytes + other.bytes,
            latency: self.latency + other.latency,
            scaled: self.scaled + other.scaled,
            sizes: self.sizes.plus(other.sizes),
        }
    }

    fn times(self, by: f64) -> Flow {
        Flow {
            ios: self.ios * by,
            bytes: self.bytes * by,
            latency: self.latency * by,
            scaled: self.scaled * by,
            sizes: self.sizes.times(by),
        }
    }

    /// Mean device latency scaled to the reference size, in seconds. `None` without IOs.
    #[must_use]
    pub fn scaled_mean(&self) -> Option<f64> {
        (self.ios > 0.0).then(|| self.scaled / self.ios)
    }
}

/// Rates of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flows {
    /// Rates of the reads.
    pub reads: Flow,
    /// Rates of the writes.
    pub writes: Flow,
}

impl Flows {
    /// The sums of reads and of writes.
    #[must_use]
    pub fn plus(self, other: Flows) -> Flows {
        Flows { reads: self.reads.plus(other.reads), writes: self.writes.plus(other.writes) }
    }

    /// So many times as much.
    pub(crate) fn times(self, by: f64) -> Flows {
        Flows { reads: self.reads.times(by), writes: self.writes.times(by) }
    }

    /// Rates of reads and writes together.
    #[must_use]
    pub fn all(&self) -> Flow {
        self.reads.plus(self.writes)
    }

    /// Flow that the law uses: the signal's direction if it has IOs, else both together.
    #[must_use]
    pub fn heard(&self, signal: Signal) -> Flow {
        match signal {
            Signal::Reads if self.reads.ios > 0.0 => self.reads,
            Signal::Writes if self.writes.ios > 0.0 => self.writes,
            _ => self.all(),
        }
    }
}

/// Reads and writes of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Sums over the reads.
    pub reads: Sample,
    /// Sums over the writes.
    pub writes: Sample,
}

impl Interval {
    /// Sums over the IOs of both intervals.
    #[must_use]
    pub fn plus(self, other: Interval) -> Interval {
        Interval { reads: self.reads.plus(other.reads), writes: self.writes.plus(other.writes) }
    }

    /// Rates, if the interval lasted `elapsed`; zero for no time.
    #[must_use]
    pub fn per_second(&self, elapsed: Span) -> Flows {
        let secs = elapsed.secs();
        if secs <= 0.0 {
            return Flows::default();
        }
        Flows { reads: self.reads.per_second(secs), writes: self.writes.per_second(secs) }
    }

    /// Sample that the law uses.
    #[must_use]
    pub fn heard(&self, signal: Signal) -> Sample {
        match signal {
            Signal::All => self.reads.plus(self.writes),
            Signal::Reads => self.reads,
            Signal::Writes => self.writes,
        }
    }
}

/// Gathers one interval of one host.
#[derive(Debug)]
pub struct Meter {
    model: SizeModel,
    reference: Bytes,
    interval: Interval,
    /// Lines of reads and of writes, with [`SizeModel::Learned`].
    lines: [Option<Line>; 2],
}

/// Which way an IO goes, as far as the meter cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data comes from the array.
    Read,
    /// Data goes to the array.
    Write,
}

impl Meter {
    /// A meter that scales latencies to IOs of `reference` bytes by `model`.
    #[must_use]
    pub fn new(model: SizeModel, reference: Bytes) -> Meter {
        Meter { model, reference, interval: Interval::default(), lines: [None; 2] }
    }

    /// Scales by another model, or to another size.
    pub fn scale(&mut self, model: SizeModel, reference: Bytes) {
        if (self.model, self.reference) != (model, reference) {
            *self = Meter::new(model, reference);
        }
    }

    /// Sets the lines for scaling reads and writes with [`SizeModel::Learned`]. They are fitted to the
    /// IOs of all hosts ([`Governor::lines`](crate::governor::Governor::lines)).
    pub fn learn(&mut self, lines: [Option<Line>; 2]) {
        self.lines = lines;
    }

    /// Records one completed IO. Returns its latency scaled to the reference size.
    pub fn add(&mut self, direction: Direction, size: Bytes, latency: Span) -> Span {
        let factor = self.factor(direction, size);
        self.count(direction, 1, size, latency, factor)
    }

    /// Records one completed IO whose latency is already that of the reference size.
    pub fn add_unscaled(&mut self, direction: Direction, size: Bytes, latency: Span) {
        self.count(direction, 1, size, latency, None);
    }

    /// Records completed IOs of about one size by their sums of bytes and latency: for callers that only
    /// have sums.
    pub fn add_many(&mut self, direction: Direction, ios: u64, bytes: Bytes, latency: Span) {
        if let Some(size) = bytes.0.checked_div(ios) {
            let factor = self.factor(direction, Bytes(size));
            self.count(direction, ios, bytes, latency, factor);
        }
    }

    /// Factor that scales the latency of an IO of this size to the reference; `None` without a line.
    fn factor(&self, direction: Direction, size: Bytes) -> Option<f64> {
        let line = match self.model {
            SizeModel::Off => None,
            SizeModel::Fixed(line) => Some(line),
            SizeModel::Learned => self.lines[direction as usize],
        };
        line.map(|line| line.factor(size, self.reference))
    }

    fn count(
        &mut self,
        way: Direction,
        ios: u64,
        bytes: Bytes,
        latency: Span,
        factor: Option<f64>,
    ) -> Span {
        let sample = match way {
            Direction::Read => &mut self.interval.reads,
            Direction::Write => &mut self.interval.writes,
        };
        sample.ios += ios;
        sample.bytes.0 += bytes.0;
        sample.latency += latency;
        let scaled = match factor.filter(|factor| *factor != 1.0) {
            Some(factor) => Span::from_secs(latency.secs() * factor),
            None => latency,
        };
        sample.scaled += scaled;
        let mean = |sum: u64| sum / ios.max(1);
        let moments = Moments::of(ios, Bytes(mean(bytes.0)), Span(mean(latency.0)));
        sample.moments = sample.moments.plus(moments);
        scaled
    }

    /// Ends the interval and starts the next.
    pub fn roll(&mut self) -> Interval {
        core::mem::take(&mut self.interval)
    }
}

/// CAL, the current average latency: eq. 1 over intervals, weighted by their IO counts.
///
/// Eq. 1 smooths the numerator and the denominator of the mean separately. With equal counts this is
/// CAL(t) = (1 − α) · l + α · CAL(t − 1) exactly. An interval with few IOs has little effect. Note that
/// α weighs the past.
#[derive(Clone, Debug, Default)]
pub struct Average {
    alpha: f64,
    /// Sum of samples that were too small to count so far.
    pending: (f64, f64),
    sum: f64,
    ios: f64,
}

impl Average {
    /// An average without samples. `alpha` in [0, 1].
    #[must_use]
    pub fn new(alpha: f64) -> Average {
        Average { alpha, ..Average::default() }
    }

    /// Adds the flow of an interval of `secs` seconds. Fewer IOs than `min_ios` do not move the average:
    /// their sums are kept for the next interval.
    pub fn add(&mut self, heard: &Flow, secs: f64, min_ios: u32) {
        self.pending.0 += heard.scaled * secs;
        self.pending.1 += heard.ios * secs;
        // A rate times the time that it was found over is a count only as far as floats go.
        if self.pending.1 < f64::from(min_ios.max(1)) - 1e-6 {
            return;
        }
        // The first interval is the average: there is no past to weigh.
        let past = if self.ios > 0.0 { self.alpha } else { 0.0 };
        self.sum = (1.0 - past) * self.pending.0 + past * self.sum;
        self.ios = (1.0 - past) * self.pending.1 + past * self.ios;
        self.pending = (0.0, 0.0);
    }

    /// CAL in seconds, once there is one.
    #[must_use]
    pub fn secs(&self) -> Option<f64> {
        (self.ios > 0.0 && self.sum > 0.0).then(|| self.sum / self.ios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Fit;

    fn flow(ios: u64, each: Span) -> Flow {
        let sum = Span(each.0 * ios);
        let bytes = Bytes(ios * 4096);
        let sample = Sample { ios, bytes, latency: sum, scaled: sum, ..Sample::default() };
        let interval = Interval { reads: sample, ..Interval::default() };
        interval.per_second(Span::from_millis(1000)).all()
    }

    #[test]
    fn a_rate_does_not_depend_on_how_long_it_was_counted() {
        let sample = |ios| {
            let latency = Span::from_millis(10 * ios);
            let bytes = Bytes(ios * 4096);
            Sample { ios, bytes, latency, scaled: latency, ..Sample::default() }
        };
        let flows = |reads, writes, ms| {
            Interval { reads: sample(reads), writes: sample(writes) }
                .per_second(Span::from_millis(ms))
        };
        assert_eq!(flows(100, 50, 250), flows(4000, 2000, 10_000));
        assert_eq!(flows(100, 0, 250).all().ios, 400.0);
        assert_eq!(flows(100, 0, 250).all().scaled_mean(), Some(0.010));
        assert_eq!(flows(100, 50, 0), Flows::default());
    }

    #[test]
    fn equal_counts_give_equation_one() {
        let mut cal = Average::new(0.3);
        let mut want: Option<f64> = None;
        for ms in [10, 30, 20, 50, 5] {
            cal.add(&flow(100, Span::from_millis(ms)), 1.0, 1);
            let l = ms as f64 / 1e3;
            want = Some(want.map_or(l, |past| 0.7 * l + 0.3 * past));
            assert!((cal.secs().unwrap() - want.unwrap()).abs() < 1e-12);
        }
    }

    #[test]
    fn few_ios_wait_for_more() {
        let mut cal = Average::new(0.0);
        cal.add(&flow(100, Span::from_millis(10)), 1.0, 8);
        cal.add(&flow(3, Span::from_millis(90)), 1.0, 8);
        assert!((cal.secs().unwrap() - 0.010).abs() < 1e-12);
        cal.add(&flow(5, Span::from_millis(90)), 1.0, 8);
        assert!((cal.secs().unwrap() - 0.090).abs() < 1e-12);
    }

    #[test]
    fn a_thin_interval_moves_the_average_little() {
        let mut cal = Average::new(0.5);
        cal.add(&flow(1000, Span::from_millis(10)), 1.0, 1);
        cal.add(&flow(10, Span::from_millis(100)), 1.0, 1);
        assert!(cal.secs().unwrap() < 0.011);
    }

    #[test]
    fn reads_and_writes_are_kept_apart() {
        let mut meter = Meter::new(SizeModel::Off, Bytes::kib(8));
        meter.add(Direction::Read, Bytes::kib(4), Span::from_millis(10));
        meter.add(Direction::Write, Bytes::kib(8), Span::from_millis(2));
        let interval = meter.roll();
        assert_eq!(interval.heard(Signal::Reads).mean(), Some(0.010));
        assert_eq!(interval.heard(Signal::Writes).mean(), Some(0.002));
        assert_eq!(interval.heard(Signal::All).mean(), Some(0.006));
        assert_eq!(meter.roll(), Interval::default());
    }

    #[test]
    fn sums_tell_what_each_io_would_have() {
        let at = |kib: u64| Span(4_000_000 + kib * 1024 * 50);
        let [mut each, mut sums] = [0; 2].map(|_| Meter::new(SizeModel::Learned, Bytes::kib(8)));
        for kib in [4, 16, 64, 256, 1024] {
            (0..100).for_each(|_| _ = each.add(Direction::Write, Bytes::kib(kib), at(kib)));
            sums.add_many(Direction::Write, 100, Bytes::kib(100 * kib), Span(100 * at(kib).0));
        }
        let lines = [&mut each, &mut sums].map(|meter| {
            let mut fit = Fit::default();
            fit.period(meter.roll().per_second(Span::from_millis(1000)).writes.sizes);
            meter.learn([None, fit.line()]);
            fit.line().unwrap().per_byte
        });
        assert!((lines[0] / lines[1] - 1.0).abs() < 1e-9, "{lines:?}");
        each.add(Direction::Write, Bytes::kib(512), at(512));
        sums.add_many(Direction::Write, 1, Bytes::kib(512), at(512));
        sums.add_many(Direction::Read, 0, Bytes(0), Span::ZERO);
        let (each, sums) = (each.roll(), sums.roll());
        assert_eq!((each.reads, each.writes.ios), (sums.reads, sums.writes.ios));
        let scaled = |interval: &Interval| interval.writes.scaled.secs();
        assert!((scaled(&each) - scaled(&sums)).abs() < 1e-6, "{each:?} {sums:?}");
        assert!((scaled(&sums) - at(8).secs()).abs() < 1e-4, "{sums:?}");
    }

    #[test]
    fn a_learned_line_takes_the_size_out_of_the_latency() {
        let mut meter = Meter::new(SizeModel::Learned, Bytes::kib(8));
        let at = |kib: u64| Span(4_000_000 + kib * 1024 * 50);
        meter.learn([Some(Line { per_byte: 50e-9, fixed: Span::from_millis(4) }), None]);
        for _ in 0..100 {
            meter.add(Direction::Read, Bytes::kib(128), at(128));
        }
        meter.add(Direction::Write, Bytes::kib(128), at(128));
        let Interval { reads, writes } = meter.roll();
        assert_eq!(writes.scaled, at(128), "of writes nothing is known");
        let scaled = reads.scaled.secs() / reads.ios as f64;
        assert!((scaled - at(8).secs()).abs() < 0.02 * at(8).secs(), "{scaled}");
    }
}
