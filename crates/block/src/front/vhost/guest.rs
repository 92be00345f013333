//! One guest: its queues and its unanswered requests.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use parda_control::Instant;
use parda_disk::{Failure, Geometry, Op};
use parda_vhost::blk::{Asked, Outcome, Scratch, Status};
use parda_vhost::control::{Done, Order};
use parda_vhost::{Broken, Memory, Vring};
use slab::Slab;

use crate::buffer::{ALIGN, Buffer, allocated};
use crate::client::{Arrival, Body, Client, Offered, ReplyHandle};
use crate::front::listener::Place;
use crate::front::{AgentMemory, Loan};
use crate::losses::Witness;
use crate::peer::is_hung_up;
use crate::reactor::{Reactor, Tag};
use crate::ring::OpKey;

/// Requests that a guest may bring in one turn.
const REQUESTS_PER_TURN: usize = 128;

/// Bytes of requests that a guest may bring in one turn, rounded up to a whole request.
const BYTES_PER_TURN: u64 = 4 << 20;

/// A queue of the guest, and how it is woken.
#[derive(Default)]
struct Lane {
    vring: Option<Vring>,
    enabled: bool,
    kick: Option<Arc<OwnedFd>>,
    /// The kernel watches `kick`.
    watch: Option<OpKey>,
    /// It watches that, or does not know yet that it need not.
    watched: bool,
    call: Option<Arc<OwnedFd>>,
    /// The front end waits for it to be stopped.
    stopping: Option<SyncSender<Done>>,
    /// It is looked at in each turn, as it was not asked to kick.
    stirred: bool,
    /// There are answers of which the guest was not told.
    answered: bool,
}

impl Lane {
    /// Whether its requests are taken.
    fn takes(&self) -> bool {
        self.stirred && self.enabled && self.stopping.is_none()
    }
}

/// A request of the guest that is not answered yet.
struct Pending {
    queue: usize,
    head: u16,
    status: Status,
    /// Bytes of the guest's memory that it writes.
    writes: u32,
    /// Memory for a copy of its data.
    loan: Option<Loan>,
}

/// Whether a guest is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// No more requests are taken; unanswered requests are answered.
    Closing,
    /// The connection is over. Nothing is written to the guest's queues any more.
    Gone,
}

/// Where copies of data come from.
pub(super) struct Copies<'a> {
    pub(super) agent: &'a AgentMemory,
    /// What copies of one guest take at most, in bytes, unless there is only one.
    pub(super) most: usize,
}

/// A front end that waits for the end of another one.
pub(super) struct Next {
    pub(super) place: Rc<Place>,
    pub(super) fd: OwnedFd,
    /// When to look whether that one ends.
    pub(super) until: Instant,
}

pub(super) struct Guest {
    key: usize,
    pub(super) serial: u64,
    pub(super) disk: usize,
    pub(super) offered: Offered,
    socket: OwnedFd,
    pub(super) state: State,
    /// Its guest has broken the rules, and takes part again when all of its queues were stopped.
    pub(super) broken: bool,
    /// A queue of it was started, and it will be told the size of the disk.
    pub(super) started: bool,
    /// It has gone or broken the rules, and the volume knows.
    pub(super) missed: bool,
    memory: Option<Arc<Memory>>,
    lanes: Vec<Lane>,
    pending: Slab<Pending>,
    /// A request that waits for memory for its copy.
    waiting: Option<(usize, Arrival)>,
    /// Bytes of memory for copies.
    copied: usize,
    channel: Option<OwnedFd>,
    pub(super) witness: Option<Witness>,
    /// It has brought a request.
    pub(super) begun: bool,
    /// It is on the list of guests that have something to do.
    pub(super) listed: bool,
    /// It is on the list of guests that are looked at in each turn.
    pub(super) watched: bool,
    /// What it has brought in the turn of this number.
    turn: u64,
    requests: usize,
    /// Requests that were refused as none for the disk, and are not counted yet.
    pub(super) refused: u64,
    bytes: u64,
    /// Its next front end, which waits until nothing is left of this one.
    pub(super) next: Option<Next>,
}

impl Guest {
    pub(super) fn new(
        (key, serial): (usize, u64),
        (disk, offered): (usize, Offered),
        socket: OwnedFd,
    ) -> Guest {
        Guest {
            key,
            serial,
            disk,
            offered,
            socket,
            state: State::Open,
            broken: false,
            started: false,
            missed: false,
            memory: None,
            lanes: Vec::new(),
            pending: Slab::new(),
            waiting: None,
            copied: 0,
            channel: None,
            witness: None,
            begun: false,
            listed: false,
            watched: false,
            turn: 0,
            requests: 0,
            refused: 0,
            bytes: 0,
            next: None,
        }
    }

    /// Whether replies reach nobody.
    pub(super) fn is_gone(&self) -> bool {
        self.state == State::Gone || self.broken
    }

    /// Whether nobody has anything of it any more.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Gone
            && self.pending.is_empty()
            && self.lanes.iter().all(|lane| !lane.watched)
    }

    /// Whether its front end is gone. Its control socket may say so later: while it waits for requests of a queue that stops.
    pub(super) fn is_ending(&self) -> bool {
        is_hung_up(&self.socket) || self.state == State::Gone
    }

    pub(super) fn waits_for_memory(&self) -> bool {
        self.waiting.is_some()
    }

    /// Does what the front end wants. An order that cannot be done yet is answered later.
    pub(super) fn order(
        &mut self,
        io: &mut Reactor,
        order: Order,
        done: SyncSender<Done>,
    ) -> Result<(), Broken> {
        let mut answer = Done::Done;
        match order {
            Order::Memory(memory) => self.memory = Some(memory),
            Order::Start { queue, mut vring, kick } => {
                let all_stopped = self.lanes.iter().all(|lane| lane.vring.is_none());
                if all_stopped && self.pending.is_empty() {
                    (self.broken, self.missed) = (false, false);
                }
                let memory = self.memory.as_ref().ok_or(Broken::Queue)?;
                vring.begin(memory)?;
                let lane = lane(&mut self.lanes, queue);
                if lane.vring.as_ref().is_some_and(|vring| vring.in_flight() > 0) {
                    return Err(Broken::Queue);
                }
                lane.watch.take().into_iter().for_each(|watch| io.ring.cancel(watch));
                (lane.vring, lane.kick, lane.stirred) = (Some(*vring), Some(Arc::new(kick)), true);
                lane.answered = true;
                self.watch(io, queue);
            }
            Order::Call { queue, call } => {
                let lane = lane(&mut self.lanes, queue);
                lane.call = call.map(Arc::new);
                // What was answered before may have been told to nobody.
                if let (Some(call), Some(_)) = (&lane.call, &lane.vring) {
                    io.ring.signal(call);
                }
            }
            Order::Enable { queue, on } => {
                let lane = lane(&mut self.lanes, queue);
                (lane.enabled, lane.stirred) = (on, true);
            }
            Order::Stop { queue } => {
                let lane = lane(&mut self.lanes, queue);
                lane.kick = None;
                lane.watch.take().into_iter().for_each(|watch| io.ring.cancel(watch));
                lane.stopping = Some(done);
                self.stop_if_drained(usize::from(queue));
                return Ok(());
            }
            Order::Channel(channel) => self.channel = Some(channel),
            Order::Geometry => answer = Done::Geometry(self.offered.geometry),
        }
        // Who does not wait any more is gone.
        let _ = done.send(answer);
        Ok(())
    }

    /// Has the kernel watch for kicks of a queue. While it watches for those of another descriptor, that must end first.
    fn watch(&mut self, io: &mut Reactor, queue: u16) {
        let Some(lane) = self.lanes.get_mut(usize::from(queue)) else { return };
        if let (Some(kick), false, State::Open) = (&lane.kick, lane.watched, self.state) {
            let tag = Tag::VhostKick(self.key, queue);
            (lane.watch, lane.watched) = (Some(io.ring.watch(kick, tag)), true);
        }
    }

    /// A queue was kicked, or, with `over`, is not watched any more.
    pub(super) fn kicked(&mut self, io: &mut Reactor, queue: u16, over: bool) {
        let Some(lane) = self.lanes.get_mut(usize::from(queue)) else { return };
        lane.stirred = true;
        if let (Some(memory), Some(vring), false) = (&self.memory, &mut lane.vring, self.broken) {
            // What is wrong with it is found when a request is taken.
            let _ = vring.hush(memory);
        }
        if over {
            (lane.watch, lane.watched) = (None, false);
            self.watch(io, queue);
        }
    }

    /// Whether a queue was started.
    pub(super) fn is_started(&self) -> bool {
        self.lanes.iter().any(|lane| lane.vring.is_some())
    }

    /// Whether the front end waits for a queue to be stopped.
    pub(super) fn is_stopping(&self) -> bool {
        self.lanes.iter().any(|lane| lane.stopping.is_some())
    }

    /// Whether it waits for a request, so that its queue is stopped.
    pub(super) fn is_awaited(&self, reply: ReplyHandle) -> bool {
        let pending = self.pending.get(reply.0 as usize);
        pending.is_some_and(|pending| self.lanes[pending.queue].stopping.is_some())
    }

    /// Ends the order to stop a queue as soon as its requests are answered.
    fn stop_if_drained(&mut self, queue: usize) {
        let Some(lane) = self.lanes.get_mut(queue) else { return };
        let in_flight = lane.vring.as_ref().map_or(0, Vring::in_flight);
        if in_flight == 0
            && let Some(done) = lane.stopping.take()
        {
            let position = lane.vring.take().map(|vring| vring.position());
            let _ = done.send(position.map_or(Done::Done, Done::Stopped));
        }
    }

    /// Takes requests, as many as there are and the limits allow.
    pub(super) fn take(
        &mut self,
        turn: u64,
        copies: &Copies<'_>,
        scratch: &mut Scratch,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Broken> {
        if self.turn != turn {
            (self.turn, self.requests, self.bytes) = (turn, 0, 0);
        }
        if let Some((pending, arrival)) = self.waiting.take()
            && !self.has_memory(copies, pending, arrival, arrivals)
        {
            return Ok(());
        }
        let Some(memory) = self.memory.clone() else { return Ok(()) };
        if self.state != State::Open || self.broken {
            return Ok(());
        }
        for queue in 0..self.lanes.len() {
            loop {
                if self.requests >= REQUESTS_PER_TURN || self.bytes >= BYTES_PER_TURN {
                    return Ok(());
                }
                let Some(taken) = self.take_one(queue, &memory, scratch)? else { break };
                self.requests += 1;
                if let Some((pending, arrival)) = taken
                    && !self.has_memory(copies, pending, arrival, arrivals)
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes a request of a queue, and answers it if it is nothing for the disk. `None` if there is none.
    #[allow(clippy::type_complexity, reason = "a request, if it is one for the disk")]
    fn take_one(
        &mut self,
        queue: usize,
        memory: &Arc<Memory>,
        scratch: &mut Scratch,
    ) -> Result<Option<Option<(usize, Arrival)>>, Broken> {
        let (disk, lane) = (&self.offered.geometry, &mut self.lanes[queue]);
        let takes = lane.takes();
        let vring = lane.vring.as_mut().filter(|vring| takes && !vring.is_full());
        let Some(vring) = vring else { return Ok(None) };
        let Some(request) = vring.take(memory, scratch)? else { return Ok(None) };
        let (head, status) = (request.head, request.status());
        let (outcome, written) = match request.asked {
            Asked::Op(op) => match judge(disk, op) {
                Ok(()) => {
                    let len = op.extent().len;
                    let buffer = matches!(op, Op::Read(_) | Op::Write { .. })
                        .then(|| Buffer::lent(request.data));
                    self.bytes += buffer.as_ref().map_or(0, |_| len);
                    let writes = if matches!(op, Op::Read(_)) { len as u32 } else { 0 };
                    let pending = Pending { queue, head, status, writes, loan: None };
                    let pending = self.pending.insert(pending);
                    let (client, reply) = (Client::Vhost(self.key), ReplyHandle(pending as u64));
                    let arrival = Arrival { client, disk: self.disk, reply, op, buffer };
                    return Ok(Some(Some((pending, arrival))));
                }
                Err(outcome) => (outcome, 0),
            },
            Asked::Serial => {
                let serial = parda_vhost::blk::serial(self.offered.name.as_str());
                request.data.write(&serial);
                (Outcome::Ok, request.data.len().min(serial.len() as u64) as u32)
            }
            Asked::Nothing(outcome) => (outcome, 0),
        };
        self.refused += u64::from(outcome != Outcome::Ok);
        answer(lane, memory, head, &status, outcome, written)?;
        Ok(Some(None))
    }

    /// Hands a request over if there is memory for a copy of its data, or none is needed. If not, it waits.
    fn has_memory(
        &mut self,
        copies: &Copies<'_>,
        pending: usize,
        arrival: Arrival,
        arrivals: &mut Vec<Arrival>,
    ) -> bool {
        let extent = arrival.op.extent();
        let straight = |buffer: &Buffer| {
            let align = self.offered.direct.filter(|align| buffer.is_aligned(*align));
            align.is_some_and(|align| (extent.offset | extent.len).is_multiple_of(align.into()))
        };
        if let Some(buffer) = arrival.buffer.as_ref().filter(|buffer| !straight(buffer)) {
            // With the rest of blocks of which it has a part.
            let len = allocated(buffer.len() + 2 * ALIGN);
            let few = self.copied == 0 || self.copied + len <= copies.most;
            let Some(loan) = few.then(|| copies.agent.lend(len)).flatten() else {
                self.waiting = Some((pending, arrival));
                return false;
            };
            self.copied += loan.bytes;
            self.pending[pending].loan = Some(loan);
        }
        arrivals.push(arrival);
        true
    }

    /// Answers a request that was handed over.
    pub(super) fn reply(
        &mut self,
        reply: ReplyHandle,
        result: &Result<Body, Failure>,
    ) -> Result<(), Broken> {
        let Pending { queue, head, status, writes, loan } = self.pending.remove(reply.0 as usize);
        self.copied -= loan.map_or(0, |loan| loan.bytes);
        let (outcome, written) = match result {
            Ok(_) => (Outcome::Ok, writes),
            Err(failure) if failure.errno == parda_disk::Errno::NotSup => (Outcome::Unsupported, 0),
            Err(_) => (Outcome::Failed, 0),
        };
        let (gone, lane) = (self.is_gone(), &mut self.lanes[queue]);
        // A queue with unanswered requests is neither stopped nor replaced.
        let outcome = match (&self.memory, &mut lane.vring) {
            (Some(memory), Some(_)) if !gone => {
                answer(lane, memory, head, &status, outcome, written)
            }
            (_, Some(vring)) => {
                vring.give_up();
                Ok(())
            }
            (_, None) => unreachable!("a request is of a queue that was started"),
        };
        lane.stirred = true;
        self.stop_if_drained(queue);
        outcome
    }

    /// Tells the guest what was answered.
    pub(super) fn notify(&mut self, io: &mut Reactor) -> Result<(), Broken> {
        let Some(memory) = self.memory.as_ref().filter(|_| !self.is_gone()) else { return Ok(()) };
        for lane in self.lanes.iter_mut().filter(|lane| lane.answered) {
            lane.answered = false;
            if let (Some(vring), Some(call)) = (&mut lane.vring, &lane.call)
                && vring.wants_call(memory)?
            {
                io.ring.signal(call);
            }
        }
        Ok(())
    }

    /// Whether a queue has a request that can be taken.
    pub(super) fn has_news(&self) -> bool {
        let Some(memory) = self.memory.as_ref().filter(|_| self.takes()) else { return false };
        let mut vrings = self.lanes.iter().filter(|lane| lane.takes());
        vrings.any(|lane| lane.vring.as_ref().is_some_and(|v| !v.is_full() && v.has_news(memory)))
    }

    /// Asks to be kicked for the next requests. `false` if there is one already.
    pub(super) fn ask_for_kick(&mut self) -> Result<bool, Broken> {
        let mut news = false;
        let Some(memory) = self.memory.as_ref().filter(|_| self.takes()) else { return Ok(true) };
        for lane in self.lanes.iter_mut().filter(|lane| lane.takes()) {
            let vring = lane.vring.as_mut().filter(|vring| !vring.is_full());
            // A full one is looked at when a request of it is answered.
            let Some(vring) = vring else { continue };
            lane.stirred = vring.ask_for_kick(memory)?;
            if lane.stirred {
                vring.hush(memory)?;
            }
            news |= lane.stirred;
        }
        Ok(!news)
    }

    /// Whether requests are taken from it.
    fn takes(&self) -> bool {
        self.state == State::Open && !self.broken && self.waiting.is_none()
    }

    /// Tells the front end of another size.
    pub(super) fn resized(&mut self, size: u64) {
        self.offered.geometry.size = size;
        self.tell_size();
    }

    /// Tells the front end to ask for the size.
    pub(super) fn tell_size(&self) {
        if let Some(channel) = &self.channel {
            // A front end that does not listen reads the size when it connects again.
            let _ = parda_vhost::control::tell_of_new_size(channel);
        }
    }

    /// Whether all is answered of a guest that brings no more.
    pub(super) fn is_drained(&self) -> bool {
        self.state == State::Closing && self.pending.is_empty()
    }

    /// Takes no more requests.
    pub(super) fn finish(&mut self) {
        if self.state == State::Open {
            self.state = State::Closing;
        }
    }

    /// Ends the connection. The request that waits for memory comes back.
    pub(super) fn kill(&mut self, io: &mut Reactor) {
        if self.state == State::Gone {
            return;
        }
        self.state = State::Gone;
        self.shut_down(io);
        if let Some((pending, _)) = self.waiting.take() {
            let Pending { queue, .. } = self.pending.remove(pending);
            self.lanes[queue].vring.iter_mut().for_each(Vring::give_up);
        }
        for lane in &mut self.lanes {
            (lane.kick, lane.call, lane.stopping) = (None, None, None);
        }
        self.channel = None;
    }

    /// Shuts its socket down, and ends its watches.
    pub(super) fn shut_down(&mut self, io: &mut Reactor) {
        // It may be gone already, which is as well.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        for watch in self.lanes.iter_mut().filter_map(|lane| lane.watch.take()) {
            io.ring.cancel(watch);
        }
    }
}

/// A lane by its number; the control socket has checked that.
fn lane(lanes: &mut Vec<Lane>, queue: u16) -> &mut Lane {
    let queue = usize::from(queue);
    if queue >= lanes.len() {
        lanes.resize_with(queue + 1, Lane::default);
    }
    &mut lanes[queue]
}

/// Writes status and used element. `written`: bytes before the status.
fn answer(
    lane: &mut Lane,
    memory: &Memory,
    head: u16,
    status: &Status,
    outcome: Outcome,
    written: u32,
) -> Result<(), Broken> {
    let Some(vring) = &mut lane.vring else { return Ok(()) };
    status.tell(outcome);
    lane.answered = true;
    vring.answer(memory, head, written + 1)
}

/// Whether a disk can take a request; if not, what the guest is told.
fn judge(disk: &Geometry, op: Op) -> Result<(), Outcome> {
    match op {
        Op::Trim { .. } if !disk.trim => Err(Outcome::Unsupported),
        Op::WriteZeroes { .. } if !disk.write_zeroes => Err(Outcome::Unsupported),
        _ => disk.check(op).map_err(|_| Outcome::Failed),
    }
}
