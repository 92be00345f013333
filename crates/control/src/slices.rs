//! Slots that the VMs of a host may have outstanding, each and together, at any instant.
//!
//! A VM's slice is p · shares, p being the host's window per share. The VM's grant is its pending slots, at most
//! its slice; the host's grant is the sum. So a VM's unused part never goes to its neighbour on the same host. It
//! goes to all hosts through λ, which rests on the grants ([`crate::cluster`]).
//!
//! Where a slice is less than one IO, a VM with occasional IOs must not be held for slots that it does not use.
//! While it has nothing pending, it saves up its slice. It is granted a whole IO as long as its mean grant over
//! time is at most its slice. A VM that always has IOs pending has nothing saved, and is granted just its slice;
//! the gate turns that into pauses ([`crate::gate`]).

use crate::mechanism::{Mechanism, on};
use crate::units::{Instant, Shares, Span, larger};

/// Most IOs that a VM with a slice below one can have saved up: random demand comes in groups.
const SAVED: f64 = 4.0;

/// Bounds of slices, in slots per share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SliceBounds {
    /// p, the host's window per share.
    pub window_per_share: f64,
    /// Whether slices bound the outstanding slots of VMs. If not, they only measure them.
    pub bind: bool,
}

/// Demand and grant of a VM. Times are in nanoseconds. Fields that each IO needs come first.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Slice {
    pending: f64,
    /// Slots that the VM may have outstanding.
    slice: f64,
    grant: f64,
    /// ∫ (slice − grant) dt, up to the time at the array of a few IOs, or of a burst. Minus infinity where nothing
    /// is saved.
    saved: f64,
    /// Cost of its last IO: the least that can be outstanding.
    unit: f64,
    /// Slots beyond its slice that it may have saved up and use at once.
    pub(crate) burst: f64,
    since: Instant,
    /// ∫ pending dt, ∫ grant dt and ∫ weight dt over this period.
    pending_sum: f64,
    grant_sum: f64,
    weight_sum: f64,
    /// When the weight changed last, or the period began.
    weighed: Instant,
    /// The shares that it counts with, and those while all VMs want theirs: from the next [`set`](Slice::set) on.
    pub(crate) shares: f64,
    pub(crate) awake: f64,
    /// Shares of its slice: more than its own where its floor is above p · shares.
    pub(crate) weight: f64,
    /// The least that its slice is, in slots, from the next [`set`](Slice::set) on.
    pub(crate) floor: f64,
}

/// What a VM wanted over a period, in slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Mean of the shares that the VM's slice took.
    pub shares: f64,
    /// Mean pending slots of the VM.
    pub pending: f64,
    /// Mean pending slots up to the VM's slice.
    pub used: f64,
}

impl Slice {
    /// The slice of a VM that has nothing pending.
    #[must_use]
    pub fn new(now: Instant, shares: Shares, burst: f64, bounds: SliceBounds) -> Slice {
        let mut slice = Slice {
            shares: f64::from(shares.0),
            awake: f64::from(shares.0),
            weight: f64::from(shares.0),
            floor: 0.0,
            burst,
            slice: 0.0,
            unit: 1.0,
            pending: 0.0,
            grant: 0.0,
            saved: 0.0,
            pending_sum: 0.0,
            grant_sum: 0.0,
            weight_sum: 0.0,
            weighed: now,
            since: now,
        };
        slice.set(now, bounds);
        slice
    }

    /// Pending slots: held and outstanding.
    #[must_use]
    pub fn pending(&self) -> f64 {
        self.pending
    }

    /// Slots that the VM is granted now.
    #[must_use]
    pub fn grant(&self) -> f64 {
        self.grant
    }

    /// Slots that the VM may have outstanding.
    #[must_use]
    pub fn slice(&self) -> f64 {
        self.slice
    }

    /// Whether more is pending than the slice.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.pending > self.slice
    }

    /// Adds pending slots. Returns the change of the grant.
    pub fn add(&mut self, now: Instant, slots: f64, service: f64) -> f64 {
        self.unit = slots;
        self.change(now, slots, service)
    }

    /// Removes completed slots. Returns the change of the grant.
    pub fn take(&mut self, now: Instant, slots: f64, service: f64) -> f64 {
        self.change(now, -slots, service)
    }

    /// `service`: how long an IO is at the array.
    fn change(&mut self, now: Instant, slots: f64, service: f64) -> f64 {
        self.account(now);
        let before = self.grant;
        self.pending += slots;
        self.grant = if self.pending <= self.slice {
            self.pending
        } else if self.saved >= 0.0
            && on(Mechanism::Savings)
            && (self.slice < self.unit || self.burst > 0.0)
        {
            let most = (SAVED * self.unit).max(self.burst);
            self.saved = self.saved.min(most * service);
            let saved = if service > 0.0 { self.saved / service } else { 0.0 };
            let burst = self.slice + saved.min(self.burst);
            self.pending.min(self.slice.max(self.unit).max(burst))
        } else {
            self.slice
        };
        self.grant - before
    }

    fn account(&mut self, now: Instant) {
        let dt = now.since(self.since);
        if dt == Span::ZERO {
            return;
        }
        let dt = dt.nanos();
        self.since = now;
        self.pending_sum += self.pending * dt;
        self.grant_sum += self.grant * dt;
        self.saved += (self.slice - self.grant) * dt;
    }

    /// Adds up the shares that the slice took. They change in few places, so not with each IO.
    fn weigh(&mut self, now: Instant) {
        self.weight_sum += self.weight * now.since(self.weighed).nanos();
        self.weighed = now;
    }

    /// Ends a period of `elapsed` nanoseconds.
    pub fn roll(&mut self, now: Instant, elapsed: f64) -> Wanted {
        self.account(now);
        self.weigh(now);
        let mean = |sum: &mut f64| {
            let sum = core::mem::take(sum);
            if elapsed > 0.0 { sum / elapsed } else { 0.0 }
        };
        let pending = mean(&mut self.pending_sum);
        let used = mean(&mut self.grant_sum);
        let shares = mean(&mut self.weight_sum);
        Wanted { shares, pending, used }
    }

    /// Sets the savings of a VM to 0. A debt stays.
    pub fn forget_credit(&mut self, now: Instant) {
        self.account(now);
        self.saved = self.saved.min(0.0);
    }

    /// Whether the floor decides the slice.
    fn is_floored(&self, bounds: SliceBounds) -> bool {
        bounds.window_per_share > 0.0 && self.floor > self.shares * bounds.window_per_share
    }

    /// The slice that follows from these bounds.
    pub fn set(&mut self, now: Instant, bounds: SliceBounds) {
        self.account(now);
        self.weigh(now);
        self.slice = larger(self.shares * bounds.window_per_share, self.floor);
        let floored = self.is_floored(bounds);
        self.weight = if floored { self.floor / bounds.window_per_share } else { self.shares };
        if !bounds.bind {
            self.saved = f64::NEG_INFINITY;
        } else if !self.saved.is_finite() {
            self.saved = 0.0;
        }
        self.change(now, 0.0, f64::INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Time of an IO at the array, in nanoseconds.
    const SERVICE: f64 = 30e6;

    fn bounds(window_per_share: f64) -> SliceBounds {
        SliceBounds { window_per_share, bind: true }
    }

    fn slice(window_per_share: f64) -> Slice {
        Slice::new(Instant(0), Shares(1000), 0.0, bounds(window_per_share))
    }

    #[test]
    fn a_grant_is_what_is_pending_up_to_the_slice() {
        let mut vm = slice(0.0053);
        for pending in 1..=9 {
            vm.add(Instant(0), 1.0, SERVICE);
            assert_eq!(vm.grant(), f64::min(pending.into(), 5.3));
        }
        vm.take(Instant(0), 1.0, SERVICE);
        assert_eq!((vm.pending(), vm.grant()), (8.0, 5.3));
    }

    /// Mean grant of a VM with one IO pending for the first 30 ms of every `every` ms.
    fn mean(every: u64, slice: &mut Slice) -> f64 {
        for n in 0..10_000 {
            slice.add(Instant(n * every * MS), 1.0, SERVICE);
            slice.take(Instant((n * every + 30) * MS), 1.0, SERVICE);
        }
        let end = 10_000 * every * MS;
        slice.roll(Instant(end), end as f64).used
    }

    #[test]
    fn below_one_io_who_takes_less_than_its_slice_is_granted_whole_ios() {
        // 30 ms of 200 ms are 0.15 of an IO, and the slice is 0.2.
        assert!((mean(200, &mut slice(0.0002)) - 0.15).abs() < 1e-6);
    }

    #[test]
    fn below_one_io_who_takes_more_is_granted_its_slice() {
        // 30 ms of 60 ms would be half an IO.
        assert!(mean(60, &mut slice(0.0002)) <= 0.2001);
        // A VM that always has an IO pending keeps only its initial savings.
        assert!((mean(30, &mut slice(0.0002)) - 0.2).abs() < 1e-3);
    }

    #[test]
    fn a_burst_that_was_saved_up_is_granted_at_once_and_once() {
        let mut vm = Slice::new(Instant(0), Shares(1000), 16.0, bounds(0.005));
        // A second of nothing saves 5 · 1 s, of which 16 IOs' 30 ms are kept.
        (0..40).for_each(|_| _ = vm.add(Instant(1000 * MS), 1.0, SERVICE));
        assert!((vm.grant() - 21.0).abs() < 1e-9, "{}", vm.grant());
        // 16 IOs more than its slice for 30 ms.
        (0..21).for_each(|_| _ = vm.take(Instant(1030 * MS), 1.0, SERVICE));
        assert!((vm.grant() - 5.0).abs() < 1e-9, "{}", vm.grant());
    }

    #[test]
    fn slices_that_do_not_bind_measure() {
        let measured = SliceBounds { bind: false, ..bounds(0.0002) };
        let mut vm = Slice::new(Instant(0), Shares(1000), 0.0, measured);
        vm.add(Instant(0), 1.0, SERVICE);
        assert_eq!(vm.roll(Instant(1000 * MS), 1e9).used, 0.2);
    }
}
