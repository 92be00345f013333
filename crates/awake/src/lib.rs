#![forbid(unsafe_code)]
//! A clock for deadlines of peers, which stands still while this process does. Causes: a stop by a signal, a frozen cgroup or
//! virtual machine, or the lack of a processor.
//!
//! A thread notes the time every `BEAT`. In time beyond `MOST` without a note, nothing of this process ran. No answer could be
//! heard in it, so no peer was silent in it. Each such gap costs a deadline `MOST`, independent of its length.

use std::ops::{Add, Sub};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{LazyLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// Time between two notes.
const BEAT: Duration = Duration::from_millis(100);

/// Most time that counts between two notes.
pub const MOST: Duration = Duration::from_millis(250);

/// The beating thread needs next to no stack.
const STACK: usize = 64 << 10;

/// Moment of a clock that stands still while this process does. Used as [`std::time::Instant`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

/// The last note. Durations since the first use of the clock.
#[derive(Clone, Copy, Debug)]
struct Beats {
    /// When it was made.
    real: Duration,
    /// Counted part of that time.
    counted: Duration,
    /// Most that counts after it.
    most: Duration,
}

struct Clock {
    began: std::time::Instant,
    beats: RwLock<Beats>,
}

static CLOCK: LazyLock<Clock> = LazyLock::new(|| {
    let beat = || {
        loop {
            thread::sleep(BEAT);
            CLOCK.note();
        }
    };
    let beating = thread::Builder::new().name("parda-awake".to_owned()).stack_size(STACK);
    // Without the thread all time counts, as on any other clock.
    let most = if beating.spawn(beat).is_ok() { MOST } else { Duration::MAX };
    let beats = Beats { real: Duration::ZERO, counted: Duration::ZERO, most };
    Clock { began: std::time::Instant::now(), beats: RwLock::new(beats) }
});

impl Beats {
    /// Counted part of the time until `real`.
    fn at(&self, real: Duration) -> Duration {
        self.counted + real.saturating_sub(self.real).min(self.most)
    }

    /// Whether nothing ran for longer than counts.
    fn is_late(&self, real: Duration) -> bool {
        real.saturating_sub(self.real) > self.most
    }

    fn note(&mut self, real: Duration) {
        *self = Beats { real, counted: self.at(real), most: self.most };
    }
}

impl Clock {
    /// Makes a note. Returns the counted time until now.
    fn note(&self) -> Duration {
        let mut beats = self.beats.write().unwrap_or_else(PoisonError::into_inner);
        beats.note(self.began.elapsed());
        beats.counted
    }

    fn now(&self) -> Duration {
        let beats = self.beats.read().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: a later note must not be applied to an earlier time.
        let real = self.began.elapsed();
        if beats.is_late(real) {
            drop(beats);
            // The beating thread may be starved alone.
            return self.note();
        }
        beats.at(real)
    }
}

impl Instant {
    /// The moment at which it is called.
    #[must_use]
    pub fn now() -> Instant {
        Instant(CLOCK.now())
    }

    /// Time since this moment, as far as the process ran.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }

    /// Time since an earlier moment; zero since a later one.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// An earlier moment, if the clock ran then.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// The next message of a channel, if one comes within `limit` of this clock.
///
/// # Errors
/// None has come, or nobody can send any more.
pub fn recv_timeout<T>(from: &Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
    let until = Instant::now() + limit;
    let mut left = limit;
    loop {
        match from.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => {}
            heard => return heard,
        }
        left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(RecvTimeoutError::Timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn beats() -> Beats {
        Beats { real: secs(0), counted: secs(0), most: MOST }
    }

    #[test]
    fn a_stop_of_any_length_counts_as_the_most_that_counts() {
        for stop in [1, 7, 120, 86_400] {
            let mut beats = beats();
            beats.note(BEAT);
            beats.note(2 * BEAT);
            let resumed = 2 * BEAT + secs(stop);
            assert_eq!(beats.at(resumed), 2 * BEAT + MOST);
            beats.note(resumed);
            assert_eq!(beats.at(resumed + BEAT), 3 * BEAT + MOST, "it runs on");
        }
    }

    #[test]
    fn time_never_goes_back_and_runs_fully_while_it_is_noted() {
        let mut random = 1u64;
        let (mut real, mut last, mut beats) = (Duration::ZERO, Duration::ZERO, beats());
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let step = Duration::from_millis((random >> 33) % 400);
            real += step;
            let at = beats.at(real);
            assert_eq!(at < last + step, beats.is_late(real) && at < last + step);
            assert!(at >= last && at <= last + step);
            last = at;
            if (random >> 20) & 1 == 0 || beats.is_late(real) {
                beats.note(real);
                assert_eq!(beats.at(real), at, "a note changes nothing at its own time");
            }
        }
    }

    #[test]
    fn a_starved_process_has_its_time_in_pieces() {
        let mut beats = beats();
        // The thread runs once a second.
        (1..=40).for_each(|n| beats.note(secs(n)));
        assert_eq!(beats.counted, secs(10));
    }

    #[test]
    fn the_clock_runs_for_whoever_waits() {
        let began = Instant::now();
        let (_keep, never) = std::sync::mpsc::channel::<()>();
        let limit = Duration::from_millis(30);
        assert_eq!(recv_timeout(&never, limit), Err(RecvTimeoutError::Timeout));
        assert!(began.elapsed() >= limit);
    }
}
