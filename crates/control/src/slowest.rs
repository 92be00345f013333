//! Latency of the slowest VM, which the mean over many cheap IOs hides.
//!
//! The mean over all IOs is dominated by VMs that complete many, and those IOs are the cheap ones: streams
//! that are prefetched, writes into a cache, cache hits. With enough cheap IOs the mean stays at the threshold
//! while a VM that waits for drives waits for several thresholds. So the latency of each VM's IOs is compared
//! by itself, and that of its reads once more, which its writes into a cache would hide. Each of these is a
//! *class*, and the slowest class may take [`ALLOWED`] times the threshold. Where all wait alike, no
//! class is slower than the mean by so much.
//!
//! A class counts with the ratio of its latency to the mean over all IOs of the same periods, and the law uses
//! the mean times the largest ratio. The ratio does not depend on how busy the array is, so it may be
//! the mean of several periods without delaying the law; and all hosts have the same ratio, whichever of them
//! hears first how busy the array is. (A latency of the slowest class beside the mean would be taken for the larger of
//! two that go up and down at different times, by each host in its own way.)
//!
//! Two things would make a class look slow that is not:
//!
//! - Chance. A mean of few IOs is off by its standard error, and the largest of many means is so for
//!   sure: of n means by up to √(2 ln n) standard errors. What is more than √(3.5 ln n) of them above the
//!   mean counts. Chance is no more on top of what is allowed anyhow: the larger of the two is taken off;
//!   and nothing for chance where the class is slower for sure by more than is allowed.
//! - IOs that take long by themselves. Of a class whose fastest IO of at least its mean size takes more
//!   than `HEAVY` of the threshold, only what is above that fastest IO waits, and goes down with the mean
//!   over all IOs. Where the mean would have to be less than `VAIN` of the threshold for such a
//!   class, everybody would pay for what cannot be had, and the class does not count.
//!
//! The slowest class halves the windows in a period at most.

use alloc::boxed::Box;

use crate::units::{Bytes, Span};

/// Factor over the threshold that the slowest class's mean latency may reach. The studies expect 1.25 at most.
pub const ALLOWED: f64 = 1.2;

/// A class whose fastest IO takes this part of the threshold takes much of its time by itself.
const HEAVY: f64 = 0.25;

/// A class above [`HEAVY`] counts in full if a mean over all IOs of this part of the threshold or more would bring
/// the class to [`ALLOWED`], and not at all if that took a mean below `VAIN` of the threshold.
const WORTH: f64 = 0.5;
const VAIN: f64 = 0.3;

/// Largest latency that the law uses because of the slowest class, in thresholds.
const AT_ONCE: f64 = 2.0;

/// IOs that are assumed to deviate by the mean, added to those that were seen.
const ALIKE: f64 = 32.0;
/// IOs of earlier periods count as long as there are fewer than this. Of a hundred IOs, among forty VMs, a third of the mean
/// would be taken for chance, and a VM with few IOs would wait for 1.3 times the threshold for ever.
const ENOUGH: f64 = 400.0;
/// Factor per period on IOs of earlier periods: the least, where there are enough, and the most. The ratio changes
/// with the windows where cheap IOs get faster and slow ones do not, so that old periods must fade.
const PAST: (f64, f64) = (0.3, 0.95);
/// IOs of earlier periods that came at more than this many times the rate of now count as if they had come at that.
/// Else a class that had a large window once, and is slow for that, would count as slow for as long as few IOs come.
const FEWER: f64 = 2.0;
/// The fastest IO is forgotten by this much in a period.
const FORGETS: f64 = 1.002;

/// What a host says of the slowest of its classes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slowest {
    /// Mean latency of its IOs.
    pub latency: Span,
    /// Factor on the mean over all IOs that the law uses because of this class. Zero: no class counts.
    pub excess: f64,
    /// How many VMs had IOs in the interval.
    pub vms: u32,
}

impl Slowest {
    /// The slower one of two classes of a VM.
    #[must_use]
    pub fn of_vm(classes: [Slowest; 2]) -> Slowest {
        let [one, other] = classes;
        Slowest { vms: one.vms.max(other.vms), ..one.or(other) }
    }

    /// The slower one of two VMs or hosts, with the number of VMs of both.
    #[must_use]
    pub fn or(self, other: Slowest) -> Slowest {
        let slower = if other.excess > self.excess { other } else { self };
        Slowest { vms: self.vms.saturating_add(other.vms), ..slower }
    }
}

/// Numbers by which the classes of a period are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Latency threshold in force.
    pub threshold: Span,
    /// The mean over all IOs of the period before the one that ends, in seconds, if there is one.
    pub mean: Option<f64>,
    /// How many VMs of the cluster had IOs in that.
    pub vms: u32,
}

impl Scale {
    /// Standard errors by which the largest of the means of all VMs is likely to be off.
    fn errors(&self) -> f64 {
        libm::sqrt(3.5 * libm::log(f64::from(self.vms.max(4))))
    }
}

/// The latency that the law holds at the threshold, in seconds: the mean over all IOs, times `excess` where that is above 1, within
/// bounds.
#[must_use]
pub fn with_mean(mean: f64, excess: f64, threshold: Span) -> f64 {
    mean.max((mean * excess).min(AT_ONCE * threshold.secs()))
}

/// Sums over the IOs of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ios: f64,
    /// Σ latency, in seconds.
    latency: f64,
    /// Σ latency², in s².
    squares: f64,
    /// Σ mean latency over all IOs of the IO's period, in seconds.
    mean: f64,
    /// Σ rate of the class in the IO's period, in IO/s.
    rate: f64,
}

/// The latency of a class, from period to period.
#[derive(Clone, Debug)]
pub struct Slowness {
    /// In this period: IOs, bytes, and the sum of the IOs' latencies.
    ios: u64,
    bytes: u64,
    sum: Span,
    /// The sum of their latencies' squares, in seconds squared.
    squares: f64,
    /// The fastest IO of at least `large` bytes.
    least: Span,
    /// The mean size in earlier periods.
    large: Bytes,
    /// Apart, as each IO would else have to fetch what only a period needs.
    earlier: Box<Earlier>,
}

/// What is known of a class from earlier periods.
#[derive(Clone, Debug)]
struct Earlier {
    /// The period before, whose mean over all IOs was found at its end; and those before that, fading.
    last: Sums,
    past: Sums,
    /// Rates of IOs in the last two periods that had any, latest first.
    rates: [f64; 2],
    /// The fastest IO, in seconds.
    fastest: f64,
}

impl Default for Slowness {
    fn default() -> Slowness {
        Slowness {
            ios: 0,
            bytes: 0,
            sum: Span::ZERO,
            squares: 0.0,
            least: Span(u64::MAX),
            large: Bytes(0),
            earlier: Box::new(Earlier {
                last: Sums::default(),
                past: Sums::default(),
                rates: [0.0; 2],
                fastest: f64::INFINITY,
            }),
        }
    }
}

impl Slowness {
    /// An IO that took so long.
    #[inline(always)]
    pub fn add(&mut self, size: Bytes, latency: Span) {
        self.ios += 1;
        self.bytes = self.bytes.saturating_add(size.0);
        self.sum += latency;
        let secs = latency.secs();
        self.squares += secs * secs;
        if size >= self.large && latency < self.least {
            self.least = latency;
        }
    }

    /// Ends a period, which was so long. Without IOs in it nothing counts, and there is no VM.
    pub fn period(&mut self, scale: &Scale, elapsed: Span) -> Slowest {
        let earlier = &mut *self.earlier;
        if let Some(mean) = scale.mean {
            earlier.fade(mean);
        }
        let ios = self.ios as f64;
        let rate = ios * ios / elapsed.secs().max(1e-9);
        earlier.last =
            Sums { ios, latency: self.sum.secs(), squares: self.squares, rate, mean: 0.0 };
        earlier.fastest *= FORGETS;
        if self.ios == 0 {
            return Slowest::default();
        }
        if self.least < Span(u64::MAX) {
            earlier.fastest = earlier.fastest.min(self.least.secs());
        }
        self.large = Bytes(self.bytes / self.ios);
        (self.ios, self.bytes, self.sum, self.squares) = (0, 0, Span::ZERO, 0.0);
        self.least = Span(u64::MAX);
        let latency = Span::from_secs(earlier.last.latency / ios);
        Slowest { latency, excess: earlier.excess(scale), vms: 1 }
    }
}

impl Earlier {
    /// Takes in the period before the one that ends, with the mean over all IOs in it.
    fn fade(&mut self, mean: f64) {
        let (past, last) = (&mut self.past, self.last);
        if last.ios > 0.0 {
            self.rates = [last.rate / last.ios, self.rates[0]];
        }
        let keep = if past.ios > 0.0 {
            ((ENOUGH - last.ios) / past.ios).clamp(PAST.0, PAST.1)
        } else {
            0.0
        };
        // A period in which a VM stops or starts has fewer IOs by that: of two the larger one.
        let now = self.rates[0].max(self.rates[1]);
        let fewer =
            if past.rate > 0.0 { (FEWER * now * past.ios / past.rate).min(1.0) } else { 1.0 };
        let keep = keep * fewer;
        past.rate = keep * fewer * past.rate + last.rate;
        past.ios = keep * past.ios + last.ios;
        past.latency = keep * past.latency + last.latency;
        past.squares = keep * past.squares + last.squares;
        past.mean = keep * past.mean + last.ios * mean;
    }

    /// Factor on the mean over all IOs that the law uses because of this class.
    fn excess(&self, scale: &Scale) -> f64 {
        let Sums { ios, latency, squares, mean: all, .. } = self.past;
        if ios <= 0.0 || all <= 0.0 {
            return 0.0;
        }
        let (mean, all) = (latency / ios, all / ios);
        // Of few IOs nobody knows how much they deviate: a few more are taken to do so by the mean.
        let variance = (squares - mean * latency).max(0.0) + ALIKE * mean * mean;
        let error = libm::sqrt(variance / (ios + ALIKE) / ios);
        // At least so many times the mean over all IOs its own take, for sure.
        let least = (mean - scale.errors() * error).max(0.0) / all;
        let allowed = mean / ALLOWED / all;
        // What is chance is no more on top of what is allowed anyhow. And a class that is slower for sure by
        // more than is allowed is slower by what it looks like.
        let slower = ((least - 1.0) / (ALLOWED - 1.0)).clamp(0.0, 1.0);
        let sure = allowed.min(least.max(1.0 + slower * (allowed - 1.0)));
        let threshold = scale.threshold.secs();
        let fastest = if self.fastest.is_finite() { self.fastest } else { 0.0 };
        if sure <= 1.0 || fastest <= HEAVY * threshold {
            return sure;
        }
        // What waits goes down with the mean over all IOs, and what an IO takes by itself does not. So this
        // is what the mean would have to be.
        let (waits, may) = (mean - fastest, (ALLOWED * threshold - fastest).max(0.0));
        let needs = if waits > 0.0 { all * may / waits } else { threshold };
        let counts = ((needs / threshold - VAIN) / (WORTH - VAIN)).clamp(0.0, 1.0);
        1.0 + counts * (sure - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { threshold: Span::from_millis(30), mean: Some(0.030), vms: 8 };
    const SECOND: Span = Span::from_millis(1000);

    /// What a class says after so many periods of such IOs, and one more.
    fn after(periods: u32, latencies_ms: &[u64], scale: Scale) -> f64 {
        let mut slowness = Slowness::default();
        let mut last = Slowest::default();
        for _ in 0..=periods {
            latencies_ms.iter().for_each(|ms| slowness.add(Bytes::kib(8), Span::from_millis(*ms)));
            last = slowness.period(&scale, SECOND);
        }
        last.excess
    }

    fn about(ios: usize, mean: u64) -> alloc::vec::Vec<u64> {
        (0..ios as u64).map(|i| 2 + i * 7 % (2 * mean - 3)).collect()
    }

    fn near(is: f64, expected: f64, why: &str) {
        assert!((is / expected - 1.0).abs() < 0.03, "{is} for {expected}: {why}");
    }

    #[test]
    fn many_ios_say_what_they_are_and_few_say_less() {
        near(after(1, &about(4000, 50), SCALE), 50.0 / 30.0 / ALLOWED, "many");
        let few = |periods| after(periods, &about(20, 90), SCALE);
        let mean = about(20, 90).iter().sum::<u64>() as f64 / 20.0 / 30.0;
        assert!(few(1) < 0.9 * mean / ALLOWED);
        near(few(20), mean / ALLOWED, "few, but in the long run they do");
        assert!(after(1, &[60], SCALE) <= 1.0, "one IO says nothing");
    }

    #[test]
    fn the_slowest_is_held_at_what_is_allowed() {
        let threshold = SCALE.threshold;
        // While the mean over all IOs is at 10 ms.
        let scale = Scale { mean: Some(0.010), ..SCALE };
        let heard = |mean| with_mean(0.010, after(9, &about(4000, mean), scale), threshold);
        near(heard(36), 0.030, "at 1.2 times the threshold");
        near(heard(42), 0.035, "above");
        near(heard(30), 0.025, "below");
        near(heard(300), 0.060, "never more than twice the threshold");
    }

    #[test]
    fn the_largest_of_many_means_is_the_larger_by_chance() {
        let say = |vms| after(1, &about(70, 50), Scale { vms, ..SCALE });
        assert!(say(4) > say(64) && say(64) > say(1024));
        assert!(say(1024) > 0.5);
    }

    #[test]
    fn an_array_that_is_busier_in_some_periods_makes_nobody_slower_than_the_mean() {
        let mut slowness = Slowness::default();
        let mut said = 0.0;
        let mut before = 0.030;
        for period in 0..40 {
            let mean = [10, 90, 41][period % 3];
            let scale = Scale { mean: Some(before), ..SCALE };
            about(2000, mean)
                .iter()
                .for_each(|ms| slowness.add(Bytes::kib(8), Span::from_millis(*ms)));
            said = slowness.period(&scale, SECOND).excess;
            before = mean as f64 / 1e3;
            if period > 20 {
                near(said, 1.0 / ALLOWED, "it is as fast as all others");
            }
        }
        assert!(said > 0.0);
    }

    #[test]
    fn ios_that_are_slow_by_themselves_do_not_count_or_count_in_part() {
        let class = |fastest: u64, mean: u64| {
            let latencies: [u64; 500] = core::array::from_fn(|i| match i % 2 {
                0 => fastest,
                _ => 2 * mean - fastest,
            });
            after(40, &latencies, SCALE)
        };
        near(class(40, 50), 1.0, "nothing in the world makes these faster than 40 ms");
        near(class(30, 100), 1.0, "for 36 ms the others would have to be at 3 ms");
        near(class(7, 100), 100.0 / 30.0 / ALLOWED, "these wait for others");
        near(class(12, 60), 60.0 / 30.0 / ALLOWED, "and these at 15 ms of the mean");
        let part = class(20, 60);
        assert!(1.0 < part && part < 0.9 * 2.0 / ALLOWED, "{part}");
    }

    #[test]
    fn the_fastest_of_small_ios_says_nothing_of_large_ones() {
        let mut slowness = Slowness::default();
        (0..500).for_each(|_| slowness.add(Bytes::kib(512), Span::from_millis(300)));
        slowness.period(&SCALE, SECOND);
        (0..500).for_each(|_| slowness.add(Bytes::kib(4), Span::from_millis(1)));
        (0..500).for_each(|_| slowness.add(Bytes::kib(512), Span::from_millis(300)));
        slowness.period(&SCALE, SECOND);
        assert!(slowness.earlier.fastest >= 0.300, "{}", slowness.earlier.fastest);
    }

    #[test]
    fn a_class_that_was_slow_when_it_had_many_ios_does_not_count_for_long_when_it_has_few() {
        let mut slowness = Slowness::default();
        let mut said = [0.0; 10];
        for _ in 0..10 {
            about(400, 90)
                .iter()
                .for_each(|ms| slowness.add(Bytes::kib(8), Span::from_millis(*ms)));
            said[0] = slowness.period(&SCALE, SECOND).excess;
        }
        near(said[0], 90.0 / 30.0 / ALLOWED, "slow");
        for said in &mut said {
            about(5, 30).iter().for_each(|ms| slowness.add(Bytes::kib(8), Span::from_millis(*ms)));
            *said = slowness.period(&SCALE, SECOND).excess;
        }
        assert!(said[1] > 2.0, "{said:?}: a period of few IOs may be the VM's last one");
        assert!(said[3..].iter().all(|said| *said <= 1.0), "{said:?}");
    }

    #[test]
    fn the_slowest_counts_where_it_is_slower_and_for_twice_the_threshold_at_most() {
        let threshold = Span::from_millis(30);
        assert_eq!(with_mean(0.030, 0.0, threshold), 0.030);
        assert_eq!(with_mean(0.030, 0.9, threshold), 0.030);
        assert!((with_mean(0.001, 50.0, threshold) - 0.050).abs() < 1e-9);
        assert_eq!(with_mean(0.001, 900.0, threshold), 0.060);
        assert_eq!(with_mean(0.200, 9.0, threshold), 0.200);
    }

    #[test]
    fn a_period_without_io_says_nothing() {
        let mut slowness = Slowness::default();
        (0..100).for_each(|_| slowness.add(Bytes::kib(8), Span::from_millis(50)));
        assert_eq!(slowness.period(&SCALE, SECOND).vms, 1);
        assert_eq!(slowness.period(&SCALE, SECOND), Slowest::default());
    }

    #[test]
    fn of_two_the_slower_one_speaks() {
        let of = |excess, ms| Slowest { latency: Span::from_millis(ms), excess, vms: 1 };
        assert_eq!(of(1.1, 40).or(of(1.3, 20)), Slowest { vms: 2, ..of(1.3, 20) });
        assert_eq!(Slowest::of_vm([of(1.3, 40), of(1.1, 50)]), of(1.3, 40));
    }
}
