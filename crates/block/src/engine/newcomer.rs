//! Newcomers, and the periodic looks of a volume.

use std::os::fd::OwnedFd;

use parda_control::Instant;

use super::pressure::Pressure;
use crate::disk_id::DiskId;

/// A socket whose handshake has not begun.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) listener: usize,
    pub(super) fd: OwnedFd,
}

/// Periodic looks, and the time of each.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) newcomers: bool,
    pub(super) waiting: bool,
    pub(super) answers: bool,
    pub(super) tidy: bool,
    pub(super) pressure: Pressure,
}

/// Looks at the files of all disks.
#[derive(Default)]
pub(super) struct Looks {
    /// Number of the newest one.
    pub(super) number: u64,
    /// It was begun and has not been answered.
    pub(super) under_way: bool,
    /// How many files were looked at, and the disk of the one that is being looked at, when that last changed.
    pub(super) at: (u64, Option<DiskId>),
    pub(super) begun: Instant,
    pub(super) moved: Instant,
    /// When the next one may begin.
    pub(super) again: Instant,
}
