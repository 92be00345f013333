//! Where a byte lies on the platter: on which cylinder, and at which angle.
//!
//! The medium is one spiral of constant pitch. Its turns shorten linearly from the outer edge to
//! the inner one, so position, zoning and transfer time all follow from one function: how many
//! turns lie before a byte. Head switches are not modelled apart: the outer rate is a sustained
//! one and contains them.

use crate::units::{Bytes, Nanos};

use super::DriveParams;

/// A drive's medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    capacity: f64,
    /// Turns of the whole spiral.
    turns: f64,
    /// By what fraction the innermost turn is shorter than the outermost.
    shrink: f64,
    per_cylinder: f64,
    period: u64,
    /// Where the spindle stands at time zero, as a fraction of a turn.
    spindle: f64,
}

/// Where an address range begins and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Turns before the first byte.
    start: f64,
    /// Turns before the byte after the last.
    end: f64,
    /// The angle of the first byte, in nanoseconds of rotation after the index.
    pub(super) angle: f64,
    pub(super) first_cylinder: u32,
    pub(super) last_cylinder: u32,
}

impl Geometry {
    pub(super) fn new(params: &DriveParams, spindle: f64) -> Geometry {
        Geometry {
            capacity: params.capacity.0 as f64,
            turns: params.turns(),
            shrink: 1.0 - params.inner_to_outer,
            per_cylinder: 1.0 / f64::from(params.surfaces),
            period: params.period().0,
            spindle,
        }
    }

    pub(super) fn place(&self, offset: Bytes, len: Bytes) -> Place {
        let (start, end) = (self.turns_before(offset), self.turns_before(Bytes(offset.0 + len.0)));
        let angle = start + self.spindle;
        Place {
            start,
            end,
            angle: (angle - (angle as u64) as f64) * self.period as f64,
            first_cylinder: (start * self.per_cylinder) as u32,
            last_cylinder: (end * self.per_cylinder) as u32,
        }
    }

    /// How long the place takes to pass under the head, in nanoseconds.
    pub(super) fn transfer(&self, place: &Place) -> f64 {
        (place.end - place.start) * self.period as f64
    }

    /// The angle under the head at `now`, in nanoseconds of rotation after the index.
    pub(super) fn angle_at(&self, now: Nanos) -> f64 {
        (now.0 % self.period) as f64
    }

    /// The wait until `target` comes round, for a head that arrives at `arrival`: both angles in
    /// nanoseconds of rotation.
    pub(super) fn wait(&self, arrival: f64, target: f64) -> f64 {
        let period = self.period as f64;
        let ahead = target - arrival;
        let wait = ahead - (ahead / period) as i32 as f64 * period;
        if wait < 0.0 { wait + period } else { wait }
    }

    /// Turns of the spiral before a byte.
    ///
    /// With x the fraction of the turns, k the shrink and u the fraction of the capacity, turn
    /// lengths 1 − k·x add up to x − k·x²/2 = (1 − k/2)·u. Solved in the form that holds for k = 0.
    fn turns_before(&self, byte: Bytes) -> f64 {
        let filled = (2.0 - self.shrink) * (byte.0 as f64 / self.capacity);
        self.turns * filled / (1.0 + libm::sqrt(1.0 - self.shrink * filled))
    }
}
