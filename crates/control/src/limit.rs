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
//! What a limit holds back is no demand. A limiter that is exhausted *shuts* until half of [`TOLERANCE`] is back, and meanwhile its
//! IOs wait beside the fair queue: neither slice nor window knows of them. What is in the queue may go as far as limits are concerned.

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
}

impl Bucket {
    fn counts(&self, way: Direction) -> bool {
        self.way.is_none_or(|mine| mine == way)
    }

    fn take(&mut self, now: Instant, io: Io) {
        let units = match (self.unit, io.kind) {
            (Unit::Ios, _) => 1.0,
            (Unit::Bytes, IoKind::Discard) => 0.0,
            (Unit::Bytes, _) => io.bytes.0 as f64,
        };
        // A day at most: so long a debt is an error of who set the rate, and must end.
        // Rounded up, so that no number of IOs is early.
        let span = Span((units * self.each).min(86_400e9) as u64 + 1);
        self.paid = self.paid.max(now) + span;
        self.taken += units;
    }

    /// Changes the part of the rate that is this host's. What went is not forgotten: the debt is one of units.
    fn divide(&mut self, now: Instant, part: f64) {
        let each = 1e9 / (self.rate * part);
        let debt = (self.paid.since(now).0 as f64 / self.each * each).min(86_400e9);
        (self.each, self.paid) = (each, now + Span(debt as u64));
    }

    /// When it opens again, if it has to shut at `now`.
    fn opens(&self, now: Instant) -> Option<Instant> {
        (self.paid.since(now) > self.tolerance)
            .then(|| Instant(self.paid.0 - self.tolerance.0 + TOLERANCE.0 / 2))
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

/// A limit in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limiter {
    buckets: Vec<Bucket>,
    /// When reads and writes open again that are shut.
    shut: [Option<Instant>; 2],
    /// Since when it holds IOs back, and for how long it did since the last look.
    holds: Option<Instant>,
    held: Span,
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

    /// Counts an IO that goes. Says whether its direction, or the other one, shuts by it.
    pub(crate) fn take(&mut self, now: Instant, io: Io) -> bool {
        let Some(way) = way(io) else { return false };
        let counting = self.buckets.iter_mut().filter(|bucket| bucket.counts(way));
        counting.for_each(|bucket| bucket.take(now, io));
        self.shut_now(now)
    }

    fn shut_now(&mut self, now: Instant) -> bool {
        let mut shuts = false;
        for (way, shut) in WAYS.into_iter().zip(&mut self.shut) {
            let counting = self.buckets.iter().filter(|bucket| bucket.counts(way));
            let opens = counting.filter_map(|bucket| bucket.opens(now)).max();
            shuts |= shut.is_none() && opens.is_some();
            *shut = opens.or(*shut);
        }
        shuts
    }

    /// Whether IOs of a direction wait.
    pub(crate) fn is_shut(&self, way: Direction) -> bool {
        self.shut[way as usize].is_some()
    }

    /// When a direction opens next that is shut.
    pub(crate) fn opens_at(&self) -> Option<Instant> {
        self.shut.into_iter().flatten().min()
    }

    /// Opens what is due. Says whether something opened.
    pub(crate) fn open(&mut self, now: Instant) -> bool {
        let mut opened = false;
        for shut in &mut self.shut {
            opened |= shut.take_if(|at| *at <= now).is_some();
        }
        if opened && let Some(since) = self.holds.take() {
            self.held += now.since(since);
        }
        opened
    }

    /// Ends a period: the largest part of its rates that went, and the part of the time for which IOs were held back.
    fn roll(&mut self, now: Instant, elapsed: Span) -> (f64, f64) {
        if let Some(since) = &mut self.holds {
            self.held += now.since(core::mem::replace(since, now));
        }
        let secs = larger(elapsed.secs(), 1e-9);
        let taken = self.buckets.iter_mut().fold(0.0, |most, bucket| {
            larger(most, core::mem::take(&mut bucket.taken) / (bucket.rate * secs))
        });
        (taken, smaller(core::mem::take(&mut self.held).secs() / secs, 1.0))
    }
}

/// A limiter of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LimiterId(usize);

/// A VM with a limit, and its IOs that limits hold back: reads and writes apart, in the order in which they came.
#[derive(Debug)]
struct Aside<T> {
    vm: usize,
    /// Its own limiter, and that of its tenant.
    limiters: [Option<LimiterId>; 2],
    items: [VecDeque<T>; 2],
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
    /// Each with the VMs that it limits.
    limiters: Slab<(Limiter, Vec<AsideId>)>,
    asides: Slab<Aside<T>>,
    /// When a limiter opens, or earlier.
    opens: BinaryHeap<Reverse<(Instant, LimiterId)>>,
    len: usize,
    /// What shut since the last look.
    shuts: Vec<(AsideId, Direction)>,
    /// VMs of which a limiter opened, or went.
    freed: Vec<AsideId>,
    /// Nothing is held back.
    idle: bool,
}

impl<T> Default for Limits<T> {
    fn default() -> Limits<T> {
        Limits {
            limiters: Slab::new(),
            asides: Slab::new(),
            opens: BinaryHeap::new(),
            len: 0,
            shuts: Vec::new(),
            freed: Vec::new(),
            idle: false,
        }
    }
}

impl<T> Limits<T> {
    /// Says whether limits hold anything back. What they held back goes with the next [`Limits::open`], if they do not.
    pub(crate) fn act(&mut self, now: Instant, act: bool) {
        if self.idle != act {
            return;
        }
        self.idle = !act;
        for (id, (state, _)) in &mut self.limiters {
            state.shut = state.shut.map(|shut| shut.and(Some(now)));
            self.opens.push(Reverse((now, LimiterId(id))));
        }
    }

    /// Adds a limiter that limits nothing yet.
    pub(crate) fn add(&mut self) -> LimiterId {
        LimiterId(self.limiters.insert(Default::default()))
    }

    /// Changes the rates of a limiter.
    pub(crate) fn set(&mut self, now: Instant, limiter: LimiterId, limit: &Limit) {
        self.limiters[limiter.0].0.set(now, limit);
        self.look(now, limiter);
    }

    /// Shuts and opens a limiter whose rates are others now. What they allow goes at once.
    fn look(&mut self, now: Instant, limiter: LimiterId) {
        let (state, members) = &mut self.limiters[limiter.0];
        state.shut = [Some(now); 2];
        state.shut_now(now);
        for way in WAYS.into_iter().filter(|way| state.shut[*way as usize] > Some(now)) {
            self.shuts.extend(members.iter().map(|member| (*member, way)));
        }
        self.opens.extend(state.opens_at().map(|at| Reverse((at, limiter))));
    }

    /// Changes this host's part of a limit that it shares with others, above 0 and at most 1.
    pub(crate) fn divide(&mut self, now: Instant, limiter: LimiterId, part: f64) {
        let (state, _) = &mut self.limiters[limiter.0];
        let part = larger(part, LEAST_PART);
        state.buckets.iter_mut().for_each(|bucket| bucket.divide(now, part));
        self.look(now, limiter);
    }

    /// Ends a period of a limiter: the largest part of its rates that went, and the part of the time for which it held IOs back.
    pub(crate) fn roll(&mut self, now: Instant, limiter: LimiterId, elapsed: Span) -> (f64, f64) {
        self.limiters[limiter.0].0.roll(now, elapsed)
    }

    /// Puts a VM beside the queue, under no limiter yet.
    pub(crate) fn enter(&mut self, vm: usize) -> AsideId {
        let (limiters, items) = Default::default();
        AsideId(self.asides.insert(Aside { vm, limiters, items }))
    }

    /// Puts a VM under a limiter, or takes it from the one that it has there. What that held back goes with the next [`Limits::open`].
    pub(crate) fn place(&mut self, aside: AsideId, of: Of, limiter: Option<LimiterId>) {
        let before = core::mem::replace(&mut self.asides[aside.0].limiters[of as usize], limiter);
        if before == limiter {
            return;
        }
        if let Some((_, members)) = before.and_then(|before| self.limiters.get_mut(before.0)) {
            members.retain(|member| *member != aside);
        }
        if let Some(limiter) = limiter {
            self.limiters[limiter.0].1.push(aside);
        }
        self.freed.push(aside);
    }

    /// Forgets a limiter. What it held back goes with the next [`Limits::open`].
    pub(crate) fn remove(&mut self, limiter: LimiterId) {
        let (_, members) = self.limiters.remove(limiter.0);
        for member in members {
            let limiters = self.asides[member.0].limiters;
            for (of, _) in [Of::Vm, Of::Tenant]
                .into_iter()
                .zip(limiters)
                .filter(|(_, of)| *of == Some(limiter))
            {
                self.place(member, of, None);
            }
        }
    }

    /// Takes a VM from its limiters. Returns what they held back.
    pub(crate) fn leave(&mut self, aside: AsideId) -> impl Iterator<Item = T> + use<T> {
        [Of::Vm, Of::Tenant].into_iter().for_each(|of| self.place(aside, of, None));
        self.freed.retain(|freed| *freed != aside);
        let Aside { items, .. } = self.asides.remove(aside.0);
        self.len -= items[0].len() + items[1].len();
        items.into_iter().flatten()
    }

    /// The limiters of a VM.
    pub(crate) fn of(&self, aside: AsideId) -> [Option<LimiterId>; 2] {
        self.asides[aside.0].limiters
    }

    /// Whether a VM's IOs of this direction wait.
    pub(crate) fn is_shut(&self, aside: AsideId, way: Direction) -> bool {
        let mut limiters = self.asides[aside.0].limiters.into_iter().flatten();
        limiters.any(|limiter| self.limiters[limiter.0].0.is_shut(way))
    }

    /// Holds an IO back.
    pub(crate) fn hold(&mut self, now: Instant, aside: AsideId, way: Direction, item: T) {
        let Aside { limiters, items, .. } = &mut self.asides[aside.0];
        items[way as usize].push_back(item);
        self.len += 1;
        for limiter in limiters.iter().flatten() {
            let (limiter, _) = &mut self.limiters[limiter.0];
            if limiter.is_shut(way) {
                limiter.holds.get_or_insert(now);
            }
        }
    }

    /// Counts an IO of a VM that goes. What has to wait by it now, [`Limits::shuts`] says.
    pub(crate) fn take(&mut self, now: Instant, aside: AsideId, io: Io) {
        for limiter in self.asides[aside.0].limiters.into_iter().flatten() {
            let (state, members) = &mut self.limiters[limiter.0];
            let before = WAYS.map(|way| state.is_shut(way));
            if self.idle || !state.take(now, io) {
                continue;
            }
            self.opens.extend(state.opens_at().map(|at| Reverse((at, limiter))));
            for way in WAYS.into_iter().filter(|way| state.is_shut(*way) && !before[*way as usize])
            {
                self.shuts.extend(members.iter().map(|member| (*member, way)));
            }
        }
    }

    /// A VM and a direction that have to wait from now on, with the VM's place: what of that the fair queue has is to be held back.
    pub(crate) fn shuts(&mut self) -> Option<(usize, AsideId, Direction)> {
        while let Some((aside, way)) = self.shuts.pop() {
            // The VM may have left meanwhile.
            if let Some(Aside { vm, .. }) = self.asides.get(aside.0) {
                return Some((*vm, aside, way));
            }
        }
        None
    }

    /// Opens what is due, and hands over each IO that may go now, with its VM.
    pub(crate) fn open(&mut self, now: Instant, mut goes: impl FnMut(usize, T)) {
        while let Some(&Reverse((at, limiter))) = self.opens.peek()
            && at <= now
        {
            self.opens.pop();
            let Some((state, members)) = self.limiters.get_mut(limiter.0) else { continue };
            let opened = state.open(now);
            self.opens.extend(state.opens_at().map(|at| Reverse((at, limiter))));
            if opened {
                self.freed.extend_from_slice(members);
            }
        }
        while let Some(member) = self.freed.pop() {
            for way in WAYS {
                if self.is_shut(member, way) {
                    continue;
                }
                let Aside { vm, items, .. } = &mut self.asides[member.0];
                let items = core::mem::take(&mut items[way as usize]);
                self.len -= items.len();
                items.into_iter().for_each(|item| goes(*vm, item));
            }
        }
    }

    /// Whether something has to be held back, or may go that was.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.shuts.is_empty() || self.next().is_some_and(|at| at <= now)
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
