//! Raw counters of one load, reduced to a [`Point`] once the warm-up is cut.

use hdrhistogram::Histogram;

use crate::load::{ProbeLoad, Purpose};
use crate::point::{Bucket, KindMeasured, Point, TimeSlice};
use crate::steady::{Steadiness, judge};

/// Most slices of a point. They are enough to draw confidence from, and each is long enough to be independent of
/// the one before.
const SLICES: usize = 64;

/// A document has buckets of this width at least: 16 to a factor of two, so 4.4 %.
const STEPS_PER_DOUBLING: f64 = 16.0;

/// Latencies of about one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Latency that stands for all of the bin, in nanoseconds.
    pub middle: u64,
    /// Largest latency of the bin, in nanoseconds.
    pub up_to: u64,
    /// Number of IOs whose latencies are in the bin.
    pub ios: u64,
}

/// IOs of one kind, from the first on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindTotals {
    /// Number of completed IOs.
    pub ios: u64,
    /// Their latencies added up, in milliseconds.
    pub sum_ms: f64,
    /// The squares of their latencies added up.
    pub squares: f64,
    /// Largest latency, in milliseconds.
    pub max_ms: f64,
    /// Latencies by size, ascending; none is empty.
    pub bins: Vec<Bin>,
}

impl KindTotals {
    /// The IOs that completed after `earlier` was taken.
    fn since(&self, earlier: &KindTotals) -> KindTotals {
        let mut before = earlier.bins.iter().peekable();
        let mut bins = Vec::new();
        for bin in &self.bins {
            while before.next_if(|b| b.middle < bin.middle).is_some() {}
            let had = before.next_if(|b| b.middle == bin.middle).map_or(0, |b| b.ios);
            let ios = bin.ios.saturating_sub(had);
            if ios > 0 {
                bins.push(Bin { ios, ..*bin });
            }
        }
        // The largest of all may have been before; then the largest bin bounds it.
        let bound = bins.last().map_or(0.0, |bin| bin.up_to as f64 / 1e6);
        let max_ms =
            if self.max_ms > earlier.max_ms { self.max_ms } else { bound.min(self.max_ms) };
        KindTotals {
            ios: self.ios.saturating_sub(earlier.ios),
            sum_ms: self.sum_ms - earlier.sum_ms,
            squares: self.squares - earlier.squares,
            max_ms,
            bins,
        }
    }

    /// The sum of two totals.
    fn and(&self, other: &KindTotals) -> KindTotals {
        let mut bins = [self.bins.as_slice(), other.bins.as_slice()].concat();
        bins.sort_unstable_by_key(|bin| bin.middle);
        bins.dedup_by(|next, bin| {
            let same = next.middle == bin.middle;
            bin.ios += if same { next.ios } else { 0 };
            same
        });
        KindTotals {
            ios: self.ios + other.ios,
            sum_ms: self.sum_ms + other.sum_ms,
            squares: self.squares + other.squares,
            max_ms: self.max_ms.max(other.max_ms),
            bins,
        }
    }

    /// The latency that this part of the IOs does not exceed, in milliseconds.
    fn quantile_ms(&self, quantile: f64) -> f64 {
        // Only IOs in bins count: a driver's totals may be taken an IO earlier.
        let all: u64 = self.bins.iter().map(|bin| bin.ios).sum();
        let rank = ((all as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.bins.iter().find(|bin| {
            seen += bin.ios;
            seen >= rank
        });
        found.map_or(0.0, |bin| bin.middle as f64 / 1e6).min(self.max_ms)
    }

    fn measured(&self, seconds: f64, size: u64) -> Option<KindMeasured> {
        let mean_ms = (self.ios > 0).then(|| self.sum_ms / self.ios as f64)?;
        let iops = self.ios as f64 / seconds;
        Some(KindMeasured {
            ios: self.ios,
            iops,
            bytes_per_s: iops * size as f64,
            mean_ms,
            stddev_ms: (self.squares / self.ios as f64 - mean_ms * mean_ms).max(0.0).sqrt(),
            p50_ms: self.quantile_ms(0.5),
            p90_ms: self.quantile_ms(0.9),
            p99_ms: self.quantile_ms(0.99),
            p99_9_ms: self.quantile_ms(0.999),
            max_ms: self.max_ms,
            histogram: self.histogram(),
        })
    }

    /// The bins, as wide as a document has them.
    fn histogram(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        let step = |ns: u64| (ns.max(1) as f64).log2() * STEPS_PER_DOUBLING;
        let mut open = None;
        for bin in &self.bins {
            let up_to_ms = bin.up_to as f64 / 1e6;
            let of = step(bin.middle).floor() as u64;
            match buckets.last_mut().filter(|_| open == Some(of)) {
                Some(bucket) => *bucket = Bucket { up_to_ms, ios: bucket.ios + bin.ios },
                None => buckets.push(Bucket { up_to_ms, ios: bin.ios }),
            }
            open = Some(of);
        }
        buckets
    }
}

/// Counts IOs of one kind as they complete.
#[derive(Debug)]
pub struct Counter {
    histogram: Histogram<u64>,
    sum_ms: f64,
    squares: f64,
    max_ms: f64,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter::new()
    }
}

impl Counter {
    /// A counter of no IOs. Latencies are kept to three digits.
    #[must_use]
    pub fn new() -> Counter {
        let mut histogram =
            Histogram::new_with_bounds(1, 1_000_000, 3).expect("the bounds are constants that fit");
        histogram.auto(true);
        Counter { histogram, sum_ms: 0.0, squares: 0.0, max_ms: 0.0 }
    }

    /// Counts an IO by its latency, in nanoseconds.
    pub fn record(&mut self, latency: u64) {
        // The histogram grows, so that this cannot fail.
        let recorded = self.histogram.record(latency);
        debug_assert!(recorded.is_ok());
        let ms = latency as f64 / 1e6;
        self.sum_ms += ms;
        self.squares += ms * ms;
        self.max_ms = self.max_ms.max(ms);
    }

    /// All IOs that were counted.
    #[must_use]
    pub fn totals(&self) -> KindTotals {
        let bin = |value: u64, ios| Bin {
            middle: self.histogram.median_equivalent(value),
            up_to: self.histogram.highest_equivalent(value),
            ios,
        };
        let recorded = self.histogram.iter_recorded();
        KindTotals {
            ios: self.histogram.len(),
            sum_ms: self.sum_ms,
            squares: self.squares,
            max_ms: self.max_ms,
            bins: recorded.map(|it| bin(it.value_iterated_to(), it.count_at_value())).collect(),
        }
    }
}

/// Counters of a load at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadSnapshot {
    /// Since the load began, in seconds.
    pub at_s: f64,
    /// Reads since the load began.
    pub reads: KindTotals,
    /// Writes since the load began.
    pub writes: KindTotals,
    /// Bytes that were written and are in a cache only; 0 where the driver cannot tell.
    pub unwritten: u64,
}

/// The IOs between two snapshots.
fn between(earlier: &LoadSnapshot, later: &LoadSnapshot) -> TimeSlice {
    let count = |s: &LoadSnapshot| s.reads.ios + s.writes.ios;
    let sum = |s: &LoadSnapshot| s.reads.sum_ms + s.writes.sum_ms;
    let seconds = later.at_s - earlier.at_s;
    let ios = count(later).saturating_sub(count(earlier));
    let mean_ms = (ios > 0).then(|| (sum(later) - sum(earlier)) / ios as f64);
    TimeSlice { seconds, iops: ios as f64 / seconds, mean_ms }
}

/// Snapshots of one load in order of time, the first of its beginning.
#[derive(Clone, Debug)]
pub struct Recording {
    snapshots: Vec<LoadSnapshot>,
}

impl Default for Recording {
    fn default() -> Recording {
        Recording { snapshots: vec![LoadSnapshot::default()] }
    }
}

impl Recording {
    /// Appends a snapshot, unless it is no later than the last.
    pub fn push(&mut self, snapshot: LoadSnapshot) {
        if snapshot.at_s > self.seconds() {
            self.snapshots.push(snapshot);
        }
    }

    /// Time since the load began, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.snapshots.last().map_or(0.0, |last| last.at_s)
    }

    /// Number of IOs that completed.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.snapshots.last().map_or(0, |last| last.reads.ios + last.writes.ios)
    }

    /// All snapshots, in the order of time.
    #[must_use]
    pub fn snapshots(&self) -> &[LoadSnapshot] {
        &self.snapshots
    }

    /// The IOs between each two snapshots.
    #[must_use]
    pub fn slices(&self) -> Vec<TimeSlice> {
        self.snapshots.windows(2).map(|pair| between(&pair[0], &pair[1])).collect()
    }

    /// Judges whether the load is steady. Its first `least_warmup_s` seconds always count as warm-up.
    #[must_use]
    pub fn steadiness(&self, least_warmup_s: f64) -> Steadiness {
        let warm = self.snapshots.iter().take_while(|s| s.at_s < least_warmup_s).count();
        judge(&self.slices(), warm)
    }

    /// Merges each two slices into one, from the first on.
    pub fn halve(&mut self) {
        let last = self.snapshots.len() - 1;
        let mut numbers = 0..;
        self.snapshots.retain(|_| numbers.next().is_some_and(|n| n % 2 == 0 || n == last));
    }

    /// Whether an IO has completed after the warm-up, so that there is a point.
    #[must_use]
    pub fn is_measured(&self, verdict: Steadiness) -> bool {
        let ios = |snapshot: &LoadSnapshot| snapshot.reads.ios + snapshot.writes.ios;
        self.snapshots.get(verdict.warmup).is_some_and(|first| self.ios() > ios(first))
    }

    /// Reduces the recording to a point, without its warm-up. `None` if no IO completed after that.
    #[must_use]
    pub fn point(&self, load: ProbeLoad, purpose: Purpose, verdict: Steadiness) -> Option<Point> {
        let slices = self.snapshots.len().checked_sub(1 + verdict.warmup)?;
        let group = slices.div_ceil(SLICES);
        let whole = slices.checked_div(group)?;
        let from = self.snapshots.len() - 1 - whole * group;
        let (first, last) = (self.snapshots.get(from)?, self.snapshots.last()?);
        let seconds = last.at_s - first.at_s;
        let (reads, writes) = (last.reads.since(&first.reads), last.writes.since(&first.writes));
        let all = reads.and(&writes);
        let measured = |totals: &KindTotals| totals.measured(seconds, load.mix.size);
        let edges: Vec<&LoadSnapshot> = self.snapshots[from..].iter().step_by(group).collect();
        let outstanding = all.sum_ms / 1e3 / seconds;
        Some(Point {
            load,
            purpose,
            warmup_s: first.at_s,
            measured_s: seconds,
            settled: verdict.steady,
            outstanding_measured: outstanding,
            little_error: outstanding / f64::from(load.outstanding) - 1.0,
            all: measured(&all)?,
            reads: measured(&reads),
            writes: measured(&writes),
            slices: edges.windows(2).map(|pair| between(pair[0], pair[1])).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadMix;

    fn totals(bins: &[(u64, u64)], max_ms: f64) -> KindTotals {
        let bins: Vec<Bin> = bins
            .iter()
            .map(|&(ms, ios)| Bin { middle: ms * 1_000_000, up_to: ms * 1_010_000, ios })
            .collect();
        let ms = |bin: &Bin| bin.middle as f64 / 1e6;
        KindTotals {
            ios: bins.iter().map(|bin| bin.ios).sum(),
            sum_ms: bins.iter().map(|bin| ms(bin) * bin.ios as f64).sum(),
            squares: bins.iter().map(|bin| ms(bin).powi(2) * bin.ios as f64).sum(),
            max_ms,
            bins,
        }
    }

    fn load(outstanding: u32) -> ProbeLoad {
        let mix = LoadMix { size: 4096, read_percent: 50, random_percent: 100 };
        ProbeLoad { mix, outstanding }
    }

    #[test]
    fn what_was_counted_before_is_no_part_of_what_came_after() {
        let early = totals(&[(1, 10), (3, 5), (90, 1)], 90.5);
        let late = totals(&[(1, 10), (2, 70), (3, 20), (90, 1)], 90.5);
        let since = late.since(&early);
        assert_eq!(since, KindTotals { max_ms: 3.03, ..totals(&[(2, 70), (3, 15)], 0.0) });
        assert_eq!(late.since(&KindTotals::default()), late);
    }

    #[test]
    fn a_point_is_what_was_measured_after_its_warm_up() {
        let mut recording = Recording::default();
        let moment = |at_s, reads, writes| LoadSnapshot { at_s, reads, writes, unwritten: 0 };
        let slow = totals(&[(50, 100)], 50.2);
        recording.push(moment(1.0, slow.clone(), KindTotals::default()));
        let after = totals(&[(1, 900), (9, 100), (50, 100)], 50.2);
        recording.push(moment(2.0, after.clone(), totals(&[(4, 500)], 4.0)));
        recording.push(moment(2.0, KindTotals::default(), KindTotals::default()));
        let verdict = Steadiness { warmup: 1, steady: true, precision: 0.01 };
        let point = recording.point(load(4), Purpose::Depth, verdict).unwrap();
        assert_eq!((point.warmup_s, point.measured_s, point.settled), (1.0, 1.0, true));
        let reads = point.reads.unwrap();
        assert_eq!((reads.ios, reads.mean_ms, reads.max_ms), (1000, 1.8, 9.09));
        assert_eq!((reads.p50_ms, reads.p90_ms, reads.p99_ms), (1.0, 1.0, 9.0));
        assert!((reads.stddev_ms - 2.4).abs() < 1e-9, "{}", reads.stddev_ms);
        assert_eq!(point.all.iops, 1500.0);
        assert_eq!(point.all.bytes_per_s, 1500.0 * 4096.0);
        let upto: Vec<f64> = point.all.histogram.iter().map(|b| b.up_to_ms).collect();
        assert_eq!(upto, [1.01, 4.04, 9.09]);
        // 900 + 900 + 2000 ms in a second.
        assert!((point.outstanding_measured - 3.8).abs() < 1e-9);
        assert!((point.little_error + 0.05).abs() < 1e-9);
        assert_eq!(point.slices.len(), 1);
    }

    #[test]
    fn a_point_without_an_io_is_none() {
        let mut recording = Recording::default();
        let verdict = Steadiness { warmup: 0, steady: true, precision: 0.01 };
        assert!(recording.point(load(1), Purpose::Depth, verdict).is_none());
        recording.push(LoadSnapshot { at_s: 1.0, ..LoadSnapshot::default() });
        assert!(recording.point(load(1), Purpose::Depth, verdict).is_none());
    }

    #[test]
    fn many_moments_become_a_few_slices_of_one_length() {
        let mut recording = Recording::default();
        for second in 1..=100 {
            let reads = totals(&[(10, 100 * second)], 10.0);
            recording.push(LoadSnapshot { at_s: second as f64, reads, ..LoadSnapshot::default() });
        }
        let verdict = Steadiness { warmup: 3, steady: true, precision: 0.01 };
        let point = recording.point(load(1), Purpose::Depth, verdict).unwrap();
        assert_eq!((point.warmup_s, point.slices.len()), (4.0, 48));
        assert!(point.slices.iter().all(|s| s.seconds == 2.0 && s.iops == 100.0));
        recording.halve();
        assert_eq!((recording.slices().len(), recording.seconds()), (50, 100.0));
        recording.halve();
        assert!(recording.slices().iter().all(|s| s.seconds == 4.0 && s.iops == 100.0));
    }
}
