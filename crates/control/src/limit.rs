//! Limits: IOs and bytes per second that a VM never exceeds.
//!
//! Each rate r is a bucket with a tolerance τ. Its state is the time T up to which the rate has paid for what went:
//!
//! ```text
//! an IO goes:    T = max(T, now) + cost / r
//! none may go:   while T − τ > now
//! ```
//!
//! So in any time t at most r · (t + τ) go, and the last IO: the generic cell rate algorithm. A burst of `burst` times the rate for
//! `burst_for` is a second bucket: one with the rate and τ = (burst − 1) · burst_for, one with burst · rate and the least tolerance.
//!
//! What a limit holds back is no demand: its IOs wait beside the fair queue, and neither slice nor window knows of them. A limit lets go
//! what it has room for, and counts it when it goes to the array; until then what was let go keeps its room. Limits are looked at when
//! half of [`TOLERANCE`] is back, so that IOs go in groups. The VMs of one tenant take turns at its limit by their shares, as
//! in start-time fair queuing, where an IO costs the part of the limit that it takes.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use slab::Slab;

use crate::io::{Io, IoKind};
use crate::latency::Direction;
use crate::units::{Instant, Span, larger, smaller};

/// Tolerance of a rate without a burst: above the delay of a timer, below what a person notices.
pub const TOLERANCE: Span = Span::from_millis(10);

/// The least part of a limit that a host has.
const LEAST_PART: f64 = 1e-6;

/// The longest time for which a limit that was changed holds everything back for what went before.
const LONGEST_DEBT: Span = Span::from_millis(1000);

/// Rates of one unit per second. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Of reads and writes together.
    pub total: Option<f64>,
    /// Largest rate of reads alone.
    pub reads: Option<f64>,
    /// Largest rate of writes alone.
    pub writes: Option<f64>,
}

impl Rates {
    /// Each rate that is set, with its direction; no direction stands for both.
    pub fn each(&self) -> impl Iterator<Item = (Option<Direction>, f64)> {
        let ways = [None, Some(Direction::Read), Some(Direction::Write)];
        let rates = [self.total, self.reads, self.writes];
        ways.into_iter().zip(rates).filter_map(|(way, rate)| Some((way, rate?)))
    }

    fn times(self, part: f64) -> Rates {
        let Rates { total, reads, writes } = self;
        let [total, reads, writes] = [total, reads, writes].map(|rate| Some(rate? * part));
        Rates { total, reads, writes }
    }

    fn or_less(self, other: Rates) -> Rates {
        let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(smaller);
        Rates {
            total: least(self.total, other.total),
            reads: least(self.reads, other.reads),
            writes: least(self.writes, other.writes),
        }
    }

    /// The largest part of a rate that reads and writes of so many units a second are.
    fn used(&self, [reads, writes]: [f64; 2]) -> f64 {
        self.each().fold(0.0, |most, (way, rate)| {
            let done = match way {
                None => reads + writes,
                Some(Direction::Read) => reads,
                Some(Direction::Write) => writes,
            };
            larger(most, done / rate)
        })
    }
}

/// The most that a VM may do. The default limits nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// IOs per second. A flush is no IO, a trim or a write of zeroes is one write.
    pub iops: Rates,
    /// Bytes of data per second.
    pub bandwidth: Rates,
    /// Factor on the rates in a burst, at least 1.
    pub burst: f64,
    /// Time for which a VM that did nothing for long enough may have that.
    pub burst_for: Span,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            iops: Rates::default(),
            bandwidth: Rates::default(),
            burst: 1.0,
            burst_for: Span::ZERO,
        }
    }
}

impl Limit {
    /// Whether there is nothing that it limits.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.iops.each().chain(self.bandwidth.each()).next().is_none()
    }

    /// A part of all its rates.
    #[must_use]
    pub fn times(self, part: f64) -> Limit {
        Limit { iops: self.iops.times(part), bandwidth: self.bandwidth.times(part), ..self }
    }

    /// The lower of each of their rates, without bursts.
    #[must_use]
    pub fn or_less(self, other: Limit) -> Limit {
        Limit {
            iops: self.iops.or_less(other.iops),
            bandwidth: self.bandwidth.or_less(other.bandwidth),
            ..Limit::default()
        }
    }

    /// The largest part of a rate that so many IOs and bytes a second are, of reads and of writes.
    pub(crate) fn used(&self, ios: [f64; 2], bytes: [f64; 2]) -> f64 {
        larger(self.iops.used(ios), self.bandwidth.used(bytes))
    }

    fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let rates = self.iops.each().map(|(way, rate)| (way, Unit::Ios, rate));
        let bytes = self.bandwidth.each().map(|(way, rate)| (way, Unit::Bytes, rate));
        let (burst, bursts) = (self.burst, self.burst > 1.0 && self.burst_for > Span::ZERO);
        let long =
            if bursts { Span::from_secs((burst - 1.0) * self.burst_for.secs()) } else { TOLERANCE };
        rates.chain(bytes).flat_map(move |(way, unit, rate)| {
            let bucket = |rate: f64, tolerance| {
                let tolerance = Span(u64::max(tolerance, TOLERANCE.0));
                Bucket {
                    way,
                    unit,
                    rate,
                    each: 1e9 / rate,
                    taken: 0.0,
                    tolerance,
                    paid: Instant(0),
                    promised: 0.0,
                }
            };
            [Some(bucket(rate, long.0)), bursts.then(|| bucket(burst * rate, 0))]
                .into_iter()
                .flatten()
        })
    }
}

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Ios,
    Bytes,
}

impl Unit {
    /// What it counts of an IO.
    fn of(self, io: Io) -> f64 {
        match (self, io.kind) {
            (Unit::Ios, _) => 1.0,
            (Unit::Bytes, IoKind::Discard) => 0.0,
            (Unit::Bytes, _) => io.bytes.0 as f64,
        }
    }
}

/// One rate. See the module's documentation.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The IOs that it counts; `None`: all.
    way: Option<Direction>,
    unit: Unit,
    /// IOs or bytes per second.
    rate: f64,
    /// Nanoseconds that one unit takes, at this host's part of the rate.
    each: f64,
    /// Units that went since the last look.
    taken: f64,
    /// τ: how far ahead of its rate a client may be.
    tolerance: Span,
    /// T: the time up to which the rate has paid.
    paid: Instant,
    /// Units that were let go and have not gone yet.
    promised: f64,
}

impl Bucket {
    fn counts(&self, way: Direction) -> bool {
        self.way.is_none_or(|mine| mine == way)
    }

    fn take(&mut self, now: Instant, units: f64) {
        self.paid = self.paid.max(now) + self.span(units);
        self.taken += units;
    }

    /// Time that so many units take. A day at most: so long a debt is an error of who set the rate, and must end.
    fn span(&self, units: f64) -> Span {
        // Rounded up, so that no number of IOs is early.
        Span((units * self.each).min(86_400e9) as u64 + 1)
    }

    /// How far the rate is ahead with all that was let go.
    fn ahead(&self, now: Instant) -> Span {
        let promised = if self.promised > 0.0 { self.span(self.promised) } else { Span::ZERO };
        Span(self.paid.since(now).0.saturating_add(promised.0))
    }

    /// Changes the part of the rate that is this host's. What went is not forgotten: the debt is one of units.
    fn divide(&mut self, now: Instant, part: f64) {
        let each = 1e9 / (self.rate * part);
        let debt = (self.paid.since(now).0 as f64 / self.each * each).min(86_400e9);
        (self.each, self.paid) = (each, now + Span(debt as u64));
    }

    /// Whether it has room for an IO.
    fn has_room(&self, now: Instant) -> bool {
        self.ahead(now) <= self.tolerance
    }

    /// When to look at it again, if it has no room at `now`. `None` also where what was let go has to go first.
    fn opens(&self, now: Instant) -> Option<Instant> {
        let (ahead, debt) = (self.ahead(now), self.paid.since(now));
        let passes = ahead.0 - debt.0 <= self.tolerance.0;
        let wait = Span(ahead.0.saturating_sub(self.tolerance.0) + TOLERANCE.0 / 2);
        (ahead > self.tolerance && passes).then(|| now + wait)
    }
}

/// The directions that a limit knows.
pub(crate) const WAYS: [Direction; 2] = [Direction::Read, Direction::Write];

/// The direction that an IO counts in. `None`: limits do not concern it.
pub(crate) fn way(io: Io) -> Option<Direction> {
    match io.kind {
        IoKind::Discard => Some(Direction::Write),
        kind => kind.direction(),
    }
}

/// What was let go and has not gone yet, by unit and direction.
type Promised = [[f64; 2]; 2];

/// A limit in force.
#[derive(Clone, Debug, Default)]
struct Limiter {
    buckets: Vec<Bucket>,
    members: Vec<AsideId>,
    /// When it is looked at next.
    planned: Option<Instant>,
    /// IOs that it holds back, since when it does, and for how long it did since the last look.
    waiting: usize,
    since: Option<Instant>,
    held: Span,
    /// Start tag of the IO that was let go last, in nanoseconds of the limit for each share.
    virtual_time: f64,
}

impl Limiter {
    /// Changes the rates. What went is not forgotten: a bucket of the same kind keeps its debt, in IOs or bytes.
    fn set(&mut self, now: Instant, limit: &Limit) {
        let before = core::mem::take(&mut self.buckets);
        self.buckets = limit.buckets().collect();
        for (bucket, before) in self.buckets.iter_mut().zip(&before) {
            if (bucket.way, bucket.unit) == (before.way, before.unit) {
                bucket.taken = before.taken;
                if bucket.rate == before.rate {
                    (bucket.each, bucket.paid) = (before.each, before.paid);
                    continue;
                }
                let debt = before.paid.since(now).secs() / before.each * bucket.each;
                // A burst that was had at other rates is not paid back at these, but for a second.
                bucket.paid = now + Span::from_secs(debt).min(bucket.tolerance + LONGEST_DEBT);
            }
        }
    }

    fn counting(&mut self, way: Direction) -> impl Iterator<Item = &mut Bucket> {
        self.buckets.iter_mut().filter(move |bucket| bucket.counts(way))
    }

    fn has_room(&self, now: Instant, way: Direction) -> bool {
        self.buckets.iter().all(|bucket| !bucket.counts(way) || bucket.has_room(now))
    }

    /// When to look at it again, if a bucket has no room.
    fn opens(&self, now: Instant) -> Option<Instant> {
        self.buckets.iter().filter_map(|bucket| bucket.opens(now)).min()
    }

    /// Time of the limit that an IO takes, in nanoseconds.
    fn cost(&self, io: Io, way: Direction) -> f64 {
        let counting = self.buckets.iter().filter(|bucket| bucket.counts(way));
        counting.fold(0.0, |most, bucket| larger(most, bucket.unit.of(io) * 1e9 / bucket.rate))
    }

    fn promise(&mut self, promised: &Promised, sign: f64) {
        for bucket in &mut self.buckets {
            let of_unit = promised[bucket.unit as usize];
            let ways = WAYS.into_iter().filter(|way| bucket.counts(*way));
            let units = ways.fold(0.0, |sum, way| sum + of_unit[way as usize]);
            bucket.promised = larger(bucket.promised + sign * units, 0.0);
        }
    }

    /// Keeps room for an IO.
    fn keep(&mut self, io: Io, way: Direction) {
        self.counting(way).for_each(|bucket| bucket.promised += bucket.unit.of(io));
    }

    /// Counts an IO that goes. `promised`: it has the room that was kept for it.
    fn take(&mut self, now: Instant, io: Io, way: Direction, promised: bool, idle: bool) {
        for bucket in self.counting(way) {
            let units = bucket.unit.of(io);
            if promised {
                bucket.promised = larger(bucket.promised - units, 0.0);
            }
            if !idle {
                bucket.take(now, units);
            }
        }
    }

    /// Ends a period: the largest part of its rates that went, and the part of the time for which IOs were held back.
    fn roll(&mut self, now: Instant, elapsed: Span) -> (f64, f64) {
        if let Some(since) = &mut self.since {
            self.held += now.since(core::mem::replace(since, now));
        }
        let secs = larger(elapsed.secs(), 1e-9);
        let taken = self.buckets.iter_mut().fold(0.0, |most, bucket| {
            larger(most, core::mem::take(&mut bucket.taken) / (bucket.rate * secs))
        });
        (taken, smaller(core::mem::take(&mut self.held).secs() / secs, 1.0))
    }

    /// So many IOs are held back from now on.
    fn holds(&mut self, now: Instant, waiting: usize) {
        self.waiting = waiting;
        if waiting > 0 {
            self.since.get_or_insert(now);
        } else if let Some(since) = self.since.take() {
            self.held += now.since(since);
        }
    }
}

/// A limiter of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LimiterId(usize);

/// A VM with a limit, and its IOs that limits hold back: reads and writes apart, in the order in which they came.
#[derive(Debug)]
struct Aside<T> {
    vm: usize,
    shares: f64,
    /// Its own limiter, and that of its tenant.
    limiters: [Option<LimiterId>; 2],
    items: [VecDeque<(Io, T)>; 2],
    promised: Promised,
    /// Finish tag at its tenant's limit.
    finish: f64,
}

/// A VM with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsideId(usize);

/// Whose limit it is: the VM's own, or its tenant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Vm,
    Tenant,
}

/// The limiters of a host, and what they hold back.
#[derive(Debug)]
pub(crate) struct Limits<T> {
    limiters: Slab<Limiter>,
    asides: Slab<Aside<T>>,
    /// When to look at a limiter again, or earlier.
    opens: BinaryHeap<Reverse<(Instant, LimiterId)>>,
    /// VMs to look at, as their limits are others now.
    freed: Vec<AsideId>,
    len: usize,
    /// Nothing is held back.
    idle: bool,
}

impl<T> Default for Limits<T> {
    fn default() -> Limits<T> {
        Limits {
            limiters: Slab::new(),
            asides: Slab::new(),
            opens: BinaryHeap::new(),
            freed: Vec::new(),
            len: 0,
            idle: false,
        }
    }
}

impl<T> Limits<T> {
    /// Says whether limits hold anything back. What they held back goes with the next [`Limits::open`], if they do not.
    pub(crate) fn act(&mut self, act: bool) {
        self.idle = !act;
        self.freed.extend(self.asides.iter().map(|(aside, _)| AsideId(aside)));
    }

    /// Adds a limiter that limits nothing yet.
    pub(crate) fn add(&mut self) -> LimiterId {
        LimiterId(self.limiters.insert(Limiter::default()))
    }

    /// Changes the rates of a limiter. What they allow goes with the next [`Limits::open`].
    pub(crate) fn set(&mut self, now: Instant, limiter: LimiterId, limit: &Limit) {
        self.limiters[limiter.0].set(now, limit);
        let mut promised = Promised::default();
        for member in &self.limiters[limiter.0].members {
            let own = self.asides[member.0].promised.as_flattened().iter();
            promised.as_flattened_mut().iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        self.limiters[limiter.0].promise(&promised, 1.0);
        self.look(limiter);
    }

    fn look(&mut self, limiter: LimiterId) {
        self.freed.extend_from_slice(&self.limiters[limiter.0].members);
    }

    /// Changes this host's part of a limit that it shares with others, above 0 and at most 1.
    pub(crate) fn divide(&mut self, now: Instant, limiter: LimiterId, part: f64) {
        let part = larger(part, LEAST_PART);
        let buckets = &mut self.limiters[limiter.0].buckets;
        buckets.iter_mut().for_each(|bucket| bucket.divide(now, part));
        self.look(limiter);
    }

    /// Ends a period of a limiter: the largest part of its rates that went, and the part of the time for which it held IOs back.
    pub(crate) fn roll(&mut self, now: Instant, limiter: LimiterId, elapsed: Span) -> (f64, f64) {
        self.limiters[limiter.0].roll(now, elapsed)
    }

    /// Puts a VM beside the queue, under no limiter yet.
    pub(crate) fn enter(&mut self, vm: usize) -> AsideId {
        let (limiters, items, promised) = Default::default();
        AsideId(self.asides.insert(Aside {
            vm,
            shares: 1.0,
            limiters,
            items,
            promised,
            finish: 0.0,
        }))
    }

    /// Changes the shares of a VM, by which it takes turns at its tenant's limit.
    pub(crate) fn set_shares(&mut self, aside: AsideId, shares: f64) {
        self.asides[aside.0].shares = larger(shares, LEAST_PART);
    }

    /// Puts a VM under a limiter, or takes it from the one that it has there. What that held back goes with the next [`Limits::open`].
    pub(crate) fn place(&mut self, now: Instant, id: AsideId, of: Of, limiter: Option<LimiterId>) {
        let aside = &mut self.asides[id.0];
        let before = core::mem::replace(&mut aside.limiters[of as usize], limiter);
        if before == limiter {
            return;
        }
        let waiting = aside.items.iter().map(VecDeque::len).sum::<usize>();
        if let Some(before) = before.and_then(|before| self.limiters.get_mut(before.0)) {
            before.members.retain(|member| *member != id);
            before.promise(&aside.promised, -1.0);
            before.holds(now, before.waiting - waiting);
            // What it kept room for is none of theirs any more.
            self.freed.extend_from_slice(&before.members);
        }
        if let Some(after) = limiter.map(|limiter| &mut self.limiters[limiter.0]) {
            after.members.push(id);
            after.promise(&aside.promised, 1.0);
            after.holds(now, after.waiting + waiting);
            if of == Of::Tenant {
                aside.finish = after.virtual_time;
            }
        }
        self.freed.push(id);
    }

    /// Forgets a limiter. What it held back goes with the next [`Limits::open`].
    pub(crate) fn remove(&mut self, now: Instant, limiter: LimiterId) {
        let members = core::mem::take(&mut self.limiters[limiter.0].members);
        for member in members {
            for of in [Of::Vm, Of::Tenant] {
                if self.asides[member.0].limiters[of as usize] == Some(limiter) {
                    self.place(now, member, of, None);
                }
            }
        }
        self.limiters.remove(limiter.0);
    }

    /// Takes a VM from its limiters. Returns what they held back.
    pub(crate) fn leave(
        &mut self,
        now: Instant,
        aside: AsideId,
    ) -> impl Iterator<Item = T> + use<T> {
        [Of::Vm, Of::Tenant].into_iter().for_each(|of| self.place(now, aside, of, None));
        self.freed.retain(|freed| *freed != aside);
        let Aside { items, .. } = self.asides.remove(aside.0);
        self.len -= items[0].len() + items[1].len();
        items.into_iter().flatten().map(|(_, item)| item)
    }

    /// The limiters of a VM.
    pub(crate) fn of(&self, aside: AsideId) -> [Option<LimiterId>; 2] {
        self.asides[aside.0].limiters
    }

    /// Lets an IO of a VM go at once, if nothing waits that comes before it and its limits have room.
    pub(crate) fn admit(&mut self, now: Instant, aside: AsideId, io: Io, way: Direction) -> bool {
        if self.idle {
            return true;
        }
        let Aside { limiters, items, .. } = &self.asides[aside.0];
        let first = items[way as usize].is_empty()
            && limiters[Of::Tenant as usize].is_none_or(|of| self.limiters[of.0].waiting == 0);
        let goes = first && self.has_room(now, aside, way);
        if goes {
            self.promise(aside, io, way);
        }
        goes
    }

    fn has_room(&self, now: Instant, aside: AsideId, way: Direction) -> bool {
        let mut limiters = self.asides[aside.0].limiters.into_iter().flatten();
        limiters.all(|limiter| self.limiters[limiter.0].has_room(now, way))
    }

    /// Lets an IO go: its limits keep room for it until it has gone.
    fn promise(&mut self, id: AsideId, io: Io, way: Direction) {
        let aside = &mut self.asides[id.0];
        for unit in [Unit::Ios, Unit::Bytes] {
            aside.promised[unit as usize][way as usize] += unit.of(io);
        }
        for limiter in aside.limiters.into_iter().flatten() {
            self.limiters[limiter.0].keep(io, way);
        }
        if let Some(tenant) = aside.limiters[Of::Tenant as usize] {
            let tenant = &mut self.limiters[tenant.0];
            let start = larger(aside.finish, tenant.virtual_time);
            aside.finish = start + tenant.cost(io, way) / aside.shares;
        }
    }

    /// Holds an IO back.
    pub(crate) fn hold(&mut self, now: Instant, id: AsideId, io: Io, way: Direction, item: T) {
        let aside = &mut self.asides[id.0];
        aside.items[way as usize].push_back((io, item));
        self.len += 1;
        for limiter in aside.limiters.into_iter().flatten() {
            let state = &mut self.limiters[limiter.0];
            state.holds(now, state.waiting + 1);
            self.plan(now, limiter);
        }
        // It waits for its turn alone, and may be the next.
        if self.has_room(now, id, way) {
            self.freed.push(id);
        }
    }

    /// Plans the next look at a limiter that has no room.
    fn plan(&mut self, now: Instant, limiter: LimiterId) {
        let state = &mut self.limiters[limiter.0];
        let Some(at) = state.opens(now) else { return };
        if state.planned.is_none_or(|planned| at < planned) {
            state.planned = Some(at);
            self.opens.push(Reverse((at, limiter)));
        }
    }

    /// Counts an IO of a VM that goes.
    pub(crate) fn take(&mut self, now: Instant, id: AsideId, io: Io) {
        let Some(way) = way(io) else { return };
        let aside = &mut self.asides[id.0];
        let promised = aside.promised[Unit::Ios as usize][way as usize] > 0.0;
        if promised {
            for unit in [Unit::Ios, Unit::Bytes] {
                let own = &mut aside.promised[unit as usize][way as usize];
                *own = larger(*own - unit.of(io), 0.0);
            }
        }
        for limiter in aside.limiters.into_iter().flatten() {
            let state = &mut self.limiters[limiter.0];
            state.take(now, io, way, promised, self.idle);
            if state.waiting > 0 && !self.idle {
                self.plan(now, limiter);
            }
        }
    }

    /// Hands over each IO that may go now, with its VM.
    pub(crate) fn open(&mut self, now: Instant, mut goes: impl FnMut(usize, T)) {
        while let Some(&Reverse((at, limiter))) = self.opens.peek()
            && at <= now
        {
            self.opens.pop();
            if let Some(state) = self.limiters.get_mut(limiter.0) {
                state.planned = None;
                self.look(limiter);
            }
        }
        while let Some(id) = self.freed.pop() {
            let Some(aside) = self.asides.get(id.0) else { continue };
            match aside.limiters[Of::Tenant as usize].filter(|_| !self.idle) {
                Some(tenant) => self.release_by_turns(now, tenant, &mut goes),
                None => self.release(now, id, &mut goes),
            }
        }
    }

    /// Lets go what a VM may send that has no tenant.
    fn release(&mut self, now: Instant, id: AsideId, goes: &mut impl FnMut(usize, T)) {
        for way in WAYS {
            while !self.asides[id.0].items[way as usize].is_empty()
                && (self.idle || self.has_room(now, id, way))
            {
                self.let_go(now, id, way, goes);
            }
        }
        self.plan_again(now, id);
    }

    /// Lets go what the VMs of a tenant may send, by their turns.
    fn release_by_turns(&mut self, now: Instant, of: LimiterId, goes: &mut impl FnMut(usize, T)) {
        loop {
            let mut next: Option<(f64, AsideId, Direction)> = None;
            for member in &self.limiters[of.0].members {
                let aside = &self.asides[member.0];
                let start = larger(aside.finish, self.limiters[of.0].virtual_time);
                if next.is_some_and(|(first, ..)| first <= start) {
                    continue;
                }
                let may = |way: &Direction| {
                    !aside.items[*way as usize].is_empty() && self.has_room(now, *member, *way)
                };
                if let Some(way) = WAYS.into_iter().find(may) {
                    next = Some((start, *member, way));
                }
            }
            let Some((start, id, way)) = next else { break };
            self.limiters[of.0].virtual_time = start;
            self.let_go(now, id, way, goes);
        }
        let members = self.limiters[of.0].members.clone();
        self.freed.retain(|freed| !members.contains(freed));
        members.into_iter().for_each(|member| self.plan_again(now, member));
    }

    fn let_go(
        &mut self,
        now: Instant,
        id: AsideId,
        way: Direction,
        goes: &mut impl FnMut(usize, T),
    ) {
        let aside = &mut self.asides[id.0];
        let Some((io, item)) = aside.items[way as usize].pop_front() else { return };
        let (vm, limiters) = (aside.vm, aside.limiters);
        self.len -= 1;
        for limiter in limiters.into_iter().flatten() {
            let state = &mut self.limiters[limiter.0];
            state.holds(now, state.waiting - 1);
        }
        if !self.idle {
            self.promise(id, io, way);
        }
        goes(vm, item);
    }

    /// Plans the next look at the limiters of a VM whose IOs wait.
    fn plan_again(&mut self, now: Instant, id: AsideId) {
        if self.waiting(id) > 0 {
            self.asides[id.0].limiters.into_iter().flatten().for_each(|of| self.plan(now, of));
        }
    }

    /// Whether something may go that was held back.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    /// When to open next.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        if !self.freed.is_empty() {
            return Some(Instant(0));
        }
        self.opens.peek().map(|Reverse((at, _))| *at)
    }

    /// IOs of a VM that are held back.
    pub(crate) fn waiting(&self, aside: AsideId) -> usize {
        self.asides[aside.0].items.iter().map(VecDeque::len).sum()
    }

    /// IOs that are held back.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
