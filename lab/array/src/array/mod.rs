//! The array as one state machine: the way of an IO through its stations.

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

/// A disk array, in whatever time its caller keeps.
///
/// Everything happens at its own model time, however late [`advance`](Array::advance) is called:
/// lateness shows in when a completion is fetched, never in the time it bears.
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
    /// How many of the jobs are IOs.
    outstanding: usize,
    completed: VecDeque<(Nanos, IoTag)>,
    scratch: Scratch,
}

/// Kept only for their room, so that planning an IO allocates nothing.
#[derive(Clone, Debug, Default)]
struct Scratch {
    parts: Vec<Part>,
    runs: Vec<Range>,
    readers: Vec<usize>,
}

/// Where the next event happens. At equal times, in this order.
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

    /// What the array was made of.
    #[must_use]
    pub fn params(&self) -> &ArrayParams {
        &self.params
    }

    /// How many IOs are inside the array. Completions not yet fetched are not.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Data of completed writes that the drives' media do not have yet: what the write cache and the
    /// drives' own buffers hold. While it grows, writes are faster than they can go on being.
    #[must_use]
    pub fn unwritten(&self) -> Bytes {
        let cache = self.write_cache.as_ref().map_or(Bytes(0), WriteCache::held);
        self.drives.iter().fold(cache, |sum, drive| Bytes(sum.0 + drive.unwritten().0))
    }

    /// Takes an IO at `now`, after all that happens until then.
    ///
    /// `id` comes back with the completion; the array does not mind whether it is unique.
    ///
    /// # Errors
    /// The IO does not lie on a LUN, or `now` is before a time given earlier. The array is then as
    /// it was.
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

    /// When to call [`advance`](Array::advance) next: at the next event inside, or at once if a
    /// completion has not been fetched. `None` while the array is idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let unfetched = self.completed.front().map(|(at, _)| *at);
        Some(unfetched.unwrap_or_else(|| self.next_stage().0)).filter(|at| *at != Nanos::NEVER)
    }

    /// Lets everything happen until an IO is done, and what else happens at that time; but only what
    /// happens before `limit`. When that IO was done: it waits for
    /// [`pop_completion`](Array::pop_completion). `None` if there is none.
    ///
    /// What [`next_event`](Array::next_event) and [`advance`](Array::advance) do step by step, for a
    /// caller with whom nothing happens before `limit`.
    pub fn advance_to_completion(&mut self, limit: Nanos) -> Option<Nanos> {
        if self.completed.is_empty() {
            self.happen_before(limit, true);
        }
        let at = self.completed.front().map(|(at, _)| *at)?;
        self.advance(at);
        Some(at)
    }

    /// Lets everything happen that happens until `now`. A time that has passed changes nothing.
    pub fn advance(&mut self, now: Nanos) {
        if self.next_stage().0 <= now {
            self.happen_before(now + Nanos(1), false);
        }
        self.clock = self.clock.max(now);
    }

    /// Lets everything happen that happens before `end`; or only until an IO is done.
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

    /// The next completion up to the time of the last call, in order of time: when the IO was done
    /// and the `id` it was submitted with.
    pub fn pop_completion(&mut self) -> Option<(Nanos, IoTag)> {
        self.completed.pop_front()
    }

    /// When and where the next event happens.
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

    /// The controller has decoded an IO.
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

    /// Takes an IO out of the array.
    fn complete(&mut self, at: Nanos, key: usize) {
        if let Task::Io { id, .. } = self.jobs.remove(key).task {
            self.outstanding -= 1;
            self.completed.push_back((at, id));
        }
    }
}
