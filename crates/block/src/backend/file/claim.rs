//! Other users of a file or device: other programs, found by locks ([`parda_input::locks`]), and other disks of this process
//! ([`crate::backend::claims`]).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use parda_awake::Instant;
use parda_input::locks::{self, Locks};
use rustix::fs::{self, Mode, OFlags};

use crate::backend::claims::{Claim, Claims};
use crate::backend::loops;
use crate::backend::medium::{Medium, Stretch};
use crate::backend::{Direct, DiskRegion, Lock, OpenError};

/// Time that a disk waits for IO that a killed agent has left in the kernel. An array
/// that takes longer is broken, or its path is; the agent tries again later.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(10);

/// How a file is to be opened and claimed.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) disk: &'a str,
    pub(crate) path: &'a Path,
    pub(crate) direct: Direct,
    pub(crate) lock: Lock,
    pub(crate) raw: bool,
    pub(crate) read_only: bool,
    pub(crate) region: Option<DiskRegion>,
    /// Number of the host, which gives its agent a byte among the locks of a shared file.
    pub(crate) host: u64,
    /// Called as often as the file system has answered, also while another agent is waited for.
    pub(crate) answered: &'a dyn Fn(),
}

impl Wanted<'_> {
    pub(super) fn range(&self) -> Range<u64> {
        self.region.map_or(0..u64::MAX, DiskRegion::bytes)
    }
}

/// How a disk keeps other programs from its file. The locks stay as long as the kernel has requests.
#[derive(Debug)]
pub(crate) struct Held {
    /// Open file. Disks on one file have their locks there together.
    medium: Medium,
    lock: Lock,
    locks: Locks,
    /// The disk's own descriptor, or that of the file behind its loop device.
    fd: Arc<OwnedFd>,
    /// Keeps mounts, LVM, RAID and the like from a block device.
    exclusive: Option<Arc<OwnedFd>>,
    /// Tells agents that share the file that this one lives.
    alive: Option<File>,
}

impl Held {
    /// State of its open file.
    pub(crate) fn stat(&self) -> rustix::io::Result<fs::Stat> {
        fs::fstat(&self.fd)
    }

    /// Number of its descriptors. The one that keeps others from a block device may be another disk's.
    pub(crate) fn descriptors(&self) -> u64 {
        1 + u64::from(self.exclusive.is_some()) + u64::from(self.alive.is_some())
    }
}

/// Reason why a file is not to be had now.
enum Obstacle {
    /// A lock that an agent has which is about to end, or another one.
    Agent(&'static str),
    Error(OpenError),
}

impl From<OpenError> for Obstacle {
    fn from(error: OpenError) -> Self {
        Self::Error(error)
    }
}

/// Claims an open file for a disk; waits up to `wait` for operations that a killed agent left under
/// way.
pub(crate) fn claim(
    fd: &Arc<OwnedFd>,
    wanted: &Wanted<'_>,
    wait: Duration,
) -> Result<Arc<Claim>, OpenError> {
    let until = Instant::now() + wait;
    let mut said = false;
    loop {
        let in_time = Instant::now() < until;
        let who = match try_claim(fd, wanted, in_time) {
            Ok(claim) => return Ok(claim),
            Err(Obstacle::Error(error)) => return Err(error),
            Err(Obstacle::Agent(what)) => what,
        };
        if !in_time {
            let path = wanted.path.display();
            let who = format!(
                "another agent {who}, on this host or another one: remove the disk from that agent. `fuser -v {path}` names \
                 it; if no process has the file, the kernel has IO of an agent that was killed"
            );
            return Err(OpenError::InUse { path: wanted.path.into(), who });
        }
        if !std::mem::replace(&mut said, true) {
            tracing::warn!(
                disk = wanted.disk,
                path = %wanted.path.display(),
                at_most = ?wait,
                "another agent has it, or the kernel has IO of one that was killed: waits for it"
            );
        }
        std::thread::sleep(PAUSE);
        (wanted.answered)();
    }
}

/// `in_time`: there is time to wait for another agent that shares the file. That agent may have been killed, and the locks be left over
/// from it.
fn try_claim(
    fd: &Arc<OwnedFd>,
    wanted: &Wanted<'_>,
    in_time: bool,
) -> Result<Arc<Claim>, Obstacle> {
    let &Wanted { disk, path, read_only, lock, direct, .. } = wanted;
    let system = |source: io::Error| OpenError::Open { path: path.into(), source };
    let stat = fs::fstat(fd).map_err(|e| system(e.into()))?;
    let medium = Medium::of(&stat);
    let stretch = Stretch::new(medium.clone(), wanted.range());
    let turn = Claims::lock().turn(&stretch);
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let mut claims = Claims::lock();
    claims.check(&stretch, read_only, path.display())?;
    let others = claims.beside(&stretch);
    // Not had any more if what follows fails.
    let claim = claims.add(disk, stretch, read_only);
    drop(claims);
    let attempt = Attempt { others: &others, in_time };
    let (locks, alive) = attempt.hold(fd, &medium, wanted)?;
    let behind = attempt.hold_behind(fd, &medium, wanted).inspect_err(|_| {
        // The next attempt begins without locks.
        let _ = locks::release_all(fd);
    })?;
    let is_device = matches!(medium, Medium::Device(_));
    let exclusive = if is_device && !read_only && lock == Lock::On {
        match on(&medium, &others).find_map(|(_, held)| held.exclusive.clone()) {
            Some(exclusive) => Some(exclusive),
            None => Some(Arc::new(exclude_others(fd, path).inspect_err(|_| {
                // The caller closes the file, which gives up the locks just as well.
                let _ = locks::release_all(fd);
            })?)),
        }
    } else {
        None
    };
    // With the page cache, the exclusive open is a check only and is not kept. While another open
    // file has the device to itself, Linux refuses to trim or zero dirty pages (EBUSY).
    let exclusive = exclusive.filter(|_| direct != Direct::Off);
    let held = Held { medium, lock, locks, fd: Arc::clone(fd), exclusive, alive };
    claim.holds([held].into_iter().chain(behind).collect());
    Ok(claim)
}

/// Holds of this process's disks on that file or device, with the disks' names.
fn on<'a>(
    medium: &'a Medium,
    claims: &'a [Arc<Claim>],
) -> impl Iterator<Item = (&'a str, &'a Held)> {
    let all = claims.iter().flat_map(|claim| claim.held().iter().map(|held| (claim.disk(), held)));
    all.filter(move |(_, held)| held.medium == *medium)
}

/// One attempt to take all locks of a disk.
struct Attempt<'a> {
    /// Claims of the other disks of this process.
    others: &'a [Arc<Claim>],
    /// There is time to wait for another agent, and to try again.
    in_time: bool,
}

impl Attempt<'_> {
    /// Takes a disk's locks on an open file. The second one says that this agent lives.
    fn hold(
        &self,
        fd: &OwnedFd,
        medium: &Medium,
        wanted: &Wanted<'_>,
    ) -> Result<(Locks, Option<File>), Obstacle> {
        let &Wanted { disk, path, read_only, lock, host, .. } = wanted;
        let others = self.others;
        if let Some((other, _)) = on(medium, others).find(|(_, held)| held.lock != lock) {
            return Err(OpenError::Refused(format!(
                "{}: the disk {other:?} is on the same file or device: give both the same `lock`",
                path.display()
            ))
            .into());
        }
        if lock == Lock::Off {
            return Ok((Locks::default(), None));
        }
        let ours: Vec<&Held> = on(medium, others).map(|(_, held)| held).collect();
        let shared = lock == Lock::Shared;
        let locks = Locks::of(read_only, shared);
        take_locks(fd, locks, &ours, path)?;
        if !shared {
            return Ok((locks, None));
        }
        let agent = ours.is_empty() && locks::an_agent_has_it(fd).is_ok_and(|yes| yes);
        let killed = agent && locks::a_killed_agent_shared_it(fd, host).is_ok_and(|yes| yes);
        if killed && self.in_time {
            let system = |source| OpenError::Open { path: path.into(), source };
            locks::release_all(fd).map_err(system)?;
            return Err(Obstacle::Agent("shares it"));
        }
        if agent {
            tracing::warn!(disk, path = %path.display(), "another agent shares it");
        }
        // An agent that is not told so waits for a killed one in vain.
        Ok((locks, locks::share(fd, host).ok()))
    }

    /// The same for each layer behind a loop device, down to the lowest file: others may open each by its own name. The kernel refuses
    /// circles.
    fn hold_behind(
        &self,
        fd: &OwnedFd,
        device: &Medium,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Held>, Obstacle> {
        let mut held: Vec<Held> = Vec::new();
        if wanted.lock == Lock::Off {
            return Ok(held);
        }
        loop {
            let (above, at) = held.last().map_or((device, fd), |held| (&held.medium, &*held.fd));
            let Some(path) = above.file_behind() else { return Ok(held) };
            let (fd, medium) = match open_behind(at, &path) {
                Ok(open) => open,
                Err(error) => return Ok(untold(wanted, &path, &error, held)),
            };
            let lock = wanted.lock;
            match self.hold(&fd, &medium, &Wanted { path: &path, ..*wanted }) {
                Ok((locks, alive)) => held.push(Held {
                    medium,
                    lock,
                    locks,
                    fd: Arc::new(fd),
                    exclusive: None,
                    alive,
                }),
                Err(Obstacle::Error(error @ OpenError::NoLocks { .. })) => {
                    return Ok(untold(wanted, &path, &error, held));
                }
                Err(obstacle) => return Err(obstacle),
            }
        }
    }
}

/// Opens the file or device behind a loop device by the kernel's path, unless something else is there.
fn open_behind(device: &OwnedFd, path: &Path) -> io::Result<(OwnedFd, Medium)> {
    let fd = loops::open(path)?;
    let medium = Medium::of(&fs::fstat(&fd)?);
    if medium != Medium::behind(device)? {
        return Err(io::Error::other("another file has its name now"));
    }
    Ok((fd, medium))
}

/// Says that a file behind a loop device has no locks; those above it have.
fn untold(
    wanted: &Wanted<'_>,
    path: &Path,
    error: &dyn std::error::Error,
    held: Vec<Held>,
) -> Vec<Held> {
    let (disk, file, error) = (wanted.disk, path.display(), error.to_string());
    tracing::warn!(disk, %file, error, "others who open the file behind the loop device are not noticed");
    held
}

/// Takes locks that no other program's contradict. Locks of our own disks on the same file do not
/// count: they were checked when they were taken.
fn take_locks(fd: &OwnedFd, locks: Locks, ours: &[&Held], path: &Path) -> Result<(), Obstacle> {
    let no_locks = |source| OpenError::NoLocks { path: path.into(), source };
    let held = ours.iter().fold(Locks::default(), |all, held| all.union(held.locks));
    let new = locks.without(held);
    // All of ours at once, so that they may be put down for a moment without anybody coming in.
    let all = locks.union(held);
    all.take(fd).map_err(no_locks)?;
    let looked = if new.is_empty() {
        Ok((None, false))
    } else {
        let looked = ours
            .iter()
            .try_for_each(|held| locks::release_all(&held.fd))
            .and_then(|()| Ok((new.obstacle(fd)?, locks::an_agent_has_it(fd)?)));
        let back = ours.iter().try_for_each(|held| held.locks.take(&held.fd));
        back.and(looked)
    };
    let (obstacle, by_agent) = looked.map_err(no_locks)?;
    let Some(what) = obstacle else {
        all.without(locks).release(fd).map_err(no_locks)?;
        return Ok(());
    };
    locks::release_all(fd).map_err(no_locks)?;
    if by_agent {
        return Err(Obstacle::Agent(what));
    }
    let who = format!("another program {what}");
    Err(OpenError::InUse { path: path.into(), who }.into())
}

/// Opens a block device once more as its only user, and prevents later mounts. Fails if the device
/// is mounted, or a part of LVM, RAID or multipath.
fn exclude_others(fd: &OwnedFd, path: &Path) -> Result<OwnedFd, OpenError> {
    use std::os::fd::AsRawFd;
    // The very same device, whatever its name leads to by now.
    let again = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    fs::open(&again, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::BUSY => {
            let who =
                "the kernel uses it: it is mounted, or a part of LVM, RAID, multipath or swap";
            OpenError::InUse { path: path.into(), who: who.into() }
        }
        _ => OpenError::Open { path: path.into(), source: errno.into() },
    })
}

#[cfg(test)]
mod tests;
