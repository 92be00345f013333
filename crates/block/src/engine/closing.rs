//! Closes files of removed disks beside the volume's thread. close(2) waits for the answer of a file system (FUSE), or for write-back
//! (NFS), and all disks of the volume would wait with it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use parda_awake::Instant;

use super::disks::Disk;
use crate::backend::Backend;
use crate::backend::claims::Claim;
use crate::backend::disk_file::DiskFile;
use crate::backend::file::FileRemains;
use crate::descriptors::Room;

/// Time that a volume waits at its end for its files to be closed. A file that takes longer keeps its locks until then.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// To close a file takes next to no stack.
const STACK: usize = 64 << 10;

/// What a disk has of its file, closed in this order.
pub(super) struct Remains {
    file: Option<FileRemains>,
    place: Option<DiskFile>,
    claim: Option<Arc<Claim>>,
    room: Room,
}

/// Interval of checks whether this is the last reference to a descriptor.
const PAUSE: Duration = Duration::from_millis(10);

/// Closes a descriptor at its last reference: a look at the file may hang, and the kernel may have
/// a request of it.
fn close_last(mut fd: Arc<OwnedFd>) {
    loop {
        match Arc::try_unwrap(fd) {
            Ok(fd) => return drop(fd),
            Err(shared) => fd = shared,
        }
        thread::sleep(PAUSE);
    }
}

impl Remains {
    /// Takes the file of a disk that nobody uses any more. All else of the disk is dropped on
    /// return.
    pub(super) fn of(disk: Disk) -> Remains {
        let file = match disk.backend {
            Backend::File(file) => Some(file.into_remains()),
            Backend::Memory(_) | Backend::Remote(_) => None,
        };
        Remains { file, place: disk.place, claim: disk.claim, room: disk.room }
    }

    fn begin(&self) {
        self.claim.iter().for_each(|claim| claim.closes());
    }

    /// Closes the file, then calls `closed`: at once if there is no file, or else on a thread of
    /// its own.
    pub(super) fn close(self, closed: impl FnOnce() + Send + 'static) {
        let apart = self.file.is_some();
        let close = move || {
            self.begin();
            let Remains { file, place, claim, room } = self;
            // Until the file is closed, no other disk has its bytes.
            let owner = claim.as_ref().map(|claim| claim.owner());
            drop((place, claim));
            if let Some((fd, writer)) = file {
                drop(writer);
                close_last(fd);
            }
            drop((owner, room));
            closed();
        };
        if apart { beside(close) } else { close() }
    }
}

/// Closes files on a thread of its own.
fn beside(close: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name("parda-close".to_owned()).stack_size(STACK);
    if let Err(error) = thread.spawn(close) {
        tracing::error!(%error, "no thread to close files");
    }
}

/// Time that closing a file may take before another thread goes on with the rest.
const SLOW: Duration = Duration::from_millis(20);

/// Closes the files of all disks of a volume that ends. Slow files are closed later.
pub(super) fn close_all(disks: impl Iterator<Item = Disk>) {
    let all: VecDeque<Remains> = disks.map(Remains::of).collect();
    let mut rest = all.len();
    let (all, (closed, is_closed)) = (Arc::new(Mutex::new(all)), channel());
    let until = Instant::now() + LAST_WAIT;
    let begin = || {
        let (all, closed) = (Arc::clone(&all), closed.clone());
        let next = move || all.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        beside(move || {
            while let Some(remains) = next() {
                remains.begin();
                drop(remains);
                // Nobody waits any more for those that take long.
                let _ = closed.send(());
            }
        });
    };
    if rest > 0 {
        begin();
    }
    while rest > 0 && Instant::now() < until {
        match is_closed.recv_timeout(SLOW) {
            Ok(()) => rest -= 1,
            Err(RecvTimeoutError::Timeout) => begin(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
