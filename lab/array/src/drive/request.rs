//! Requests of the controller to a drive, and times of completion.

use crate::io::IoKind;
use crate::units::{Bytes, Nanos};

/// A request of the controller to a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Key of the job that owns the request: returned when the request is done.
    pub(crate) owner: usize,
    pub(crate) kind: IoKind,
    /// First byte on the drive, and the length.
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

/// Times of the drive's next events, for requests that it has just begun.
pub(crate) type Wakes = [Option<Nanos>; 2];

/// Owner of the completed request, if any, and the times of the events that follow.
pub(crate) struct Served {
    pub(crate) owner: Option<usize>,
    pub(crate) next: Wakes,
}
