//! Latency objectives of VMs: the threshold that each asks for, and the threshold in force in the cluster.
//!
//! A database that keeps three IOs outstanding gains nothing from shares. All its IOs are at the array already, and its throughput
//! is 3 / latency. Only a lower latency at the array helps it, which depends on the threshold, one for all hosts. So a VM with an
//! objective asks for the threshold at which its own IOs take as long at the array as the objective allows. The least threshold
//! asked for is in force while that VM is active.
//!
//! An objective does not cover held time: that is a matter of shares, and a smaller threshold makes it longer.
//!
//! An objective that the array cannot meet costs the others their throughput without effect. So an objective rests after `TRIES`
//! periods in force if each of them missed it.

use crate::mechanism::{Mechanism, on};
use crate::units::Span;

/// Weight of the last period in the ratio of a VM's latency to the cluster's.
const NEW: f64 = 0.5;
/// Largest ratio of a VM's latency at the array to the cluster's.
const RATIO: f64 = 8.0;
/// Periods without enough IOs after which a VM's objective is dropped.
const STAYS: u32 = 10;
/// Factor on the objective above which it is missed.
const MISSED: f64 = 1.2;
/// Periods in a row in which an objective may be missed while it is in force.
const TRIES: u32 = 10;
/// Periods for which an objective that cannot be met rests: the first time, and at most. The rest doubles each time.
const RESTS: u32 = 60;
const RESTS_MOST: u32 = 960;

/// Threshold that a host asks for on behalf of its VMs, and its floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Least threshold that one of its VMs asks for now.
    pub asks: Option<Span>,
    /// Lower bound of the threshold that objectives on any host can ask for.
    pub floor: Span,
    /// IOs of VMs that ask, completed in the interval.
    pub ios: u64,
}

/// The smaller of two thresholds, or the one that there is.
pub(crate) fn strictest(one: Option<Span>, other: Option<Span>) -> Option<Span> {
    one.into_iter().chain(other).min()
}

/// A VM's objective, and the threshold that the VM asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    target: f64,
    /// Its latency at the array over the cluster's. `None` before it did IO.
    ratio: Option<f64>,
    /// Periods since the VM was active. `None`: it never was, or not for long.
    idle: Option<u32>,
    /// Periods since its last IO.
    quiet: u32,
    /// Periods in a row in which the objective was missed, though in force; and those for which it still rests.
    missed: u32,
    rests: u32,
    next_rest: u32,
    ios: u64,
    device: f64,
    held: f64,
    last: Option<ObjectiveSeen>,
}

/// What a VM with an objective saw in its last period with IO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveSeen {
    /// Mean time at the array, in seconds.
    pub device: f64,
    /// Mean time held in the host's queue, in seconds.
    pub held: f64,
    /// Held time exceeded the objective: the VM lacks shares, and no threshold helps.
    pub short: bool,
}

/// State of an objective, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveState {
    /// Target for the time of its IOs at the array.
    pub target: Span,
    /// Threshold that it asks for now; `None` while the VM does little or no IO, or the objective rests.
    pub asks: Option<Span>,
    /// The array could not meet the objective, which is tried again later.
    pub rests: bool,
    /// Measurements of its last period with IO.
    pub seen: Option<ObjectiveSeen>,
}

impl Objective {
    /// Objective of a VM without any IO so far.
    #[must_use]
    pub fn new(target: Span) -> Objective {
        Objective {
            target: target.secs(),
            ratio: None,
            idle: None,
            quiet: 0,
            missed: 0,
            rests: 0,
            next_rest: RESTS,
            ios: 0,
            device: 0.0,
            held: 0.0,
            last: None,
        }
    }

    /// Target for the time of its IOs.
    #[must_use]
    pub fn target(&self) -> Span {
        Span::from_secs(self.target)
    }

    /// Records a completed read or write.
    pub fn add(&mut self, held: Span, device: Span) {
        self.ios += 1;
        self.held += held.secs();
        self.device += device.secs();
    }

    /// The objective with the IOs of the period, for the law. The next period begins.
    #[must_use]
    pub fn measure(&mut self) -> Objective {
        let begun = Objective { ios: 0, device: 0.0, held: 0.0, ..*self };
        core::mem::replace(self, begun)
    }

    /// Takes over the law's result for [`Objective::measure`]. IOs since then count for the period that has begun.
    pub fn apply(&mut self, rolled: &Objective) {
        let Objective { ios, device, held, .. } = *self;
        *self = Objective { ios, device, held, ..*rolled };
    }

    /// Ends a period. `latency`: of the cluster in that period, in seconds. `least`: fewer IOs than this do not make the VM active.
    /// `own` and `in_force`: the volume's own threshold, and the one in force. Returns the number of IOs if the VM is active.
    pub fn roll(
        &mut self,
        latency: Option<f64>,
        least: u32,
        own: Span,
        in_force: Span,
    ) -> Option<u64> {
        let ios = core::mem::take(&mut self.ios);
        let (device, held) = (core::mem::take(&mut self.device), core::mem::take(&mut self.held));
        self.rests = self.rests.saturating_sub(1);
        let active = ios >= u64::from(least.max(1));
        let (device, held) = (device / ios as f64, held / ios as f64);
        if ios > 0 {
            (self.quiet, self.last) =
                (0, Some(ObjectiveSeen { device, held, short: held > self.target }));
        }
        self.quiet = self.quiet.saturating_add(1);
        if let Some(last) = self.last.as_mut().filter(|_| self.quiet > 2 * STAYS) {
            last.short = false;
        }
        if active {
            self.idle = Some(0);
            if let Some(latency) = latency.filter(|latency| *latency > 0.0) {
                let now = (device / latency).min(RATIO);
                self.ratio = Some(self.ratio.map_or(now, |ratio| ratio + NEW * (now - ratio)));
            }
        } else {
            self.idle = self.idle.map(|idle| idle + 1).filter(|idle| *idle <= STAYS);
        }
        let misses = self.last.is_some_and(|seen| seen.device > MISSED * self.target);
        if active && !misses {
            (self.missed, self.next_rest) = (0, RESTS);
        } else if misses && in_force < own && self.asks(own).is_some() {
            self.missed += 1;
        }
        if self.missed >= TRIES && on(Mechanism::ObjectiveRests) {
            (self.missed, self.rests) = (0, self.next_rest);
            self.next_rest = (2 * self.next_rest).min(RESTS_MOST);
        }
        self.idle.map(|_| ios)
    }

    /// The threshold that the objective asks for, if it is active. `own`: the volume's own threshold, the
    /// upper bound of the answer.
    #[must_use]
    pub fn asks(&self, own: Span) -> Option<Span> {
        self.idle.filter(|_| self.rests == 0)?;
        Some(Span::from_secs((self.target / self.ratio.unwrap_or(1.0)).min(own.secs())))
    }

    /// Standing of the objective after the last period.
    #[must_use]
    pub fn standing(&self, own: Span) -> ObjectiveState {
        let (target, asks) = (self.target(), self.asks(own));
        ObjectiveState { target, asks, rests: self.rests > 0, seen: self.last }
    }
}

/// Periods over which throughput is averaged, before an objective was in force and while it is.
const OVER: f64 = 20.0;

/// Effect of objectives on the threshold, and on VMs without an objective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effect {
    /// Σ IO/s of VMs without an objective while the volume's own threshold was in force, as last known.
    before: Option<(f64, f64)>,
    /// Σ IO/s of these VMs while an objective is in force.
    now: Option<(f64, f64)>,
    /// The threshold that is asked for and within bounds, if it is below the volume's own.
    asked: Option<Span>,
}

/// Cost of the objective in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The volume's own threshold.
    pub own: Span,
    /// The one in force.
    pub in_force: Span,
    /// IO/s of all VMs in the cluster without an objective, while the volume's own threshold was in force. The mean of up to twenty
    /// periods in which some host could have used more. `None` without such a period.
    pub before: Option<f64>,
    /// IO/s of the same VMs while the objective is in force. `None` without such a period.
    pub now: Option<f64>,
}

impl Effect {
    /// Threshold in force. `asks`: the least that any host asks for. `floor`: the largest of all floors.
    pub fn in_force(&mut self, own: Span, asks: Option<Span>, floor: Span) -> Span {
        let asked = asks.map(|asks| Span(asks.0.max(floor.0))).filter(|asked| asked.0 < own.0);
        if asked.is_none() {
            self.now = None;
        }
        self.asked = asked;
        asked.unwrap_or(own)
    }

    /// Ends a period. `others`: IO/s of VMs without an objective. `wanted`: whether a host could have used
    /// more.
    pub fn period(&mut self, others: f64, wanted: bool) {
        let mean = match self.asked {
            Some(_) => &mut self.now,
            None if wanted => &mut self.before,
            None => return,
        };
        let (value, periods) = mean.unwrap_or((0.0, 0.0));
        let periods = (periods + 1.0).min(OVER);
        *mean = Some((value + (others - value) / periods, periods));
    }

    /// Cost of the objective in force, if any.
    #[must_use]
    pub fn price(&self, own: Span) -> Option<Price> {
        let value = |mean: Option<(f64, f64)>| mean.map(|(value, _)| value);
        let in_force = self.asked?;
        Some(Price { own, in_force, before: value(self.before), now: value(self.now) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Span = Span::from_millis(30);

    /// A period in which a VM did 100 IOs of `device` ms at an array of latency `cluster` ms. The threshold in force is the one
    /// that the VM asks for.
    fn period(vm: &mut Objective, device: u64, cluster: f64) -> Option<f64> {
        (0..100).for_each(|_| vm.add(Span::ZERO, Span::from_millis(device)));
        let in_force = vm.asks(OWN).unwrap_or(OWN);
        vm.roll(Some(cluster * 1e-3), 4, OWN, in_force);
        vm.asks(OWN).map(|asks| asks.secs() * 1e3)
    }

    fn idle(vm: &mut Objective, periods: u32) -> bool {
        (0..periods).for_each(|_| _ = vm.roll(None, 4, OWN, OWN));
        vm.asks(OWN).is_some()
    }

    fn near(is: Option<f64>, want: f64) {
        assert!(is.is_some_and(|is| (is / want - 1.0).abs() < 0.02), "{is:?} {want}");
    }

    #[test]
    fn it_asks_for_the_threshold_at_which_its_own_ios_take_as_long_as_it_says() {
        let mut vm = Objective::new(Span::from_millis(10));
        assert_eq!(vm.asks(OWN), None, "it did nothing yet");
        near(period(&mut vm, 30, 30.0), 10.0);
        // Its IOs are easier than the others'.
        (0..60).for_each(|_| _ = period(&mut vm, 8, 10.0));
        near(period(&mut vm, 8, 10.0), 12.5);
        // Never more than the volume's own.
        near(period(&mut Objective::new(Span::from_millis(300)), 30, 30.0), 30.0);
        // Writes into a cache: no threshold makes them slower.
        near(period(&mut Objective::new(Span::from_millis(2)), 1, 30.0), 30.0);
    }

    #[test]
    fn an_objective_is_dropped_when_the_vm_stops() {
        let mut vm = Objective::new(Span::from_millis(10));
        period(&mut vm, 10, 10.0);
        assert!(idle(&mut vm, STAYS) && !idle(&mut vm, 1));
        near(period(&mut vm, 10, 10.0), 10.0);
    }

    #[test]
    fn one_io_now_and_then_asks_for_nothing() {
        let mut vm = Objective::new(Span::from_millis(10));
        for _ in 0..100 {
            vm.add(Span::ZERO, Span::from_millis(30));
            vm.roll(Some(0.03), 4, OWN, OWN);
            assert_eq!(vm.asks(OWN), None);
        }
    }

    #[test]
    fn an_objective_that_cannot_be_met_rests_ever_longer() {
        let mut vm = Objective::new(Span::from_millis(2));
        let mut tries = alloc::vec::Vec::new();
        for n in 0..2000_u32 {
            let before = vm.asks(OWN).is_some();
            if period(&mut vm, 6, 6.0).is_some() && !before {
                tries.push(n);
            }
        }
        assert!(vm.standing(OWN).rests || vm.asks(OWN).is_some());
        let apart: alloc::vec::Vec<u32> = tries.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(apart.len() >= 3 && apart.windows(2).all(|w| w[1] > w[0]), "{apart:?}");
        // Once it is met, it is tried as at first.
        let mut vm = Objective::new(Span::from_millis(7));
        (0..20).for_each(|_| _ = period(&mut vm, 9, 9.0));
        assert!(vm.standing(OWN).rests);
        (0..200).for_each(|_| _ = period(&mut vm, 7, 7.0));
        assert!(!vm.standing(OWN).rests);
    }

    #[test]
    fn who_is_held_for_longer_than_the_objective_is_short_of_shares() {
        let mut vm = Objective::new(Span::from_millis(10));
        (0..9).for_each(|_| vm.add(Span::from_millis(30), Span::from_millis(9)));
        vm.roll(Some(0.009), 4, OWN, OWN);
        assert!(vm.standing(OWN).seen.is_some_and(|seen| seen.short));
        near(vm.asks(OWN).map(|asks| asks.secs() * 1e3), 10.0);
    }

    #[test]
    fn the_least_that_is_asked_for_is_in_force_within_bounds_and_its_cost_is_known() {
        let ms = Span::from_millis;
        let mut effect = Effect::default();
        assert_eq!(effect.in_force(OWN, None, ms(5)), OWN);
        effect.period(9e9, false);
        (0..30).for_each(|_| effect.period(3000.0, true));
        assert_eq!(effect.price(OWN), None);
        assert_eq!(effect.in_force(OWN, Some(ms(10)), ms(5)), ms(10));
        effect.period(1200.0, true);
        let price = Price { own: OWN, in_force: ms(10), before: Some(3000.0), now: Some(1200.0) };
        assert_eq!(effect.price(OWN), Some(price));
        assert_eq!(effect.in_force(OWN, Some(ms(1)), ms(5)), ms(5));
        assert_eq!(effect.in_force(OWN, Some(ms(40)), ms(5)), OWN);
        assert_eq!(effect.in_force(ms(3), Some(ms(1)), ms(5)), ms(3), "a floor raises nothing");
        assert_eq!(effect.price(ms(3)), None);
    }
}
