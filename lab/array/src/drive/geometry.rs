//! Position of a byte on the platter: cylinder and angle.
//!
//! The medium is one spiral of constant pitch. Its turns shorten linearly from the outer edge to the
//! inner one. Position, zoning and transfer time all follow from one function: the turns before a
//! byte. Head switches are part of the outer rate, which is a sustained one.

use crate::units::{Bytes, Nanos};

use super::DriveParams;

/// A drive's medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    capacity: f64,
    /// Turns of the whole spiral.
    turns: f64,
    /// Fraction by which the innermost turn is shorter than the outermost.
    shrink: f64,
    per_cylinder: f64,
    period: Nanos,
    /// Period of rotation in nanoseconds, and its inverse.
    turn: f64,
    per_turn: f64,
    /// Angle of the spindle at time zero, as a fraction of a turn.
    spindle: f64,
}

/// Position of an address range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TrackSpan {
    /// Angle of the first byte, in nanoseconds of rotation after the index.
    pub(super) angle: f64,
    /// Time for which the range passes under the head, in nanoseconds.
    pub(super) transfer: f64,
    /// Cylinder numbers, as whole numbers for the seek curve.
    pub(super) first_cylinder: f64,
    pub(super) last_cylinder: f64,
}

impl Geometry {
    pub(super) fn new(params: &DriveParams, spindle: f64) -> Geometry {
        Geometry {
            capacity: params.capacity.0 as f64,
            turns: params.turns(),
            shrink: 1.0 - params.inner_to_outer,
            per_cylinder: 1.0 / f64::from(params.surfaces),
            period: params.period(),
            turn: params.period().0 as f64,
            per_turn: 1.0 / params.period().0 as f64,
            spindle,
        }
    }

    pub(super) fn place(&self, offset: Bytes, len: Bytes) -> TrackSpan {
        let (start, end) = (self.turns_before(offset), self.turns_before(Bytes(offset.0 + len.0)));
        let angle = start + self.spindle;
        TrackSpan {
            angle: (angle - f64::from(angle as u32)) * self.turn,
            transfer: (end - start) * self.turn,
            first_cylinder: f64::from((start * self.per_cylinder) as u32),
            last_cylinder: f64::from((end * self.per_cylinder) as u32),
        }
    }

    /// Angle under the head at `now`, in nanoseconds of rotation after the index.
    pub(super) fn angle_at(&self, now: Nanos) -> f64 {
        (now.0 % self.period.0) as i64 as f64
    }

    /// Rotational wait from angle `arrival` to angle `target`: both in nanoseconds of rotation.
    pub(super) fn wait(&self, arrival: f64, target: f64) -> f64 {
        let ahead = (target - arrival) * self.per_turn;
        let fraction = ahead - nearest_integer(ahead);
        (fraction + if fraction < 0.0 { 1.0 } else { 0.0 }) * self.turn
    }

    /// Turns of the spiral before a byte.
    ///
    /// Let x be the fraction of the turns, k the shrink and u the fraction of the capacity. Turn
    /// lengths 1 − k·x add up to x − k·x²/2 = (1 − k/2)·u. This form also holds for k = 0.
    fn turns_before(&self, byte: Bytes) -> f64 {
        let filled = (2.0 - self.shrink) * (byte.0 as f64 / self.capacity);
        self.turns * filled / (1.0 + libm::sqrt(1.0 - self.shrink * filled))
    }
}

/// Nearest whole number, for numbers up to 2⁵¹. Adding 1.5 · 2⁵² cuts off the fraction in a tenth of
/// the time of a cast. The function runs for every request in a queue.
fn nearest_integer(x: f64) -> f64 {
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    (x + WHOLE) - WHOLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;
    use proptest::prelude::*;

    fn geometry() -> (Geometry, DriveParams) {
        let drive = *Preset::Drive7200.params().drive.disk_mut().unwrap();
        (Geometry::new(&drive, 0.0), drive)
    }

    #[test]
    fn the_spiral_holds_the_capacity_and_runs_slower_inward() {
        let (geometry, drive) = geometry();
        let end = geometry.turns_before(drive.capacity);
        assert!((end / drive.turns() - 1.0).abs() < 1e-12);
        let mib = Bytes::mib(1);
        let rate = |offset: u64| mib.0 as f64 / geometry.place(Bytes(offset), mib).transfer * 1e3;
        assert!((rate(0) / 81.2 - 1.0).abs() < 1e-4, "{}", rate(0));
        let inner = rate(drive.capacity.0 - mib.0);
        assert!((inner / (81.2 * 0.62) - 1.0).abs() < 1e-4, "{inner}");
    }

    #[test]
    fn without_zones_all_turns_are_alike() {
        let drive = DriveParams { inner_to_outer: 1.0, ..geometry().1 };
        let geometry = Geometry::new(&drive, 0.0);
        let half = geometry.turns_before(Bytes(drive.capacity.0 / 2));
        assert!((half / drive.turns() - 0.5).abs() < 1e-12);
    }

    proptest! {
        /// The next byte follows in angle: one turn after the range began, less its transfer time.
        #[test]
        fn the_next_place_begins_where_the_last_ended(
            offset in 0..513_000_000_000_u64, len in 1..1_000_000_u64,
        ) {
            let (geometry, _) = geometry();
            let place = geometry.place(Bytes(offset), Bytes(len));
            let next = geometry.place(Bytes(offset + len), Bytes(1));
            let gap = geometry.wait(place.angle + place.transfer, next.angle);
            prop_assert!(gap < 1.0 || gap > geometry.turn - 1.0, "{}", gap);
            prop_assert_eq!(place.last_cylinder, next.first_cylinder);
        }

        #[test]
        fn a_wait_ends_at_the_target_within_a_turn(
            arrival in 0.0..1e9_f64, target in 0.0..8e6_f64,
        ) {
            let (geometry, _) = geometry();
            let wait = geometry.wait(arrival, target);
            prop_assert!((0.0..=geometry.turn).contains(&wait));
            let turns = (arrival + wait - target) / geometry.turn;
            prop_assert!((turns - libm::round(turns)).abs() < 1e-6);
        }
    }
}
