//! Belief in what other hosts say of themselves.
//!
//! The law rests on a few quotients of sums over hosts: outstanding IOs over active shares, latency over IOs, latency over outstanding
//! IOs (which Little's law makes one), throughput over shares. The *pull* of a host on a quotient is the factor by which the quotient
//! with it differs from the quotient without. Hosts that follow the law pull little, or as they always did. So a host pulls as far as it
//! did while it was new, and a little further for a short time, as loads change. What it says beyond that counts for less: all its part
//! is scaled down to where it pulls no further. Whatever a host says, the others then hold the array within `ROOM` of the threshold.
//!
//! Sizes need a bound where they count by themselves: the shares by which a host votes, or is missed, grow slowly.

use alloc::vec::Vec;

use crate::cluster::{Governed, Part, Tuning, Weights};
use crate::latency::Signal;
use crate::mechanism::{Mechanism, on};
use crate::settings::Settings;
use crate::tenant::TenantPart;
use crate::units::{Shares, Span};

/// Part by which a host may pull a quotient further than it usually does, for ever.
const ROOM: f64 = 0.04;

/// Sum over periods of what it may pull further, as its load or its window changes, of each quotient; and the part of it that a period
/// forgives. Pulls both ways cancel.
const DEBT: [f32; 4] = [4.0, 1.0, 4.0, 4.0];
const FORGIVES: f32 = 1.0 / 400.0;

/// Excess of a period that counts at most: a factor of two.
const LEAP: f64 = 1.0;

/// Periods in which a host is believed, as nothing is known of it, or of the array since its latency changed. Windows settle in five.
pub const NEW: u32 = 20;

/// Factor from which on the latency of the others has changed, and weight of a period in what it was.
const MOVED: f64 = 1.25;
const WEIGHT: f32 = 0.1;

/// Excess from which on a host is suspect, and periods by which the others' latency may follow, if the load of the array is what changed.
const SUSPECT: f64 = 0.15;
const FOLLOWS: u8 = 2;

/// Part by which a known host's usual pull, and the shares that it counts with, change in a period.
const LEARNS: f64 = 1.0 / 3600.0;
const GROWS: f64 = 1.0 / 300.0;

/// Shares that count at once, of those that are known; and those that a tenant's VMs use, of their own.
const SOME: f64 = 1.5;
const USED: f64 = 4.0;

/// Factor on the shares that count from which on a host is named.
const MUCH: f64 = 10.0;

/// Active shares for each share, at most: the largest weight where throughput is balanced.
const ACTIVE: f64 = 64.0;

/// IOs of reservations for each IO outstanding, at most.
const RESERVED: f64 = 4.0;

/// Periods for which a host may ask for a threshold that the array does not reach, by these factors, each of which adds one. An honest
/// host rests after ten.
const ASKS: u8 = 30;
const MISSES: [f64; 2] = [1.2, 2.0];

/// Factor between two thresholds of a search from which on its host is not followed.
const LEAPS: f64 = 1.5;

/// Periods without belief after which a host is named, and the factor of what it says that is still believed then.
const NAMED: u8 = 5;

/// A quotient of the law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Doubt {
    /// Outstanding IOs over active shares.
    Window,
    /// Latency, over the IOs that took it.
    Latency,
    /// Latency over outstanding IOs.
    Outstanding,
    /// Throughput over shares, where shares divide throughput.
    Throughput,
    /// Shares, far more than it had.
    Shares,
    /// A threshold for its VMs' objective that the array does not reach.
    Objective,
    /// A threshold found by it that leapt.
    Threshold,
}

const QUOTIENTS: [Doubt; 4] =
    [Doubt::Window, Doubt::Latency, Doubt::Outstanding, Doubt::Throughput];

/// The places of two of these.
const LATENCY: usize = 1;
const OUTSTANDING: usize = 2;

type Quotient = [f64; 2];

/// What is known of another host, by which its next report is judged.
#[derive(Clone, Copy, Debug)]
pub struct Belief {
    /// Usual pull on each quotient, and the sum of what it pulled further.
    usual: [f32; 4],
    debt: [f32; 4],
    /// Usual latency of the others, and the periods since it changed.
    rest: f32,
    settled: u8,
    /// Periods left in which it is believed, as it is new together with this host; and in which a change of the others' latency does not
    /// excuse it.
    fresh: u8,
    suspect: u8,
    /// Periods in a row with a pull that makes it suspect, and without any beyond what is usual.
    spell: u8,
    calm: u8,
    /// Parts of its last report that count.
    weights: Weights,
    /// Shares that count, of the host and of its tenants, at most. 0: it said nothing yet.
    shares: [f32; 2],
    /// The threshold that it found, and the periods left in which none that it finds counts.
    threshold: Span,
    leapt: u8,
    /// Periods for which it asked for more than the array does; and without belief, for the last cause.
    asked: u8,
    doubted: u8,
    cause: Option<Doubt>,
}

impl Default for Belief {
    fn default() -> Belief {
        Belief {
            usual: [1.0; 4],
            debt: [0.0; 4],
            rest: 0.0,
            settled: u8::MAX,
            fresh: 0,
            suspect: 0,
            spell: 0,
            calm: 0,
            weights: Weights::ALL,
            shares: [0.0; 2],
            threshold: Span::ZERO,
            leapt: 0,
            asked: 0,
            doubted: 0,
            cause: None,
        }
    }
}

/// A host that is heard, with what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Place of the host in a list of the caller.
    pub place: usize,
    /// Part that the host reports; after [`Judging::judge`] the part that counts.
    pub part: Part,
    /// What is known of it.
    pub belief: Belief,
    /// Shares of its tenants' VMs.
    pub tenants: f64,
    /// Whether it says that for the first time.
    pub news: bool,
}

/// Hosts that are judged together. The lists may be used again, also for the hosts that another host hears.
#[derive(Debug, Default)]
pub struct Judging {
    /// The hosts. The last of them is this host itself: what the others do not believe of it must not move it alone.
    pub hosts: Vec<Heard>,
    pulls: Vec<Pulls>,
}

/// Pulls of a host while it is judged.
#[derive(Clone, Copy, Debug)]
struct Pulls {
    quotients: [Quotient; 4],
    /// The pulls on each that are usual: the least and the largest.
    usual: [[f64; 2]; 4],
    /// A bit for each quotient that was judged.
    judged: u8,
    /// Who is not believed is no measure of the others.
    doubted: bool,
    cause: Option<Doubt>,
    /// Parts of the report that count.
    weights: Weights,
    /// Excess of its pull over the usual one, as a part.
    far: f64,
}

impl Judging {
    /// Scales down what hosts say beyond belief. `new`: this host is new, so that all others are new to it.
    pub fn judge(&mut self, new: bool) {
        let Judging { hosts, pulls } = self;
        let Some(own) = hosts.last().map(|own| own.part).filter(|_| on(Mechanism::Belief)) else {
            return;
        };
        let settings = own.settings.unwrap_or_default();
        let observes = own.governed == Governed::Observes;
        let all = hosts.iter().fold(0.0, |sum, host| sum + host.part.load.shares);
        pulls.clear();
        pulls.extend(hosts.iter_mut().map(|host| {
            host.hear(all, new);
            Pulls {
                quotients: host.part.quotients(settings, observes),
                usual: core::array::from_fn(|k| host.belief.bounds(k)),
                judged: if host.news { 0 } else { 0xf },
                doubted: host.belief.suspect > 0,
                cause: None,
                weights: Weights::ALL,
                far: 0.0,
            }
        }));
        // The others are no measure of a host that has more shares than they.
        let known = |host: &Heard| f64::from(host.belief.shares[0]);
        let half = 0.5 * hosts.iter().map(known).sum::<f64>();
        for (_, most) in hosts.iter().zip(pulls.iter_mut()).filter(|(host, _)| known(host) > half) {
            most.judged = 0xf;
        }
        let mut sums = sum(pulls, None);
        // Hosts that pull far hide one another, so the furthest is judged first.
        while let Some((i, k)) = furthest(&sums, pulls) {
            let rest = sum(pulls, Some(i))[k];
            let (host, belief) = (&mut pulls[i], &mut hosts[i].belief);
            host.judged |= 1 << k;
            let part = host.quotients[k];
            let pulled = pull(rest, part);
            host.far = host.far.max(over(host.usual[k], pulled));
            if let Some(bound) = belief.excess(k, pulled) {
                let factor = weight(rest, part, bound);
                if factor < 1.0 {
                    lower(&mut host.weights, k, factor);
                    scale(&mut host.quotients, k, factor);
                    (host.cause, host.doubted) = (Some(QUOTIENTS[k]), true);
                    sums = sum(pulls, None);
                }
            }
        }
        for (host, judged) in hosts.iter_mut().zip(pulls).filter(|(host, _)| host.news) {
            host.learn(judged, &judged.rest(&sums));
        }
    }
}

impl Heard {
    /// Takes in a report, as far as it counts by itself. `all`: shares of all hosts.
    fn hear(&mut self, all: f64, new: bool) {
        let Heard { part, belief, .. } = self;
        if self.news {
            belief.hear_shares([part.load.shares, self.tenants], all, new);
            belief.hear_threshold(part);
        }
        let most = SOME * f64::from(belief.shares[0]);
        if part.load.shares > MUCH * most {
            (belief.cause, belief.doubted) = (Some(Doubt::Shares), NAMED);
        }
        part.bound(most, most * ACTIVE, RESERVED);
        if !self.news {
            part.scale(belief.weights);
        }
    }

    /// Takes in how it was judged. `rest`: the sums without it.
    fn learn(&mut self, judged: &Pulls, rest: &[Quotient; 4]) {
        let pulls = core::array::from_fn(|k| pull(rest[k], judged.quotients[k]));
        self.part.scale(judged.weights);
        let [latency, ios] = rest[LATENCY];
        self.belief.hear_wish(&mut self.part, latency / ios);
        self.belief.watch(latency / ios, judged.far);
        let works = judged.quotients[LATENCY][1] > 0.0;
        self.belief.learn(pulls, judged.weights, judged.cause, works);
    }
}

/// Lowers the part that counts of what a quotient is made of.
fn lower(weights: &mut Weights, k: usize, by: f64) {
    let of = match QUOTIENTS[k] {
        Doubt::Window => &mut weights.load,
        Doubt::Throughput => &mut weights.saturated,
        _ => &mut weights.flows,
    };
    *of *= by;
}

/// Scales a quotient, and what else it is made of.
fn scale(quotients: &mut [Quotient; 4], k: usize, by: f64) {
    match QUOTIENTS[k] {
        Doubt::Throughput => quotients[k].iter_mut().for_each(|value| *value *= by),
        Doubt::Window => {
            quotients[k].iter_mut().for_each(|value| *value *= by);
            quotients[OUTSTANDING][1] *= by;
        }
        _ => {
            quotients[LATENCY].iter_mut().for_each(|value| *value *= by);
            quotients[OUTSTANDING][0] *= by;
        }
    }
}

/// Sums over all hosts that are believed, but one.
fn sum(hosts: &[Pulls], but: Option<usize>) -> [Quotient; 4] {
    let mut all = [[0.0; 2]; 4];
    let counted = |(i, host): &(usize, &Pulls)| !host.doubted && Some(*i) != but;
    for (_, host) in hosts.iter().enumerate().filter(counted) {
        let values = host.quotients.iter().flatten();
        all.iter_mut().flatten().zip(values).for_each(|(sum, one)| *sum += one);
    }
    all
}

/// The factor by which a host changes a quotient of the rest. 1 where there is nothing to change.
fn pull(rest: Quotient, part: Quotient) -> f64 {
    let pull = (rest[0] + part[0]) / (rest[1] + part[1]) * (rest[1] / rest[0]);
    if rest[0] > 0.0 && rest[1] > 0.0 && pull.is_finite() { pull } else { 1.0 }
}

/// The part of what a host says by which it pulls up to a bound.
fn weight(rest: Quotient, part: Quotient, bound: f64) -> f64 {
    let bound = bound * rest[0] / rest[1];
    let weight = (bound * rest[1] - rest[0]) / (part[0] - bound * part[1]);
    if weight.is_finite() { weight.clamp(0.0, 1.0) } else { 0.0 }
}

/// Excess of a pull over the usual bounds, as a part.
fn over([least, most]: [f64; 2], pulls: f64) -> f64 {
    (pulls / most).max(least / pulls) - 1.0
}

/// The host, and the quotient, that pulls furthest beyond what is usual for it.
fn furthest(sums: &[Quotient; 4], hosts: &[Pulls]) -> Option<(usize, usize)> {
    let mut worst = (0.0, None);
    for (i, host) in hosts.iter().enumerate() {
        // This host knows itself: it comes last.
        if i + 1 == hosts.len() && worst.1.is_some() {
            break;
        }
        let rest = host.rest(sums);
        for k in (0..4).filter(|k| host.judged >> k & 1 == 0) {
            let over = over(host.usual[k], pull(rest[k], host.quotients[k]));
            if over > worst.0 {
                worst = (over, Some((i, k)));
            }
        }
    }
    worst.1
}

impl Pulls {
    /// The sums without this host, which is a part of them unless it is doubted.
    fn rest(&self, sums: &[Quotient; 4]) -> [Quotient; 4] {
        let less = |k: usize| {
            let ([all, below], [one, under]) = (sums[k], self.quotients[k]);
            [all - one, below - under]
        };
        if self.doubted { *sums } else { core::array::from_fn(less) }
    }
}

impl Belief {
    /// The least and the largest pull that is usual.
    fn bounds(&self, k: usize) -> [f64; 2] {
        let usual = f64::from(self.usual[k]);
        // IOs that are not done yet are no lie.
        let least = if k == OUTSTANDING { 0.0 } else { 1.0 };
        [least * usual.min(1.0) / (1.0 + ROOM), usual.max(1.0) * (1.0 + ROOM)]
    }

    /// Whether what it does to a quotient is learned.
    fn is_open(&self, k: usize) -> bool {
        let changed = self.settled < NEW as u8 && self.suspect == 0;
        self.fresh > 0 || (changed && QUOTIENTS[k] != Doubt::Window)
    }

    /// Takes in the latency of the others in a period, and how far the host pulled beyond what is usual. Where both change at once, the array's load is another
    /// one. Who pulls far alone is suspect for as long as it does.
    fn watch(&mut self, rest: f64, far: f64) {
        if rest.is_finite() && rest > 0.0 {
            let known = f64::from(self.rest);
            let moves = known > 0.0 && !(1.0 / MOVED..MOVED).contains(&(rest / known));
            self.settled = if moves { 0 } else { self.settled.saturating_add(1) };
            let weight = if known > 0.0 { WEIGHT } else { 1.0 };
            self.rest += weight * (rest as f32 - self.rest);
        }
        self.calm = if far > 0.0 { 0 } else { self.calm.saturating_add(1) };
        self.spell = if far > SUSPECT { self.spell.saturating_add(1) } else { 0 };
        self.suspect = self.suspect.saturating_sub(1);
        if self.spell > FOLLOWS && !self.is_open(LATENCY) {
            self.suspect = NEW as u8;
        }
    }

    /// Takes in a pull beyond what is usual. Returns the furthest that counts, if that is less.
    fn excess(&mut self, k: usize, pulls: f64) -> Option<f64> {
        let [least, most] = self.bounds(k);
        let over = over([least, most], pulls);
        // A single period is chance, a burst that ends or a few IOs, unless it leaps.
        let chance = self.calm >= NEW as u8 && over <= LEAP;
        if self.is_open(k) || chance {
            return None;
        }
        let (sign, bound) = if pulls > most { (1.0, most) } else { (-1.0, 1.0 / least) };
        let left = (DEBT[k] - sign * self.debt[k]).max(0.0);
        let pays = over.min(left.into()).min(LEAP);
        self.debt[k] += sign * pays as f32;
        let bound = bound * (1.0 + pays);
        (over > pays).then_some(if sign > 0.0 { bound } else { 1.0 / bound })
    }

    /// Ends the period of a report.
    fn learn(&mut self, pulls: [f64; 4], weights: Weights, cause: Option<Doubt>, works: bool) {
        for (k, pulls) in pulls.into_iter().enumerate() {
            let usual = f64::from(self.usual[k]);
            let usual = match self.is_open(k) {
                true => usual + 0.2 * (pulls.clamp(1e-3, 1e3) - usual),
                false => usual * (pulls / usual).clamp(1.0 - LEARNS, 1.0 + LEARNS),
            };
            self.usual[k] = usual as f32;
            self.debt[k] -= FORGIVES * self.debt[k];
        }
        self.fresh = self.fresh.saturating_sub(u8::from(works));
        self.weights = weights;
        match cause {
            Some(cause) => {
                (self.cause, self.doubted) = (Some(cause), self.doubted.saturating_add(1))
            }
            None if self.cause.is_some_and(|cause| QUOTIENTS.contains(&cause)) => {
                self.doubted = self.doubted.saturating_sub(1);
            }
            None => {}
        }
    }

    /// Takes in numbers of shares: the host's and its tenants'. `all`: shares of all hosts.
    fn hear_shares(&mut self, shares: [f64; 2], all: f64, new: bool) {
        if new && self.shares[0] <= 0.0 {
            self.fresh = NEW as u8;
        }
        for (known, shares) in self.shares.iter_mut().zip(shares) {
            let before = f64::from(*known);
            let most = match (new, before > 0.0) {
                (true, _) => shares,
                (false, true) => shares.min(before * (1.0 + GROWS)),
                // A new host is no majority.
                (false, false) => shares.min(0.5 * (all - shares).max(0.0)),
            };
            *known = before.max(most) as f32;
        }
    }

    /// Bounds what a report says of thresholds. The leader of a search moves by steps.
    fn hear_threshold(&mut self, part: &mut Part) {
        let before = core::mem::replace(&mut self.threshold, part.threshold).secs();
        let factor = self.threshold.secs() / before;
        self.leapt = self.leapt.saturating_sub(1);
        if part.tuning == Tuning::Auto && before > 0.0 && !(1.0 / LEAPS..LEAPS).contains(&factor) {
            self.leapt = u8::MAX;
        }
        if part.tuning == Tuning::Auto && self.leapt > 0 {
            part.tuning = Tuning::Joining;
            (self.cause, self.doubted) = (Some(Doubt::Threshold), NAMED);
        }
    }

    /// Drops a threshold that a host asks for, if the array has not reached it for some time. `latency`: of the cluster, in seconds.
    fn hear_wish(&mut self, part: &mut Part, latency: f64) {
        let asks = part.load.asked.least;
        if self.asked < ASKS {
            let missed = |asks: Span| {
                MISSES.iter().filter(|misses| latency > *misses * asks.secs()).count() as u8
            };
            let missed = asks.map_or(0, missed);
            self.asked = if missed > 0 { self.asked + missed } else { 0 };
        } else if asks.is_some() {
            part.load.asked.least = None;
            (self.cause, self.doubted) = (Some(Doubt::Objective), NAMED);
        }
    }

    /// Learns anew, as reports count other units than before.
    pub fn renew(&mut self) {
        self.fresh = NEW as u8;
    }

    /// The parts of its last report that count.
    #[must_use]
    pub fn weights(&self) -> Weights {
        self.weights
    }

    /// The shares that count of those that a host says it has.
    #[must_use]
    pub fn counted(&self, shares: f64) -> f64 {
        if on(Mechanism::Belief) { shares.min(SOME * f64::from(self.shares[0])) } else { shares }
    }

    /// What a host says of its tenants, as far as it counts. `all`: shares of their VMs.
    #[must_use]
    pub fn tenant(&self, part: &TenantPart, all: f64) -> TenantPart {
        if !on(Mechanism::Belief) {
            return *part;
        }
        let shares = part.shares * (SOME * f64::from(self.shares[1]) / all).min(1.0);
        // A VM may use what others of its tenant leave.
        let used = part.used.min(USED * shares);
        TenantPart {
            shares,
            used,
            active: part.active.min(shares),
            wish: part.wish.min(1.0),
            ..*part
        }
    }

    /// Why the host is doubted, if it has been for some periods.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        self.cause.filter(|_| self.doubted >= NAMED)
    }
}

impl Part {
    /// What it adds to each quotient: numerator and denominator. Who observes counts those who do, too.
    fn quotients(&self, Settings { costs, signal }: Settings, observes: bool) -> [Quotient; 4] {
        let (Part { flows, load, .. }, costs) = (self, costs.is_some());
        let heard = match signal {
            Signal::All => flows.all(),
            Signal::Reads => flows.reads,
            Signal::Writes => flows.writes,
        };
        let counts = match self.governed {
            Governed::Yes => true,
            Governed::Observes => observes,
            Governed::No => false,
        };
        let counted = |quotient: Quotient| if counts { quotient } else { [0.0; 2] };
        [
            counted([load.outstanding, load.active]),
            [heard.scaled, heard.ios],
            [flows.all().latency, load.outstanding],
            counted(if costs { [load.saturated.rate, load.saturated.shares] } else { [0.0; 2] }),
        ]
    }

    /// Bounds what counts by its size.
    fn bound(&mut self, shares: f64, active: f64, reserved: f64) {
        let load = &mut self.load;
        if load.shares > shares {
            (load.shares, self.shares) = (shares, Shares(shares as u32));
        }
        let reserved = reserved * (load.outstanding + 1.0);
        load.reserved = load.reserved.min(reserved);
        if self.governed != Governed::No && load.active > active {
            let load = active / load.active;
            self.scale(Weights { load, ..Weights::ALL });
        }
    }
}

#[cfg(test)]
mod tests;
