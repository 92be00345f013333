//! The moving parts: where the head is, and when it will have served a request.

use super::geometry::Geometry;
use super::queue::Queued;
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
    /// How long reading ahead may go on, in time of the medium.
    read_ahead: Nanos,
    cylinder: u32,
    last: Option<Pass>,
}

/// What passed under the head last: who follows on from it needs neither seek nor wait.
#[derive(Clone, Copy, Debug)]
struct Pass {
    kind: IoKind,
    /// The byte after the last one served.
    next: Bytes,
    /// When that byte comes under the head.
    at: Nanos,
}

/// The head at the moment a choice is made.
pub(super) struct Departure {
    now: Nanos,
    angle: f64,
}

impl Head {
    pub(super) fn new(params: &DriveParams, spindle: f64) -> Head {
        Head {
            geometry: Geometry::new(params, spindle),
            seek: SeekCurve::new(&params.seek, params.cylinders()),
            overhead: params.command_overhead,
            settle: params.write_settle.0 as f64,
            read_ahead: params.outer_rate.time(params.read_ahead),
            cylinder: 0,
            last: None,
        }
    }

    pub(super) fn cylinder(&self) -> u32 {
        self.cylinder
    }

    pub(super) fn locate(&self, request: Request) -> Queued {
        Queued { request, place: self.geometry.place(request.offset, request.len) }
    }

    /// The head as a command sent at `now` finds it, its overhead spent.
    pub(super) fn departure(&self, now: Nanos) -> Departure {
        Departure { now, angle: self.geometry.angle_at(now + self.overhead) }
    }

    /// Seek, settling and rotational wait until the first byte of `queued` is under the head, in
    /// nanoseconds after the command's overhead.
    pub(super) fn positioning(&self, from: &Departure, queued: &Queued) -> f64 {
        if self.follows_on(from.now, &queued.request).is_some() {
            return 0.0;
        }
        let settle = match queued.request.kind {
            IoKind::Read => 0.0,
            IoKind::Write => self.settle,
        };
        let arm = self.seek.time(self.cylinder, queued.place.first_cylinder) + settle;
        arm + self.geometry.wait(from.angle + arm, queued.place.angle)
    }

    /// Serves a request from `now` on. Returns when it is done.
    pub(super) fn serve(&mut self, now: Nanos, queued: &Queued) -> Nanos {
        let Request { kind, offset, len, .. } = queued.request;
        let ready = now + self.overhead;
        let start = self.follows_on(now, &queued.request).unwrap_or_else(|| {
            ready + Nanos::round(self.positioning(&self.departure(now), queued))
        });
        let at = start + Nanos::round(self.geometry.transfer(&queued.place));
        self.last = Some(Pass { kind, next: Bytes(offset.0 + len.0), at });
        self.cylinder = queued.place.last_cylinder;
        at.max(ready)
    }

    /// When the first byte came or comes under the head, if the request follows on from the last.
    ///
    /// After a read the drive reads on into its buffer, so the next read finds its data there or on
    /// the way. A write can only follow on while its place has not yet passed.
    fn follows_on(&self, now: Nanos, request: &Request) -> Option<Nanos> {
        let last = self.last.filter(|l| l.kind == request.kind && l.next == request.offset)?;
        match request.kind {
            IoKind::Read => Some(last.at.max(now - self.read_ahead)),
            IoKind::Write => (last.at >= now).then_some(last.at),
        }
    }
}
