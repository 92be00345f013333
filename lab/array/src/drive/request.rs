//! Requests of the controller to a drive, and the times of its answers.

use crate::io::IoKind;
use crate::units::{Bytes, Nanos};

/// What the controller asks of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Whose request it is: handed back when it is done.
    pub(crate) owner: usize,
    pub(crate) kind: IoKind,
    /// Where on the drive, and how much.
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

/// When a drive must be asked again, for what it has just begun.
pub(crate) type Wakes = [Option<Nanos>; 2];

/// Whose request is done, if one is, and when to ask again for what began after it.
pub(crate) struct Served {
    pub(crate) owner: Option<usize>,
    pub(crate) next: Wakes,
}
