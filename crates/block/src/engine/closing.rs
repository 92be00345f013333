//! Files of disks that are gone, closed beside the volume's thread: close(2) waits for a file system that is asked (FUSE), or that has to
//! take what was written (NFS), and all disks of the volume would wait with it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::Disk;
use crate::backend::Backend;
use crate::backend::claims::Claim;
use crate::backend::disk_file::DiskFile;
use crate::backend::file::FileRemains;

/// How long a volume that ends waits for its files to be closed. One that takes longer keeps its locks until then.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// To close a file takes next to no stack.
const STACK: usize = 64 << 10;

/// What a disk has of its file, closed in this order.
pub(super) struct Remains {
    file: Option<FileRemains>,
    place: Option<DiskFile>,
    claim: Option<Arc<Claim>>,
}

impl Remains {
    /// Of a disk that nobody uses any more. What else it has is gone when this returns.
    pub(super) fn of(disk: Disk) -> Remains {
        let file = match disk.backend {
            Backend::File(file) => Some(file.into_remains()),
            Backend::Memory(_) | Backend::Nbd(_) => None,
        };
        Remains { file, place: disk.place, claim: disk.claim }
    }

    /// Closes it, and then says so: at once if there is no file, or else on a thread of its own.
    pub(super) fn close(self, closed: impl FnOnce() + Send + 'static) {
        let apart = self.file.is_some();
        let close = move || {
            let Remains { file, place, claim } = self;
            drop((file, place, claim));
            closed();
        };
        if !apart {
            return close();
        }
        let thread = thread::Builder::new().name("parda-close".to_owned()).stack_size(STACK);
        if let Err(error) = thread.spawn(close) {
            tracing::error!(%error, "no thread to close a file");
        }
    }
}

/// Closes the files of all disks of a volume that ends. Those that take long are closed later.
pub(super) fn close_all(disks: impl Iterator<Item = Disk>) {
    let (closed, is_closed) = channel();
    for disk in disks {
        let closed = closed.clone();
        // Nobody waits any more for those that take long.
        Remains::of(disk).close(move || {
            let _ = closed.send(());
        });
    }
    drop(closed);
    let until = Instant::now() + LAST_WAIT;
    while is_closed.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
}
