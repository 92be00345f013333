//! Timing from a model: how an emulated array serves real clients.

use parda_control::{Instant, IoKind};
use parda_disk::Extent;

/// An IO in a [`Timed`] model. Used again after it was popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimedId(pub usize);

/// A model of an array that says when IOs complete.
///
/// The volume hands it every IO that it dispatches. An IO is answered when both the data operation
/// and the model are done with it. One volume's thread alone calls it, with times that do not go
/// back, in nanoseconds since the volume started.
pub trait Timed: Send {
    /// Takes an IO. `extent` is where it is on the backend, a disk's region included; it is empty
    /// for a flush.
    fn submit(&mut self, now: Instant, id: TimedId, kind: IoKind, extent: Extent);

    /// When the next IO completes, if one is under way. May become earlier by a submission.
    fn next(&self) -> Option<Instant>;

    /// An IO that has completed by `now`. To be asked until it answers `None`.
    fn pop(&mut self, now: Instant) -> Option<TimedId>;
}
