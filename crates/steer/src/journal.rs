//! What was there before, on disk before anything is written: so that it can be put back on exit,
//! at the next start after a crash, or by `parda steer restore`.
//!
//! One file for each steered device (and others by name, such as the weights of its cgroups), in a
//! directory that a reboot empties, as it does what was set. A lock beside it says that somebody
//! alive holds it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::nr_requests;
use crate::sysfs::{self, SysError};

/// Somebody who only looks whether a journal is held has it for less than this, and nobody who
/// wants it shall fail for that.
const GLANCE: Duration = Duration::from_millis(10);
const PATIENCE: u32 = 10;

/// Where the journals are.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
}

/// One file of the kernel's, and what puts it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// The file. One that is no longer there is left alone: it took what was set with it.
    pub file: PathBuf,
    /// What to write to it.
    pub value: String,
    /// Where set: another file and what it held. If it does not hold that any more, what was set
    /// is gone, and what bears its name now is not ours to write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_if: Option<Holds>,
    /// How it is put back.
    #[serde(default)]
    pub how: How,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// The file.
    pub file: PathBuf,
    /// What is in it, without the blanks around it.
    pub value: String,
}

/// How a value is put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It is written.
    #[default]
    Write,
    /// `queue/nr_requests`: by way of the elevators.
    NrRequests {
        /// The elevator under which that was the value.
        scheduler: String,
        /// Whether it may have been set under `none`, where it shrinks the driver's tags for good.
        tags: bool,
    },
}

impl Original {
    /// What a file holds now.
    pub fn of(file: &Path) -> Result<Original, SysError> {
        let value = sysfs::read(file)?;
        Ok(Original { file: file.to_owned(), value, only_if: None, how: How::Write })
    }

    /// Puts it back. False: what it belongs to is gone.
    fn put_back(&self) -> Result<bool, SysError> {
        let other =
            |holds: &Holds| sysfs::read_any(&holds.file).is_none_or(|now| now != holds.value);
        if !self.file.exists() || self.only_if.as_ref().is_some_and(other) {
            return Ok(false);
        }
        let done = match &self.how {
            How::Write => sysfs::write(&self.file, &self.value),
            How::NrRequests { scheduler, tags } => {
                nr_requests::put_back(&self.file, &self.value, scheduler, *tags)
            }
        };
        match done {
            Err(error) if error.gone() => Ok(false),
            done => done.map(|()| true),
        }
    }
}

/// Something wrong with a journal, or with what it says.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Its file cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else than a journal.
    #[error("{}:{}:{}: is no journal of parda steer: {source}", file.display(), source.line(),
            source.column())]
    Content {
        /// Which file.
        file: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Somebody alive holds it.
    #[error("{name} is being steered by process {holder}: stop that first")]
    Held {
        /// What is steered.
        name: String,
        /// Who does.
        holder: String,
    },
    /// Something could not be put back. It stays in the journal.
    #[error(transparent)]
    Sys(#[from] SysError),
}

/// What restoring one journal did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The journal's name.
    pub name: String,
    /// What was put back.
    pub back: Vec<Original>,
    /// What there was nothing left of to put back.
    pub gone: Vec<Original>,
}

/// A journal that is held: as long as this lives, nobody else may have it.
#[derive(Debug)]
pub struct Held {
    name: String,
    file: PathBuf,
    originals: Vec<Original>,
    _lock: File,
}

impl Journal {
    /// Where the agent keeps its journals.
    pub const PLACE: &str = "/run/parda/steer";

    /// Journals in a directory, which need not be there yet.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Journal {
        Journal { dir: dir.into() }
    }

    /// Takes hold of a journal, and puts back first what a process that died left behind.
    pub fn hold(&self, name: &str) -> Result<(Held, Restored), JournalError> {
        fs::create_dir_all(&self.dir).map_err(|e| at(&self.dir, e))?;
        let mut held = self.lock(name)?;
        let restored = held.put_back()?;
        Ok((held, restored))
    }

    /// Puts back what one journal says, if there is such a journal.
    pub fn restore(&self, name: &str) -> Result<Option<Restored>, JournalError> {
        if !self.file(name).exists() {
            return Ok(None);
        }
        let (held, restored) = self.hold(name)?;
        drop(held);
        Ok(Some(restored))
    }

    /// Puts back what all of them say, and goes on to the next where one cannot be.
    pub fn restore_all(&self) -> Result<Vec<Result<Restored, JournalError>>, JournalError> {
        let results = self.names()?.into_iter().map(|name| self.restore(&name));
        Ok(results.filter_map(Result::transpose).collect())
    }

    /// The journals that there are.
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

    /// What a journal says, whoever holds it.
    pub fn read(&self, name: &str) -> Result<Vec<Original>, JournalError> {
        read(&self.file(name))
    }

    /// The process that holds a journal now.
    #[must_use]
    pub fn holder(&self, name: &str) -> Option<String> {
        match self.file(name).exists().then(|| self.lock(name))? {
            Err(JournalError::Held { holder, .. }) => Some(holder),
            _ => None,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        // cciss!c0d0, or a name that was made from a path.
        self.dir.join(format!("{}.json", name.replace('/', "!")))
    }

    fn lock(&self, name: &str) -> Result<Held, JournalError> {
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
        Ok(Held { name: name.to_owned(), file, originals, _lock: lock })
    }
}

impl Held {
    /// Notes what was there before. It is on disk when this returns, and only then may it be
    /// changed. What is known of a file already stays.
    pub fn note(&mut self, originals: &[Original]) -> Result<(), JournalError> {
        let known = self.originals.len();
        for original in originals {
            if self.originals.iter().all(|o| o.file != original.file) {
                self.originals.push(original.clone());
            }
        }
        if self.originals.len() > known { self.save() } else { Ok(()) }
    }

    /// Notes that something else belongs back in a file than was noted before.
    pub fn correct(&mut self, original: Original) -> Result<(), JournalError> {
        self.originals.retain(|o| o.file != original.file);
        self.originals.push(original);
        self.save()
    }

    /// Forgets what was noted of files that are there no more: cgroups come and go, and took what
    /// was set with them.
    pub fn forget_gone(&mut self) -> Result<(), JournalError> {
        let known = self.originals.len();
        self.originals.retain(|original| original.file.exists());
        if self.originals.len() < known { self.save() } else { Ok(()) }
    }

    /// What was noted.
    #[must_use]
    pub fn originals(&self) -> &[Original] {
        &self.originals
    }

    /// Puts back all that was noted, the last first, and forgets it. What fails stays noted.
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

    /// In a file of its own, then in place of the old one: a crash leaves one or the other.
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
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(at(file, e)),
    };
    serde_json::from_str(&text)
        .map_err(|source| JournalError::Content { file: file.to_owned(), source })
}

fn at(file: &Path, source: io::Error) -> JournalError {
    JournalError::File { file: file.to_owned(), source }
}
