//! A window for a queue with whole depths only.
//!
//! The gate ([`crate::gate`]) sees every IO and can carry a fraction from one to the next. The kernel's queues
//! cannot: their depth is a whole number, changed once in a while. So the depth alternates between the two whole
//! numbers around the window. Later periods compensate the excess of earlier ones: the mean over time is the window.
//!
//! A queue whose depth is cheap to change gets several depths a period ([`DepthSchedule`]), so that the mean is right
//! within each period.

use crate::units::{Instant, Span, Window};

/// Depths per period of a queue whose depth is cheap to change.
const SLICES: u64 = 20;

/// Shortest time between two changes of a depth: the kernel's queues take a few IOs to follow.
const SHORTEST_SLICE: Span = Span::from_millis(20);

/// Depths that a queue can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthBounds {
    /// Least depth, in outstanding IOs.
    pub least: u32,
    /// Largest depth, in outstanding IOs.
    pub most: u32,
    /// Whether the depth may change several times a second, as a change does not wait for the queue to
    /// drain.
    pub cheap: bool,
}

/// From windows to depths, one for each equal length of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depth {
    /// Sum of the windows so far less the sum of the depths so far: within ±½.
    owed: f64,
}

impl Depth {
    /// Next depth, between `least` and `most`. A window outside these bounds is not compensated later: no depth could
    /// have met it.
    pub fn next(&mut self, window: Window, least: u32, most: u32) -> u32 {
        let (low, high) = (f64::from(least), f64::from(most));
        if window.0 <= low {
            return least;
        }
        if window.0 >= high || !window.0.is_finite() {
            return most.max(least);
        }
        let wanted = window.0 + self.owed;
        // Rounds to the nearest: there is no `round` without std.
        let depth = (wanted + 0.5) as u32;
        self.owed = wanted - f64::from(depth);
        depth
    }
}

/// Times at which a depth changes, and the depths. The caller passes `now` and waits.
///
/// Each tick sets a depth. Between two ticks a depth that is cheap to change changes after each slice, a twentieth
/// of the period.
#[derive(Clone, Debug)]
pub struct DepthSchedule {
    depth: Depth,
    period: Span,
    next: Option<Instant>,
}

impl DepthSchedule {
    /// A schedule without changes until the first tick.
    #[must_use]
    pub fn new(period: Span) -> DepthSchedule {
        DepthSchedule { depth: Depth::default(), period, next: None }
    }

    /// Changes the period, from the next change on.
    pub fn set_period(&mut self, period: Span) {
        self.period = period;
    }

    /// Time for which a depth stands.
    #[must_use]
    pub fn slice(&self) -> Span {
        Span(self.period.0 / SLICES).max(SHORTEST_SLICE)
    }

    /// The depth to set now.
    pub fn depth(&mut self, window: Window, bounds: DepthBounds) -> u32 {
        self.depth.next(window, bounds.least, bounds.most)
    }

    /// A depth was set: the next change is one slice later if `again`, and otherwise at the next tick.
    pub fn changed(&mut self, now: Instant, again: bool) {
        self.next = again.then(|| now + self.slice());
    }

    /// The depth of the next length of time, of those that the queue can have; `None` where there is no window. `in_use`: whether the
    /// queue is used, without which its depth stands until the next tick.
    pub fn turn(
        &mut self,
        now: Instant,
        window: Window,
        bounds: DepthBounds,
        in_use: bool,
    ) -> Option<u32> {
        let sets = window.0.is_finite();
        self.changed(now, sets && bounds.cheap && in_use);
        sets.then(|| self.depth(window, bounds))
    }

    /// Time of the next change before the next tick.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether the depth is to change.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_mean_over_time_is_the_window() {
        for hundredths in 100..=800 {
            let window = f64::from(hundredths) / 100.0;
            let mut depth = Depth::default();
            let mut sum = 0.0;
            for n in 1..=200 {
                let next = f64::from(depth.next(Window(window), 1, 8));
                assert!((next - window).abs() < 1.0, "{next} for {window}");
                sum += next;
                assert!((sum - window * f64::from(n)).abs() <= 1.0, "{window} after {n}");
            }
        }
    }

    #[test]
    fn windows_that_move_are_followed_in_the_mean() {
        let mut depth = Depth::default();
        let (mut windows, mut depths) = (0.0, 0.0);
        for n in 0..10_000u32 {
            let window = 1.0 + 30.0 * f64::from(n % 97) / 97.0;
            windows += window;
            depths += f64::from(depth.next(Window(window), 1, 32));
            assert!((windows - depths).abs() <= 1.0);
        }
    }

    #[test]
    fn a_slice_is_a_twentieth_of_the_period_and_not_shorter_than_the_queue_follows() {
        let slice = |ms| DepthSchedule::new(Span::from_millis(ms)).slice();
        assert_eq!(slice(1000), Span::from_millis(50));
        assert_eq!(slice(250), SHORTEST_SLICE);
    }

    #[test]
    fn a_depth_that_is_not_to_change_again_stands_until_the_next_tick() {
        let mut schedule = DepthSchedule::new(Span::from_millis(1000));
        let now = Instant(0);
        assert_eq!((schedule.next(), schedule.is_due(now)), (None, false));
        schedule.changed(now, true);
        let next = now + Span::from_millis(50);
        assert_eq!(
            (schedule.next(), schedule.is_due(now), schedule.is_due(next)),
            (Some(next), false, true)
        );
        schedule.changed(next, false);
        assert!(!schedule.is_due(now + Span::from_millis(10_000)));
    }

    proptest! {
        /// Oracle: the depths so far are the windows so far, rounded, in whole numbers of a thousandth.
        #[test]
        fn depths_of_all_slices_add_up_to_the_windows(
            thousandths in proptest::collection::vec(2_000u64..9_000, 1..200),
            period in 100u64..3_000,
        ) {
            let bounds = DepthBounds { least: 2, most: 9, cheap: true };
            let mut schedule = DepthSchedule::new(Span::from_millis(period));
            let (mut now, mut windows, mut depths) = (0, 0, 0);
            for (n, &window) in thousandths.iter().enumerate() {
                let depth = schedule.depth(Window(window as f64 / 1e3), bounds);
                schedule.changed(Instant(now), true);
                if window > 2_000 {
                    (windows, depths) = (windows + window, depths + u64::from(depth) * 1_000);
                    prop_assert!(windows.abs_diff(depths) <= 501, "{windows} and {depths} after {n}");
                }
                let stands = (period * 1_000_000 / 20).max(20_000_000);
                prop_assert!(!schedule.is_due(Instant(now + stands - 1)));
                now += stands;
                prop_assert!(schedule.is_due(Instant(now)));
            }
        }
    }

    #[test]
    fn what_a_queue_cannot_have_is_not_made_up_for() {
        let mut depth = Depth::default();
        (0..100).for_each(|_| assert_eq!(depth.next(Window(0.1), 4, 16), 4));
        // At once, without paying back the excess first.
        assert_eq!(depth.next(Window(9.0), 4, 16), 9);
        (0..100).for_each(|_| assert_eq!(depth.next(Window(1e9), 4, 16), 16));
        assert_eq!(depth.next(Window(5.0), 4, 16), 5);
        assert_eq!(depth.next(Window(f64::INFINITY), 4, 16), 16);
        assert_eq!(depth.next(Window(f64::NAN), 4, 16), 16);
        assert_eq!(depth.next(Window(2.5), 7, 7), 7);
    }
}
