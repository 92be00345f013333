//! The file behind a disk, for threads that look at it beside the ring.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::{self, SeekFrom};
use rustix::io::Errno;

use super::medium::Medium;

/// Where a disk's data lies, for a thread that looks at it beside the ring.
#[derive(Clone)]
pub(crate) struct DiskFile {
    pub(crate) fd: Arc<OwnedFd>,
    /// The name by which it was opened.
    path: Option<Arc<Path>>,
    pub(super) base: u64,
    pub(super) align: u32,
}

impl DiskFile {
    /// The disk that begins at `base`, with the minimum block size `align`.
    pub(crate) fn new(fd: &Arc<OwnedFd>, base: u64, align: u32) -> Self {
        Self { fd: Arc::clone(fd), path: None, base, align }
    }

    /// The same, of a file that was opened by that name.
    pub(crate) fn named(self, path: &Path) -> Self {
        Self { path: Some(path.into()), ..self }
    }

    /// The same for a look at some later time, which does not keep the file open until then.
    pub(crate) fn open_path(&self) -> OpenPath {
        OpenPath { fd: Arc::downgrade(&self.fd), path: self.path.clone() }
    }
}

/// File of a disk that waits to be looked at. The file may be closed meanwhile, as a look at one
/// before it may hang.
pub(crate) struct OpenPath {
    fd: Weak<OwnedFd>,
    path: Option<Arc<Path>>,
}

impl OpenPath {
    /// State of the file now; `None` if it cannot be read, and no change is known.
    pub(super) fn look(&self) -> Option<Look> {
        let fd = self.fd.upgrade()?;
        let size = fs::seek(&fd, SeekFrom::End(0)).ok()?;
        let opened = Medium::of(&fs::fstat(&fd).ok()?);
        let is_another = |path: &Arc<Path>| match fs::stat(&**path) {
            Ok(stat) => Medium::of(&stat) != opened,
            Err(error) => error == Errno::NOENT,
        };
        Some(Look { size, replaced: self.path.as_ref().is_some_and(is_another) })
    }
}

/// State of a served file's path: the same file, another one, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Its name leads to another file, or to none.
    pub(crate) replaced: bool,
}
