//! Threads for work that may hang in the kernel: few at first, more while work hangs.
//!
//! A host may have ten thousand files to open. With a thread for each, the last would begin seconds after the first, even on a healthy file
//! system. With one thread for all, a single file that hangs would delay the rest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parda_awake::Instant;
use parda_block::threads_help;

use crate::locked::locked;
use crate::news::is_news;

type Job = Box<dyn FnOnce() + Send>;

/// Number of threads while none is stuck.
const FEW: usize = 8;

/// Time of one piece of work after which its thread counts as stuck.
pub(crate) const SLOW: Duration = Duration::from_millis(100);

/// Threads with a queue of work.
#[derive(Clone)]
pub(crate) struct Crew(Arc<Mutex<Shift>>);

struct Shift {
    name: &'static str,
    queue: VecDeque<Job>,
    /// Start of each thread's current work.
    at_work: BTreeMap<u64, Instant>,
    next: u64,
    /// Reason why no thread could be started, at the last attempt.
    fault: Option<String>,
}

impl Crew {
    /// Threads of that name.
    pub(crate) fn new(name: &'static str) -> Crew {
        let (queue, at_work) = (VecDeque::new(), BTreeMap::new());
        Crew(Arc::new(Mutex::new(Shift { name, queue, at_work, next: 0, fault: None })))
    }

    /// Adds work, which begins in its turn after [`Crew::hire`].
    pub(crate) fn push(&self, job: impl FnOnce() + Send + 'static) {
        locked(&self.0).queue.push_back(Box::new(job));
    }

    /// Drops the work that no thread has begun.
    pub(crate) fn dismiss(&self) {
        // Dropped when others may use the queue again: that may take other locks.
        let dropped = std::mem::take(&mut locked(&self.0).queue);
        drop(dropped);
    }

    /// Starts as many threads as there should be. Returns when to call this again: not before more work, if no work waits.
    pub(crate) fn hire(&self) -> Option<Instant> {
        let mut shift = locked(&self.0);
        let now = Instant::now();
        let slow = |begun: &&Instant| now.saturating_duration_since(**begun) >= SLOW;
        let stuck = shift.at_work.values().filter(slow).count();
        // The number at least doubles each time that all are stuck. A thousand that hang thus delay others for under a second.
        let most = FEW + 2 * stuck;
        let mut wanted = most.saturating_sub(shift.at_work.len()).min(shift.queue.len());
        while wanted > 0 && self.start(&mut shift, now) {
            wanted -= 1;
        }
        (!shift.queue.is_empty()).then(|| now + SLOW)
    }

    /// Reason why no waiting work begins: there is no thread, and none can be started.
    pub(crate) fn fault(&self) -> Option<String> {
        let shift = locked(&self.0);
        shift.fault.clone().filter(|_| shift.at_work.is_empty() && !shift.queue.is_empty())
    }

    fn start(&self, shift: &mut Shift, now: Instant) -> bool {
        let (id, name) = (shift.next, shift.name);
        shift.next += 1;
        let crew = self.clone();
        let work = move || {
            // Also after a panic.
            let worker = Worker { crew, id };
            while let Some(job) = worker.next() {
                job();
            }
        };
        match std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            Ok(_) => {
                shift.at_work.insert(id, now);
                shift.fault = None;
                true
            }
            Err(error) => {
                let fault = format!("cannot start a thread to {name}: {error}{}", threads_help());
                if is_news(&mut shift.fault, &fault) {
                    tracing::error!("{fault}");
                }
                false
            }
        }
    }
}

struct Worker {
    crew: Crew,
    id: u64,
}

impl Worker {
    fn next(&self) -> Option<Job> {
        let mut shift = locked(&self.crew.0);
        let job = shift.queue.pop_front()?;
        shift.at_work.insert(self.id, Instant::now());
        Some(job)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        locked(&self.crew.0).at_work.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn thousands_are_done_by_few() {
        let crew = Crew::new("test");
        let (done, is_done) = channel();
        for n in 0..10_000 {
            let done = done.clone();
            crew.push(move || done.send(n).unwrap());
        }
        crew.hire();
        assert!(locked(&crew.0).at_work.len() <= FEW);
        let mut all: Vec<usize> =
            (0..10_000).map(|_| is_done.recv_timeout(LONG).unwrap()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10_000));
    }

    #[test]
    fn work_that_hangs_holds_up_no_other_for_long() {
        let crew = Crew::new("test");
        let (goes_on, may_go_on) = channel::<()>();
        let (done, is_done) = channel();
        let may_go_on = Arc::new(Mutex::new(may_go_on));
        for _ in 0..100 {
            let may_go_on = Arc::clone(&may_go_on);
            crew.push(move || assert!(may_go_on.lock().unwrap().recv().is_err()));
        }
        crew.push(move || done.send(()).unwrap());
        let begun = Instant::now();
        while is_done.try_recv().is_err() {
            assert!(begun.elapsed() < LONG, "it never has its turn");
            std::thread::sleep(Duration::from_millis(1));
            crew.hire();
        }
        assert_eq!(crew.hire(), None, "nothing waits");
        drop(goes_on);
        while !locked(&crew.0).at_work.is_empty() {
            assert!(begun.elapsed() < LONG, "threads without work end");
            std::thread::yield_now();
        }
    }
}
