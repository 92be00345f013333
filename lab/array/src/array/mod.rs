//! The array as one state machine: the path of an IO through its stations.

mod back_end;
mod faults;
mod job;
mod pace;
mod trim;
mod wakes;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use slab::Slab;

use crate::controller::{Prefetch, ReadCache, Server, WriteCache};
use crate::drive::Drive;
use crate::error::ParamError;
use crate::io::{ArrayIo, IoKind, SubmitError};
use crate::layout::{Layout, Range};
use crate::params::ArrayParams;
use crate::raid::{Part, Raid};
use crate::units::{Bytes, IoTag, Nanos};

use faults::Rebuild;
use job::{Job, Step, Task};
use wakes::Wakes;

pub use faults::{FaultError, may_be_slow};

/// A disk array, in the caller's time.
///
/// Each event happens at its own model time, however late [`advance`](Array::advance) is called. A
/// late call delays only when the caller fetches a completion, never the completion's time.
///
/// The array takes any number of IOs; how many are outstanding is the hosts' affair.
#[derive(Clone, Debug)]
pub struct Array {
    params: ArrayParams,
    clock: Nanos,
    layout: Layout,
    raid: Raid,
    drives: Vec<Drive>,
    wakes: Wakes,
    front_end: Server<usize>,
    link: Server<usize>,
    mirror: Server<usize>,
    write_cache: Option<WriteCache>,
    /// Writes that wait for room in the cache, first come, first served.
    no_room: VecDeque<usize>,
    read_cache: Option<ReadCache>,
    prefetch: Option<Prefetch>,
    rebuild: Option<Rebuild>,
    jobs: Slab<Job>,
    /// Number of jobs that are IOs.
    outstanding: usize,
    completed: VecDeque<(Nanos, IoTag)>,
    scratch: Scratch,
}

/// Buffers kept for their capacity, so that planning an IO allocates nothing.
#[derive(Clone, Debug, Default)]
struct Scratch {
    parts: Vec<Part>,
    runs: Vec<Range>,
    readers: Vec<usize>,
}

/// Station of the next event. At equal times, in this order.
#[derive(Clone, Copy, Debug)]
enum Stage {
    FrontEnd,
    Link,
    Mirror,
    Drive,
}

/// Spindles turn independently. Successive multiples of the golden ratio spread their phases
/// evenly for any number of drives.
fn spindle(drive: u32) -> f64 {
    f64::from(drive) * 0.618_033_988_749_894_9 % 1.0
}

impl Array {
    /// An idle array at time zero, its drives' heads at the outer edge.
    ///
    /// # Errors
    /// The first parameter that describes no possible array, by name and value.
    pub fn new(params: ArrayParams) -> Result<Array, ParamError> {
        params.validate()?;
        let raid = Raid::new(&params.raid);
        let drives = params.raid.drives;
        let write_cache = params.controller.write_cache;
        let prefetch = params.controller.prefetch;
        Ok(Array {
            clock: Nanos::ZERO,
            layout: Layout::new(&params.layout),
            raid,
            drives: (0..drives).map(|i| Drive::new(&params.drive, spindle(i))).collect(),
            wakes: Wakes::new(),
            front_end: Server::new(),
            link: Server::new(),
            mirror: Server::new(),
            write_cache: write_cache.map(|cache| WriteCache::new(&cache, raid.stripe(), drives)),
            no_room: VecDeque::new(),
            read_cache: params.controller.read_cache.as_ref().map(ReadCache::new),
            prefetch: prefetch.map(|prefetch| Prefetch::new(&prefetch, params.layout.luns.len())),
            rebuild: None,
            jobs: Slab::new(),
            outstanding: 0,
            completed: VecDeque::new(),
            scratch: Scratch::default(),
            params,
        })
    }

    /// Parameters with which the array was made.
    #[must_use]
    pub fn params(&self) -> &ArrayParams {
        &self.params
    }

    /// IOs inside the array, without completions that wait to be fetched.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Data of completed writes not yet on the drives' media: in the write cache and in the drives'
    /// buffers. While it grows, writes complete faster than the array can sustain.
    #[must_use]
    pub fn unwritten(&self) -> Bytes {
        let cache = self.write_cache.as_ref().map_or(Bytes(0), WriteCache::held);
        self.drives.iter().fold(cache, |sum, drive| Bytes(sum.0 + drive.unwritten().0))
    }

    /// Accepts an IO at `now`, after all events until then.
    ///
    /// `id` comes back with the completion; it need not be unique.
    ///
    /// # Errors
    /// The IO does not lie on a LUN, or `now` is before a time given earlier. The array's state is
    /// then unchanged.
    pub fn submit(&mut self, now: Nanos, id: IoTag, io: ArrayIo) -> Result<(), SubmitError> {
        if now < self.clock {
            return Err(SubmitError::TimeRanBack { now, clock: self.clock });
        }
        self.layout.check(&io)?;
        self.advance(now);
        let step = match io.kind {
            IoKind::Read => Step::Read,
            IoKind::Write | IoKind::Trim => Step::ReadBeforeWrite,
        };
        let key = self.jobs.insert(Job { task: Task::Io { id, io }, step, parts_left: 0 });
        self.outstanding += 1;
        self.front_end.enter(now, key, self.params.controller.io_cost);
        Ok(())
    }

    /// Time for the next call of [`advance`](Array::advance): the next event inside, or now if a
    /// completion has not been fetched. `None` while the array is idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let unfetched = self.completed.front().map(|(at, _)| *at);
        Some(unfetched.unwrap_or_else(|| self.next_stage().0)).filter(|at| *at != Nanos::NEVER)
    }

    /// Runs the events before `limit` up to the first completion, and all others at that time.
    /// Returns the time of that completion, which waits for
    /// [`pop_completion`](Array::pop_completion). `None` if no IO completes before `limit`.
    ///
    /// Same result as calling [`next_event`](Array::next_event) and [`advance`](Array::advance) step
    /// by step, for a caller without events of its own before `limit`.
    pub fn advance_to_completion(&mut self, limit: Nanos) -> Option<Nanos> {
        if self.completed.is_empty() {
            self.happen_before(limit, true);
        }
        let at = self.completed.front().map(|(at, _)| *at)?;
        self.advance(at);
        Some(at)
    }

    /// Runs all events until `now`. A time in the past changes nothing.
    pub fn advance(&mut self, now: Nanos) {
        if self.next_stage().0 <= now {
            self.happen_before(now + Nanos(1), false);
        }
        self.clock = self.clock.max(now);
    }

    /// Runs all events before `end`, or only up to the first completion.
    fn happen_before(&mut self, end: Nanos, to_completion: bool) {
        loop {
            let (at, stage) = self.next_stage();
            if at >= end {
                break;
            }
            self.clock = at;
            self.happen(at, stage);
            if to_completion && !self.completed.is_empty() {
                break;
            }
        }
    }

    /// Next completion up to the time of the last call, in order of time. The pair is the time of
    /// completion and the `id` given at submission.
    pub fn pop_completion(&mut self) -> Option<(Nanos, IoTag)> {
        self.completed.pop_front()
    }

    /// Time and station of the next event.
    fn next_stage(&self) -> (Nanos, Stage) {
        let mut next = (self.front_end.next, Stage::FrontEnd);
        let others = [
            (self.link.next, Stage::Link),
            (self.mirror.next, Stage::Mirror),
            (self.wakes.next, Stage::Drive),
        ];
        for other in others {
            if other.0 < next.0 {
                next = other;
            }
        }
        next
    }

    fn happen(&mut self, at: Nanos, stage: Stage) {
        match stage {
            Stage::FrontEnd => {
                if let Some(key) = self.front_end.leave() {
                    self.accept(at, key);
                }
            }
            Stage::Link => {
                if let Some(key) = self.link.leave() {
                    match self.jobs[key].step {
                        Step::Read => self.complete(at, key),
                        Step::ReadBeforeWrite | Step::Write => self.write(at, key),
                    }
                }
            }
            Stage::Mirror => {
                if let Some(key) = self.mirror.leave() {
                    self.complete(at, key);
                }
            }
            Stage::Drive => {
                let Some((then, drive)) = self.wakes.first() else { return };
                let served = self.drives[drive as usize].finish(then);
                let [one, other] = served.next;
                self.wakes.again(one.or(other));
                self.wakes.add(one.and(other), drive);
                if let Some(owner) = served.owner {
                    self.part_done(at, owner);
                }
            }
        }
    }

    /// Routes an IO after the front end has decoded it.
    fn accept(&mut self, at: Nanos, key: usize) {
        let Task::Io { io, .. } = self.jobs[key].task else { return };
        match io.kind {
            IoKind::Read => self.read(at, key, io),
            IoKind::Write => self.transfer(at, key, io),
            IoKind::Trim => self.trim(at, key, io),
        }
    }

    fn transfer(&mut self, at: Nanos, key: usize, io: ArrayIo) {
        self.link.enter(at, key, self.params.controller.link.time(io.len));
    }

    /// Removes a completed IO from the array.
    fn complete(&mut self, at: Nanos, key: usize) {
        if let Task::Io { id, .. } = self.jobs.remove(key).task {
            self.outstanding -= 1;
            self.completed.push_back((at, id));
        }
    }
}
