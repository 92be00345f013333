//! Descriptors of the process. Disks and clients take most of them; the last ones are kept for the exchange,
//! the status socket and the configuration.
//!
//! A disk is refused by its name if its descriptors, its listener and a client would not leave these. So each disk that is
//! served can have a client, whatever the limit is, as long as others have no more than one.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use parda_address::Address;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

/// How many descriptors clients never get.
const RESERVE: u64 = 64;

/// Descriptors of an agent without disks, at most.
const OF_AGENT: u64 = 32;

/// Descriptors of a disk on a file: its locks, its IOs and looks at it share one.
pub const OF_FILE: u64 = 1;

/// Descriptors of a disk on a block device: the second one keeps mounts, LVM and RAID away.
pub const OF_DEVICE: u64 = 2;

/// Descriptors of a connection to an NBD server, and of one with TLS.
pub const OF_CONNECTION: [u64; 2] = [1, 3];

/// Raises the soft limit of descriptors (`RLIMIT_NOFILE`) to the hard limit. Returns how many of
/// them clients may have; `None` if there is no limit.
///
/// # Errors
/// The system refuses it; the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.map(for_clients))
}

/// What to do about an error of the system, if it is one of those that an operator mends.
#[must_use]
pub fn error_help(error: &io::Error) -> Option<&'static str> {
    let limit = ". The agent's limit of descriptors is reached: raise LimitNOFILE= of its unit (ulimit -Hn), or lower \
                 limits.connections";
    let system = ". The system's limit of descriptors is reached: raise sysctl fs.file-max";
    let rights = ". The agent's user lacks the rights: /usr/share/doc/parda/docs/installing.md#the-unit has what it may, and \
                  how to give it more";
    let taken = ". Another process has the address: `ss -lp` names it. End that one, or choose another address";
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error)? {
        rustix::io::Errno::MFILE => Some(limit),
        rustix::io::Errno::NFILE => Some(system),
        rustix::io::Errno::ACCESS => Some(rights),
        rustix::io::Errno::ADDRINUSE => Some(taken),
        _ => None,
    }
}

/// What to do about an error of the system with a file or device.
#[must_use]
pub fn file_help(error: &io::Error, file: &Path) -> String {
    let help = || error_help(error).unwrap_or_default().to_owned();
    parda_disk::rights(error, file, geteuid().as_raw()).unwrap_or_else(help)
}

/// Whether a client that was just accepted has taken a descriptor of the reserve. The kernel gives
/// the lowest number that is free, so all lower ones are in use, by whatever part of the process.
pub(crate) fn is_reserved(fd: &impl AsRawFd) -> bool {
    let number = u64::try_from(fd.as_raw_fd()).unwrap_or(0);
    getrlimit(Resource::Nofile).current.is_some_and(|limit| number >= for_clients(limit))
}

/// The most descriptors that the process may have, by its hard limit. `None` if there is no limit.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// The limit of descriptors with which disks are served that take `own` of them, at so many listeners, each to one client
/// at least.
#[must_use]
pub fn descriptors_for(disks: u64, own: u64, listeners: u64) -> u64 {
    own + listeners + disks + OF_AGENT + RESERVE
}

/// What the disks of this process have, over all volumes.
#[derive(Default)]
struct Taken {
    disks: u64,
    own: u64,
    /// Addresses of listeners, with the number of disks that name each.
    listeners: HashMap<Address, u64>,
}

static TAKEN: LazyLock<Mutex<Taken>> = LazyLock::new(Mutex::default);

impl Taken {
    fn lock() -> MutexGuard<'static, Taken> {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether disks, listeners and one client of each disk leave what the limit keeps for others.
    fn fits(&self) -> bool {
        let needed = self.own + self.listeners.len() as u64 + self.disks;
        getrlimit(Resource::Nofile).current.is_none_or(|limit| needed <= for_disks(limit))
    }
}

/// Room for the descriptors of a disk, of the listeners that it names, and of one client, until this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    own: u64,
    listen: Vec<Address>,
}

impl Room {
    /// Takes room for a disk that has so many descriptors of its own; `None` if there is none.
    pub(crate) fn take(own: u64, listen: &[Address]) -> Option<Room> {
        let mut taken = Taken::lock();
        taken.disks += 1;
        taken.own += own;
        for address in listen {
            *taken.listeners.entry(address.clone()).or_default() += 1;
        }
        let fits = taken.fits();
        // Without room this gives back what it took.
        drop(taken);
        let room = Room { own, listen: listen.to_vec() };
        fits.then_some(room)
    }

    /// The disk has so many descriptors of its own; false if there is no room for that.
    pub(crate) fn has(&mut self, own: u64) -> bool {
        let mut taken = Taken::lock();
        taken.own = taken.own - self.own + own;
        self.own = own;
        taken.fits()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut taken = Taken::lock();
        taken.disks -= 1;
        taken.own -= self.own;
        for address in &self.listen {
            if let Some(disks) = taken.listeners.get_mut(address) {
                *disks -= 1;
                if *disks == 0 {
                    taken.listeners.remove(address);
                }
            }
        }
    }
}

/// Descriptors that disks, their listeners and a client of each disk may have.
fn for_disks(limit: u64) -> u64 {
    for_clients(limit) - OF_AGENT.min(limit / 4)
}

/// At a limit that leaves little, half of it.
fn for_clients(limit: u64) -> u64 {
    limit.saturating_sub(RESERVE).max(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_the_reserve_or_half_of_what_there_is() {
        assert_eq!([0, 100, 128, 1024].map(for_clients), [0, 50, 64, 960]);
    }

    #[test]
    fn disks_leave_room_for_the_agent_their_listeners_and_a_client_of_each() {
        assert_eq!([64, 128, 1024].map(for_disks), [16, 32, 928]);
        for disks in [1, 100, 400] {
            let needed = disks + disks + 1;
            assert_eq!(for_disks(descriptors_for(disks, disks, 1)), needed.max(for_disks(99)));
        }
    }

    #[test]
    fn room_that_is_given_back_is_there_for_others() {
        let all = || {
            let taken = Taken::lock();
            (taken.disks, taken.own, taken.listeners.clone())
        };
        let one = Address::Unix("descriptors/one".into());
        let at = std::slice::from_ref(&one);
        let (a, mut b) = (Room::take(1, at).unwrap(), Room::take(1, &[]).unwrap());
        let c = Room::take(1, at).unwrap();
        assert_eq!(all().2.get(&one), Some(&2), "one listener for both");
        assert!(b.has(3));
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX / 2);
        assert!(!b.has(limit) && Room::take(1, &[]).is_none());
        drop((a, b, c));
        assert_eq!(all().2.get(&one), None);
        Room::take(1, &[]).unwrap();
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let room = raise_descriptor_limit().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(room, limit.current.map(for_clients));
        assert!(!is_reserved(&io::stderr()));
    }
}
