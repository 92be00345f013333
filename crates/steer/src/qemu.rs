//! Throttles of QEMU as the window gate, for disks that QEMU opens itself (librbd, gluster, iSCSI, NBD). No queue of the
//! kernel carries such disks, and no cgroup bounds them.
//!
//! | module | subject |
//! | --- | --- |
//! | [`qmp`] | one short conversation over a QMP socket, within bounds |
//! | [`limits`] | IO limits of a disk: those that were there, and those that hold it to a rate |
//! | [`disks`] | a VM's disks: names, limits, counters |

pub mod disks;
pub mod limits;
pub mod qmp;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::cgroup::glob;

pub use disks::{Counters, QemuDisk, QemuFlow, QemuGuest, QmpDiskId, look, throttle};
pub use limits::{IoMix, QemuLimits};
pub use qmp::QmpError;

/// The most sockets that are used.
const MOST_VMS: usize = 1024;
/// The most conversations at a time.
const AT_A_TIME: usize = 32;

/// Identity of a QMP socket's file: another process at the same path has another.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct SocketId {
    inode: u64,
    /// Time of the last change of the file, in nanoseconds of its second and seconds.
    modified: (i64, i64),
}

impl SocketId {
    /// Identity of the socket at a path.
    ///
    /// # Errors
    /// There is no socket.
    pub fn of(socket: &Path) -> io::Result<SocketId> {
        let meta = std::fs::metadata(socket)?;
        if !meta.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "is no socket"));
        }
        Ok(SocketId { inode: meta.ino(), modified: (meta.mtime(), meta.mtime_nsec()) })
    }
}

/// Name of the journal of the limits that the QEMU at a socket had.
#[must_use]
pub fn journal_name(socket: &Path) -> String {
    format!("qemu{}", socket.display()).replace('/', "!")
}

/// Sockets at a path whose last name may contain `*` and `?`, in order. None while their directory is missing.
///
/// # Errors
/// The directory cannot be read.
pub fn sockets(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let dir = pattern.parent().unwrap_or(Path::new("/"));
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let matches = |entry: &std::fs::DirEntry| {
        glob(&name, &entry.file_name().to_string_lossy()) && SocketId::of(&entry.path()).is_ok()
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().filter(matches).map(|entry| entry.path()).collect();
    // A QEMU by two names would be counted twice, and the limits that one has set be taken for others'.
    found.sort_by_key(|path| (path.is_symlink(), path.clone()));
    let mut seen = BTreeSet::new();
    found.retain(|path| SocketId::of(path).is_ok_and(|id| seen.insert(id)));
    found.sort();
    found.truncate(MOST_VMS);
    Ok(found)
}

/// Runs `work` for each item, several at a time, as each may wait for a QEMU that does not answer. Answers in the order of
/// the items.
pub fn each<T: Send, A: Send>(items: Vec<T>, work: impl Fn(T) -> A + Sync) -> Vec<A> {
    let threads = items.len().min(AT_A_TIME);
    let items = Mutex::new(items.into_iter().enumerate());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let mut answers: Vec<(usize, A)> = std::thread::scope(|scope| {
        let run = || {
            let mut done = Vec::new();
            while let Some((number, item)) = next() {
                done.push((number, work(item)));
            }
            done
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
    });
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_with_two_names_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let socket = |name: &str| dir.path().join(name);
        let _listeners = ["db.sock", "web.sock"].map(|name| UnixListener::bind(socket(name)));
        std::os::unix::fs::symlink(socket("db.sock"), socket("alias.sock")).unwrap();
        std::fs::hard_link(socket("web.sock"), socket("zzz.sock")).unwrap();
        std::fs::write(socket("file.sock"), "").unwrap();
        let found = sockets(&socket("*.sock")).unwrap();
        assert_eq!(found, [socket("db.sock"), socket("web.sock")]);
    }
}
