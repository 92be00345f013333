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

use crate::credit::{Credit, FOR_WRITERS};
use crate::ring::Ring;

/// Longest time that one wait polls before it sleeps. The client of a request that takes longer is asleep.
const LONGEST: Duration = Duration::from_micros(30);

/// Kind of event that the thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Requests: none is under way.
    Clients,
    /// Writers, which have all that is under way.
    Writers,
    /// A disk or another server.
    Devices,
}

/// Source of news outside the ring.
pub(crate) trait Polled {
    /// Whether somebody need not wake the thread now.
    fn is_awake(&self) -> bool;

    /// Whether there is something to do.
    fn has_news(&self) -> bool;

    /// The thread is about to sleep, and has to be woken by the ring from now on. `false` if there is something to do.
    fn may_sleep(&mut self) -> bool;
}

/// Polling state of the volume's thread.
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
    pub(crate) fn wait<T: Copy>(
        &mut self,
        ring: &mut Ring<T>,
        timeout: Option<Duration>,
        awaited: Awaited,
        polled: &mut impl Polled,
    ) -> io::Result<()> {
        let (credit, longest) = match awaited {
            Awaited::Devices => {
                let begun = Instant::now();
                sleep(ring, timeout, polled)?;
                self.slow = begun.elapsed() > LONGEST;
                return Ok(());
            }
            Awaited::Writers => (&mut self.writers, FOR_WRITERS),
            Awaited::Clients if std::mem::take(&mut self.slow) => {
                return sleep(ring, timeout, polled);
            }
            Awaited::Clients => (&mut self.clients, LONGEST),
        };
        if timeout.is_none_or(|timeout| timeout > longest) && credit.is_enough() {
            let begun = Instant::now();
            let found = ring.look(longest, || polled.has_news())?;
            // Somebody who had the processor for long would have lost it to us if we had slept.
            credit.looked(found && begun.elapsed() < 4 * longest);
            if found {
                return Ok(());
            }
        }
        sleep(ring, timeout, polled)
    }
}

/// Waits asleep, unless there is something already.
fn sleep<T: Copy>(
    ring: &mut Ring<T>,
    timeout: Option<Duration>,
    polled: &mut impl Polled,
) -> io::Result<()> {
    if timeout != Some(Duration::ZERO) && polled.is_awake() {
        // What a page cache has is done in the call that submits it, and nobody needs to be asked to wake us.
        if ring.look(Duration::ZERO, || polled.has_news())? || !polled.may_sleep() {
            return Ok(());
        }
    }
    ring.wait(timeout)
}
