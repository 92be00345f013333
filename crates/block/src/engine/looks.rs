//! Periodic looks at the files of disks.

use parda_control::{Instant, Span};

use crate::backend::disk_file::OpenPath;
use crate::backend::map::Mapper;
use crate::disk_id::DiskId;
use crate::mailbox::Mailer;

/// Pause after a look, as a multiple of the look's time.
const PAUSE: u64 = 20;

const LONGEST_PAUSE: Span = Span::from_millis(5_000);

/// Looks at the files of all disks, which a thread of its own takes.
pub(super) struct Looks {
    pub(super) mapper: Mapper,
    /// Number of the newest one.
    number: u64,
    /// The look was begun and has not been answered.
    pub(super) under_way: bool,
    /// Number of files looked at, and the disk of the file under way, when that last changed.
    pub(super) at: (u64, Option<DiskId>),
    begun: Instant,
    pub(super) moved: Instant,
    /// When the next one may begin.
    pub(super) again: Instant,
}

impl Looks {
    pub(super) fn new(mailer: Mailer) -> Self {
        let (mapper, begun) = (Mapper::new(mailer), Instant::default());
        let (number, under_way, at) = (0, false, (0, None));
        Self { mapper, number, under_way, at, begun, moved: begun, again: begun }
    }

    pub(super) fn begin(&mut self, now: Instant, files: Vec<(DiskId, OpenPath)>) {
        self.number += 1;
        self.at = self.mapper.looks_at();
        self.under_way = !files.is_empty() && self.mapper.look(self.number, files).is_ok();
        (self.begun, self.moved, self.again) = (now, now, now);
    }

    /// An answer has come; `true` if it is that of the newest look.
    pub(super) fn ended(&mut self, now: Instant, number: u64) -> bool {
        assert!(number <= self.number, "an answer follows its look");
        if number < self.number {
            return false;
        }
        self.under_way = false;
        let pause = now.since(self.begun).0.saturating_mul(PAUSE);
        self.again = now + Span(pause).min(LONGEST_PAUSE);
        true
    }
}
