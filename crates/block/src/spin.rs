//! Whether to look for the next event for a moment before sleeping.
//!
//! To sleep and to be woken costs both sides: the volume's thread leaves and enters the scheduler,
//! and whoever wakes it pays for an interrupt of another processor, which in a virtual machine is
//! an exit to the hypervisor. A busy client answers within microseconds. So after a wait that was
//! short the next one begins with looking, for at most [`LONGEST`]; after some waits that were not
//! it ends, but for a try now and then, each time rarer. An idle volume spends nothing.

use std::io;
use std::time::{Duration, Instant};

use crate::ring::Ring;

/// How long one wait looks before it sleeps. A request that takes longer has its client asleep.
const LONGEST: Duration = Duration::from_micros(30);

/// A look in vain costs what so many that were not have earned. It goes on as long as three of four
/// find something.
const VAIN: u32 = 3;

/// What may be earned at most.
const MOST_CREDIT: u32 = 9;

/// Waits between two tries, at first and at most.
const FIRST_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 1024;

/// Remembers how waits went.
#[derive(Debug)]
pub(crate) struct Spin {
    /// The last request kept its client waiting for long enough to fall asleep.
    slow: bool,
    /// What it has earned; it looks as long as that is something.
    credit: u32,
    /// Waits until it is tried again.
    pause: u32,
    next_pause: u32,
}

impl Spin {
    pub(crate) fn new() -> Self {
        Self { slow: false, credit: 0, pause: FIRST_PAUSE, next_pause: FIRST_PAUSE }
    }

    /// Waits for the next event: a moment awake, if it is likely to come soon, and then asleep.
    /// `busy`: a request is under way.
    pub(crate) fn wait<T>(
        &mut self,
        ring: &mut Ring<T>,
        timeout: Option<Duration>,
        busy: bool,
    ) -> io::Result<()> {
        if busy {
            let begun = Instant::now();
            ring.wait(timeout)?;
            self.slow = begun.elapsed() > LONGEST;
            return Ok(());
        }
        let slow = std::mem::take(&mut self.slow);
        if !slow && timeout.is_none_or(|timeout| timeout > LONGEST) {
            let awake = self.budget();
            if !awake.is_zero() {
                let found = ring.look(awake)?;
                self.looked(found);
                if found {
                    return Ok(());
                }
            }
        }
        ring.wait(timeout)
    }

    /// How long the wait that comes may look.
    fn budget(&mut self) -> Duration {
        if self.credit == 0 {
            if self.pause > 0 {
                self.pause -= 1;
                return Duration::ZERO;
            }
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
        }
        LONGEST
    }

    /// Whether something was there before the look was over.
    fn looked(&mut self, found: bool) {
        if found {
            self.credit = (self.credit + 1).min(MOST_CREDIT);
            (self.pause, self.next_pause) = (FIRST_PAUSE, FIRST_PAUSE);
        } else {
            self.credit = self.credit.saturating_sub(VAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_mostly_idle_hardly_looks() {
        let mut spin = Spin::new();
        let mut looks = 0;
        for _ in 0..10_000 {
            if spin.budget() > Duration::ZERO {
                looks += 1;
                spin.looked(false);
            }
        }
        assert!(looks < 20, "{looks} looks in 10,000 waits");
    }

    #[test]
    fn a_client_that_is_found_every_other_time_is_waited_for_asleep() {
        let mut spin = Spin::new();
        let mut looks = 0;
        for i in 0..10_000 {
            if spin.budget() > Duration::ZERO {
                looks += 1;
                spin.looked(i % 2 == 0);
            }
        }
        assert!(looks < 1_500, "{looks} looks in 10,000 waits");
    }

    #[test]
    fn a_busy_client_is_found_soon_and_lost_soon() {
        let mut spin = Spin::new();
        let first = (0..100).find(|_| spin.budget() > Duration::ZERO).unwrap();
        assert!(first <= FIRST_PAUSE);
        spin.looked(true);
        for _ in 0..1000 {
            assert_eq!(spin.budget(), LONGEST);
            spin.looked(true);
        }
        let vain = (0..100).take_while(|_| {
            let looks = spin.budget() > Duration::ZERO;
            spin.looked(false);
            looks
        });
        assert_eq!(vain.count() as u32, MOST_CREDIT / VAIN);
    }
}
