//! Journal of original settings, written to disk before a setting is changed. Settings are restored on exit, at the next start after a
//! crash, or by `parda steer restore`.
//!
//! Each steered device has one file. Other things have a file as well, such as the weights of its cgroups and each throttled QEMU. The
//! directory is emptied by a reboot, which resets the settings as well. A lock beside each file is held by a live process.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parda_input::{InputFault, Pipe};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cgroup::{TAKE_BACK_IO, io_is_used};
use crate::nr_requests;
use crate::qemu::{QemuDisk, QemuLimits, QmpDiskId, QmpError, SocketId, throttle};
use crate::sysfs::{self, SysError};

/// Longest time for which a process that only looks at a journal holds its lock. A process that
/// wants the journal waits this long before it fails.
const GLANCE: Duration = Duration::from_millis(10);
const PATIENCE: u32 = 10;

/// Most bytes of a journal.
const MOST: u64 = 16 << 20;

/// A directory of journals.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
}

/// Original value of one file of the kernel, or limits of one disk of QEMU, and how to restore it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Path of the file, or of a QMP socket. A file that no longer exists is skipped: its setting went with it.
    pub file: PathBuf,
    /// Value that restores the setting.
    pub value: String,
    /// Condition: another file and its content. If the content differs now, the setting no longer exists, and a different device has
    /// its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_if: Option<Holds>,
    /// Inode of a cgroup's file. A cgroup that was removed and made anew under its name has another inode, and settings of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Method of restoring the value.
    #[serde(default)]
    pub how: How,
}

/// Content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// Path of the file.
    pub file: PathBuf,
    /// Trimmed content of the file.
    pub value: String,
}

/// Method of restoring a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Writes the value to the file.
    #[default]
    Write,
    /// Restores `queue/nr_requests` with the right elevator.
    NrRequests {
        /// Elevator under which the value was in force.
        scheduler: String,
        /// Whether the value may have been set under `none`, which shrinks the driver's tags for good.
        tags: bool,
    },
    /// Sets limits of a disk of QEMU, over the QMP socket that the file is.
    Throttle {
        /// Disk whose limits they are.
        disk: QmpDiskId,
        /// Socket at which the QEMU listened: limits of another QEMU are its own.
        socket: SocketId,
        /// Limits that were in force.
        limits: QemuLimits,
    },
}

impl Original {
    /// A value that is written to restore a file.
    pub(crate) fn new(file: &Path, value: String) -> Original {
        Original { file: file.to_owned(), value, only_if: None, inode: None, how: How::Write }
    }

    /// The current value of a file.
    pub fn of(file: &Path) -> Result<Original, SysError> {
        Ok(Original::new(file, sysfs::read(file)?))
    }

    /// A value that restores a cgroup's file as it is now.
    pub(crate) fn of_cgroup(file: &Path, value: String) -> Result<Original, SysError> {
        let inode = fs::metadata(file).map(|about| about.ino());
        let unread = |source| SysError::of(file, "cannot be read", &source);
        let inode = inode.map_err(unread)?;
        Ok(Original { inode: Some(inode), ..Original::new(file, value) })
    }

    /// Whether the file is still the one whose value this is.
    pub(crate) fn is_there(&self) -> bool {
        let same = |about: fs::Metadata| self.inode.is_none_or(|inode| inode == about.ino());
        fs::metadata(&self.file).is_ok_and(same)
    }

    /// Restores the value. `false` if the device no longer exists, or others use the setting.
    fn put_back(&self) -> Result<bool, SysError> {
        let other =
            |holds: &Holds| sysfs::read_any(&holds.file).is_none_or(|now| now != holds.value);
        if !self.is_there() || self.only_if.as_ref().is_some_and(other) {
            return Ok(false);
        }
        let done = match &self.how {
            // Others use what parda handed down.
            How::Write if self.value == TAKE_BACK_IO && io_is_used(&self.file) => return Ok(false),
            How::Write => sysfs::write(&self.file, &self.value),
            How::NrRequests { scheduler, tags } => {
                nr_requests::put_back(&self.file, &self.value, scheduler, *tags)
            }
            How::Throttle { disk, socket, limits } => {
                if SocketId::of(&self.file).ok() != Some(*socket) {
                    return Ok(false);
                }
                return self.unthrottle(disk, limits).map_err(|error| {
                    let why = format!("limits cannot be set again ({}): {error}", self.value);
                    SysError::new(&self.file, why)
                });
            }
        };
        match done {
            Err(error) if error.gone() => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Limits that a disk has before parda sets others.
    #[must_use]
    pub fn of_disk(socket: (&Path, SocketId), disk: &QemuDisk) -> Original {
        let limits = disk.limits.clone();
        let value = format!("{} {}", disk.name, serde_json::Value::from(limits.arguments()));
        let how = How::Throttle { disk: disk.id.clone(), socket: socket.1, limits };
        Original { how, ..Original::new(socket.0, value) }
    }

    /// Sets limits again. `false` if the disk no longer exists, or others than parda's are set meanwhile.
    fn unthrottle(&self, disk: &QmpDiskId, limits: &QemuLimits) -> Result<bool, QmpError> {
        match throttle(&self.file, &[(disk, limits)], |_, now| now.is_ours()) {
            Err(error) if error.gone() => Ok(false),
            is_set => Ok(is_set?.contains(&true)),
        }
    }

    /// Whether both are of one setting. Disks of a QEMU have one file, its socket.
    #[must_use]
    pub fn same_setting(&self, other: &Original) -> bool {
        let apart = match (&self.how, &other.how) {
            (How::Throttle { disk, socket, .. }, How::Throttle { disk: of, socket: at, .. }) => {
                (disk, socket) != (of, at)
            }
            _ => false,
        };
        self.file == other.file && self.inode == other.inode && !apart
    }
}

/// Reason why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The journal's file cannot be read or written, or is no journal. Holds the text.
    #[error("{0}")]
    File(String),
    /// A live process holds the journal.
    #[error("{name} is being steered by process {holder}: stop that first")]
    Held {
        /// Name of the steered device.
        name: String,
        /// Id of the process that holds the journal.
        holder: String,
    },
    /// A value could not be restored. The value stays in the journal.
    #[error(transparent)]
    Sys(#[from] SysError),
}

/// Result of restoring one journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Name of the journal.
    pub name: String,
    /// Values that were restored.
    pub back: Vec<Original>,
    /// Values whose device or cgroup no longer exists.
    pub gone: Vec<Original>,
}

/// A journal that is held. No other process can hold it while this exists.
#[derive(Debug)]
pub struct LockedJournal {
    name: String,
    file: PathBuf,
    originals: Vec<Original>,
    _lock: File,
}

impl Journal {
    /// The agent's directory of journals.
    pub const PLACE: &str = "/run/parda/steer";

    /// Name of the journal of the cgroups of a device, whose own journal has the device's name.
    pub(crate) fn of_cgroups(device: &str) -> String {
        format!("{device}.cgroups")
    }

    /// Journals in a directory, which need not exist yet.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Journal {
        Journal { dir: dir.into() }
    }

    /// Holds a journal, and first restores what a process that died left behind.
    pub fn hold(&self, name: &str) -> Result<(LockedJournal, Restored), JournalError> {
        fs::create_dir_all(&self.dir).map_err(|e| at(&self.dir, e))?;
        let mut held = self.lock(name)?;
        let restored = held.put_back()?;
        Ok((held, restored))
    }

    /// Restores one journal, if it exists.
    pub fn restore(&self, name: &str) -> Result<Option<Restored>, JournalError> {
        if !self.file(name).exists() {
            return Ok(None);
        }
        let (held, restored) = self.hold(name)?;
        drop(held);
        Ok(Some(restored))
    }

    /// Restores the journals of a device and of its cgroups, except for those that a live process holds.
    pub fn restore_device(&self, device: &str) -> Result<Vec<Original>, JournalError> {
        let mut back = Vec::new();
        for name in [device, &Journal::of_cgroups(device)] {
            match self.restore(name) {
                Err(JournalError::Held { .. }) => {}
                restored => back.extend(restored?.into_iter().flat_map(|restored| restored.back)),
            }
        }
        Ok(back)
    }

    /// Restores all journals. A failure does not stop the others.
    pub fn restore_all(&self) -> Result<Vec<Result<Restored, JournalError>>, JournalError> {
        let results = self.names()?.into_iter().map(|name| self.restore(&name));
        Ok(results.filter_map(Result::transpose).collect())
    }

    /// Names of the journals.
    pub fn names(&self) -> Result<Vec<String>, JournalError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(at(&self.dir, e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(|e| at(&self.dir, e))?.file_name();
            names.extend(name.to_str().and_then(|n| n.strip_suffix(".json")).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Entries of a journal, held or not.
    pub fn read(&self, name: &str) -> Result<Vec<Original>, JournalError> {
        read(&self.file(name))
    }

    /// Id of the process that holds a journal now.
    #[must_use]
    pub fn holder(&self, name: &str) -> Option<String> {
        match self.file(name).exists().then(|| self.lock(name))? {
            Err(JournalError::Held { holder, .. }) => Some(holder),
            _ => None,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        // Kernel names may contain `/`, written as `!`: cciss!c0d0.
        self.dir.join(format!("{}.json", name.replace('/', "!")))
    }

    fn lock(&self, name: &str) -> Result<LockedJournal, JournalError> {
        let file = self.file(name);
        let beside = file.with_extension("lock");
        let fail = |e: io::Error| at(&beside, e);
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&beside)
            .map_err(fail)?;
        let mut got = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        for _ in 0..PATIENCE {
            if got != Err(rustix::io::Errno::WOULDBLOCK) {
                break;
            }
            std::thread::sleep(GLANCE);
            got = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        }
        match got {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                lock.read_to_string(&mut holder).map_err(fail)?;
                let holder = holder.trim().to_owned();
                return Err(JournalError::Held { name: name.to_owned(), holder });
            }
            Err(e) => return Err(fail(e.into())),
        }
        lock.set_len(0).map_err(fail)?;
        writeln!(lock, "{}", std::process::id()).map_err(fail)?;
        let originals = read(&file)?;
        Ok(LockedJournal { name: name.to_owned(), file, originals, _lock: lock })
    }
}

impl LockedJournal {
    /// Notes original values. They are on disk when this returns, and only then may the settings be
    /// changed. A file that is noted already keeps its value.
    pub fn note(&mut self, originals: &[Original]) -> Result<(), JournalError> {
        let mut is_new = false;
        for original in originals {
            if !self.originals.iter().any(|o| o.same_setting(original)) {
                is_new = true;
                // Another inode of the same file belongs to a removed cgroup.
                self.originals.retain(|o| original.inode.is_none() || o.file != original.file);
                self.originals.push(original.clone());
            }
        }
        if is_new { self.save() } else { Ok(()) }
    }

    /// Replaces the noted value of a file.
    pub fn correct(&mut self, original: Original) -> Result<(), JournalError> {
        self.originals.retain(|o| !o.same_setting(&original));
        self.originals.push(original);
        self.save()
    }

    /// Forgets files that no longer exist, such as those of removed cgroups, whether or not others have their names now.
    pub fn forget_gone(&mut self) -> Result<(), JournalError> {
        let known = self.originals.len();
        self.originals.retain(Original::is_there);
        if self.originals.len() < known { self.save() } else { Ok(()) }
    }

    /// The noted original values.
    #[must_use]
    pub fn originals(&self) -> &[Original] {
        &self.originals
    }

    /// Restores all noted values, last first, and forgets them. A value that fails stays noted.
    pub fn put_back(&mut self) -> Result<Restored, JournalError> {
        let (mut back, mut gone) = (Vec::new(), Vec::new());
        let mut failed = None;
        let mut left = Vec::new();
        for original in std::mem::take(&mut self.originals).into_iter().rev() {
            match original.put_back() {
                Ok(true) => back.push(original),
                Ok(false) => gone.push(original),
                Err(error) => {
                    left.push(original);
                    failed.get_or_insert(error);
                }
            }
        }
        left.reverse();
        self.originals = left;
        self.save()?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(Restored { name: self.name.clone(), back, gone }),
        }
    }

    /// Writes a new file and renames it, so that a crash leaves the old or the new one.
    fn save(&self) -> Result<(), JournalError> {
        let dir = self.file.parent().unwrap_or(Path::new("/"));
        let sync_dir = || File::open(dir).and_then(|d| d.sync_all()).map_err(|e| at(dir, e));
        if self.originals.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(&self.file, e)),
                _ => sync_dir(),
            };
        }
        let new = self.file.with_extension("new");
        let write = || {
            let mut file = File::create(&new)?;
            serde_json::to_writer_pretty(&file, &self.originals)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, &self.file)
        };
        write().map_err(|e| at(&new, e))?;
        sync_dir()
    }
}

fn read(file: &Path) -> Result<Vec<Original>, JournalError> {
    let bytes = match parda_input::read(file, MOST, Pipe::Refused) {
        Ok(bytes) => bytes,
        Err(InputFault::Io(e)) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(InputFault::Io(e)) => return Err(at(file, e)),
        Err(fault) => return Err(JournalError::File(format!("{}: {fault}", file.display()))),
    };
    serde_json::from_slice(&bytes).map_err(|source| {
        let (file, line, column) = (file.display(), source.line(), source.column());
        JournalError::File(format!(
            "{file}:{line}:{column}: is no journal of parda steer: {source}"
        ))
    })
}

fn at(file: &Path, source: io::Error) -> JournalError {
    JournalError::File(format!("{}: {source}{}", file.display(), sysfs::rights(&source)))
}
