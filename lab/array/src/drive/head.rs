//! The moving parts: position of the head, and the time at which it completes a request.

use super::geometry::Geometry;
use super::queue::{Queued, Target};
use super::seek::SeekCurve;
use super::{DriveParams, Request};
use crate::io::IoKind;
use crate::units::{Bytes, Nanos};

/// The arm with its heads over the turning platters.
#[derive(Clone, Debug)]
pub(super) struct Head {
    geometry: Geometry,
    seek: SeekCurve,
    overhead: Nanos,
    settle: f64,
    /// Greatest extent of reading ahead, as time of the medium.
    read_ahead: Nanos,
    /// Cylinder of the head, as a whole number for the seek curve.
    pub(super) cylinder: f64,
    last: Option<Pass>,
}

/// The last transfer. A request that begins where it ended needs neither seek nor rotation.
#[derive(Clone, Copy, Debug)]
struct Pass {
    kind: IoKind,
    /// Byte after the end of the transfer.
    next: Bytes,
    /// Time at which that byte comes under the head.
    at: Nanos,
}

/// State of the head at the moment of a choice.
pub(super) struct Departure {
    now: Nanos,
    /// Time at which the command has been decoded and the arm can move.
    ready: Nanos,
    angle: f64,
    /// The last transfer, if a request can continue it, with the time for that request.
    last: Option<Pass>,
}

impl Departure {
    /// Time at which the first byte comes under the head, if the request continues the last transfer.
    fn follows_on(&self, target: &Target) -> Option<Nanos> {
        let last = self.last.filter(|l| l.next == target.offset && l.kind == target.kind)?;
        Some(last.at)
    }

    /// Time since `since`, in nanoseconds.
    pub(super) fn waited(&self, since: Nanos) -> f64 {
        (self.now - since).0 as f64
    }
}

impl Head {
    pub(super) fn new(params: &DriveParams, spindle: f64) -> Head {
        Head {
            geometry: Geometry::new(params, spindle),
            seek: SeekCurve::new(&params.seek, params.cylinders()),
            overhead: params.command_overhead,
            settle: params.write_settle.0 as f64,
            read_ahead: params.outer_rate.time(params.read_ahead),
            cylinder: 0.0,
            last: None,
        }
    }

    pub(super) fn last_kind(&self) -> Option<IoKind> {
        self.last.map(|pass| pass.kind)
    }

    pub(super) fn locate(&self, request: Request) -> Queued {
        Queued { request, place: self.geometry.place(request.offset, request.len) }
    }

    /// State of the head for a command sent at `now`, after the command's overhead.
    pub(super) fn departure(&self, now: Nanos) -> Departure {
        self.leave(now, now + self.overhead)
    }

    fn leave(&self, now: Nanos, ready: Nanos) -> Departure {
        Departure { now, ready, angle: self.geometry.angle_at(ready), last: self.goes_on(now) }
    }

    /// Seek, settling and rotational wait until the head is over a request's first byte. The time is in nanoseconds
    /// after the command's overhead.
    #[inline] // For every request in the queue, whenever the head is free.
    pub(super) fn positioning(&self, from: &Departure, target: &Target) -> f64 {
        if from.follows_on(target).is_some() {
            return 0.0;
        }
        self.reach(from, target)
    }

    /// Positioning time of a request that does not continue the last transfer.
    #[inline]
    fn reach(&self, from: &Departure, target: &Target) -> f64 {
        // A write waits until the head is still.
        let settle = if target.kind == IoKind::Read { 0.0 } else { self.settle };
        let arm = self.seek.time(self.cylinder, target.cylinder) + settle;
        arm + self.geometry.wait(from.angle + arm, target.angle)
    }

    /// Writes data from the buffer. The command was decoded long before, so no overhead is added.
    pub(super) fn destage(&mut self, now: Nanos, queued: &Queued) -> Nanos {
        self.serve(&self.leave(now, now), queued)
    }

    /// Serves a request. Returns its completion time.
    pub(super) fn serve(&mut self, from: &Departure, queued: &Queued) -> Nanos {
        let (Request { kind, offset, len, .. }, target) = (queued.request, queued.target());
        let start = from
            .follows_on(&target)
            .unwrap_or_else(|| from.ready + Nanos::round(self.reach(from, &target)));
        let at = start + Nanos::round(queued.place.transfer);
        self.last = Some(Pass { kind, next: Bytes(offset.0 + len.0), at });
        self.cylinder = queued.place.last_cylinder;
        at.max(from.ready)
    }

    /// The last transfer, if a request sent at `now` can continue it, with the time of that request's first byte.
    ///
    /// After a read the drive reads on into its buffer, where the next read finds its data soon. A write can only
    /// continue while its place has not yet passed.
    fn goes_on(&self, now: Nanos) -> Option<Pass> {
        let last = self.last?;
        match last.kind {
            IoKind::Read => Some(Pass { at: last.at.max(now - self.read_ahead), ..last }),
            IoKind::Write | IoKind::Trim => Some(last).filter(|last| last.at >= now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;
    use proptest::prelude::*;

    const LEN: Bytes = Bytes::kib(64);

    fn head() -> Head {
        Head::new(Preset::Drive7200.params().drive.disk_mut().unwrap(), 0.0)
    }

    fn serve(head: &mut Head, now: Nanos, kind: IoKind, offset: u64) -> Nanos {
        let queued = head.locate(Request { owner: 0, kind, offset: Bytes(offset), len: LEN });
        head.serve(&head.departure(now), &queued)
    }

    /// 64 KiB at the outer edge, at 81.2 MB/s.
    const TRANSFER: Nanos = Nanos(807_094);

    #[track_caller]
    fn about(measured: Nanos, expected: Nanos) {
        assert!(measured.0.abs_diff(expected.0) < 100, "{measured}, expected {expected}");
    }

    #[test]
    fn reading_on_costs_only_the_transfer() {
        let mut head = head();
        let first = serve(&mut head, Nanos::ZERO, IoKind::Read, 0);
        let second = serve(&mut head, first, IoKind::Read, LEN.0);
        about(second - first, TRANSFER);
        let later = second + Nanos::from_micros(500);
        about(serve(&mut head, later, IoKind::Read, 2 * LEN.0) - second, TRANSFER);
    }

    #[test]
    fn what_was_read_ahead_costs_only_the_overhead() {
        let mut head = head();
        let first = serve(&mut head, Nanos::ZERO, IoKind::Read, 0);
        let later = first + Nanos::from_millis(50);
        assert_eq!(serve(&mut head, later, IoKind::Read, LEN.0) - later, head.overhead);
    }

    #[test]
    fn reading_ahead_ends_with_the_buffer() {
        let mut head = head();
        let first = serve(&mut head, Nanos::ZERO, IoKind::Read, 0);
        let mut now = first + Nanos::from_millis(1_000);
        let reads = (1..40).map(|i| {
            let asked = now;
            now = serve(&mut head, now, IoKind::Read, i * LEN.0);
            now - asked
        });
        let reads: alloc::vec::Vec<Nanos> = reads.collect();
        // 1 MiB is 16 reads. During their replies the drive reads 5 more.
        let fast = reads.iter().take_while(|time| **time == Nanos(203_000)).count();
        assert_eq!(fast, 21);
        about(reads[38], TRANSFER);
    }

    #[test]
    fn a_write_follows_on_only_if_it_was_waiting() {
        let mut head = head();
        let first = serve(&mut head, Nanos::ZERO, IoKind::Write, 0);
        let mut other = head.clone();
        about(serve(&mut head, first, IoKind::Write, LEN.0) - first, TRANSFER);
        let late = first + Nanos(1);
        let turn = Nanos(8_333_333);
        about(serve(&mut other, late, IoKind::Write, LEN.0) - first, turn + TRANSFER);
    }

    #[test]
    fn a_read_does_not_follow_on_from_a_write() {
        let mut head = head();
        let first = serve(&mut head, Nanos::ZERO, IoKind::Write, 0);
        let done = serve(&mut head, first, IoKind::Read, LEN.0);
        about(done - first, Nanos(8_333_333) + TRANSFER);
    }

    proptest! {
        /// A request's data passes when its place is under the head, whatever came before. The transfer starts no
        /// sooner than the arm can be there.
        #[test]
        fn data_passes_at_its_angle(
            ios in prop::collection::vec(
                (0..500_000_000_000_u64, any::<bool>(), 0..20_000_000_u64), 1..20,
            ),
        ) {
            let mut head = head();
            let mut now = Nanos::ZERO;
            for (offset, read, pause) in ios {
                let kind = if read { IoKind::Read } else { IoKind::Write };
                let queued = head.locate(Request { owner: 0, kind, offset: Bytes(offset), len: LEN });
                now = now + Nanos(pause);
                let from = head.cylinder;
                let done = head.serve(&head.departure(now), &queued);
                let start = done - Nanos::round(queued.place.transfer);
                let off = head.geometry.wait(head.geometry.angle_at(start), queued.place.angle);
                prop_assert!(!(2.0..8_333_331.0).contains(&off), "{}", off);
                let seek = head.seek.time(from, queued.place.first_cylinder);
                prop_assert!(start >= now + head.overhead + Nanos(seek as u64));
                now = done;
            }
        }
    }
}
