//! The array as one state machine.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use slab::Slab;

use crate::controller::Server;
use crate::drive::{Drive, Request};
use crate::io::{ArrayIo, IoKind, SubmitError};
use crate::layout::Layout;
use crate::params::{ArrayParams, ParamError};
use crate::raid::{Part, Raid};
use crate::units::{IoId, Nanos};

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
    /// When each busy drive's request in service is done.
    busy: BinaryHeap<Reverse<(Nanos, u32)>>,
    front_end: Server<usize>,
    link_in: Server<usize>,
    link_out: Server<usize>,
    ios: Slab<Pending>,
    completed: VecDeque<(Nanos, IoId)>,
    /// Kept only for its room, so that planning an IO allocates nothing.
    parts: Vec<Part>,
}

/// An IO inside the array.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: IoId,
    io: ArrayIo,
    step: Step,
    /// Drive requests of this step that are not done.
    parts_left: usize,
}

/// What an IO does at the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    ReadBeforeWrite,
    Write,
}

/// Where the next event happens. At equal times, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    FrontEnd,
    LinkIn,
    Drive,
    LinkOut,
}

/// Spindles turn independently. Successive multiples of the golden ratio spread their phases
/// evenly for any number of drives.
const SPINDLE_STAGGER: f64 = 0.618_033_988_749_894_9;

impl Array {
    /// An idle array at time zero, its drives' heads at the outer edge.
    ///
    /// # Errors
    /// The first parameter that describes no possible array, by name and value.
    pub fn new(params: ArrayParams) -> Result<Array, ParamError> {
        params.validate()?;
        let spindle = |i: u32| f64::from(i) * SPINDLE_STAGGER % 1.0;
        Ok(Array {
            clock: Nanos::ZERO,
            layout: Layout::new(&params.layout),
            raid: Raid::new(&params.raid),
            drives: (0..params.raid.drives)
                .map(|i| Drive::new(&params.drive, spindle(i)))
                .collect(),
            busy: BinaryHeap::new(),
            front_end: Server::new(),
            link_in: Server::new(),
            link_out: Server::new(),
            ios: Slab::new(),
            completed: VecDeque::new(),
            parts: Vec::new(),
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
        self.ios.len()
    }

    /// Takes an IO at `now`, after all that happens until then.
    ///
    /// `id` comes back with the completion; the array does not mind whether it is unique.
    ///
    /// # Errors
    /// The IO does not lie on a LUN, or `now` is before a time given earlier. The array is then as
    /// it was.
    pub fn submit(&mut self, now: Nanos, id: IoId, io: ArrayIo) -> Result<(), SubmitError> {
        if now < self.clock {
            return Err(SubmitError::TimeRanBack { now, clock: self.clock });
        }
        self.layout.check(&io)?;
        self.advance(now);
        let step = match io.kind {
            IoKind::Read => Step::Read,
            IoKind::Write => Step::ReadBeforeWrite,
        };
        let key = self.ios.insert(Pending { id, io, step, parts_left: 0 });
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

    /// Lets everything happen that happens until `now`. A time that has passed changes nothing.
    pub fn advance(&mut self, now: Nanos) {
        loop {
            let (at, stage) = self.next_stage();
            if at > now || at == Nanos::NEVER {
                break;
            }
            self.happen(at, stage);
        }
        self.clock = self.clock.max(now);
    }

    /// The next completion up to the time of the last call, in order of time: when the IO was done
    /// and the `id` it was submitted with.
    pub fn pop_completion(&mut self) -> Option<(Nanos, IoId)> {
        self.completed.pop_front()
    }

    /// When and where the next event happens.
    fn next_stage(&self) -> (Nanos, Stage) {
        let drive = self.busy.peek().map_or(Nanos::NEVER, |Reverse((at, _))| *at);
        let front_end = (self.front_end.next(), Stage::FrontEnd);
        let link_in = (self.link_in.next(), Stage::LinkIn);
        let link_out = (self.link_out.next(), Stage::LinkOut);
        front_end.min(link_in).min((drive, Stage::Drive)).min(link_out)
    }

    fn happen(&mut self, at: Nanos, stage: Stage) {
        match stage {
            Stage::FrontEnd => {
                if let Some(key) = self.front_end.leave() {
                    let io = self.ios[key].io;
                    match io.kind {
                        IoKind::Read => self.begin_step(at, key),
                        IoKind::Write => {
                            self.link_in.enter(at, key, self.params.controller.link.time(io.len));
                        }
                    }
                }
            }
            Stage::LinkIn => {
                if let Some(key) = self.link_in.leave() {
                    self.begin_step(at, key);
                }
            }
            Stage::Drive => {
                if let Some(Reverse((_, drive))) = self.busy.pop()
                    && let Some(served) = self.drives[drive as usize].finish(at)
                {
                    self.busy.extend(served.next.map(|done| Reverse((done, drive))));
                    self.part_done(at, served.owner);
                }
            }
            Stage::LinkOut => {
                if let Some(key) = self.link_out.leave() {
                    self.complete(at, key);
                }
            }
        }
    }

    /// Sends an IO's next step to the drives.
    fn begin_step(&mut self, at: Nanos, key: usize) {
        let pending = &mut self.ios[key];
        self.parts.clear();
        for piece in self.layout.pieces(&pending.io) {
            match pending.step {
                Step::Read => self.raid.read(piece, &mut self.parts),
                Step::ReadBeforeWrite => self.raid.read_before_write(piece, &mut self.parts),
                Step::Write => self.raid.write(piece, &mut self.parts),
            }
        }
        pending.parts_left = self.parts.len();
        if self.parts.is_empty() {
            return self.step_done(at, key);
        }
        for part in &self.parts {
            let Part { drive, kind, offset, len } = *part;
            let request = Request { owner: key, kind, offset, len };
            let done = self.drives[drive as usize].arrive(at, request);
            self.busy.extend(done.map(|done| Reverse((done, drive))));
        }
    }

    fn part_done(&mut self, at: Nanos, key: usize) {
        let pending = &mut self.ios[key];
        pending.parts_left -= 1;
        if pending.parts_left == 0 {
            self.step_done(at, key);
        }
    }

    fn step_done(&mut self, at: Nanos, key: usize) {
        let pending = &mut self.ios[key];
        match pending.step {
            Step::Read => {
                let time = self.params.controller.link.time(pending.io.len);
                self.link_out.enter(at, key, time);
            }
            Step::ReadBeforeWrite => {
                pending.step = Step::Write;
                self.begin_step(at, key);
            }
            Step::Write => self.complete(at, key),
        }
    }

    fn complete(&mut self, at: Nanos, key: usize) {
        self.completed.push_back((at, self.ios.remove(key).id));
    }
}
