//! Writes to the page cache, on a thread of their own for each file that is written.
//!
//! A write to the page cache may have to wait: for the journal, for pages on their way to the disk,
//! for memory. So the volume's thread, which has other clients to serve, must not do it. io_uring
//! does not either on most file systems (ext4 among them): it hands every single write to a worker
//! thread and is told of every single end. A [`Writer`] is handed all writes of a turn at once, and
//! tells of many ends at once.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::buffer::{Buffer, Lent};
use crate::credit::{Credit, FOR_WRITERS};

/// Threads of a volume at most. Files beyond that number are left to io_uring.
const MOST_WRITERS: usize = 16;

/// The volume's thread is told of so many ends together at most, so that it answers some while more
/// is written. It is woken only if it sleeps.
const TOLD_AT_ONCE: usize = 4;

/// How long a writer that has nothing to do looks for more before it sleeps. To wake it costs the
/// volume's thread as much as a write does, and more in a virtual machine.
const LONGEST_LOOK: Duration = FOR_WRITERS;

/// A writer needs next to no stack.
const STACK: usize = 128 << 10;

/// A write to be done.
struct Job {
    key: u64,
    /// Comes back with the end, so that a writer never has the last reference: the file's lock is
    /// gone no sooner than the write has ended, and no later than the volume says so.
    file: Arc<OwnedFd>,
    data: Lent,
    range: Range<usize>,
    at: u64,
}

/// A write that has ended.
pub(crate) struct CompletedWrite {
    pub(crate) key: u64,
    pub(crate) data: Lent,
    /// The number of bytes, or the negative `errno`, as io_uring has it.
    pub(crate) result: i32,
    /// How long the call took.
    pub(crate) took: Duration,
    _file: Arc<OwnedFd>,
}

impl Job {
    fn perform(self) -> CompletedWrite {
        let Self { key, file, data, range, at } = self;
        let began = Instant::now();
        let result = crate::ring::write_now(&file, &data, range, at);
        CompletedWrite { key, data, result, took: began.elapsed(), _file: file }
    }
}

/// Completed writes that the volume's thread has not taken yet.
pub(crate) struct Completions {
    done: Mutex<Vec<CompletedWrite>>,
    any: AtomicBool,
    /// The volume's thread sleeps, or is about to.
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Completions {
    fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (any, asleep) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { done: Mutex::default(), any, asleep, bell })
    }

    /// Hands over what was done, and wakes the volume's thread if it sleeps.
    fn tell(&self, written: &mut Vec<CompletedWrite>) {
        if written.is_empty() {
            return;
        }
        lock(&self.done).append(written);
        self.any.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // It cannot be full: that would take 2⁶⁴ − 1 rings.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Readable whenever something was done while the volume's thread slept.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Whether something was done.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Has the bell rung for what is done from now on. To be followed by [`Completions::any`].
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Takes what was done.
    pub(crate) fn take(&self) -> Vec<CompletedWrite> {
        self.any.store(false, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.done))
    }
}

/// Order to a writer.
#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    /// The writer waits for more.
    idle: bool,
    /// Nothing more is to be begun.
    over: bool,
}

#[derive(Default)]
struct Lane {
    queue: Mutex<Queue>,
    /// Something was handed over since the writer took all that there was.
    any: AtomicBool,
    more: Condvar,
}

impl Lane {
    /// Hands over a write. Returns whether the writer must be woken for it.
    fn push(&self, job: Job) -> bool {
        let mut queue = lock(&self.queue);
        queue.jobs.push(job);
        self.any.store(true, Ordering::SeqCst);
        std::mem::take(&mut queue.idle)
    }

    /// Looks for a moment whether there are jobs, if looks have been worth while.
    fn look(&self, credit: &mut Credit) {
        if !credit.is_enough() {
            return;
        }
        let begun = Instant::now();
        while !self.any.load(Ordering::SeqCst) && begun.elapsed() < LONGEST_LOOK {
            thread::yield_now();
        }
        credit.looked(self.any.load(Ordering::SeqCst) && begun.elapsed() < 4 * LONGEST_LOOK);
    }

    /// Waits for jobs and puts them in place of `done`, which is empty. `false` if it is over.
    fn take(&self, done: &mut Vec<Job>) -> bool {
        let mut queue = lock(&self.queue);
        self.any.store(false, Ordering::SeqCst);
        while queue.jobs.is_empty() && !queue.over {
            queue.idle = true;
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.idle = false;
        std::mem::swap(&mut queue.jobs, done);
        !queue.over
    }

    fn run(&self, completions: &Completions) {
        let (mut jobs, mut written) = (Vec::new(), Vec::new());
        let mut credit = Credit::new();
        loop {
            self.look(&mut credit);
            if !self.take(&mut jobs) {
                return;
            }
            for job in jobs.drain(..) {
                if lock(&self.queue).over {
                    return;
                }
                written.push(job.perform());
                if written.len() >= TOLD_AT_ONCE {
                    completions.tell(&mut written);
                }
            }
            completions.tell(&mut written);
        }
    }
}

/// The thread that writes to one file. Writes are done in the order in which they were handed over.
pub(crate) struct Writer {
    lane: Arc<Lane>,
    file: Arc<OwnedFd>,
}

impl Drop for Writer {
    /// Does not wait for the thread, which may be stuck in the kernel. What it has not begun is
    /// not written.
    fn drop(&mut self) {
        lock(&self.lane.queue).over = true;
        self.lane.more.notify_one();
    }
}

/// The writers of a volume.
pub(crate) struct Writers {
    pub(crate) completions: Arc<Completions>,
    /// Writes to hand over at the end of a turn.
    waiting: Vec<(Arc<Lane>, Job)>,
}

impl Writers {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { completions: Arc::new(Completions::new()?), waiting: Vec::new() })
    }

    /// A writer for that file; `None` if there are too many, or no more threads.
    pub(crate) fn hire(&self, file: &Arc<OwnedFd>) -> Option<Writer> {
        // Each of them has the completions.
        if Arc::strong_count(&self.completions) > MOST_WRITERS {
            return None;
        }
        let lane = Arc::new(Lane::default());
        let (works, completions) = (Arc::clone(&lane), Arc::clone(&self.completions));
        let thread = thread::Builder::new().name("parda-writer".to_owned()).stack_size(STACK);
        thread.spawn(move || works.run(&completions)).ok()?;
        Some(Writer { lane, file: Arc::clone(file) })
    }

    /// Has a buffer's range written, once [`Writers::hand_over`] is called.
    pub(crate) fn write(
        &mut self,
        writer: &Writer,
        buffer: Buffer,
        range: Range<usize>,
        at: u64,
        key: u64,
    ) {
        let (file, data) = (Arc::clone(&writer.file), Lent::new(buffer));
        let job = Job { key, file, data, range, at };
        self.waiting.push((Arc::clone(&writer.lane), job));
    }

    /// Lets the writers begin.
    pub(crate) fn hand_over(&mut self) {
        let mut idle: Vec<Arc<Lane>> = Vec::new();
        for (lane, job) in self.waiting.drain(..) {
            if lane.push(job) {
                idle.push(lane);
            }
        }
        idle.iter().for_each(|lane| lane.more.notify_one());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
