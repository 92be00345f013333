//! Time for which the volume's thread could run and had no processor, as the kernel counts it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Shortest time between two readings of the kernel's count: shorter delays are not told apart.
const APART: Duration = Duration::from_millis(1);

/// The run delay of one thread, from `/proc/thread-self/schedstat`.
#[derive(Debug)]
pub(crate) struct RunDelay {
    /// None without `CONFIG_SCHED_INFO`: then no delay is known.
    file: Option<File>,
    /// When the count was read last, and what it was.
    read: (Instant, Duration),
    /// When the thread looked last.
    looked: Instant,
}

impl RunDelay {
    /// The run delay of the thread that calls this.
    pub(crate) fn new() -> RunDelay {
        let file = File::open("/proc/thread-self/schedstat").ok();
        let now = Instant::now();
        let delay = file.as_ref().and_then(count).unwrap_or_default();
        RunDelay { file, read: (now, delay), looked: now }
    }

    /// Delay since the last look, without what may have been before it. Zero where the look was
    /// within a millisecond of the last reading.
    pub(crate) fn look(&mut self, now: Instant) -> Duration {
        let (at, delay) = self.read;
        let looked = std::mem::replace(&mut self.looked, now);
        if now.saturating_duration_since(at) < APART {
            return Duration::ZERO;
        }
        let Some(counted) = self.file.as_ref().and_then(count) else { return Duration::ZERO };
        self.read = (now, counted);
        let before = looked.saturating_duration_since(at);
        counted.saturating_sub(delay).saturating_sub(before)
    }
}

/// The second of three numbers, in nanoseconds.
fn count(file: &File) -> Option<Duration> {
    let mut text = [0; 96];
    let len = file.read_at(&mut text, 0).ok()?;
    let delay = str::from_utf8(&text[..len]).ok()?.split_whitespace().nth(1)?;
    delay.parse().ok().map(Duration::from_nanos)
}
