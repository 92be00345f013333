//! Time for which the volume's thread could run and had no processor, as the kernel counts it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parda_control::{Instant, Span};

/// Shortest time between two readings of the kernel's count: shorter delays are not told apart.
pub(crate) const APART: Span = Span::from_millis(1);

/// The run delay of one thread, from `/proc/thread-self/schedstat`.
#[derive(Debug)]
pub(crate) struct RunDelay {
    /// None without `CONFIG_SCHED_INFO`: then no delay is known.
    file: Option<File>,
    /// When the count was read last, and what it was.
    read: (Instant, Span),
}

impl RunDelay {
    /// The run delay of the thread that calls this.
    pub(crate) fn new(now: Instant) -> RunDelay {
        let file = File::open("/proc/thread-self/schedstat").ok();
        let delay = file.as_ref().and_then(count).unwrap_or_default();
        RunDelay { file, read: (now, delay) }
    }

    /// Delay since a moment, without what may have been before it. Zero within a millisecond of the last reading.
    pub(crate) fn since(&mut self, moment: Instant, now: Instant) -> Span {
        let (at, delay) = self.read;
        if now.since(at) < APART {
            return Span::ZERO;
        }
        let Some(counted) = self.file.as_ref().and_then(count) else { return Span::ZERO };
        self.read = (now, counted);
        let delayed = counted.0.saturating_sub(delay.0);
        Span(delayed.saturating_sub(moment.since(at).0))
    }
}

/// The second of three numbers, in nanoseconds.
fn count(file: &File) -> Option<Span> {
    let mut text = [0; 96];
    let len = file.read_at(&mut text, 0).ok()?;
    let delay = str::from_utf8(&text[..len]).ok()?.split_whitespace().nth(1)?;
    delay.parse().ok().map(Span)
}
