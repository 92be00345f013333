//! The gate bounds outstanding IOs by a grant that may be a fraction.
//!
//! The grant is the number of slots that the host may have outstanding at this instant: it changes as requests come and go
//! ([`crate::slices`]). A whole number is easy: dispatch while fewer are outstanding. A fraction must still count, because with
//! many hosts the fair window is below one. Rounding down starves a host for good (no IO, no latency sample, no new window).
//! Rounding in step makes all hosts swing together. So the gate keeps the *time average* of outstanding slots at the grant. It
//! integrates grant − outstanding, and opens one slot beyond the whole part whenever that integral is not negative. For a grant
//! of 0.3 an IO of 10 ms is followed by a pause of 23 ms. No two hosts have the same latencies, so they do not swing in step,
//! and no random numbers are needed.
//!
//! Credit is bounded by the mean time of the IOs under way. That exceeds the mean over all IOs, as an IO that takes ten times as
//! long is under way ten times as much. The gate is not consulted until an IO at the array completes. The fraction gained
//! meanwhile must not be lost.
//!
//! A debt is always paid. A client that keeps a single IO pending has nothing waiting while that IO is at the array. If that
//! time cancelled the debt of the IO, a fraction would become one IO outstanding all the time.

use crate::mechanism::{Mechanism, on};
use crate::queue::Cost;
use crate::units::{Instant, Span, Window, larger, smaller};

/// IOs over which the mean time under way is taken. On flash one of a few tens takes ten times as long as the others.
const LASTING: f64 = 64.0;

/// The largest debt, in IOs of the last one's cost.
const DEBT: f64 = 8.0;

/// The gate in front of the array. Integrals are in slots times nanoseconds.
#[derive(Debug)]
pub struct Gate {
    /// Slots that may be outstanding now.
    grant: f64,
    /// Slots that may be outstanding when all VMs of the host have demand. A debt is paid at this rate while no IO is pending.
    full: f64,
    outstanding: f64,
    /// ∫ (grant − outstanding) dt.
    credit: f64,
    /// Cost of the last IO beyond the whole part of the grant: the largest legitimate excess of `outstanding`.
    overshoot: f64,
    /// Running mean of the time that an IO spends at the array.
    service: f64,
    /// The same mean, and the mean of the square, over more IOs.
    lasting: [f64; 2],
    /// Mean time of the IOs under way: the bound of credit.
    under_way: f64,
    updated: Instant,
}

impl Gate {
    /// A gate with nothing outstanding, and nothing granted.
    #[must_use]
    pub fn new(now: Instant) -> Gate {
        Gate {
            grant: 0.0,
            full: 0.0,
            outstanding: 0.0,
            credit: 0.0,
            overshoot: 1.0,
            service: 0.0,
            lasting: [0.0; 2],
            under_way: 0.0,
            updated: now,
        }
    }

    /// Slots that may be outstanding now.
    #[must_use]
    pub fn grant(&self) -> Window {
        Window(self.grant)
    }

    /// Running mean of the time that an IO spends at the array, in nanoseconds.
    #[must_use]
    pub fn service(&self) -> f64 {
        self.service
    }

    /// Changes the grant. More may be outstanding until enough IOs complete.
    pub fn set_grant(&mut self, now: Instant, grant: f64) {
        self.account(now);
        self.grant = grant;
    }

    /// Changes the slots for full demand. `latency`: expected time of an IO at the array. A debt counts IOs: the host does not
    /// pay for a time in which the array was stuck.
    pub fn set_full(&mut self, now: Instant, full: f64, latency: Span) {
        self.account(now);
        self.full = full;
        if !on(Mechanism::DebtBound) {
            return;
        }
        self.credit = self.credit.max(-DEBT * self.overshoot * latency.nanos());
    }

    /// Whether an IO of this cost may go now. The IO must be the next one in turn.
    #[must_use]
    pub fn admits(&mut self, now: Instant, cost: Cost) -> bool {
        self.account(now);
        let (cost, grant) = (cost.as_slots(), self.grant);
        let fraction =
            if on(Mechanism::Fractions) { self.credit >= 0.0 } else { self.outstanding <= 0.0 };
        self.outstanding + cost <= grant || (self.outstanding < grant && fraction)
    }

    /// Whether less is outstanding than the grant. If not, only IOs that need no turn may go.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.outstanding < self.grant
    }

    /// Counts an IO as outstanding.
    pub fn dispatched(&mut self, now: Instant, cost: Cost) {
        self.account(now);
        let within = self.outstanding <= self.grant;
        self.outstanding += cost.as_slots();
        // An IO of a VM within its own grant adds nothing to the overshoot of another one.
        if within && self.outstanding > self.grant {
            self.overshoot = cost.as_slots();
        }
    }

    /// Counts an IO as completed after `device` at the array.
    #[inline]
    pub fn completed(&mut self, now: Instant, cost: Cost, device: Span) {
        self.account(now);
        // Costs are multiples of 1/1024, exact in binary: the sum comes back to zero.
        self.outstanding = larger(self.outstanding - cost.as_slots(), 0.0);
        let device = device.nanos();
        self.service += (device - self.service) / 8.0;
        self.lasting[0] += (device - self.lasting[0]) / LASTING;
        self.lasting[1] += (device * device - self.lasting[1]) / LASTING;
        let [mean, square] = self.lasting;
        self.under_way = if mean > 0.0 { square / mean } else { 0.0 };
    }

    /// Time at which the gate opens without a completion. `None` while IOs are outstanding: their completion is the next check.
    /// A timer for each pause would cost more than it gains.
    #[must_use]
    pub fn opens_at(&self) -> Option<Instant> {
        if self.outstanding > 0.0 || self.credit >= 0.0 || self.grant <= 0.0 {
            return None;
        }
        // One nanosecond more than the quotient, so that rounding cannot wake us just too early.
        Some(self.updated + Span((-self.credit / self.grant) as u64) + Span(1))
    }

    fn account(&mut self, now: Instant) {
        let dt = now.since(self.updated);
        if dt == Span::ZERO {
            return;
        }
        self.updated = now;
        let dt = dt.nanos();
        if self.grant == f64::INFINITY {
            self.credit = 0.0;
        } else if self.grant > 0.0 {
            // Above the grant after it shrank: the fraction does not pay back that excess.
            let rate = larger(self.grant - self.outstanding, -self.overshoot);
            // Credit is kept across one IO at most: more would be a burst, not a fraction.
            let bound = self.under_way * self.overshoot;
            self.credit = smaller(self.credit + rate * dt, bound);
        } else if !on(Mechanism::DebtWhileIdle) {
            self.credit = 0.0;
        } else if self.credit < 0.0 && self.full > 0.0 {
            // Without demand, unused slots pay the debt, and no credit is gained.
            self.credit = (self.credit + self.full * dt).min(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One IO is always at the array, most for a short time and some for very long. A second one goes whenever the gate admits
    /// it at a completion.
    #[test]
    fn a_fraction_is_kept_while_a_neighbours_io_takes_long() {
        const MS: u64 = 1_000_000;
        let (grant, end) = (1.7, Instant(20_000 * MS));
        let mut gate = Gate::new(Instant(0));
        gate.set_grant(Instant(0), grant);
        let mut times = (0_u64..).map(|i| if i * 7 % 10 == 0 { 6 * MS } else { MS / 5 });
        let mut under_way = alloc::vec![(Instant(0), Span(0))];
        gate.dispatched(Instant(0), Cost::ONE);
        let mut busy = 0.0;
        loop {
            under_way.sort_unstable();
            let (now, took) = under_way.remove(0);
            if now >= end {
                break;
            }
            gate.completed(now, Cost::ONE, took);
            while under_way.is_empty() || (under_way.len() < 2 && gate.admits(now, Cost::ONE)) {
                let time = Span(times.next().unwrap_or_default());
                under_way.push((now + time, time));
                gate.dispatched(now, Cost::ONE);
                busy += time.0 as f64;
            }
        }
        let mean = busy / end.0 as f64;
        assert!((mean / grant - 1.0).abs() < 0.02, "{mean} of {grant}");
    }
}
