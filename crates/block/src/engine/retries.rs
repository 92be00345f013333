//! Requests of files for which the kernel had no worker.

use std::collections::VecDeque;

use parda_control::{Instant, Span};

use crate::backend::Request;

/// Pause before such a request is tried again.
const PAUSE: Span = Span::from_millis(20);

/// Retries before a request counts as failed: half a minute.
const ATTEMPTS: u16 = 1500;

/// Requests that wait to be tried again, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Retries {
    waiting: VecDeque<(Instant, usize)>,
}

impl Retries {
    /// Has a request wait; `false` if it was tried often enough.
    pub(super) fn put_off(&mut self, now: Instant, key: usize, request: &mut Request) -> bool {
        if request.attempts >= ATTEMPTS {
            return false;
        }
        request.attempts += 1;
        request.delayed = true;
        let due = now + PAUSE;
        assert!(self.waiting.back().is_none_or(|(at, _)| *at <= due), "time does not go back");
        debug_assert!(self.waiting.iter().all(|(_, other)| *other != key), "a request waits once");
        self.waiting.push_back((due, key));
        true
    }

    /// When the next one is tried again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// One that is tried again now.
    pub(super) fn pop(&mut self, now: Instant) -> Option<usize> {
        self.next().filter(|at| *at <= now)?;
        self.waiting.pop_front().map(|(_, key)| key)
    }
}
