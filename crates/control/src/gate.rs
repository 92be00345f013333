//! Holding what is outstanding at the array to a window that may be a fraction.
//!
//! A whole window is easy: dispatch while fewer than w are outstanding. A fraction must still
//! mean something, because with many hosts the fair window is below one. Rounding down starves
//! a host for good (no IO, no latency sample, no new window); rounding in step makes all hosts
//! swing together. So the gate keeps the *time average* at w: while IOs wait, it integrates
//! w − outstanding, and opens one slot beyond the whole part whenever that integral is not
//! negative. For w = 0.3 an IO of 10 ms is followed by a pause of 23 ms. No two hosts have
//! the same latencies, so they do not swing in step, and nothing is drawn at random.

use crate::queue::Cost;
use crate::units::{Instant, Span, Window};

/// A host never pauses longer than this between two IOs, however small its window: without IOs
/// it would learn no latency, and a client would give up on it.
pub const MAX_PAUSE: Span = Span::from_millis(2_000);

/// The gate in front of the array.
#[derive(Debug)]
pub struct Gate {
    window: Window,
    outstanding: f64,
    /// ∫ (window − outstanding) dt while IOs wait, in slot-seconds.
    credit: f64,
    /// The cost of the IO that last went beyond the whole part of the window: the most that
    /// `outstanding` may rightly exceed it.
    overshoot: f64,
    /// Running mean of the time an IO spends at the array, in seconds: what credit is bounded by.
    service: f64,
    updated: Instant,
}

impl Gate {
    /// A gate with nothing outstanding.
    #[must_use]
    pub fn new(now: Instant, window: Window) -> Gate {
        Gate { window, outstanding: 0.0, credit: 0.0, overshoot: 1.0, service: 0.0, updated: now }
    }

    /// The window in force.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// What is outstanding at the array, in slots.
    #[must_use]
    pub fn outstanding(&self) -> f64 {
        self.outstanding
    }

    /// Changes the window. More may be outstanding than it allows until enough IOs complete.
    pub fn set_window(&mut self, now: Instant, window: Window, backlogged: bool) {
        self.account(now, backlogged);
        self.window = window;
        self.bound_pause();
    }

    /// Whether an IO of this cost may go now. It must be the one that goes next.
    #[must_use]
    pub fn admits(&mut self, now: Instant, cost: Cost) -> bool {
        self.account(now, true);
        let w = self.window.0;
        self.outstanding + cost.as_slots() <= w || (self.outstanding < w && self.credit >= 0.0)
    }

    /// Counts an IO as outstanding.
    pub fn dispatched(&mut self, now: Instant, cost: Cost, backlogged: bool) {
        self.account(now, backlogged);
        self.outstanding += cost.as_slots();
        if self.outstanding > self.window.0 {
            self.overshoot = cost.as_slots();
        }
    }

    /// Counts an IO as back after `device` at the array.
    pub fn completed(&mut self, now: Instant, cost: Cost, device: Span, backlogged: bool) {
        self.account(now, backlogged);
        self.outstanding = (self.outstanding - cost.as_slots()).max(0.0);
        self.service += (device.secs() - self.service) / 8.0;
        // Costs are multiples of 1/1024, exact in binary: the sum comes back to zero.
        self.bound_pause();
    }

    /// When the gate opens by itself. `None` while something is outstanding, as its completion
    /// is the time to look again: a timer for each pause would cost more than it gains.
    #[must_use]
    pub fn opens_at(&self) -> Option<Instant> {
        if self.outstanding > 0.0 || self.credit >= 0.0 || self.window.0 <= 0.0 {
            return None;
        }
        // One nanosecond more than the quotient, so that rounding cannot wake us just too early.
        Some(self.updated + Span::from_secs(-self.credit / self.window.0) + Span(1))
    }

    fn bound_pause(&mut self) {
        if self.outstanding <= 0.0 {
            self.credit = self.credit.max(-MAX_PAUSE.secs() * self.window.0);
        }
    }

    fn account(&mut self, now: Instant, backlogged: bool) {
        let dt = now.since(self.updated).secs();
        self.updated = self.updated.max(now);
        if !backlogged {
            return;
        }
        // Above the window after it shrank: that excess is not the fraction's to pay back.
        let rate = (self.window.0 - self.outstanding).max(-self.overshoot);
        // Credit is kept across one IO at most: more would be a burst, not a fraction.
        let bound = self.service * self.overshoot;
        self.credit = (self.credit + rate * dt).min(bound);
    }
}
