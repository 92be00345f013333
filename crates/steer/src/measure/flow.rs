//! Mean number of things present over time, from counts of arrivals and departures and the sums of
//! their times.
//!
//! Of n arrivals with the sum of times Σt, the time integral up to T is n·T − Σt. Departures are
//! subtracted in the same way. Arithmetic is modulo 2^64, as only differences count.

/// Arrivals or departures: their number and the sum of their times. Has the layout of `struct flow` of
/// `bpf/block.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Number of arrivals or departures.
    pub(crate) n: u64,
    /// Sum of the times, in ns.
    pub(crate) at: u64,
}

impl Flow {
    /// Sum of both, modulo 2^64.
    pub(crate) fn plus(self, other: Flow) -> Flow {
        Flow { n: self.n.wrapping_add(other.n), at: self.at.wrapping_add(other.at) }
    }

    fn integral(self, now: u64) -> u64 {
        self.n.wrapping_mul(now).wrapping_sub(self.at)
    }
}

/// Number of things present, between readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Time, integral and flows at the previous reading.
    now: u64,
    integral: u64,
    seen: (u64, u64),
    /// Correction for IOs that were present when counting began and for events missed since. Arrivals
    /// without a departure, or (negative) departures without an arrival.
    base: i64,
    /// Mean at the previous reading.
    pub(crate) mean: f64,
}

impl Level {
    /// A level without arrivals and departures until `now`.
    pub(crate) fn since(now: u64) -> Level {
        Level { now, integral: 0, seen: (0, 0), base: 0, mean: 0.0 }
    }

    /// Mean since the previous reading. `empty` is called if nothing came or went although something
    /// seems to be present; it returns whether nothing is.
    pub(crate) fn read(
        &mut self,
        now: u64,
        came: Flow,
        went: Flow,
        empty: impl FnOnce() -> bool,
    ) -> f64 {
        let integral = came.integral(now).wrapping_sub(went.integral(now));
        let area = integral.wrapping_sub(self.integral).cast_signed();
        let elapsed = now.saturating_sub(self.now);
        let here = came.n.wrapping_sub(went.n).cast_signed();
        let still = self.seen == (came.n, went.n);
        if here < self.base || (still && here != self.base && empty()) {
            self.base = here;
        }
        (self.now, self.integral, self.seen) = (now, integral, (came.n, went.n));
        if elapsed > 0 {
            self.mean = (area as f64 / elapsed as f64 - self.base as f64).max(0.0);
        }
        self.mean
    }

    /// Whether nothing was present at the previous reading.
    pub(crate) fn is_empty(&self) -> bool {
        self.seen.0.wrapping_sub(self.seen.1).cast_signed() == self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: u64 = 5_000_000_000_000_000;

    fn flow(times: &[u64]) -> Flow {
        let at = times.iter().fold(0u64, |sum, t| sum.wrapping_add(BOOT + t));
        Flow { n: times.len() as u64, at }
    }

    #[test]
    fn the_mean_is_the_time_integral_and_carries_on_over_readings() {
        let mut level = Level::since(BOOT);
        // One is present from 10 to 60, another from 50 on.
        let mean = level.read(BOOT + 100, flow(&[10, 50]), flow(&[60]), || false);
        assert!((mean - 1.0).abs() < 1e-9, "{mean}");
        let mean = level.read(BOOT + 200, flow(&[10, 50]), flow(&[60, 175]), || false);
        assert!((mean - 0.75).abs() < 1e-9, "{mean}");
        assert!(level.is_empty());
    }

    #[test]
    fn what_was_there_before_is_not_held_against_what_comes() {
        let mut level = Level::since(BOOT);
        // Three depart whose arrivals were missed. Then one is present for half of the time.
        level.read(BOOT + 100, flow(&[]), flow(&[20, 30, 40]), || false);
        let came = flow(&[120]);
        let went = flow(&[20, 30, 40, 170]);
        let mean = level.read(BOOT + 200, came, went, || false);
        assert!((mean - 0.5).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn what_never_went_is_forgotten_once_the_device_is_empty() {
        let mut level = Level::since(BOOT);
        let came = flow(&[10]);
        assert!(level.read(BOOT + 100, came, flow(&[]), || false) > 0.8);
        assert!(level.read(BOOT + 200, came, flow(&[]), || false) > 0.99);
        assert!(level.read(BOOT + 300, came, flow(&[]), || true).abs() < 1e-9);
        assert!(level.is_empty());
    }
}
