//! Reservations: IOs per second that a VM has whenever it asks for them, whatever its shares.
//!
//! By Little's law a VM whose IOs take d at the array does r IO/s with r · d outstanding. So a reservation is a floor of the VM's slice:
//!
//! ```text
//! a_k = max(p · s_k, σ · r_k · d_k),      σ = min(1, k · L_threshold / L · Σ outstanding / Σ r · d)
//! ```
//!
//! The floor is what the host may have outstanding for the VM. Within the host the VM's IOs go first while it has had less than r_k. Each
//! IO has a tag, 1 / (σ · r_k) after the tag before it, and goes before any turn once its tag is past (mClock's reservation tags). IOs
//! that went in their turn count.
//!
//! Where reservations alone would take latency above k times the threshold, all of them are reduced by the same factor σ. The sums are the
//! cluster's, and reservations get all slots that it may have outstanding at that latency. k is 1 where the threshold comes first. A VM at
//! its floor counts with the shares of such a slice, floor / p: then λ is right for the others.

use crate::units::{Instant, Span, larger, smaller};

/// Weight of the last period in a VM's device latency.
const NEW: f64 = 0.5;

/// Fraction of a reservation granted beyond it, as a VM has gaps between its IOs.
const SPARE: f64 = 0.05;

/// Time by which a VM may be behind its reservation and catch up.
const BEHIND: Span = Span::from_millis(200);

/// Time by which its turns may be ahead of its reservation: gaps between them are no demand.
const AHEAD: Span = Span::from_millis(50);

/// The least part σ of reservations that a cluster does.
const LEAST: f64 = 1e-6;

/// Tolerated arrears of a VM that is not short: seconds of its reservation (5 % of five seconds), and IOs.
const NEARLY: (f64, f64) = (0.25, 2.0);

/// Time in seconds in which arrears are forgotten.
const FORGOTTEN: f64 = 10.0;

/// Precedence between reservations and threshold where both cannot be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Prefer {
    /// Reservations, as far as four times the threshold.
    #[default]
    Reservations,
    /// The threshold: reservations are short.
    Threshold,
}

impl Prefer {
    /// k: the largest multiple of the threshold.
    fn factor(self) -> f64 {
        match self {
            Prefer::Reservations => 4.0,
            Prefer::Threshold => 1.0,
        }
    }
}

/// Reservation of one VM, with its measurements. Fields that each IO needs come first.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct Reservation {
    /// The host looks for its next IO.
    pub(crate) watched: bool,
    /// When its next IO is due.
    due: Instant,
    /// IO/s of the reservation that the cluster can serve now.
    scaled: f64,
    /// IOs of this period, their times at the array and their slots.
    ios: u64,
    device: f64,
    cost: f64,
    iops: f64,
    /// Mean time of its IOs at the array, in seconds, and slots of each.
    latency: Option<f64>,
    slots: f64,
    /// IO/s and pending slots of the last period.
    rate: f64,
    pending: f64,
    arrears: Arrears,
}

/// A reservation for people to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReservationState {
    /// IO/s that are reserved.
    pub iops: f64,
    /// IO/s that the VM did in the last period.
    pub rate: f64,
    /// Demanded its reservation in the last seconds, and got less.
    pub short: bool,
}

/// Reserved IOs that a VM or a tenant demanded and did not get.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Arrears {
    ios: f64,
    /// Demanded more in the last period.
    asked: bool,
}

impl Arrears {
    /// Ends a period of `secs` seconds with so many IO/s. `asked`: part of the period in which more could have been used. A burst demands
    /// no more IOs than are due while it lasts.
    pub(crate) fn roll(&mut self, secs: f64, rate: f64, reserved: f64, asked: f64) {
        let asks = asked > 0.0;
        // In the first period of demand, the demand may have covered only a part of it.
        if asks && core::mem::replace(&mut self.asked, true) {
            let kept = 1.0 - smaller(secs / FORGOTTEN, 1.0);
            let ios = self.ios * kept + (asked * reserved - rate) * secs;
            // After a long shortage it is not short for as long again.
            self.ios = ios.clamp(0.0, 2.0 * nearly(reserved));
        } else if !asks {
            *self = Arrears::default();
        }
    }

    /// Whether the reservation is not met.
    pub(crate) fn is_short(&self, reserved: f64) -> bool {
        self.ios > nearly(reserved)
    }
}

fn nearly(reserved: f64) -> f64 {
    NEARLY.0 * reserved + NEARLY.1
}

/// Inputs to the floor of a slice, of a VM or of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// IO/s that are reserved.
    pub iops: f64,
    /// IO/s of the last period.
    pub rate: f64,
    /// Slots times seconds of an IO at the array. `None`: no IO so far.
    pub slots: Option<f64>,
    /// Slots that are pending, in the mean: no more can be used.
    pub pending: f64,
}

/// The cluster's capacity for reservations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// σ: fraction of all reservations that the cluster can serve, above 0 and at most 1.
    pub scale: f64,
    /// L of the cluster, in seconds.
    pub latency: Option<f64>,
    /// The volume's own threshold.
    pub threshold: Span,
}

impl Room {
    /// σ, from the hosts' outstanding IOs and the ones that their reservations need.
    #[must_use]
    pub(crate) fn scale(
        latency: f64,
        threshold: Span,
        prefer: Prefer,
        outstanding: f64,
        reserved: f64,
    ) -> f64 {
        let most = prefer.factor() * threshold.secs() / latency * outstanding;
        if reserved > most { larger(most / reserved, LEAST) } else { 1.0 }
    }
}

impl Floor {
    /// The floor, in slots.
    #[must_use]
    pub fn slots(&self, room: &Room) -> f64 {
        let cluster = room.latency.unwrap_or(room.threshold.secs());
        // Without any IO so far, the cluster's latency is the best estimate.
        let own = self.slots.unwrap_or(cluster);
        // While latency is above the threshold, IOs beyond the reservation count for the VM's shares and not for the floor.
        let enough = (1.0 + SPARE) * self.iops;
        let beyond = cluster > room.threshold.secs() && self.rate > enough;
        let floor = enough * own * if beyond { enough / self.rate } else { 1.0 };
        if room.scale < 1.0 { room.scale * smaller(floor, self.pending) } else { floor }
    }

    /// Slots that it would have outstanding without any shortage.
    #[must_use]
    pub(crate) fn asks(&self, room: &Room) -> f64 {
        smaller(self.slots(&Room { scale: 1.0, ..*room }), self.pending)
    }
}

impl Reservation {
    /// A reservation of a VM that did nothing yet.
    #[must_use]
    pub fn new(iops: f64) -> Reservation {
        let (latency, slots) = (None, 1.0);
        Reservation {
            iops,
            scaled: iops,
            due: Instant(0),
            watched: false,
            latency,
            slots,
            ios: 0,
            device: 0.0,
            cost: 0.0,
            rate: 0.0,
            pending: 0.0,
            arrears: Arrears::default(),
        }
    }

    /// Changes the reserved IO/s.
    pub fn set(&mut self, iops: f64) {
        (self.iops, self.scaled) = (iops, iops);
    }

    /// Sets the fraction of all reservations that the cluster can serve.
    pub(crate) fn scale(&mut self, scale: f64) {
        self.scaled = scale * self.iops;
    }

    /// When its next IO is due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// One of its IOs goes.
    pub fn take(&mut self, now: Instant) {
        let behind = Instant(now.0.saturating_sub(BEHIND.0));
        // IOs far beyond its reservation count towards its share, and are no debt.
        self.due = self.due.clamp(behind, now + AHEAD) + Span((1e9 / self.scaled) as u64);
    }

    /// Records a completed IO and its slots.
    pub fn add(&mut self, device: Span, slots: f64) {
        self.ios += 1;
        self.device += device.secs();
        self.cost += slots;
    }

    /// Ends a period of `secs` seconds. `pending`: slots, in the mean. `asked`: part of the period in which the VM could have used more
    /// than its slice.
    pub fn roll(&mut self, secs: f64, pending: f64, asked: f64) {
        self.pending = pending;
        let ios = core::mem::take(&mut self.ios) as f64;
        let (device, cost) = (core::mem::take(&mut self.device), core::mem::take(&mut self.cost));
        self.rate = if secs > 0.0 { ios / secs } else { 0.0 };
        self.arrears.roll(secs, self.rate, self.iops, asked);
        if ios > 0.0 {
            let now = device / ios;
            self.latency =
                Some(self.latency.map_or(now, |latency| latency + NEW * (now - latency)));
            self.slots += NEW * (cost / ios - self.slots);
        }
    }

    /// Inputs to its floor.
    #[must_use]
    pub fn floor(&self) -> Floor {
        let slots = self.latency.map(|latency| self.slots * latency);
        Floor { iops: self.iops, rate: self.rate, slots, pending: self.pending }
    }

    /// State after the last period.
    #[must_use]
    pub fn standing(&self) -> ReservationState {
        let short = self.arrears.is_short(self.iops);
        ReservationState { iops: self.iops, rate: self.rate, short }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Periods of a second with so many IO/s of 100, and whether it was short after each.
    fn after(rates: &[f64]) -> Vec<bool> {
        let mut arrears = Arrears::default();
        let short = rates.iter().map(|rate| {
            arrears.roll(1.0, *rate, 100.0, 1.0);
            arrears.is_short(100.0)
        });
        short.collect()
    }

    #[test]
    fn a_twentieth_of_five_seconds_makes_it_short_however_it_is_missed() {
        // Demand begins in the first period.
        assert_eq!(after(&[10.0, 65.0, 100.0]), [false, true, true]);
        assert_eq!(after(&[10.0, 85.0, 85.0, 110.0]), [false, false, true, false]);
        assert!(!after(&[97.5; 30]).contains(&true));
        assert!(after(&[93.0; 30])[29]);
    }

    #[test]
    fn a_long_shortage_is_over_soon_after_it() {
        let rates = [[0.0; 60], [105.0; 60]].concat();
        assert_eq!(after(&rates).into_iter().skip(60).filter(|short| *short).count(), 2);
    }

    #[test]
    fn who_does_not_ask_is_not_short() {
        let mut arrears = Arrears::default();
        for asked in [1.0, 1.0, 0.0, 1.0] {
            arrears.roll(1.0, 0.0, 100.0, asked);
        }
        assert!(!arrears.is_short(100.0));
    }

    #[test]
    fn who_asks_for_a_part_of_the_time_is_short_of_that_part() {
        let after = |rate: f64| {
            let mut arrears = Arrears::default();
            (0..10).for_each(|_| arrears.roll(1.0, rate, 100.0, 0.4));
            arrears.is_short(100.0)
        };
        assert_eq!([35.0, 40.0].map(after), [true, false]);
    }
}
