//! One guest: its queues and its unanswered requests.

mod requests;

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use parda_control::Instant;
use parda_vhost::blk::{GuestOutcome, StatusByte};
use parda_vhost::control::{Order, OrderDone};
use parda_vhost::{Broken, Memory, Vring};
use slab::Slab;

pub(super) use self::requests::Copies;
use super::lane::{Lane, lane};
use super::pieces::{Piece, Rest, WaitsFor};
use crate::client::{Offered, ReplyHandle};
use crate::front::listener::Place;
use crate::losses::Witness;
use crate::peer::is_hung_up;
use crate::reactor::{Reactor, Tag};

/// A request of the guest that is not answered yet.
struct Pending {
    queue: usize,
    head: u16,
    status: StatusByte,
    /// Bytes of the guest's memory that it writes.
    writes: u32,
    /// Its pieces that the disk has.
    pieces: usize,
    /// The outcome so far.
    outcome: GuestOutcome,
    /// A part of the memory that the guest had when it was taken is to go.
    leaves: bool,
}

/// The front end waits for the requests that may use memory which it takes away.
struct Farewell {
    done: SyncSender<OrderDone>,
    /// Number of unanswered ones.
    left: usize,
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
    /// The guest has gone or broken the rules, and the volume knows.
    pub(super) missed: bool,
    memory: Option<Arc<Memory>>,
    lanes: Vec<Lane>,
    pending: Slab<Pending>,
    farewell: Option<Farewell>,
    /// The front end was refused something, and the log says so.
    refused: bool,
    /// Pieces of requests that the disk has.
    pieces: Slab<Piece>,
    /// The request that is being handed over.
    rest: Option<Rest>,
    /// Bytes of memory for copies.
    copied: usize,
    channel: Option<OwnedFd>,
    pub(super) witness: Option<Witness>,
    /// The guest has brought a request.
    pub(super) begun: bool,
    /// The guest is on the list of those that have something to do.
    pub(super) listed: bool,
    /// The guest is on the list of those that are looked at in each turn.
    pub(super) watched: bool,
    /// Number of the turn that `requests` counts for.
    turn: u64,
    requests: usize,
    /// Requests that are none for the disk, and are not counted yet.
    pub(super) faults: u64,
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
            farewell: None,
            refused: false,
            pieces: Slab::new(),
            rest: None,
            copied: 0,
            channel: None,
            witness: None,
            begun: false,
            listed: false,
            watched: false,
            turn: 0,
            requests: 0,
            faults: 0,
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
        self.rest.as_ref().is_some_and(|rest| rest.waits_for == WaitsFor::Memory)
    }

    /// Whether a part of a request can be handed over.
    fn goes_on(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| match rest.waits_for {
            WaitsFor::Turn => true,
            WaitsFor::Answers => self.pieces.len() < requests::MAX_PIECES,
            WaitsFor::Memory => false,
        })
    }

    /// Does what the front end wants. An order that cannot be done yet is answered later.
    pub(super) fn order(
        &mut self,
        io: &mut Reactor,
        order: Order,
        done: SyncSender<OrderDone>,
    ) -> Result<(), Broken> {
        let mut answer = OrderDone::Done;
        match order {
            Order::Memory { memory, shrinks } => {
                self.memory = Some(memory);
                let left = self.pending.len();
                if shrinks && left > 0 {
                    self.pending.iter_mut().for_each(|(_, pending)| pending.leaves = true);
                    self.farewell = Some(Farewell { done, left });
                    return Ok(());
                }
            }
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
                (lane.vring, lane.kick, lane.stirred) = (Some(*vring), kick.map(Arc::new), true);
                lane.answered = true;
                self.watch(io, queue);
            }
            Order::Call { queue, call } => {
                let lane = lane(&mut self.lanes, queue);
                lane.call = call.map(Arc::new);
                // The guest may not know of earlier answers.
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
            Order::Geometry => answer = OrderDone::Geometry(self.offered.geometry),
            Order::Refused(why) => {
                if !std::mem::replace(&mut self.refused, true) {
                    let disk = self.offered.name.as_str();
                    tracing::warn!(
                        disk,
                        why,
                        "refused what a front end wanted; the next times are not logged"
                    );
                }
            }
        }
        // A failed send means that the front end has gone.
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
            // The error is reported when a request is taken.
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

    /// Whether a queue has nobody who tells of its requests.
    pub(super) fn is_polled(&self) -> bool {
        self.state == State::Open && self.lanes.iter().any(Lane::is_polled)
    }

    /// Looks for requests of which nobody tells.
    pub(super) fn poll(&mut self) {
        self.lanes.iter_mut().filter(|lane| lane.is_polled()).for_each(|lane| lane.stirred = true);
    }

    /// Whether the front end waits for requests: a queue is to be stopped, or memory is to go.
    pub(super) fn is_stopping(&self) -> bool {
        self.farewell.is_some() || self.lanes.iter().any(|lane| lane.stopping.is_some())
    }

    /// Whether it waits for this request.
    pub(super) fn is_awaited(&self, reply: ReplyHandle) -> bool {
        let pending = self.pending.get(reply.0 as usize);
        pending
            .is_some_and(|pending| pending.leaves || self.lanes[pending.queue].stopping.is_some())
    }

    /// A request is over that may have used memory which is to go.
    fn leave(&mut self) {
        let last = self.farewell.take_if(|farewell| {
            farewell.left -= 1;
            farewell.left == 0
        });
        // A failed send means that the front end has gone.
        let _ = last.map(|farewell| farewell.done.send(OrderDone::Done));
    }

    /// Ends the order to stop a queue as soon as its requests are answered.
    fn stop_if_drained(&mut self, queue: usize) {
        let Some(lane) = self.lanes.get_mut(queue) else { return };
        let in_flight = lane.vring.as_ref().map_or(0, Vring::in_flight);
        if in_flight == 0
            && let Some(done) = lane.stopping.take()
        {
            let position = lane.vring.take().map(|vring| vring.position());
            let _ = done.send(position.map_or(OrderDone::Done, OrderDone::Stopped));
        }
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
        if self.goes_on() {
            return true;
        }
        let Some(memory) = self.memory.as_ref().filter(|_| self.takes()) else { return false };
        let mut vrings = self.lanes.iter().filter(|lane| lane.takes());
        vrings.any(|lane| lane.vring.as_ref().is_some_and(|v| !v.is_full() && v.has_news(memory)))
    }

    /// Asks to be kicked for the next requests. `false` if there is one already.
    pub(super) fn ask_for_kick(&mut self) -> Result<bool, Broken> {
        let mut news = false;
        if self.goes_on() {
            return Ok(false);
        }
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
        self.state == State::Open && !self.broken && self.rest.is_none()
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

    /// Ends the connection. The request of which the disk has no piece yet comes back.
    pub(super) fn kill(&mut self, io: &mut Reactor) {
        if self.state == State::Gone {
            return;
        }
        self.state = State::Gone;
        self.shut_down(io);
        if let Some(rest) = self.rest.take()
            && self.pending[rest.of].pieces == 0
        {
            let Pending { queue, .. } = self.pending.remove(rest.of);
            self.lanes[queue].vring.iter_mut().for_each(Vring::give_up);
        }
        for lane in &mut self.lanes {
            (lane.kick, lane.call, lane.stopping) = (None, None, None);
        }
        (self.channel, self.farewell) = (None, None);
    }

    /// Shuts its socket down, and ends its watches.
    pub(super) fn shut_down(&mut self, io: &mut Reactor) {
        // An error means that the socket is gone already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        for watch in self.lanes.iter_mut().filter_map(|lane| lane.watch.take()) {
            io.ring.cancel(watch);
        }
    }
}
