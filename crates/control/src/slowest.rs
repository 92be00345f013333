//! How long the IOs of the slowest VM take: what cheap IOs cannot hide.
//!
//! The mean over all IOs is the mean of those who do many, and those are the cheap ones: streams that
//! are prefetched, writes into a cache, hits. With enough of them the mean stays at the threshold while
//! everybody who waits for drives waits for several times that. So all IOs of each VM are looked at by
//! themselves, and its reads once more, which its writes into a cache would hide. Each of these is a
//! *class*, and the slowest class may take [`ALLOWED`] times the threshold. Where all wait alike, no
//! class is slower than the mean by so much.
//!
//! Three things would make a class look slow that is not:
//!
//! - Chance. A mean of few IOs is off by its standard error, and the largest of many means is so for
//!   sure: of n means by up to √(2 ln n) standard errors. What is more than √(3.5 ln n) of them above the
//!   threshold counts. Chance is no more on top of what is allowed anyhow: the larger of the two is taken off.
//!   IOs of earlier periods count as well where one period has few. Their latencies are scaled by the
//!   fourth root of what the law did to the windows since: without, the law would act on its own past
//!   and swing; by more, it would take what it hoped for as seen, and be slow. Where the mean over all
//!   IOs has changed by more than a quarter since the last period, earlier ones say nothing.
//! - IOs that take long by themselves. Of a class whose fastest IO of at least its mean size takes more
//!   than `HEAVY` of the threshold, only what is above that fastest IO waits, and goes down with the mean
//!   over all IOs. Where the mean would have to be less than `VAIN` of the threshold for such a
//!   class, everybody would pay for what cannot be had, and the class does not count.
//! - A single period. The slowest class halves the windows in a period at most.

use crate::units::{Bytes, Span};

/// What a host says of its slowest class is this many times the latency that the law is to take for it.
pub const TOLERATED: f64 = 1.12;

/// How many times the threshold the slowest class's mean latency may be. Less than the 1.25 that is promised.
const ALLOWED: f64 = 1.2;

/// A class whose fastest IO takes this part of the threshold takes much of its time by itself.
const HEAVY: f64 = 0.25;

/// Such a class counts in full if the mean over all IOs would have to be this part of the threshold or
/// more for it to be as fast as it should, and not at all if it would have to be less than `VAIN` of it.
const WORTH: f64 = 0.5;
const VAIN: f64 = 0.3;

/// What the slowest class says is at most so many times the threshold.
const AT_ONCE: f64 = 2.0;

/// So many IOs are taken to deviate by the mean, besides those that were seen.
const ALIKE: f64 = 32.0;
/// IOs of earlier periods count as long as a period has fewer than this.
const ENOUGH: f64 = 1000.0;
/// And by so much, from period to period.
const PAST: f64 = 0.9;
/// By how much windows shrink and grow in a period, as far as latencies of earlier ones are scaled.
const SCALED: (f64, f64) = (1.0 / 16.0, 16.0);
/// The fastest IO is forgotten by this much in a period.
const FORGETS: f64 = 1.002;

/// What a host says of the slowest of its classes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slowest {
    /// Mean latency of its IOs, less what is chance. Zero: none counts.
    pub latency: Span,
    /// How many VMs had IOs in the interval.
    pub vms: u32,
}

impl Slowest {
    /// Of two classes of one VM.
    #[must_use]
    pub fn of_vm(classes: [Slowest; 2]) -> Slowest {
        let [one, other] = classes;
        Slowest { latency: one.latency.max(other.latency), vms: one.vms.max(other.vms) }
    }

    /// Of two VMs, or two hosts.
    #[must_use]
    pub fn or(self, other: Slowest) -> Slowest {
        Slowest {
            latency: self.latency.max(other.latency),
            vms: self.vms.saturating_add(other.vms),
        }
    }
}

/// What classes are measured by in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The threshold.
    pub threshold: Span,
    /// The mean over all IOs, in seconds, if there is one.
    pub mean: Option<f64>,
    /// How many VMs of the cluster had IOs in the last period.
    pub vms: u32,
    /// The windows in this period over those in the one before.
    pub moved: f64,
    /// The array is another one than it was: earlier periods say nothing.
    pub anew: bool,
}

impl Scale {
    /// By how many standard errors the largest of the means of all VMs is likely to be off.
    fn errors(&self) -> f64 {
        libm::sqrt(3.5 * libm::log(f64::from(self.vms.max(4))))
    }
}

/// The latency that the law holds at the threshold, in seconds: the mean over all IOs, or what the
/// slowest class says, if that is more.
#[must_use]
pub fn with_mean(mean: f64, slowest: Span, threshold: Span) -> f64 {
    mean.max((slowest.secs() / TOLERATED).min(AT_ONCE * threshold.secs()))
}

/// The latency of a class, from period to period.
#[derive(Clone, Copy, Debug)]
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
    /// IOs, seconds and seconds squared of earlier periods, fading.
    past: [f64; 3],
    /// The fastest IO of earlier periods, in seconds.
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
            past: [0.0; 3],
            fastest: f64::INFINITY,
        }
    }
}

impl Slowness {
    /// An IO that took so long.
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

    /// Ends a period. Without IOs in it nothing counts, and there is no VM.
    pub fn period(&mut self, scale: &Scale) -> Slowest {
        let (ios, sum) = (self.ios as f64, self.sum.secs());
        let [past_ios, past_sum, past_squares] = self.past;
        let keep = if past_ios > 0.0 && !scale.anew {
            ((ENOUGH - ios) / past_ios).clamp(0.0, PAST)
        } else {
            0.0
        };
        let moved = libm::sqrt(libm::sqrt(scale.moved.clamp(SCALED.0, SCALED.1)));
        let squares = self.squares + keep * moved * moved * past_squares;
        self.past = [ios + keep * past_ios, sum + keep * moved * past_sum, squares];
        self.fastest *= FORGETS;
        if self.ios == 0 {
            return Slowest::default();
        }
        if self.least < Span(u64::MAX) {
            self.fastest = self.fastest.min(self.least.secs());
        }
        self.large = Bytes(self.bytes / self.ios);
        (self.ios, self.bytes, self.sum, self.squares) = (0, 0, Span::ZERO, 0.0);
        self.least = Span(u64::MAX);
        let [ios, sum, squares] = self.past;
        let mean = sum / ios;
        // Of few IOs nobody knows how much they deviate: a few more are taken to do so by the mean.
        let variance = (squares - mean * sum).max(0.0) + ALIKE * mean * mean;
        let error = libm::sqrt(variance / (ios + ALIKE) / ios);
        // What is chance is no more on top of what is allowed anyhow: a mean of few IOs may be further off.
        let sure = (mean / ALLOWED).min((mean - scale.errors() * error).max(0.0));
        let latency = self.counts(mean, TOLERATED * sure, scale);
        Slowest { latency: Span::from_secs(latency), vms: 1 }
    }

    /// What of a latency can be the windows' fault. `mean`: of the class; `says`: what it would say.
    fn counts(&self, mean: f64, says: f64, scale: &Scale) -> f64 {
        let threshold = scale.threshold.secs();
        let fastest = if self.fastest.is_finite() { self.fastest } else { 0.0 };
        let (Some(all), true) = (scale.mean, fastest > HEAVY * threshold) else { return says };
        // What waits goes down with the mean over all IOs, and what an IO takes by itself does not. So this
        // is what the mean would have to be.
        let (waits, may) = (mean - fastest, (ALLOWED * threshold - fastest).max(0.0));
        let needs = if waits > 0.0 { all * may / waits } else { threshold };
        let counts = ((needs / threshold - VAIN) / (WORTH - VAIN)).clamp(0.0, 1.0);
        let as_all = TOLERATED * all;
        if says > as_all { as_all + counts * (says - as_all) } else { says }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale {
        threshold: Span::from_millis(30),
        mean: Some(0.030),
        vms: 8,
        moved: 1.0,
        anew: false,
    };

    fn after(periods: u32, latencies_ms: &[u64], scale: Scale) -> f64 {
        let mut slowness = Slowness::default();
        let mut last = Slowest::default();
        for _ in 0..periods {
            latencies_ms.iter().for_each(|ms| slowness.add(Bytes::kib(8), Span::from_millis(*ms)));
            last = slowness.period(&scale);
        }
        last.latency.secs() * 1e3
    }

    fn about(ios: usize, mean: u64) -> alloc::vec::Vec<u64> {
        (0..ios as u64).map(|i| 2 + i * 7 % (2 * mean - 3)).collect()
    }

    fn about_ms(is: f64, expected: f64, why: &str) {
        assert!((is - expected).abs() < 1e-3, "{is} for {expected}: {why}");
    }

    #[test]
    fn many_ios_say_what_they_are_and_few_say_less() {
        let say = |ios, periods| after(periods, &about(ios, 50), SCALE) / 50.0;
        let many = TOLERATED / ALLOWED;
        assert!((say(4000, 1) / many - 1.0).abs() < 0.02, "{}", say(4000, 1));
        let mean = about(50, 50).iter().sum::<u64>() as f64 / 50.0 / 50.0;
        assert!(say(50, 1) < 0.9 * many * mean);
        assert!(say(50, 20) > 0.99 * many * mean, "but in the long run they do");
        assert_eq!(after(1, &[60], SCALE), 0.0);
    }

    #[test]
    fn the_slowest_of_many_ios_is_held_at_what_is_allowed() {
        let threshold = SCALE.threshold;
        let heard = |mean| {
            let said = Span::from_secs(after(1, &about(4000, mean), SCALE) / 1e3);
            with_mean(0.010, said, threshold) / threshold.secs()
        };
        assert!((heard(36) - 1.0).abs() < 0.02, "{}", heard(36));
        assert!(heard(41) > 1.08 && heard(32) < 0.92);
    }

    #[test]
    fn the_largest_of_many_means_is_the_larger_by_chance() {
        let say = |vms| after(1, &about(100, 50), Scale { vms, ..SCALE });
        assert!(say(4) > say(64) && say(64) > say(1024));
        assert!(say(1024) > 0.6 * 50.0);
    }

    #[test]
    fn what_earlier_periods_say_is_forgotten_where_the_load_is_another() {
        let say = |anew| {
            let mut slowness = Slowness::default();
            let mut last = Slowest::default();
            for (ms, anew) in [(90, false), (30, anew), (30, false)] {
                (0..100).for_each(|_| slowness.add(Bytes::kib(8), Span::from_millis(ms)));
                last = slowness.period(&Scale { mean: None, anew, ..SCALE });
            }
            slowness.past[1] / slowness.past[0] * last.vms as f64
        };
        assert!(say(false) > 0.040);
        assert!((say(true) - 0.030).abs() < 1e-9);
    }

    #[test]
    fn what_earlier_periods_say_moves_with_the_windows() {
        let mut slowness = Slowness::default();
        let mut tick = |ms: u64, moved| {
            (0..100).for_each(|_| slowness.add(Bytes::kib(8), Span::from_millis(ms)));
            slowness.period(&Scale { moved, vms: 4, ..SCALE }).latency.secs()
        };
        (0..50).for_each(|_| _ = tick(30, 1.0));
        let before = tick(30, 1.0);
        let halved = tick(15, 1.0 / 16.0);
        assert!((halved / before - 0.5).abs() < 0.02, "{before} {halved}");
    }

    #[test]
    fn ios_that_are_slow_by_themselves_do_not_count_or_count_in_part() {
        // The mean over all IOs is at the threshold, and is all that counts in the end.
        let mean = TOLERATED * 30.0;
        let class = |fastest: u64, mean: u64| {
            let latencies: [u64; 500] = core::array::from_fn(|i| match i % 2 {
                0 => fastest,
                _ => 2 * mean - fastest,
            });
            after(40, &latencies, SCALE)
        };
        about_ms(class(40, 50), mean, "nothing in the world makes these faster than 40 ms");
        about_ms(class(30, 100), mean, "for 36 ms the others would have to be at 3 ms");
        about_ms(class(7, 100), 100.0 * TOLERATED / ALLOWED, "these wait for others");
        about_ms(class(12, 60), 60.0 * TOLERATED / ALLOWED, "and these at 15 ms of the mean");
        let part = class(20, 60);
        assert!(mean < part && part < 0.9 * 60.0 * TOLERATED / ALLOWED, "{part}");
    }

    #[test]
    fn the_fastest_of_small_ios_says_nothing_of_large_ones() {
        let mut slowness = Slowness::default();
        (0..500).for_each(|_| slowness.add(Bytes::kib(512), Span::from_millis(300)));
        slowness.period(&SCALE);
        (0..500).for_each(|_| slowness.add(Bytes::kib(4), Span::from_millis(1)));
        (0..500).for_each(|_| slowness.add(Bytes::kib(512), Span::from_millis(300)));
        slowness.period(&SCALE);
        assert!(slowness.fastest >= 0.300, "{}", slowness.fastest);
    }

    #[test]
    fn the_slowest_counts_where_it_is_slower_and_for_twice_the_threshold_at_most() {
        let threshold = Span::from_millis(30);
        assert_eq!(with_mean(0.030, Span::ZERO, threshold), 0.030);
        assert_eq!(with_mean(0.030, Span::from_millis(32), threshold), 0.030);
        assert!((with_mean(0.001, Span::from_millis(56), threshold) - 0.050).abs() < 1e-9);
        assert_eq!(with_mean(0.001, Span::from_millis(900), threshold), 0.060);
        assert_eq!(with_mean(0.200, Span::from_millis(900), threshold), 0.200);
    }

    #[test]
    fn a_period_without_io_says_nothing() {
        let mut slowness = Slowness::default();
        (0..100).for_each(|_| slowness.add(Bytes::kib(8), Span::from_millis(50)));
        assert_eq!(slowness.period(&SCALE).vms, 1);
        assert_eq!(slowness.period(&SCALE), Slowest::default());
    }
}
