//! Signs of life of the main thread, as the watchdog judges them.
//!
//! The watchdog has the agent killed, so it may judge only what is the agent's own doing. The main thread waits for its events, and takes
//! each at once. If it is asked and does not answer, it hangs. But some parts of its work wait for others. Examples are a device whose IOs
//! never return, a lock whose owner waits for it, a name server. These parts are *outside*, and their duration is not judged. The threads
//! that carry IO are not judged at all. A restart would not mend a file system that does not answer. A restart would also close the
//! connections of all other disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether the main thread was asked for a sign of life, and whether it may be judged now.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    asked: AtomicBool,
    /// Number of waits for others that the thread is within.
    outside: AtomicUsize,
}

/// A part of the main thread's work that waits for others, as long as it is held.
#[must_use]
pub(crate) struct Unjudged(Arc<Pulse>);

impl Pulse {
    /// Begins a part that waits for others.
    pub(crate) fn outside(self: &Arc<Pulse>) -> Unjudged {
        self.outside.fetch_add(1, Ordering::SeqCst);
        Unjudged(Arc::clone(self))
    }

    /// The main thread's sign of life.
    pub(crate) fn answer(&self) {
        self.asked.store(false, Ordering::SeqCst);
    }

    /// Whether a question is due; marks the thread as asked until its answer.
    pub(super) fn may_ask(&self) -> bool {
        !self.asked.swap(true, Ordering::SeqCst)
    }

    /// Whether the thread lives as far as can be judged.
    pub(super) fn beats(&self) -> bool {
        !self.asked.load(Ordering::SeqCst) || self.outside.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Unjudged {
    fn drop(&mut self) {
        self.0.outside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_that_was_asked_and_is_not_outside_can_hang() {
        let pulse = Arc::new(Pulse::default());
        assert!(pulse.beats(), "nobody has asked");
        assert!(pulse.may_ask());
        assert!(!pulse.beats() && !pulse.may_ask(), "asked once, not answered");
        let outer = pulse.outside();
        let inner = pulse.outside();
        assert!(pulse.beats());
        drop(outer);
        assert!(pulse.beats(), "still within the other part");
        drop(inner);
        assert!(!pulse.beats(), "back, and the question still stands");
        pulse.answer();
        assert!(pulse.beats() && pulse.may_ask());
    }
}
