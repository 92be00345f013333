//! Whether to look for the next event for a moment before sleeping.
//!
//! To sleep and to be woken costs both sides: the volume's thread leaves and enters the scheduler,
//! and whoever wakes it pays for an interrupt of another processor, which in a virtual machine is
//! an exit to the hypervisor. A busy client answers within microseconds. So after a wait that was
//! short the next one begins with looking, for at most [`LONGEST`]; after some waits that were not
//! it ends, but for a try now and then, each time rarer. An idle volume spends nothing.
//!
//! Between two looks the processor is offered to others (`sched_yield`). Where the client waits for
//! this very processor it goes on at once, and neither side sleeps at all.

use std::io;
use std::time::{Duration, Instant};

use crate::ring::Ring;

/// How long one wait looks before it sleeps. A request that takes longer has its client asleep.
const LONGEST: Duration = Duration::from_micros(30);

/// The same while writers have all that is under way, which takes them 5 to 20 µs each.
pub(crate) const FOR_WRITERS: Duration = Duration::from_micros(100);

/// A look in vain costs what so many that were not have earned. It goes on as long as three of four
/// find something.
const VAIN: u32 = 3;

/// Largest credit.
const MOST_CREDIT: u32 = 9;

/// Waits between two tries, at first and at most.
const FIRST_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 1024;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Requests: none is under way.
    Clients,
    /// Writers, which have all that is under way.
    Writers,
    /// A disk or another server.
    Devices,
}

/// Remembers how looks went.
#[derive(Debug)]
pub(crate) struct Credit {
    /// What they have earned; there is another look as long as that is something.
    earned: u32,
    /// Waits until it is tried again.
    pause: u32,
    next_pause: u32,
}

impl Credit {
    pub(crate) fn new() -> Self {
        Self { earned: 0, pause: FIRST_PAUSE, next_pause: FIRST_PAUSE }
    }

    /// Whether the wait that comes may begin with a look.
    pub(crate) fn is_enough(&mut self) -> bool {
        if self.earned == 0 {
            if self.pause > 0 {
                self.pause -= 1;
                return false;
            }
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
        }
        true
    }

    /// Takes note whether something was there before the look was over.
    pub(crate) fn looked(&mut self, found: bool) {
        if found {
            self.earned = (self.earned + 1).min(MOST_CREDIT);
            (self.pause, self.next_pause) = (FIRST_PAUSE, FIRST_PAUSE);
        } else {
            self.earned = self.earned.saturating_sub(VAIN);
        }
    }
}

/// How the volume's thread waits.
#[derive(Debug)]
pub(crate) struct Spin {
    /// The last request kept its client waiting for long enough to fall asleep.
    slow: bool,
    clients: Credit,
    writers: Credit,
}

impl Spin {
    pub(crate) fn new() -> Self {
        Self { slow: false, clients: Credit::new(), writers: Credit::new() }
    }

    /// Waits for the next event: a moment awake, if it is likely to come soon, and then asleep.
    pub(crate) fn wait<T>(
        &mut self,
        ring: &mut Ring<T>,
        timeout: Option<Duration>,
        awaited: Awaited,
    ) -> io::Result<()> {
        let (credit, longest) = match awaited {
            Awaited::Devices => {
                let begun = Instant::now();
                ring.wait(timeout)?;
                self.slow = begun.elapsed() > LONGEST;
                return Ok(());
            }
            Awaited::Writers => (&mut self.writers, FOR_WRITERS),
            Awaited::Clients if std::mem::take(&mut self.slow) => return ring.wait(timeout),
            Awaited::Clients => (&mut self.clients, LONGEST),
        };
        if timeout.is_none_or(|timeout| timeout > longest) && credit.is_enough() {
            let begun = Instant::now();
            let found = ring.look(longest)?;
            // Somebody who had the processor for long would have lost it to us if we had slept.
            credit.looked(found && begun.elapsed() < 4 * longest);
            if found {
                return Ok(());
            }
        }
        ring.wait(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_mostly_idle_hardly_looks() {
        let mut credit = Credit::new();
        let mut looks = 0;
        for _ in 0..10_000 {
            if credit.is_enough() {
                looks += 1;
                credit.looked(false);
            }
        }
        assert!(looks < 20, "{looks} looks in 10,000 waits");
    }

    #[test]
    fn a_client_that_is_found_every_other_time_is_waited_for_asleep() {
        let mut credit = Credit::new();
        let mut looks = 0;
        for i in 0..10_000 {
            if credit.is_enough() {
                looks += 1;
                credit.looked(i % 2 == 0);
            }
        }
        assert!(looks < 1_500, "{looks} looks in 10,000 waits");
    }

    #[test]
    fn a_busy_client_is_found_soon_and_lost_soon() {
        let mut credit = Credit::new();
        let first = (0..100).find(|_| credit.is_enough()).unwrap();
        assert!(first <= FIRST_PAUSE);
        credit.looked(true);
        for _ in 0..1000 {
            assert!(credit.is_enough());
            credit.looked(true);
        }
        let vain = (0..100).take_while(|_| {
            let looks = credit.is_enough();
            credit.looked(false);
            looks
        });
        assert_eq!(vain.count() as u32, MOST_CREDIT / VAIN);
    }
}
