//! A limit in force: its rates as buckets.

use alloc::vec::Vec;

use super::Limit;
use crate::io::{Io, IoKind};
use crate::latency::Direction;
use crate::units::{Instant, Span, larger, smaller};

/// Longest time for which a changed limit holds all IOs because of earlier ones.
const LONGEST_DEBT: Span = Span::from_millis(1000);

/// Time of a rate that must be back for a check of a limit. Above the delay of a timer, and too short for a person to notice.
const GROUP: Span = Span::from_millis(5);

/// Directions that a limit distinguishes.
pub(super) const WAYS: [Direction; 2] = [Direction::Read, Direction::Write];

/// The direction that an IO counts in. `None`: limits do not concern it.
pub(crate) fn way(io: Io) -> Option<Direction> {
    match io.kind {
        IoKind::Discard => Some(Direction::Write),
        kind => kind.direction(),
    }
}

/// What a rate counts of an IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Ios,
    Bytes,
}

/// IOs and bytes, by [`Unit`].
pub(super) type Units = [f64; 2];

/// One rate, in one line of the processor's cache. See the documentation of [`limit`](crate::limit).
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket {
    /// Nanoseconds that one unit takes, at this host's part of the rate.
    each: f64,
    /// τ: how far ahead of its rate a client may be.
    tolerance: Span,
    /// T: the time up to which the rate has paid.
    paid: Instant,
    /// Units that were let go and have not gone yet.
    promised: f64,
    /// Units that went since the last look.
    taken: f64,
    /// Units per second, on all hosts.
    rate: f64,
    unit: Unit,
    /// The IOs that it counts; `None`: all.
    way: Option<Direction>,
    /// The bucket enforces the rate of a burst, and not the long-term rate.
    of_burst: bool,
    /// The rate had not paid for the earlier IOs when the last one went.
    busy: bool,
}

impl Bucket {
    /// The buckets of a limit, of which nothing went.
    fn of(limit: &Limit) -> impl Iterator<Item = Bucket> {
        let ios = limit.iops.each().map(|rate| (rate, Unit::Ios));
        let bytes = limit.bandwidth.each().map(|rate| (rate, Unit::Bytes));
        ios.chain(bytes).flat_map(|((way, rate), unit)| {
            let buckets = rate.buckets().into_iter().zip([false, true]);
            buckets.filter_map(move |(bucket, of_burst)| {
                let (rate, tolerance) = bucket?;
                Some(Bucket {
                    each: 1e9 / rate,
                    tolerance,
                    paid: Instant(0),
                    promised: 0.0,
                    taken: 0.0,
                    rate,
                    unit,
                    way,
                    of_burst,
                    busy: false,
                })
            })
        })
    }

    /// Whether it counts the same IOs as `other`, at whatever rate.
    fn is_like(&self, other: &Bucket) -> bool {
        (self.way, self.unit, self.of_burst) == (other.way, other.unit, other.of_burst)
    }

    /// Time at which a debt is paid. The debt may be too long for this rate, after a burst under another rate. Then only a second of it is
    /// paid back.
    fn paid_after(&self, now: Instant, debt: Span, longest: Span) -> Instant {
        now + debt.min(longest.max(self.tolerance + LONGEST_DEBT))
    }

    fn has_room(&self, now: Instant) -> bool {
        self.ahead(now) <= self.tolerance
    }

    fn counts(&self, way: Direction) -> bool {
        self.way.is_none_or(|mine| mine == way)
    }

    /// Time of these units at the rate. A day at most: a longer debt comes from a wrong rate, and must end.
    fn span(&self, units: f64) -> Span {
        // Rounded up, so that no number of IOs is early.
        Span(smaller(units * self.each, 86_400e9) as i64 as u64 + 1)
    }

    fn release(&mut self, kept: Units) {
        self.promised = larger(self.promised - kept[self.unit as usize], 0.0);
    }

    /// Time by which the rate is ahead, including all released IOs.
    fn ahead(&self, now: Instant) -> Span {
        let promised = if self.promised > 0.0 { self.span(self.promised) } else { Span::ZERO };
        self.paid.since(now) + promised
    }

    /// Changes this host's part of the rate. The debt in units stays.
    fn divide(&mut self, now: Instant, part: f64) {
        let (each, debt) = (1e9 / (self.rate * part), self.paid.since(now));
        let new = Span::from_secs(debt.secs() / self.each * each);
        (self.each, self.paid) = (each, self.paid_after(now, new, debt));
    }

    /// Time of the next check, if the bucket has no room at `now`. `None` also where released IOs must go first.
    fn opens(&self, now: Instant) -> Option<Instant> {
        let (ahead, debt) = (self.ahead(now), self.paid.since(now));
        let passes = ahead - debt <= self.tolerance;
        let wait = ahead - self.tolerance + GROUP;
        (ahead > self.tolerance && passes).then(|| now + wait)
    }
}

/// Units that were let go and have not gone yet, by direction.
pub(super) type Promised = [Units; 2];

/// A limit in force.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    buckets: Vec<Bucket>,
    /// Bytes from which on an IO counts as several; infinite if it never does.
    io_size: f64,
    /// When it is looked at next.
    planned: Option<Instant>,
}

impl Default for Limiter {
    fn default() -> Limiter {
        Limiter { buckets: Vec::new(), io_size: f64::INFINITY, planned: None }
    }
}

impl Limiter {
    /// Units that it counts of an IO.
    pub(super) fn units(&self, io: Io) -> Units {
        let bytes = if io.kind == IoKind::Discard { 0.0 } else { io.bytes.0 as f64 };
        [larger(bytes / self.io_size, 1.0), bytes]
    }

    /// Changes the rates. A bucket of the same kind keeps its debt, in IOs or bytes.
    pub(super) fn set(&mut self, now: Instant, limit: &Limit, promised: &Promised) {
        self.io_size = limit.io_size.unwrap_or(f64::INFINITY);
        let before = core::mem::replace(&mut self.buckets, Bucket::of(limit).collect());
        for bucket in &mut self.buckets {
            let Some(before) = before.iter().find(|before| before.is_like(bucket)) else {
                continue;
            };
            bucket.taken = before.taken;
            if (bucket.rate, bucket.tolerance) == (before.rate, before.tolerance) {
                (bucket.each, bucket.paid) = (before.each, before.paid);
                continue;
            }
            let debt = before.paid.since(now).secs() / before.each * bucket.each;
            bucket.paid = bucket.paid_after(now, Span::from_secs(debt), Span::ZERO);
        }
        self.promise(promised, 1.0);
    }

    pub(super) fn is_none(&self) -> bool {
        self.buckets.is_empty()
    }

    fn counting(&mut self, way: Direction) -> impl Iterator<Item = &mut Bucket> {
        self.buckets.iter_mut().filter(move |bucket| bucket.counts(way))
    }

    pub(super) fn divide(&mut self, now: Instant, part: f64) {
        self.buckets.iter_mut().for_each(|bucket| bucket.divide(now, part));
    }

    pub(super) fn has_room(&self, now: Instant, way: Direction) -> bool {
        self.buckets.iter().all(|bucket| !bucket.counts(way) || bucket.has_room(now))
    }

    /// Whether the limit is the cause for holding IOs of this direction. The rate was used without a gap, and released IOs do not wait for
    /// longer.
    pub(super) fn binds(&self, now: Instant, way: Direction) -> bool {
        self.buckets.iter().filter(|bucket| bucket.counts(way)).any(|bucket| {
            let debt = bucket.paid.since(now);
            bucket.busy && debt > bucket.ahead(now) - debt
        })
    }

    /// Plans the next look at it, if it has no room and none is planned before that. Returns when.
    pub(super) fn plan(&mut self, now: Instant) -> Option<Instant> {
        let at = self.buckets.iter().filter_map(|bucket| bucket.opens(now)).min()?;
        self.planned.is_none_or(|planned| at < planned).then(|| *self.planned.insert(at))
    }

    /// Marks the planned check as done.
    pub(super) fn look(&mut self) {
        self.planned = None;
    }

    /// Keeps room for released IOs of VMs; with a sign of -1, frees the room.
    pub(super) fn promise(&mut self, promised: &Promised, sign: f64) {
        for bucket in &mut self.buckets {
            let ways = WAYS.into_iter().filter(|way| bucket.counts(*way));
            let units =
                ways.fold(0.0, |sum, way| sum + promised[way as usize][bucket.unit as usize]);
            bucket.promised = larger(bucket.promised + sign * units, 0.0);
        }
    }

    /// Keeps room for an IO. Returns the time of the limit that it takes, in nanoseconds.
    pub(super) fn keep(&mut self, units: Units, way: Direction) -> f64 {
        self.counting(way).fold(0.0, |most, bucket| {
            let units = units[bucket.unit as usize];
            bucket.promised += units;
            larger(most, units * 1e9 / bucket.rate)
        })
    }

    /// Frees room that was kept.
    pub(super) fn release(&mut self, kept: Units, way: Direction) {
        self.counting(way).for_each(|bucket| bucket.release(kept));
    }

    /// Counts an IO that goes, for which room was kept or none.
    pub(super) fn take(&mut self, now: Instant, units: Units, kept: Units, way: Direction) {
        for bucket in self.counting(way) {
            let units = units[bucket.unit as usize];
            bucket.release(kept);
            bucket.busy = bucket.paid > now;
            bucket.paid = bucket.paid.max(now) + bucket.span(units);
            bucket.taken += units;
        }
    }

    /// Ends a period of `secs` seconds. Returns the largest part of its rates that went.
    pub(super) fn roll(&mut self, secs: f64) -> f64 {
        self.buckets.iter_mut().fold(0.0, |most, bucket| {
            larger(most, core::mem::take(&mut bucket.taken) / (bucket.rate * secs))
        })
    }
}
