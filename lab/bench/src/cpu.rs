//! CPU time of threads and of other processes.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used.
pub(crate) fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Servers whose CPU time is measured, by their process ids.
pub(crate) struct Servers(Vec<u32>);

impl Servers {
    /// The processes with these ids on this machine.
    pub(crate) fn of(pids: &[u32]) -> io::Result<Self> {
        let servers = Self(pids.to_vec());
        servers.used_since(None).map(|_| servers)
    }

    /// CPU time used so far by all of them, less `before`; `None` if there are none.
    pub(crate) fn used_since(&self, before: Option<Duration>) -> io::Result<Option<Duration>> {
        let used = self.0.iter().map(|pid| used(*pid)).sum::<io::Result<Duration>>()?;
        Ok((!self.0.is_empty()).then(|| used.saturating_sub(before.unwrap_or_default())))
    }
}

/// CPU time that a process has used so far, with a resolution of 10 ms: user and system time of all its threads, including those that
/// ended.
fn used(pid: u32) -> io::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path)
        .map_err(|e| io::Error::new(e.kind(), format!("process {pid}: {e}")))?;
    let ticks = ticks(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {stat}")))?;
    Ok(Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second().max(1) as u32)
}

/// utime + stime, fields 14 and 15 of proc_pid_stat(5). The name in field 2 may contain any
/// character.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut field = || fields.next()?.parse::<u64>().ok();
    Some(field()? + field()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat = "42 (a) b) (c) S 1 42 42 0 -1 4194560 1 0 0 0 250 125 0 0 20 0 1 0 7";
        assert_eq!(ticks(stat), Some(375));
        assert_eq!(ticks("42"), None);
    }

    #[test]
    fn work_shows_as_time() {
        let pid = std::process::id();
        let (before, own) = (used(pid).unwrap(), of_this_thread());
        while of_this_thread() - own < Duration::from_millis(60) {}
        assert!(used(pid).unwrap() - before >= Duration::from_millis(40));
        assert!(used(u32::MAX).unwrap_err().to_string().contains("process 4294967295"));
    }
}
