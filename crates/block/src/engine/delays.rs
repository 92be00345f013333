//! Time for which IOs waited for the volume's thread, or this for a processor: no time of the array.

use parda_control::{Host, Instant, IoId, Span};
use slab::Slab;

use crate::backend::Request;
use crate::run_delay::{APART, RunDelay};
use crate::stats::Lateness;

/// Lateness of the volume's thread.
pub(super) struct Delays {
    run_delay: RunDelay,
    /// Lateness of this turn's begin, for want of a processor.
    late: Span,
    /// Requests that were dispatched in this turn: the kernel may get them late.
    begun: Vec<(usize, IoId)>,
    /// Lateness of all turns of this period.
    period: Lateness,
    /// The same of the last whole period.
    pub(super) last: Lateness,
}

impl Delays {
    /// Delays of the calling thread.
    pub(super) fn new() -> Self {
        Self {
            run_delay: RunDelay::new(Instant::default()),
            late: Span::ZERO,
            begun: Vec::new(),
            period: Lateness::default(),
            last: Lateness::default(),
        }
    }

    /// A request is dispatched.
    pub(super) fn dispatched(&mut self, key: usize, id: IoId) {
        self.begun.push((key, id));
    }

    /// A turn begins after a wait that began at `waits`. The turn before took `turn`.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        waits: Instant,
        turn: Span,
        requests: &mut Slab<Request>,
    ) {
        self.late = self.run_delay.since(waits, now);
        self.period.add(self.late);
        if turn < APART {
            self.begun.clear();
        }
        for (key, id) in self.begun.drain(..) {
            let request = requests.get_mut(key).filter(|r| r.id == Some(id));
            request.into_iter().for_each(|r| r.begun_late = turn);
        }
    }

    pub(super) fn end_period(&mut self, now: Instant) {
        self.last = self.period.end_period(now).unwrap_or(self.last);
    }

    /// Upper bound of a request's time at the array, within `took`. Excluded is time before the kernel got the request and after its end:
    /// its wait for this thread, and this thread's wait for a processor.
    pub(super) fn device_time(&self, now: Instant, host: &Host, took: Span, of: &Request) -> Span {
        let late = self.late + of.begun_late;
        match of.id.filter(|_| late > Span::ZERO).and_then(|id| host.dispatched(id)) {
            Some(at) => took.min(Span(now.since(at).0.saturating_sub(late.0))),
            None => took,
        }
    }
}
