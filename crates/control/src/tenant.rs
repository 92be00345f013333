//! Tenants: VMs on any number of hosts that have shares, a limit and a reservation together.
//!
//! A tenant is one more level of the law. Its slice is λ · S_t, however many VMs it has and wherever they run, and its VMs divide that by
//! their shares. As λ follows from what all hosts use, so does the factor of a tenant:
//!
//! ```text
//! f_t = max(S_t, R_t · d_t / p) / Σ n_k        n_k = g_k / (p · f_t): a VM's shares, as far as it used its slice
//! ```
//!
//! A VM of the tenant then counts with f_t · s_k shares, and at most with all of the tenant's. What one leaves of its part goes to the
//! others of its tenant first. A host whose VMs wake up takes Σ n_k for that of all of the tenant's VMs until all hosts have heard of it:
//! where many wake at once, each would else count with all of the tenant's shares. The reservation R_t is a floor by Little's law, d_t
//! being the time of the tenant's IOs at the array ([`reservation`](crate::reservation)).
//!
//! The limit is divided among hosts by water-filling: each host says what part of the limit it could use, and has its part of the whole
//! ([`part`]). A part rises only after all other hosts have heard of that, and falls at once.

use alloc::vec::Vec;

use crate::cluster::Source;
use crate::limit::{Limit, Rate, Rates};
use crate::reservation::{Arrears, Floor, Room};
use crate::units::{Shares, Span, larger, smaller};

/// Weight of the last period in means.
const NEW: f64 = 0.5;

/// Part of a limit that is kept for VMs that do nothing now.
const IDLE: f64 = 0.02;

/// Rounds after which all hosts have heard what a host said, and its own round.
const HEARD: usize = 3;

/// Part of the time for which a limit held IOs of a host from which on the host could use the whole limit.
const HELD: f64 = 0.9;

/// A host's part of a limit before it has heard what others do.
const UNHEARD: f64 = 0.1;

/// Rounds after which a host that has heard nobody since its start is taken to be alone.
const ALONE: u32 = 5;

/// Factor on what a host does of a limit: it may do more in the next period.
const MORE: f64 = 1.1;

/// A tenant, by a hash of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The tenant of this name: FNV-1a. Never 0.
    #[must_use]
    pub fn of(name: &str) -> TenantId {
        TenantId(hash(name.bytes()).max(1))
    }
}

/// The FNV-1a hash of some bytes.
fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What a tenant has, on all hosts together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tenant {
    /// Its shares. `None`: each of its VMs counts with its own.
    pub shares: Option<Shares>,
    /// The most that it does.
    pub limit: Limit,
    /// IO/s that it has whatever its shares; 0 for none.
    pub reservation: f64,
}

impl Tenant {
    /// The largest value of [`Tenant::terms`].
    const MOST_TERMS: u32 = 31;

    /// A hash of its settings, from 1 to 31: tenants with other settings have another, but for one in 31.
    #[must_use]
    pub fn terms(&self) -> u8 {
        let Tenant { shares, limit, reservation } = *self;
        let numbers = |rate: Option<Rate>| {
            let burst = rate.and_then(|rate| rate.burst);
            let burst = burst.map_or([0.0; 2], |burst| [burst.most, burst.length.secs()]);
            [rate.map_or(0.0, |rate| rate.mean), burst[0], burst[1]]
        };
        let rates = |of: Rates| [of.total, of.reads, of.writes].into_iter().flat_map(numbers);
        let numbers = rates(limit.iops).chain(rates(limit.bandwidth));
        let numbers = numbers.chain([limit.io_size.unwrap_or(0.0), reservation]);
        let numbers = numbers.chain([shares.map_or(0.0, |shares| f64::from(shares.0))]);
        let hash = hash(numbers.flat_map(|number| number.to_bits().to_le_bytes()));
        1 + (hash % Self::MOST_TERMS) as u8
    }
}

/// What a host says of a tenant whose VMs it has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantPart {
    /// Whose part it is.
    pub id: TenantId,
    /// Σ of the VMs' shares.
    pub shares: f64,
    /// Σ of the VMs' shares, as far as they used their slices.
    pub used: f64,
    /// Whether a VM could use more than its slice.
    pub wants: bool,
    /// IO/s that the VMs did.
    pub rate: f64,
    /// Mean outstanding IOs, in slots.
    pub outstanding: f64,
    /// Part of the tenant's limit that the host could use, up to 1.
    pub wish: f64,
    /// Σ of the shares of the VMs that did IO.
    pub active: f64,
    /// [`Tenant::terms`] of its settings on the host; 0 if the host does not say.
    pub terms: u8,
}

impl TenantPart {
    fn plus(self, other: &TenantPart) -> TenantPart {
        TenantPart {
            id: self.id,
            shares: self.shares + other.shares,
            used: self.used + other.used,
            wants: self.wants || other.wants,
            rate: self.rate + other.rate,
            outstanding: self.outstanding + other.outstanding,
            wish: self.wish + other.wish,
            active: self.active + other.active,
            terms: self.terms,
        }
    }
}

/// A tenant for people to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantState {
    /// Which tenant it is.
    pub id: TenantId,
    /// Shares, limit and reservation.
    pub tenant: Tenant,
    /// What it does on this host.
    pub own: TenantPart,
    /// What it does on all hosts that are heard.
    pub all: TenantPart,
    /// This host's part of the limit.
    pub part: f64,
    /// VMs of this host asked for its reservation in the last periods, and it did not have it.
    pub short: bool,
}

/// Terms of a tenant on one host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantTerms {
    /// Tenant whose terms they are.
    pub id: TenantId,
    /// The most that it does on all hosts together.
    pub limit: Limit,
    /// This host's part of the limit.
    pub part: f64,
    /// Shares that the tenant counts with.
    counts: f64,
    /// Shares for each share of the VMs that want theirs.
    weight: f64,
    /// Shares for each share of the VMs while all want theirs. `None`: each VM has its own.
    awake: Option<f64>,
}

impl TenantTerms {
    /// Shares that a VM counts with: now, and while all VMs want theirs.
    pub(crate) fn weigh(&self, shares: f64) -> (f64, f64) {
        let Some(awake) = self.awake else { return (shares, shares) };
        let least = shares * awake;
        // No VM counts with more than its tenant does, or than its own.
        (larger(smaller(shares * self.weight, self.counts), least), least)
    }
}

/// What a VM of a tenant did in a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Its own shares, and those of the volume that it used.
    pub(crate) shares: f64,
    pub(crate) used: f64,
    /// Part of the period in which it could use more than its slice.
    pub(crate) asked: f64,
    /// Whether it did IO.
    pub(crate) active: bool,
}

/// A tenant on this host.
#[derive(Debug)]
struct State {
    id: TenantId,
    tenant: Tenant,
    /// IOs of this period, and Σ slots · time at the array, in seconds.
    ios: u64,
    load: f64,
    own: TenantPart,
    all: TenantPart,
    /// What the others said last.
    others: Vec<TenantPart>,
    /// Mean slots · time of its IOs.
    latency: Option<f64>,
    /// Shares that it counts with; for each share of the VMs that want theirs; and for each while all want theirs. `None`: each VM
    /// has its own.
    counts: f64,
    weight: f64,
    awake: Option<f64>,
    /// Rounds since its VMs on this host did nothing.
    rounds: usize,
    /// This host's part of the limit by the last rounds.
    parts: [f64; HEARD],
    /// Part of the period in which one of its VMs on this host could use more than its slice.
    asked: f64,
    arrears: Arrears,
}

impl State {
    fn new(id: TenantId) -> State {
        State {
            id,
            tenant: Tenant::default(),
            ios: 0,
            load: 0.0,
            own: TenantPart { id, ..TenantPart::default() },
            all: TenantPart { id, ..TenantPart::default() },
            others: Vec::new(),
            latency: None,
            counts: 0.0,
            weight: 1.0,
            awake: None,
            rounds: 0,
            parts: [UNHEARD; HEARD],
            asked: 0.0,
            arrears: Arrears::default(),
        }
    }

    /// This host's part of the limit.
    fn part(&self) -> f64 {
        self.parts.into_iter().fold(1.0, smaller)
    }

    /// Finds this host's part of the limit after a round. `silent`: see [`Tenants`].
    fn divide(&mut self, silent: Option<u32>) {
        match silent {
            // It does nothing that anybody would have to hear of.
            None if self.others.is_empty() => self.parts = [1.0; HEARD],
            None => {
                self.parts.rotate_right(1);
                self.parts[0] = part(&self.own, &self.others);
            }
            // No limit is divided by what nobody hears. Who never heard anybody is taken to be alone.
            Some(rounds) if rounds == ALONE => self.parts = [1.0; HEARD],
            Some(_) => {}
        }
    }

    /// What the floor of its slices together follows from.
    fn floor(&self) -> Floor {
        let Tenant { reservation: iops, .. } = self.tenant;
        // What is pending on other hosts is not known.
        let pending = if self.all.wants { f64::INFINITY } else { self.all.outstanding };
        Floor { iops, rate: self.all.rate, slots: self.latency, pending }
    }

    fn shown(&self) -> TenantState {
        TenantState {
            id: self.id,
            tenant: self.tenant,
            own: self.own,
            all: self.all,
            part: self.part(),
            short: self.arrears.is_short(self.tenant.reservation),
        }
    }
}

/// The part of a limit that could be used, where `done` of it was, and IOs were held back for a part `held` of the time.
pub(crate) fn wish(done: f64, held: f64) -> f64 {
    if held > HELD { 1.0 } else { smaller(MORE * done / (1.0 - held), 1.0) }
}

/// A host's part of a limit that it shares with others, from 0 to 1: water-filling of what each could use, by the shares of the VMs that
/// do IO. What nobody uses is divided by the same shares.
#[must_use]
pub fn part(own: &TenantPart, others: &[TenantPart]) -> f64 {
    let hosts = || core::iter::once(own).chain(others);
    let all = hosts().map(|host| host.shares).fold(0.0, |sum, shares| sum + shares);
    // VMs that do nothing now keep a little, to begin with.
    if all <= 0.0 {
        return 1.0;
    }
    let wish = |host: &TenantPart| larger(host.wish.min(1.0), IDLE * host.shares / all);
    let weight = |host: &TenantPart| larger(host.active, IDLE * host.shares);
    let sum = |of: &dyn Fn(&TenantPart) -> f64| hosts().fold(0.0, |sum, host| sum + of(host));
    let (wishes, weights) = (sum(&wish), sum(&weight));
    if wishes <= 1.0 {
        return wish(own) + (1.0 - wishes) * weight(own) / weights;
    }
    let mut level = 1.0 / weights;
    // Each round finds a host at least that has what it wants.
    for _ in 0..=others.len() {
        let has = |host: &TenantPart| wish(host) < level * weight(host);
        let left = 1.0 - sum(&|host| if has(host) { wish(host) } else { 0.0 });
        let wanting = sum(&|host| if has(host) { 0.0 } else { weight(host) });
        let next = left / wanting;
        if wanting <= 0.0 || next <= level {
            break;
        }
        level = next;
    }
    smaller(wish(own), level * weight(own))
}

/// The tenants of a host.
#[derive(Debug)]
pub(crate) struct Tenants {
    states: Vec<State>,
    /// Rounds without hearing anybody, since the start; more than [`ALONE`] if somebody was heard before. `None` while others are heard.
    silent: Option<u32>,
}

impl Default for Tenants {
    fn default() -> Tenants {
        Tenants { states: Vec::new(), silent: Some(0) }
    }
}

impl Tenants {
    /// Changes which tenants there are, and what they have. What is known of those that stay is kept.
    pub(crate) fn set(&mut self, tenants: &[(TenantId, Tenant)]) {
        let mut before = core::mem::take(&mut self.states);
        for (id, tenant) in tenants {
            let kept = before.iter().position(|state| state.id == *id);
            let mut state = kept.map_or_else(|| State::new(*id), |at| before.swap_remove(at));
            state.tenant = *tenant;
            self.states.push(state);
        }
    }

    /// The place of a tenant.
    pub(crate) fn place(&self, id: TenantId) -> Option<usize> {
        self.states.iter().position(|state| state.id == id)
    }

    /// What each tenant has on this host.
    pub(crate) fn terms(&self) -> impl Iterator<Item = TenantTerms> {
        self.states.iter().map(|state| TenantTerms {
            id: state.id,
            limit: state.tenant.limit,
            part: state.part(),
            counts: state.counts,
            weight: state.weight,
            awake: state.awake,
        })
    }

    /// IOs of a VM are done. `load`: Σ slots · time at the array, in seconds.
    pub(crate) fn add(&mut self, place: usize, ios: u64, load: f64) {
        self.states[place].ios += ios;
        self.states[place].load += load;
    }

    /// Keeps what was heard.
    fn keep(&mut self, heard: Option<Vec<TenantPart>>) {
        self.silent = match (&heard, self.silent) {
            (Some(_), _) => None,
            (None, Some(rounds)) => Some(rounds.saturating_add(1)),
            // Those that were heard once are not forgotten.
            (None, None) => Some(ALONE + 1),
        };
        let Some(parts) = heard else { return };
        for state in &mut self.states {
            state.others.clear();
            state.others.extend(parts.iter().filter(|part| part.id == state.id));
        }
    }

    /// Begins the account of a period.
    pub(crate) fn begin(&mut self) {
        for state in &mut self.states {
            let (id, wish, terms) = (state.id, state.own.wish, state.tenant.terms());
            state.own = TenantPart { id, wish, terms, ..TenantPart::default() };
            state.asked = 0.0;
        }
    }

    /// Adds a VM to it.
    pub(crate) fn account(&mut self, place: usize, vm: &Member) {
        let own = &mut self.states[place].own;
        own.shares += vm.shares;
        own.active += if vm.active { vm.shares } else { 0.0 };
        own.used += if vm.used.is_finite() { vm.used } else { 0.0 };
        own.wants |= vm.asked > 0.0;
        self.states[place].asked = larger(self.states[place].asked, vm.asked);
    }

    /// Ends the account of a period, in which the hosts were heard by `source`. `heard`: what they say of tenants, `None` while they are
    /// silent. `limited`: of a tenant with a limit the largest part of its rates that went on this host, and the part of the time for which
    /// the limit held IOs back.
    pub(crate) fn end(
        &mut self,
        elapsed: Span,
        source: Source,
        heard: Option<Vec<TenantPart>>,
        limited: impl Fn(TenantId) -> (f64, f64),
    ) {
        // Where most are not heard, what the others said last stays.
        self.keep(heard.filter(|_| source != Source::LastGood));
        let secs = larger(elapsed.secs(), 1e-9);
        for state in &mut self.states {
            state.own.rate = core::mem::take(&mut state.ios) as f64 / secs;
            state.own.outstanding = core::mem::take(&mut state.load) / secs;
            if !state.tenant.limit.is_none() {
                let (done, held) = limited(state.id);
                state.own.wish = match wish(done, held) {
                    wish if held > HELD => wish,
                    wish => state.own.wish + NEW * (wish - state.own.wish),
                };
                state.divide(self.silent);
            }
            // What they took, in shares of the volume, over what one of their own was worth.
            state.own.used /= state.weight;
            state.rounds = if state.own.used > 0.0 { state.rounds.saturating_add(1) } else { 0 };
            state.all = state.others.iter().fold(state.own, TenantPart::plus);
            let all = &state.all;
            if all.rate > 0.0 {
                let latency = all.outstanding / all.rate;
                let mean = state.latency.map_or(latency, |mean| mean + NEW * (latency - mean));
                state.latency = Some(mean);
            }
            state.arrears.roll(secs, all.rate, state.tenant.reservation, state.asked);
        }
    }

    /// This host's part of what tenants would have outstanding if no reservation were short, in slots: of the last period, before the
    /// account of the next one begins.
    pub(crate) fn reserved(&self, room: &Room) -> f64 {
        self.states.iter().fold(0.0, |sum, state| {
            let (own, all) = (state.own.used, state.all.used);
            if own > 0.0 { sum + state.floor().asks(room) * own / all } else { sum }
        })
    }

    /// Finds what each tenant counts with.
    pub(crate) fn share_out(&mut self, window_per_share: f64, room: &Room) {
        for state in &mut self.states {
            let Tenant { shares, reservation, .. } = state.tenant;
            let (all, shares) = (&state.all, shares.map(|Shares(shares)| f64::from(shares)));
            let has_window = window_per_share.is_finite() && window_per_share > 0.0;
            let least = match reservation > 0.0 && has_window {
                true => state.floor().slots(room) / window_per_share,
                false => 0.0,
            };
            state.counts = larger(shares.unwrap_or(0.0), least);
            let used = if state.rounds < HEARD { all.shares } else { all.used };
            // One that uses less than it has is not worth more without end: no VM has less than one share.
            let weight = state.counts / larger(used, 1.0);
            state.weight = if shares.is_some() { weight } else { larger(weight, 1.0) };
            state.awake = match shares {
                Some(shares) if all.shares > 0.0 => Some(shares / all.shares),
                None if reservation > 0.0 => Some(1.0),
                _ => None,
            };
        }
    }

    /// What to publish of the tenants whose VMs this host has.
    pub(crate) fn parts(&self) -> impl Iterator<Item = TenantPart> {
        self.states.iter().map(|state| state.own).filter(|own| own.shares > 0.0)
    }

    /// How they stand after the last period.
    pub(crate) fn states(&self) -> impl Iterator<Item = TenantState> {
        self.states.iter().map(State::shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a tenant that did so much of its reservation in each of ten periods of a second is short, where a VM of this host asked
    /// for this part of the time.
    fn is_short(part: f64, asked: f64) -> bool {
        let mut tenants = Tenants::default();
        let tenant = Tenant { reservation: 100.0, ..Tenant::default() };
        tenants.set(&[(TenantId(1), tenant)]);
        for _ in 0..10 {
            tenants.begin();
            tenants.account(0, &Member { shares: 100.0, used: 50.0, asked, active: true });
            tenants.add(0, (100.0 * part) as u64, 1.0);
            tenants.end(Span::from_secs(1.0), Source::Cluster, None, |_| (0.0, 0.0));
        }
        tenants.states().all(|state| state.short)
    }

    #[test]
    fn bursts_ask_for_the_part_of_a_reservation_that_is_due_in_them() {
        assert!(is_short(0.4, 1.0));
        assert!(!is_short(0.4, 0.4));
        assert!(is_short(0.2, 0.4));
        assert!(!is_short(0.0, 0.0));
    }
}
