//! A window for a queue that takes whole numbers only.
//!
//! The gate ([`crate::gate`]) sees every IO and can hold a fraction from one to the next. The
//! kernel's queues cannot: their depth is a whole number, changed once in a while. So the depth
//! changes between the two whole numbers around the window, and what one period had too much the
//! next ones have too little: the mean over time is the window.

use crate::units::Window;

/// From windows to depths, one for each equal length of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depth {
    /// How far the depths so far fall short of the windows so far, together: within ±½.
    owed: f64,
}

impl Depth {
    /// The depth for the next length of time, of those that the queue can have. A window outside
    /// them is not made up for afterwards: nobody asked the queue for what it cannot do.
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

#[cfg(test)]
mod tests {
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
    fn what_a_queue_cannot_have_is_not_made_up_for() {
        let mut depth = Depth::default();
        (0..100).for_each(|_| assert_eq!(depth.next(Window(0.1), 4, 16), 4));
        // At once, and not only after what was too much has been paid back.
        assert_eq!(depth.next(Window(9.0), 4, 16), 9);
        (0..100).for_each(|_| assert_eq!(depth.next(Window(1e9), 4, 16), 16));
        assert_eq!(depth.next(Window(5.0), 4, 16), 5);
        assert_eq!(depth.next(Window(f64::INFINITY), 4, 16), 16);
        assert_eq!(depth.next(Window(f64::NAN), 4, 16), 16);
        assert_eq!(depth.next(Window(2.5), 7, 7), 7);
    }
}
