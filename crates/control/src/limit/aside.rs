//! IOs that limits hold back, beside the fair queue.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;

use slab::Slab;

use super::Limit;
use super::bucket::{Limiter, Promised, Units, WAYS, way};
use crate::io::Io;
use crate::latency::Direction;
use crate::units::{Instant, Span, larger, smaller};

/// The least part of a limit that a host has, and the least shares.
const LEAST_PART: f64 = 1e-6;

/// A limit that VMs of this host share: their tenant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedId(usize);

#[derive(Debug, Default)]
struct Shared {
    limiter: Limiter,
    members: Vec<AsideId>,
    /// Held IOs of the members. With it: since when there are any, and the time with held IOs since the last check.
    waiting: usize,
    since: Option<Instant>,
    held: Span,
    /// Start tag of the last released IO, in nanoseconds of the limit for each share.
    virtual_time: f64,
}

impl Shared {
    /// Updates the number of held IOs.
    fn holds(&mut self, now: Instant, waiting: usize) {
        self.waiting = waiting;
        if waiting > 0 {
            self.since.get_or_insert(now);
        } else if let Some(since) = self.since.take() {
            self.held += now.since(since);
        }
    }
}

/// A VM with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AsideId(usize);

/// Room that a VM's limits keep for released IOs of one direction that have not gone yet.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    ios: usize,
    /// Units of its own limit, and of its tenant's: large IOs may count as several.
    own: Units,
    shared: Units,
}

impl Kept {
    fn add(&mut self, own: Units, shared: Units) {
        self.ios += 1;
        for unit in [0, 1] {
            self.own[unit] += own[unit];
            self.shared[unit] += shared[unit];
        }
    }

    /// Removes an IO of so many units, if there is one. The last one takes all, so that no rest stays for ever. Returns the room of
    /// that IO.
    fn remove(&mut self, own: Units, shared: Units) -> (Units, Units) {
        let all = mem::take(self);
        if all.ios <= 1 {
            return (all.own, all.shared);
        }
        let least = |kept: Units, units: Units| [0, 1].map(|unit| smaller(kept[unit], units[unit]));
        let rest = |kept: Units, gone: Units| [0, 1].map(|unit| kept[unit] - gone[unit]);
        let (own, shared) = (least(all.own, own), least(all.shared, shared));
        *self =
            Kept { ios: all.ios - 1, own: rest(all.own, own), shared: rest(all.shared, shared) };
        (own, shared)
    }
}

/// Limits of a VM, and the IOs that they hold. Fields that each IO needs come first.
#[derive(Debug)]
#[repr(C, align(64))]
struct Aside<T> {
    own: Limiter,
    /// Limit of its tenant, if that has one.
    shared: Option<SharedId>,
    shares: f64,
    /// Finish tag at its tenant's limit.
    finish: f64,
    /// Reads and writes apart, as `items`.
    kept: [Kept; 2],
    /// IOs that are held back, and these: reads and writes apart, in the order in which they came.
    waiting: usize,
    items: [VecDeque<(Io, T)>; 2],
    /// The directions, the one of the IO that was let go last behind: a limit of both starves neither.
    ways: [Direction; 2],
    vm: usize,
}

impl<T> Aside<T> {
    /// Whether an IO that comes is the first one of its direction.
    fn is_first(&self, way: Direction) -> bool {
        self.waiting == 0 || self.items[way as usize].is_empty()
    }

    fn has_room(&self, shared: Option<&Shared>, now: Instant, way: Direction) -> bool {
        self.own.has_room(now, way) && shared.is_none_or(|shared| shared.limiter.has_room(now, way))
    }

    fn is_bound(&self, shared: Option<&Shared>, now: Instant, way: Direction) -> bool {
        self.own.binds(now, way) || shared.is_some_and(|shared| shared.limiter.binds(now, way))
    }

    /// Units of an IO for the VM's own limit, and for its tenant's.
    fn units(&self, shared: Option<&Shared>, io: Io) -> (Units, Units) {
        (self.own.units(io), shared.map_or([0.0; 2], |shared| shared.limiter.units(io)))
    }

    /// Releases an IO: its limits keep room for the IO until it has gone.
    fn promise(&mut self, shared: Option<&mut Shared>, io: Io, way: Direction) {
        let (own, of_shared) = self.units(shared.as_deref(), io);
        self.kept[way as usize].add(own, of_shared);
        self.own.keep(own, way);
        if let Some(shared) = shared {
            let cost = shared.limiter.keep(of_shared, way);
            self.finish = larger(self.finish, shared.virtual_time) + cost / self.shares;
        }
    }

    /// Units of its own limit for which room is kept.
    fn own_kept(&self) -> Promised {
        self.kept.map(|kept| kept.own)
    }

    /// Units of its tenant's limit for which room is kept.
    fn shared_kept(&self) -> Promised {
        self.kept.map(|kept| kept.shared)
    }
}

/// A limit that has no room: a VM's own or a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Full {
    Own(AsideId),
    Shared(SharedId),
}

/// The limits of a host's VMs, and the IOs that they hold.
#[derive(Debug)]
pub(crate) struct Limits<T> {
    asides: Slab<Aside<T>>,
    shared: Slab<Shared>,
    /// When to look at a limit again, or earlier.
    opens: BinaryHeap<Reverse<(Instant, Full)>>,
    /// VMs to look at, as their limits are others now.
    freed: Vec<AsideId>,
    len: usize,
    /// Nothing is held back.
    idle: bool,
}

impl<T> Default for Limits<T> {
    fn default() -> Limits<T> {
        let (asides, shared) = (Slab::new(), Slab::new());
        let (opens, freed) = (BinaryHeap::new(), Vec::new());
        Limits { asides, shared, opens, freed, len: 0, idle: false }
    }
}

impl<T> Limits<T> {
    /// Sets whether limits hold IOs. If not, the IOs that they held go with the next [`Limits::open`].
    pub(crate) fn act(&mut self, act: bool) {
        self.idle = !act;
        self.freed.extend(self.asides.iter().map(|(aside, _)| AsideId(aside)));
    }

    /// Adds a shared limit without rates.
    pub(crate) fn add(&mut self) -> SharedId {
        SharedId(self.shared.insert(Shared::default()))
    }

    /// Changes a shared limit. Newly allowed IOs go with the next [`Limits::open`].
    pub(crate) fn set(&mut self, now: Instant, id: SharedId, limit: &Limit) {
        let shared = &mut self.shared[id.0];
        let mut promised = Promised::default();
        for member in &shared.members {
            let own = self.asides[member.0].shared_kept();
            let sums = promised.as_flattened_mut().iter_mut();
            sums.zip(own.as_flattened()).for_each(|(sum, own)| *sum += own);
        }
        shared.limiter.set(now, limit, &promised);
        self.freed.extend_from_slice(&shared.members);
    }

    /// Changes this host's part of a limit that it shares with others, above 0 and at most 1.
    pub(crate) fn divide(&mut self, now: Instant, id: SharedId, part: f64) {
        let shared = &mut self.shared[id.0];
        shared.limiter.divide(now, larger(part, LEAST_PART));
        self.freed.extend_from_slice(&shared.members);
    }

    /// Ends a period of a shared limit. Returns the largest used fraction of its rates, and the fraction of the time with held IOs.
    pub(crate) fn roll(&mut self, now: Instant, id: SharedId, elapsed: Span) -> (f64, f64) {
        let shared = &mut self.shared[id.0];
        if let Some(since) = &mut shared.since {
            shared.held += now.since(mem::replace(since, now));
        }
        let secs = larger(elapsed.secs(), 1e-9);
        let held = mem::take(&mut shared.held).secs();
        (shared.limiter.roll(secs), smaller(held / secs, 1.0))
    }

    /// Removes a shared limit. The IOs that it held go with the next [`Limits::open`].
    pub(crate) fn remove(&mut self, now: Instant, id: SharedId) {
        for member in self.shared[id.0].members.clone() {
            self.share(now, member, None);
        }
        self.shared.remove(id.0);
    }

    /// Puts a VM of these shares beside the queue, under no limit yet.
    pub(crate) fn enter(&mut self, vm: usize, shares: f64) -> AsideId {
        let (own, kept, items) = Default::default();
        let (shared, finish, shares) = (None, 0.0, larger(shares, LEAST_PART));
        let aside = Aside { own, shared, shares, finish, kept, waiting: 0, items, ways: WAYS, vm };
        AsideId(self.asides.insert(aside))
    }

    /// Changes a VM's own limit, and the shares by which it takes turns at its tenant's limit. Newly allowed IOs go with the next
    /// [`Limits::open`].
    pub(crate) fn set_own(&mut self, now: Instant, id: AsideId, shares: f64, limit: &Limit) {
        let aside = &mut self.asides[id.0];
        aside.shares = larger(shares, LEAST_PART);
        if !(aside.own.is_none() && limit.is_none()) {
            let kept = aside.own_kept();
            aside.own.set(now, limit, &kept);
            self.freed.push(id);
        }
    }

    /// Puts a VM under a shared limit, or removes it from its present one. IOs that the old limit held go with the next [`Limits::open`].
    pub(crate) fn share(&mut self, now: Instant, id: AsideId, shared: Option<SharedId>) {
        let aside = &mut self.asides[id.0];
        let before = mem::replace(&mut aside.shared, shared);
        if before == shared {
            return;
        }
        let waiting = aside.waiting;
        if let Some(before) = before.and_then(|before| self.shared.get_mut(before.0)) {
            before.members.retain(|member| *member != id);
            before.limiter.promise(&aside.shared_kept(), -1.0);
            before.holds(now, before.waiting - waiting);
            // The room that the VM had is free for the remaining members.
            self.freed.extend_from_slice(&before.members);
        }
        if let Some(after) = shared.map(|shared| &mut self.shared[shared.0]) {
            after.members.push(id);
            // Each IO under way counts as one unit, as their sizes are no longer known.
            aside.kept.iter_mut().for_each(|kept| kept.shared = [kept.ios as f64, kept.own[1]]);
            after.limiter.promise(&aside.shared_kept(), 1.0);
            after.holds(now, after.waiting + waiting);
            aside.finish = after.virtual_time;
        }
        self.freed.push(id);
    }

    /// Whether a VM has a limit.
    pub(crate) fn concern(&self, id: AsideId) -> bool {
        let aside = &self.asides[id.0];
        aside.shared.is_some() || !aside.own.is_none()
    }

    /// Removes a VM from its limits. Returns the IOs that they held.
    pub(crate) fn leave(&mut self, now: Instant, id: AsideId) -> impl Iterator<Item = T> + use<T> {
        self.share(now, id, None);
        self.freed.retain(|freed| *freed != id);
        let aside = self.asides.remove(id.0);
        self.len -= aside.waiting;
        aside.items.into_iter().flatten().map(|(_, item)| item)
    }

    /// Whether an IO of a VM may go at once: no earlier IO waits, and its limits have room.
    pub(crate) fn admit(&mut self, now: Instant, id: AsideId, io: Io, way: Direction) -> bool {
        if self.idle {
            return true;
        }
        let aside = &mut self.asides[id.0];
        let shared = aside.shared.map(|shared| &mut self.shared[shared.0]);
        let goes = aside.is_first(way)
            && shared.as_ref().is_none_or(|shared| shared.waiting == 0)
            && aside.has_room(shared.as_deref(), now, way);
        if goes {
            aside.promise(shared, io, way);
        }
        goes
    }

    fn has_room(&self, now: Instant, id: AsideId, way: Direction) -> bool {
        let aside = &self.asides[id.0];
        aside.has_room(aside.shared.map(|shared| &self.shared[shared.0]), now, way)
    }

    /// Holds an IO back.
    pub(crate) fn hold(&mut self, now: Instant, id: AsideId, io: Io, way: Direction, item: T) {
        let aside = &mut self.asides[id.0];
        aside.items[way as usize].push_back((io, item));
        aside.waiting += 1;
        self.len += 1;
        if let Some(shared) = aside.shared.map(|shared| &mut self.shared[shared.0]) {
            shared.holds(now, shared.waiting + 1);
        }
        self.plan(now, id);
        // The IO waits only for its turn, and may be the next.
        if self.has_room(now, id, way) {
            self.freed.push(id);
        }
    }

    /// Plans the next check of a VM's limits without room, if they hold IOs.
    fn plan(&mut self, now: Instant, id: AsideId) {
        let aside = &mut self.asides[id.0];
        if aside.waiting > 0
            && let Some(at) = aside.own.plan(now)
        {
            self.opens.push(Reverse((at, Full::Own(id))));
        }
        if let Some(id) = aside.shared
            && let shared = &mut self.shared[id.0]
            && shared.waiting > 0
            && let Some(at) = shared.limiter.plan(now)
        {
            self.opens.push(Reverse((at, Full::Shared(id))));
        }
    }

    /// Counts an IO of a VM that goes.
    pub(crate) fn take(&mut self, now: Instant, id: AsideId, io: Io) {
        let Some(way) = way(io) else { return };
        let aside = &mut self.asides[id.0];
        let shared = aside.shared.map(|shared| &mut self.shared[shared.0]);
        let (own, of_shared) = aside.units(shared.as_deref(), io);
        let (own_kept, shared_kept) = aside.kept[way as usize].remove(own, of_shared);
        let take = |limiter: &mut Limiter, units, kept| match self.idle {
            true => limiter.release(kept, way),
            false => limiter.take(now, units, kept, way),
        };
        take(&mut aside.own, own, own_kept);
        if let Some(shared) = shared {
            take(&mut shared.limiter, of_shared, shared_kept);
        }
        if self.len > 0 && !self.idle {
            self.plan(now, id);
        }
    }

    /// Forgets an IO of a VM that was let go, and never goes.
    pub(crate) fn forget(&mut self, id: AsideId, io: Io) {
        let Some(way) = way(io) else { return };
        let aside = &mut self.asides[id.0];
        let shared = aside.shared.map(|shared| &mut self.shared[shared.0]);
        let (own, of_shared) = aside.units(shared.as_deref(), io);
        let (own, of_shared) = aside.kept[way as usize].remove(own, of_shared);
        aside.own.release(own, way);
        if let Some(shared) = shared {
            shared.limiter.release(of_shared, way);
        }
        // Others have its room.
        self.freed.push(id);
    }

    /// Removes the held IOs of a VM that `which` selects.
    pub(crate) fn withdraw(
        &mut self,
        now: Instant,
        id: AsideId,
        mut which: impl FnMut(&T) -> bool,
    ) -> Vec<(Io, T)> {
        let (aside, mut out) = (&mut self.asides[id.0], Vec::new());
        for items in &mut aside.items {
            let (taken, kept): (VecDeque<_>, _) =
                mem::take(items).into_iter().partition(|(_, item)| which(item));
            *items = kept;
            out.extend(taken);
        }
        aside.waiting -= out.len();
        self.len -= out.len();
        if let Some(shared) = aside.shared.map(|shared| &mut self.shared[shared.0]) {
            shared.holds(now, shared.waiting - out.len());
        }
        // IOs behind the removed ones may have room.
        self.freed.push(id);
        out
    }

    /// Releases the IOs of a VM that `which` selects, though its limits have no room: later IOs wait longer.
    pub(crate) fn hasten(
        &mut self,
        now: Instant,
        id: AsideId,
        which: impl FnMut(&T) -> bool,
    ) -> Vec<(Io, T)> {
        let out = self.withdraw(now, id, which);
        let aside = &mut self.asides[id.0];
        let mut shared = aside.shared.map(|shared| &mut self.shared[shared.0]);
        for (io, _) in out.iter().filter(|_| !self.idle) {
            if let Some(way) = way(*io) {
                aside.promise(shared.as_deref_mut(), *io, way);
            }
        }
        out
    }

    /// Releases each IO that may go now. `goes` receives its VM, the IO, and whether a limit was the cause for holding.
    pub(crate) fn open(&mut self, now: Instant, mut goes: impl FnMut(usize, T, bool)) {
        while let Some(&Reverse((at, full))) = self.opens.peek()
            && at <= now
        {
            self.opens.pop();
            match full {
                Full::Own(id) => {
                    if let Some(aside) = self.asides.get_mut(id.0) {
                        aside.own.look();
                        self.freed.push(id);
                    }
                }
                Full::Shared(id) => {
                    if let Some(shared) = self.shared.get_mut(id.0) {
                        shared.limiter.look();
                        self.freed.extend_from_slice(&shared.members);
                    }
                }
            }
        }
        while let Some(id) = self.freed.pop() {
            if self.asides.contains(id.0) {
                self.release(now, id, &mut goes);
            }
        }
    }

    /// Releases the IOs that a VM may send, or those of its tenant's VMs by their turns.
    fn release(&mut self, now: Instant, id: AsideId, goes: &mut impl FnMut(usize, T, bool)) {
        let shared = self.asides[id.0].shared.filter(|_| !self.idle);
        let members = match shared {
            Some(shared) => self.shared[shared.0].members.clone(),
            None => Vec::from([id]),
        };
        while let Some((start, id, way)) = self.turn(now, &members) {
            if let Some(shared) = shared {
                self.shared[shared.0].virtual_time = start;
            }
            self.let_go(now, id, way, goes);
        }
        if shared.is_some() {
            self.freed.retain(|freed| !members.contains(freed));
        }
        members.into_iter().for_each(|member| self.plan(now, member));
    }

    /// Start tag, VM and direction of the IO that may go next.
    fn turn(&self, now: Instant, members: &[AsideId]) -> Option<(f64, AsideId, Direction)> {
        let mut next: Option<(f64, AsideId, Direction)> = None;
        for member in members {
            let aside = &self.asides[member.0];
            let shared = aside.shared.map(|shared| &self.shared[shared.0]);
            let start = larger(aside.finish, shared.map_or(0.0, |shared| shared.virtual_time));
            if next.is_some_and(|(first, ..)| first <= start) {
                continue;
            }
            let may = |way: &Direction| {
                !aside.items[*way as usize].is_empty()
                    && (self.idle || aside.has_room(shared, now, *way))
            };
            next = aside.ways.into_iter().find(may).map(|way| (start, *member, way)).or(next);
        }
        next
    }

    fn let_go(
        &mut self,
        now: Instant,
        id: AsideId,
        way: Direction,
        goes: &mut impl FnMut(usize, T, bool),
    ) {
        let aside = &mut self.asides[id.0];
        let Some((io, item)) = aside.items[way as usize].pop_front() else { return };
        aside.ways.sort_by_key(|other| *other == way);
        let mut shared = aside.shared.map(|shared| &mut self.shared[shared.0]);
        aside.waiting -= 1;
        self.len -= 1;
        if let Some(shared) = &mut shared {
            shared.holds(now, shared.waiting - 1);
        }
        let bound = aside.is_bound(shared.as_deref(), now, way);
        if !self.idle {
            aside.promise(shared, io, way);
        }
        goes(aside.vm, item, bound);
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
    pub(crate) fn waiting(&self, id: AsideId) -> usize {
        self.asides[id.0].waiting
    }

    /// Held IOs whose cause is a limit, without released ones that wait for their turn.
    pub(crate) fn limited(&self, now: Instant, id: AsideId) -> usize {
        let aside = &self.asides[id.0];
        let shared = aside.shared.map(|shared| &self.shared[shared.0]);
        let bound = WAYS.into_iter().filter(|way| aside.is_bound(shared, now, *way));
        bound.map(|way| aside.items[way as usize].len()).sum()
    }

    /// IOs that are held back.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
