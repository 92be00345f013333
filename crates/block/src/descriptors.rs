//! Descriptors of the process. Disks and clients take most of them; the last ones are kept for the exchange,
//! the status socket, the configuration and disks that are opened again.

use std::io;
use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors clients never get.
const RESERVE: u64 = 64;

/// Descriptors of a disk's file, or at most of its NBD server.
const OF_DISK: u64 = 3;

/// Descriptors of a disk with a listener and a client.
const WITH_CLIENT: u64 = OF_DISK + 2;

/// Descriptors of an agent without disks, at most.
const OF_AGENT: u64 = 32;

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
    let rights = ". The agent's user lacks the rights: docs/installing.md#the-unit has what it may, and how to give it more";
    let taken = ". Another process has the address: `ss -lp` names it. End that one, or choose another address";
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error)? {
        rustix::io::Errno::MFILE => Some(limit),
        rustix::io::Errno::NFILE => Some(system),
        rustix::io::Errno::ACCESS => Some(rights),
        rustix::io::Errno::ADDRINUSE => Some(taken),
        _ => None,
    }
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

/// The limit of descriptors with which so many disks are served, each to one client at least.
#[must_use]
pub fn descriptors_for(disks: usize) -> u64 {
    WITH_CLIENT * disks as u64 + OF_AGENT + RESERVE
}

/// Whether so many disks have descriptors that listeners and clients of these disks need.
pub(crate) fn are_too_many(disks: usize) -> bool {
    let limit = getrlimit(Resource::Nofile).current;
    limit.is_some_and(|limit| OF_DISK * disks as u64 + OF_AGENT / 2 > for_disks(limit))
}

/// Descriptors that disks may have, with those of the agent.
fn for_disks(limit: u64) -> u64 {
    for_clients(limit) * OF_DISK / WITH_CLIENT
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
    fn disks_leave_a_listener_and_a_client_to_each_of_them() {
        assert_eq!([128, 1024].map(for_disks), [38, 576]);
        for disks in [1, 100, 400] {
            let limit = descriptors_for(disks);
            assert!(for_disks(limit) >= OF_DISK * disks as u64 + OF_AGENT / 2);
        }
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
