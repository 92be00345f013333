//! Whether a client takes its replies and finishes its requests, or holds them up.

use parda_control::{Instant, Span};

/// What a client must move within the time that it has, in bytes, unless it settles all that it
/// owes. One byte now and then is no progress.
pub(crate) const LEAST: u64 = 1 << 20;

/// Bytes that a connection has moved, and the time since which it owes more.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    moved: u64,
    debt: Option<Debt>,
}

#[derive(Clone, Copy, Debug)]
struct Debt {
    since: Instant,
    /// Bytes moved by that time.
    from: u64,
}

/// State of a client, by whether it moves what it owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientState {
    /// The client owes nothing: no bytes of a request, no replies to take.
    Settled,
    /// The client is to be looked at again at this time.
    LookAgain(Instant),
    /// The client has not moved enough bytes in its time.
    Stalled,
}

impl Progress {
    /// Bytes of a request came, or bytes of a reply were taken.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
    }

    /// All bytes that were moved.
    pub(crate) fn total(&self) -> u64 {
        self.moved
    }

    /// Takes note of whether the client owes anything now: the rest of a request, or to take
    /// replies. Waiting for the disk or for memory is not the client's debt.
    pub(crate) fn owes(&mut self, now: Instant, owes: bool) {
        if !owes {
            self.debt = None;
        } else if self.debt.is_none() {
            self.debt = Some(Debt { since: now, from: self.moved });
        }
    }

    /// Whether the client owes anything.
    pub(crate) fn is_owing(&self) -> bool {
        self.debt.is_some()
    }

    /// Judges a client that may take `patience` for [`LEAST`] bytes.
    pub(crate) fn judge(&mut self, now: Instant, patience: Span) -> ClientState {
        let Some(debt) = &mut self.debt else { return ClientState::Settled };
        if now >= debt.since + patience {
            if self.moved - debt.from < LEAST {
                return ClientState::Stalled;
            }
            *debt = Debt { since: now, from: self.moved };
        }
        ClientState::LookAgain(debt.since + patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Span = Span::from_millis(30_000);

    fn at(s: u64) -> Instant {
        Instant(0) + Span::from_millis(1000 * s)
    }

    #[test]
    fn who_owes_nothing_may_be_silent_for_ever() {
        let mut progress = Progress::default();
        progress.moved(28);
        progress.owes(at(0), false);
        assert_eq!(progress.judge(at(1_000_000), PATIENCE), ClientState::Settled);
    }

    #[test]
    fn a_byte_a_minute_is_no_progress_and_a_debt_that_is_settled_is() {
        let mut progress = Progress::default();
        progress.owes(at(0), true);
        for s in 1..30 {
            progress.moved(1);
            progress.owes(at(s), true);
            assert_eq!(progress.judge(at(s), PATIENCE), ClientState::LookAgain(at(30)));
        }
        assert_eq!(progress.judge(at(30), PATIENCE), ClientState::Stalled);
        progress.owes(at(30), false);
        progress.owes(at(31), true);
        assert_eq!(progress.judge(at(60), PATIENCE), ClientState::LookAgain(at(61)));
    }

    #[test]
    fn who_moves_enough_may_owe_without_a_pause() {
        let mut progress = Progress::default();
        progress.owes(at(0), true);
        for i in 1..100 {
            progress.moved(LEAST as usize);
            let next = ClientState::LookAgain(at(30 * (i + 1)));
            assert_eq!(progress.judge(at(30 * i), PATIENCE), next);
        }
        assert_eq!(progress.judge(at(30 * 100), PATIENCE), ClientState::Stalled);
    }
}
