//! Descriptors of the process. Clients take most of them; the last ones are kept for the exchange,
//! the status socket, the configuration and disks that are opened again.

use std::io;
use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors clients never get.
const RESERVE: u64 = 64;

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

/// What to do about an error, if descriptors have run out.
pub(crate) fn help(error: &io::Error) -> Option<&'static str> {
    let limit = ". The agent's limit of descriptors is reached: raise LimitNOFILE= of its unit (ulimit -Hn), or lower \
                 limits.connections";
    let system = ". The system's limit of descriptors is reached: raise sysctl fs.file-max";
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error)? {
        rustix::io::Errno::MFILE => Some(limit),
        rustix::io::Errno::NFILE => Some(system),
        _ => None,
    }
}

/// Whether a client that was just accepted has taken a descriptor of the reserve. The kernel gives
/// the lowest number that is free, so all lower ones are in use, by whatever part of the process.
pub(crate) fn is_reserved(fd: &impl AsRawFd) -> bool {
    let number = u64::try_from(fd.as_raw_fd()).unwrap_or(0);
    getrlimit(Resource::Nofile).current.is_some_and(|limit| number >= for_clients(limit))
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
    fn the_soft_limit_becomes_the_hard_one() {
        let room = raise_descriptor_limit().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(room, limit.current.map(for_clients));
        assert!(!is_reserved(&io::stderr()));
    }
}
