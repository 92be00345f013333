//! Choice of the connection that is dropped while others wait for memory.
//!
//! A client has `progress_timeout` for 1 MiB of what it owes. While others wait for memory that it holds, it has less. That bounds the
//! total wait because of stalled clients:
//!
//! - The holder of the reserve has a tenth of that time for 1 MiB. If more than ten wait, it has the time divided by their number, but no
//!   less than a hundredth. The number is the largest since the queue was last empty, so that all of them together take no more than the
//!   time. For all of its request the holder has four times as long.
//! - When a request has waited for a tenth of the time, all holders of memory that others could use have a tenth, too. They are dropped
//!   together, not one after the other.

use parda_control::{Instant, Span};
use slab::Slab;

use super::budget::Budget;
use super::conn::{Conn, ConnError};
use super::progress::LEAST;

/// Time between two looks at the clients that wait for memory. Another volume may have returned some, and
/// the client that holds it may make no progress.
pub(super) const LOOKS: Span = Span::from_millis(20);

/// Into how many parts the time is divided at least, and at most.
const PARTS: (u64, u64) = (10, 100);

/// Time of the reserve's holder for all of its request, in multiples of its part.
const WHOLE: u64 = 4;

/// The client that holds the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    serial: u64,
    looked: Instant,
    /// Bytes that it had moved when it last made progress.
    from: u64,
    /// Time that it has owed something since then (`stalled`), and in all (`owed`).
    stalled: Span,
    owed: Span,
}

impl Holder {
    fn new(now: Instant, conn: &Conn) -> Self {
        let none = Span(0);
        let from = conn.progress().total();
        Self { serial: conn.serial, looked: now, from, stalled: none, owed: none }
    }

    /// Whether it has held up others for too long.
    fn is_late(&mut self, now: Instant, conn: &Conn, part: Span) -> bool {
        let passed = now.since(self.looked);
        self.looked = now;
        let moved = conn.progress().total();
        if !conn.progress().is_owing() || moved - self.from >= LEAST {
            (self.from, self.stalled) = (moved, Span(0));
        } else {
            self.stalled = Span(self.stalled.0 + passed.0);
        }
        if conn.progress().is_owing() {
            self.owed = Span(self.owed.0 + passed.0);
        }
        // The next look would be too late.
        self.stalled.0 + LOOKS.0 >= part.0 || self.owed.0 + LOOKS.0 >= WHOLE * part.0
    }
}

/// Observations of clients that wait.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// The most that have waited since nobody did.
    most: u64,
    holder: Option<Holder>,
    /// The wait that is the longest, and since when it is known.
    oldest: Option<(u64, Instant)>,
}

impl Pressure {
    /// Whether there is anything left to see of those who waited.
    pub(super) fn is_over(&self) -> bool {
        self.most == 0
    }

    /// Looks at those who hold what others wait for, and returns whom to drop. `patience` is what a
    /// client has while nobody waits.
    pub(super) fn look(
        &mut self,
        now: Instant,
        patience: Span,
        budget: &Budget,
        conns: &mut Slab<Conn>,
    ) -> Vec<usize> {
        let mut late = Vec::new();
        if budget.waiting() == 0 {
            *self = Self::default();
            return late;
        }
        self.most = self.most.max(budget.waiting() as u64);
        let share = Span(patience.0 / self.most.clamp(PARTS.0, PARTS.1)).max(Span(2 * LOOKS.0));
        let holder = budget.holder().and_then(|key| Some((key, conns.get(key)?)));
        self.holder = holder.map(|(key, conn)| {
            let known = self.holder.filter(|holder| holder.serial == conn.serial);
            let mut holder = known.unwrap_or_else(|| Holder::new(now, conn));
            if holder.is_late(now, conn, share) {
                late.push(key);
            }
            holder
        });
        let part = Span(patience.0 / PARTS.0);
        let oldest = budget.oldest();
        if oldest != self.oldest.map(|(number, _)| number) {
            self.oldest = oldest.map(|number| (number, now));
        }
        if self.oldest.is_some_and(|(_, since)| now >= since + part) {
            for (key, conn) in conns {
                let stalled =
                    |conn: &mut Conn| matches!(conn.look(now, part), Err(ConnError::Stalled));
                if budget.has_of_others(key) && !late.contains(&key) && stalled(conn) {
                    late.push(key);
                }
            }
        }
        late
    }
}
