//! Latency objectives of VMs: which threshold one asks for, and what the cluster makes of that.
//!
//! A database that keeps three IOs outstanding gains nothing from shares: it has all the concurrency that
//! it asks for, and its throughput is 3 / latency. Only a lower latency at the array helps it, and that is
//! the threshold's to decide, of which there is one for all hosts. So a VM with an objective asks for the
//! threshold at which its own IOs take as long as the objective says, and the least that is asked for is
//! in force while whoever asks is active.
//!
//! What a VM sees is the time at the array and the time held in its host's queue. The time at the array
//! follows the threshold. The time held does not: a smaller threshold makes slices smaller, and a VM that
//! wants more than its slice is then held for longer. So a VM that is held asks for less strictness until
//! it is held no more, and says that its shares are the limit.

use crate::units::Span;

/// Weight of the last period in the ratio of a VM's latency to the cluster's.
const NEW: f64 = 0.2;
/// Largest ratio of a VM's latency at the array to the cluster's, and the inverse of the least.
const RATIO: f64 = 4.0;
/// A VM that is held for more than this part of its objective, and sees more than the objective, is short
/// of shares.
const HELD: f64 = 0.1;
/// Factors on the threshold that a VM asks for: in each period in which it is short of shares, and in each other period.
const LIFT: f64 = 1.1;
const FADE: f64 = 0.97;
/// Periods without enough IOs after which a VM's objective is dropped.
const STAYS: u32 = 10;
/// Periods after that within which a VM that comes back is waited for twice as long the next time.
const SOON: u32 = 60;
/// Largest number of periods that a VM is waited for.
const STAYS_MOST: u32 = 160;
/// Periods in a row with few IOs, held for longer than the objective, from which on a VM is short of shares: held for so long that it
/// cannot do more.
const STARVES: u32 = 3;

/// Threshold that a host asks for on behalf of its VMs, and its floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The least threshold that one of its VMs asks for now.
    pub asks: Option<Span>,
    /// No VM's objective, on any host, may bring the threshold below this.
    pub floor: Span,
    /// IOs of VMs that ask, completed in the interval.
    pub ios: u64,
}

/// The smaller of two thresholds, or the one that there is.
pub(crate) fn strictest(one: Option<Span>, other: Option<Span>) -> Option<Span> {
    one.into_iter().chain(other).min()
}

/// A VM's objective, and the threshold that the VM asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    target: f64,
    /// Its latency at the array over the cluster's. `None` before it did IO.
    ratio: Option<f64>,
    /// Factor on the threshold that the VM asks for, as it is short of shares (σ of `docs/control.md`).
    lift: f64,
    active: bool,
    /// Periods since the VM was active, and the number after which its objective is dropped.
    idle: u32,
    stays: u32,
    ios: u64,
    device: f64,
    held: f64,
    /// Periods in a row with few IOs, held for longer than the objective.
    starved: u32,
    last: Option<Seen>,
}

/// What a VM with an objective saw in its last period with IO, or with IOs that are held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Mean time at the array, in seconds. Zero: no IO was done yet.
    pub device: f64,
    /// Mean time held in the host's queue, in seconds.
    pub held: f64,
    /// It was held for so long that its shares are the limit, and no threshold can help it.
    pub short: bool,
}

/// An objective for people to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveState {
    /// What the VM is to see: held and at the array.
    pub target: Span,
    /// The threshold that it asks for now; `None` while it does little or nothing.
    pub asks: Option<Span>,
    /// What it saw in its last period with IO.
    pub seen: Option<Seen>,
}

impl Objective {
    /// An objective of a VM that did nothing yet.
    #[must_use]
    pub fn new(target: Span) -> Objective {
        Objective {
            target: target.secs(),
            ratio: None,
            lift: 1.0,
            active: false,
            // The objective was never in force, so that its first return does not count as one.
            idle: u32::MAX,
            stays: STAYS,
            ios: 0,
            device: 0.0,
            held: 0.0,
            starved: 0,
            last: None,
        }
    }

    /// What it is to see.
    #[must_use]
    pub fn target(&self) -> Span {
        Span::from_secs(self.target)
    }

    /// One of its reads or writes is done.
    pub fn add(&mut self, held: Span, device: Span) {
        self.ios += 1;
        self.held += held.secs();
        self.device += device.secs();
    }

    /// Ends a period. `latency`: of the cluster in that period, in seconds. `least`: fewer IOs than this
    /// do not make it active. `waits`: for how long its oldest held IO has been held. Gives how many it did, if it is active.
    pub fn roll(&mut self, latency: Option<f64>, least: u32, waits: Span) -> Option<u64> {
        let ios = core::mem::take(&mut self.ios);
        let (device, held) = (core::mem::take(&mut self.device), core::mem::take(&mut self.held));
        if ios < u64::from(least.max(1)) {
            self.idle = self.idle.saturating_add(1);
            self.active &= self.idle <= self.stays;
            let mean = (ios > 0).then(|| (device / ios as f64, held / ios as f64));
            self.starve(mean, waits.secs());
            return self.active.then_some(ios);
        }
        self.starved = 0;
        if !self.active {
            let soon = self.idle <= self.stays.saturating_add(SOON);
            self.stays = if soon { (2 * self.stays).min(STAYS_MOST) } else { STAYS };
        }
        (self.active, self.idle) = (true, 0);
        let (device, held) = (device / ios as f64, held / ios as f64);
        if let Some(latency) = latency.filter(|latency| *latency > 0.0) {
            let now = (device / latency).clamp(1.0 / RATIO, RATIO);
            self.ratio = Some(self.ratio.map_or(now, |ratio| ratio + NEW * (now - ratio)));
        }
        let short = self.misses(device, held);
        self.lift = if short { self.lift * LIFT } else { (self.lift * FADE).max(1.0) };
        self.last = Some(Seen { device, held, short });
        Some(ios)
    }

    /// Whether IOs with these mean times, in seconds, miss the objective as they are held.
    fn misses(&self, device: f64, held: f64) -> bool {
        held > HELD * self.target && held + device > self.target
    }

    /// Ends a period with few IOs. `mean`: their times at the array and held, in seconds.
    fn starve(&mut self, mean: Option<(f64, f64)>, waits: f64) {
        let missed = mean.is_some_and(|(device, held)| self.misses(device, held));
        if !missed && waits <= self.target {
            self.starved = 0;
            if let Some(last) = &mut self.last {
                last.short = false;
            }
            return;
        }
        self.starved = self.starved.saturating_add(1);
        if self.starved >= STARVES {
            let known = self.last.map_or(0.0, |last| last.device);
            let (device, held) = mean.unwrap_or((known, 0.0));
            self.last = Some(Seen { device, held: held.max(waits), short: true });
        }
    }

    /// The threshold that the objective asks for, if it is active. `own`: the volume's own threshold, the
    /// upper bound of the answer.
    pub fn asks(&mut self, own: Span) -> Option<Span> {
        if !self.active {
            return None;
        }
        // A little time held is part of what it sees. More of it no threshold can make up for.
        let held = self.last.map_or(0.0, |seen| seen.held.min(HELD * self.target));
        let wants = (self.target - held) / self.ratio.unwrap_or(1.0);
        self.lift = self.lift.min((own.secs() / wants).max(1.0));
        Some(Span::from_secs((wants * self.lift).min(own.secs())))
    }

    /// Standing of the objective after the last period.
    #[must_use]
    pub fn standing(&self, own: Span) -> ObjectiveState {
        ObjectiveState { target: self.target(), asks: self.clone().asks(own), seen: self.last }
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
    /// IO/s of all VMs in the cluster that ask for nothing, while the volume's own was in force: the mean of
    /// up to twenty periods in which somebody could have used more. `None` if there was no such period.
    pub before: Option<f64>,
    /// IO/s of the same VMs while the objective is in force. `None` if there was no period with it.
    pub now: Option<f64>,
}

impl Effect {
    /// The threshold in force. `asks`: the least that is asked for on any host. `floor`: the largest of
    /// all floors.
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

    /// What it costs, if an objective is in force.
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
    use alloc::vec::Vec;

    const OWN: Span = Span::from_millis(30);

    /// A period in which a VM did 100 IOs that took so long, in ms, at an array of that latency.
    fn period(vm: &mut Objective, held: u64, device: u64, cluster: f64) -> Option<f64> {
        (0..100).for_each(|_| vm.add(Span::from_millis(held), Span::from_millis(device)));
        vm.roll(Some(cluster * 1e-3), 4, Span::ZERO);
        vm.asks(OWN).map(|asks| asks.secs() * 1e3)
    }

    fn idle(vm: &mut Objective, periods: u32) -> bool {
        (0..periods).for_each(|_| _ = vm.roll(None, 4, Span::ZERO));
        vm.asks(OWN).is_some()
    }

    fn near(is: Option<f64>, want: f64) {
        assert!(is.is_some_and(|is| (is / want - 1.0).abs() < 0.02), "{is:?} {want}");
    }

    #[test]
    fn it_asks_for_the_threshold_at_which_its_own_ios_take_as_long_as_it_says() {
        let mut vm = Objective::new(Span::from_millis(10));
        assert_eq!(vm.asks(OWN), None, "it did nothing yet");
        near(period(&mut vm, 0, 30, 30.0), 10.0);
        // Its IOs are easier than the others'.
        (0..60).for_each(|_| _ = period(&mut vm, 0, 8, 10.0));
        near(period(&mut vm, 0, 8, 10.0), 12.5);
        // Never more than the volume's own.
        let mut lax = Objective::new(Span::from_millis(300));
        near(period(&mut lax, 0, 30, 30.0), 30.0);
    }

    #[test]
    fn a_little_time_held_counts_and_much_of_it_asks_for_a_larger_threshold() {
        let mut vm = Objective::new(Span::from_millis(10));
        near(period(&mut vm, 1, 8, 8.0), 9.0);
        // Held for most of the time: its slice is too small, and a smaller threshold makes it smaller.
        let asks: Vec<_> = (0..30).map(|_| period(&mut vm, 30, 10, 10.0)).collect();
        assert!(asks.windows(2).all(|w| w[1] >= w[0]), "{asks:?}");
        near(asks[29], 30.0);
        assert!(vm.standing(OWN).seen.is_some_and(|seen| seen.short));
        // It is held no more.
        let asks: Vec<_> = (0..80).map(|_| period(&mut vm, 0, 10, 10.0)).collect();
        near(asks[79], 10.0);
    }

    #[test]
    fn who_comes_and_goes_is_waited_for_longer_each_time() {
        let mut vm = Objective::new(Span::from_millis(10));
        period(&mut vm, 0, 10, 10.0);
        assert!(idle(&mut vm, STAYS) && !idle(&mut vm, 1));
        period(&mut vm, 0, 10, 10.0);
        assert!(idle(&mut vm, 2 * STAYS) && !idle(&mut vm, 1));
        for _ in 0..9 {
            period(&mut vm, 0, 10, 10.0);
            while idle(&mut vm, 1) {}
        }
        period(&mut vm, 0, 10, 10.0);
        assert!(idle(&mut vm, STAYS_MOST) && !idle(&mut vm, 1));
        // One that was away for long is as new.
        idle(&mut vm, SOON + 1);
        period(&mut vm, 0, 10, 10.0);
        assert!(idle(&mut vm, STAYS) && !idle(&mut vm, 1));
    }

    #[test]
    fn one_io_now_and_then_asks_for_nothing() {
        let mut vm = Objective::new(Span::from_millis(10));
        for _ in 0..100 {
            vm.add(Span::ZERO, Span::from_millis(30));
            vm.roll(Some(0.03), 4, Span::ZERO);
            assert_eq!(vm.asks(OWN), None);
        }
    }

    #[test]
    fn few_ios_as_they_are_held_are_a_miss_and_few_ios_as_few_come_are_none() {
        let mut vm = Objective::new(Span::from_millis(10));
        let short = |vm: &Objective| vm.standing(OWN).seen.is_some_and(|seen| seen.short);
        let mut roll = |ios: u64, held: u64, waits: u64| {
            (0..ios).for_each(|_| vm.add(Span::from_millis(held), Span::from_millis(5)));
            vm.roll(Some(0.005), 4, Span::from_millis(waits));
            short(&vm)
        };
        assert!(!roll(0, 0, 0) && !roll(1, 2, 8) && !roll(1, 0, 0), "few come");
        // No IO is done at all: the one that waits says so.
        assert!(!roll(0, 0, 500) && !roll(0, 0, 1500) && roll(0, 0, 2500));
        assert!(roll(1, 3000, 3) && roll(0, 0, 500));
        assert!(!roll(0, 0, 0), "it stopped");
        assert!(!roll(1, 900, 0) && !roll(1, 900, 0) && !roll(0, 0, 0), "two by chance");
        assert!(!roll(3, 90, 0) && !roll(3, 90, 0) && roll(3, 90, 0));
        assert!(!roll(50, 0, 0), "it is held no more");
        assert!(roll(50, 30, 30) && !roll(0, 0, 0), "held, and then it stopped");
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
