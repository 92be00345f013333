//! Rate of answers that take no turn in the fair queue: to refused requests, and to options of a long handshake.
//!
//! A read waits for its turn. Such an answer would not, and costs the volume's thread as much as a read from the page cache. Clients that
//! ask for nothing else could have the thread to themselves. So these answers have a rate, for all clients of the volume together. The
//! burst is a second's worth and more, which no working client needs. Beyond it the connections that ask take turns. Nothing more is read
//! from a connection that waits.

use std::collections::VecDeque;

use parda_control::Instant;

use super::rate::Rate;

const PER_SECOND: u64 = 5_000;

/// Answers at once after a time without any.
const AT_ONCE: u64 = 16_384;

/// Answers in a row that waiting connections may send, so that they do not wake the thread for each.
const IN_A_ROW: u64 = 16;

/// Connections that wait, by key and serial number.
#[derive(Debug)]
pub(crate) struct Answers {
    rate: Rate,
    now: Instant,
    waiting: VecDeque<(usize, u64)>,
}

impl Answers {
    pub(crate) fn new() -> Self {
        let rate = Rate::new(PER_SECOND, AT_ONCE);
        Self { rate, now: Instant(0), waiting: VecDeque::new() }
    }

    /// A turn of the volume's thread begins.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.now = now;
    }

    /// When the turn of the volume's thread began.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Whether a connection may have an answer now. If not, it waits, and [`Answers::next`] has it.
    pub(crate) fn ask(&mut self, key: usize, serial: u64) -> bool {
        let may = self.waiting.is_empty() && self.rate.allows(self.now);
        if may {
            self.rate.count(self.now);
        } else {
            self.waiting.push_back((key, serial));
        }
        may
    }

    /// The next connection that has waited and may have one answer.
    pub(crate) fn next(&mut self) -> Option<(usize, u64)> {
        if !self.rate.allows(self.now) {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.rate.count(self.now);
        Some(next)
    }

    /// When to look for those that wait, if somebody does.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.rate.next(IN_A_ROW))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of one answer.
    const STEP: u64 = 1_000_000_000 / PER_SECOND;

    #[test]
    fn a_flood_has_the_rate_and_all_have_their_turn() {
        let mut answers = Answers::new();
        let mut given = [0u64; 3];
        // Two that always ask, and from the fifth second on a third one.
        let mut asks = vec![0, 1];
        for step in 0..10 * PER_SECOND {
            answers.turn(Instant(step * STEP));
            while let Some((key, _)) = answers.next() {
                given[key] += 1;
                asks.push(key);
            }
            if step == 5 * PER_SECOND {
                asks.push(2);
            }
            // Each asks again as soon as it has its answer.
            while let Some(key) = asks.pop() {
                if answers.ask(key, 0) {
                    given[key] += 1;
                    asks.push(key);
                }
            }
        }
        let in_all = AT_ONCE + 10 * PER_SECOND;
        assert!((in_all - 2..=in_all + 2).contains(&given.iter().sum()), "{given:?}");
        assert!((8_330..=8_340).contains(&given[2]), "a third of the last five seconds: {given:?}");
    }

    #[test]
    fn those_that_wait_are_looked_for_in_rows() {
        let mut answers = Answers::new();
        while answers.ask(0, 7) {}
        assert_eq!(answers.next(), None);
        assert_eq!(answers.next_at(), Some(Instant(IN_A_ROW * STEP)));
        answers.turn(Instant(IN_A_ROW * STEP));
        assert_eq!(answers.next(), Some((0, 7)));
        assert_eq!(answers.next_at(), None);
    }
}
