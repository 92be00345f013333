//! The volume's thread: one loop over one ring.
//!
//! Each turn takes all completions of the ring, lets every client hand over all its requests, and dispatches what the window admits. Then
//! it sends the replies of each connection with one `sendmsg` and submits all other operations together, up to 32 for each call of
//! `io_uring_enter`. So the number of system calls depends on the connections of a turn, and hardly on its IOs.
//!
//! A request comes from a front end ([`crate::front`]) and waits here in the fair queue and at the gate. The backend of its disk
//! ([`crate::backend`]) does it, and its result goes back to the front end.

mod closing;
mod copied;
mod delays;
mod disks;
mod ending;
mod failures;
mod held;
#[cfg(test)]
mod jumps;
mod last_flush;
mod looks;
mod mail;
mod members;
mod pieces;
mod resize;
mod retries;
mod servers;
#[cfg(test)]
mod tests;
mod turn;

use std::io;
use std::sync::mpsc::Receiver;

use parda_control::{Completed, Dispatch, Host, Instant, Outcome};
use parda_disk::{Extent, Failure, Op};
use slab::Slab;

use self::copied::Copied;
use self::delays::Delays;
use self::disks::Disks;
use self::looks::Looks;
pub(crate) use self::mail::Order;
use self::retries::Retries;
use crate::backend::{Arrivals, Backend, Request, Work, io_of};
use crate::buffer::Pool;
use crate::client::{self, Body, Client};
use crate::front::front_end::FrontEnd;
use crate::front::{FrontParts, Fronts, each, of};
use crate::losses::{self, Witness};
use crate::mailbox::{Mailbox, Mailer};
use crate::reactor::{Reactor, Tag, Timer};
use crate::ring::{End, OpData};
use crate::spin::Spin;
use crate::threads::threads_help;
use crate::timed::{Timed, TimedId};

/// Parts with which a volume's thread is started.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) model: Option<Box<dyn Timed>>,
    pub(crate) front: FrontParts,
    /// Bytes of memory that its buffers may take while nobody needs them.
    pub(crate) memory: usize,
    pub(crate) orders: Receiver<Order>,
    pub(crate) mailbox: Mailbox,
    pub(crate) mailer: Mailer,
}

pub(crate) struct Engine {
    name: String,
    started: parda_awake::Instant,
    fronts: Fronts,
    arrivals: Arrivals,
    /// Loss records of disconnected clients.
    left: Vec<Witness>,
    host: Host,
    model: Option<Box<dyn Timed>>,
    work: Work,
    copied: Copied,
    delays: Delays,
    retries: Retries,
    /// Requests of which a piece is done and another follows.
    pieces: Vec<usize>,
    disks: Disks,
    looks: Looks,
    orders: Receiver<Order>,
    mailbox: Mailbox,
    mailer: Mailer,
    spin: Spin,
    /// When a shutdown must be over.
    stop_by: Option<Instant>,
    unanswered: usize,
    /// Servers behind its disks were asked for a flush, as it ends.
    flushed: bool,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        Ok(Self {
            started: parda_awake::Instant::now(),
            fronts: Fronts::new(&parts.name, parts.front)?,
            name: parts.name,
            arrivals: Arrivals::default(),
            left: Vec::new(),
            host: parts.host,
            model: parts.model,
            work: Work {
                io: Reactor::new(Pool::new(parts.memory))?,
                requests: Slab::new(),
                finished: Vec::new(),
            },
            copied: Copied::default(),
            delays: Delays::new(),
            retries: Retries::default(),
            pieces: Vec::new(),
            disks: Disks::default(),
            looks: Looks::new(parts.mailer.clone()),
            orders: parts.orders,
            mailbox: parts.mailbox,
            mailer: parts.mailer,
            spin: Spin::new(),
            stop_by: None,
            unanswered: 0,
            flushed: false,
        })
    }

    /// Time of this thread's calls, for the law as for deadlines. The clock stands still while the process does, so that no peer looks
    /// silent and no device slow meanwhile.
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn completed(&mut self, now: Instant, tag: Tag, end: End) {
        match tag {
            Tag::Accept => self.fronts.accept(now, &mut self.work.io),
            Tag::NbdConn(conn, wire) => {
                self.fronts.nbd.conn_done(&mut self.work.io, conn, wire, end);
            }
            Tag::VhostKick(guest, queue) => {
                self.fronts.vhost.kicked(&mut self.work.io, guest, queue, &end);
            }
            Tag::Mailbox => {
                self.read_mail(now);
                self.work.io.ring.poll(&self.mailbox.bell(), Tag::Mailbox);
            }
            Tag::File(key) => {
                self.work.requests[key].took += end.took.into();
                self.file_done(now, key, end);
            }
            Tag::Upstream(disk, lane, wire) => {
                self.disks.stir(disk);
                let Some(up) = self.disks[disk].backend.remote() else { return };
                let (work, result) = (&mut self.work, end.result);
                match end.kept {
                    OpData::Buffer(buffer) => up.received(now, work, (lane, wire), buffer, result),
                    OpData::Batch(sending) => up.sent(now, work, (lane, tag), sending, result),
                    OpData::Nothing => {}
                }
                self.note_losses(disk);
            }
        }
    }

    fn file_done(&mut self, now: Instant, key: usize, end: End) {
        let Work { io, requests, finished } = &mut self.work;
        let request = &mut requests[key];
        if let OpData::Buffer(buffer) = end.kept {
            request.buffer = Some(buffer);
        }
        let disk = &mut self.disks[request.disk];
        // The kernel cancels it at a limit of threads, and nothing of it was done.
        if end.result == Err(libc::ECANCELED) && self.retries.put_off(now, key, request) {
            if request.attempts == 1 {
                let (volume, disk, help) = (&self.name, disk.name(), threads_help());
                tracing::warn!(
                    volume,
                    disk,
                    "Linux has no worker for an IO, which is tried again{help}"
                );
            }
            return;
        }
        let Backend::File(file) = &mut disk.backend else { return };
        if let Some(outcome) = file.advance(io, request, end.result, key) {
            // Requests that waited for this one.
            while let Some((next, change)) = file.ready() {
                let request = &mut requests[next];
                request.change = Some(change);
                if let Some(outcome) = file.start(io, request, next) {
                    finished.push((next, outcome));
                }
            }
            self.data_done(now, key, outcome);
        }
    }

    /// Admits parsed requests to the fair queue, where each waits for the limits of its disk and for its share.
    fn admit(&mut self, now: Instant) {
        for disk in self.arrivals.begun.drain(..) {
            // The VM may have spent its credit on another host.
            self.host.forget_credit(now, self.disks[disk].vm_id);
        }
        for (client, disk, requests) in self.arrivals.faults.drain(..) {
            self.disks[disk].stats.blame(client, requests);
        }
        for mut request in self.arrivals.requests.drain(..) {
            let (client, key) = (request.client, request.disk);
            let disk = &mut self.disks[key];
            disk.losses.seen(of!(self.fronts, client, witness()), key);
            pieces::cut(&mut request, disk);
            let (op, io) = (request.op, io_of(request.op));
            let request = self.work.requests.insert(request);
            match (op, &disk.place) {
                // No IO of the array: it waits for no room in the window, and takes none.
                (Op::BlockStatus { extent, one }, Some(place)) => {
                    let peer = of!(self.fronts, client, peer());
                    if let Err(failure) = disk.mapper.ask(peer, request, place, extent, one) {
                        self.work.finished.push((request, Err(failure)));
                    }
                }
                _ => self.host.submit(now, disk.vm_id, io, request as u64),
            }
        }
        if !self.host.decision().has_window() {
            // Without control the order is that in which they came, over all disks.
            while let Some(key) = self.limit(now) {
                self.start(now, key);
            }
        }
    }

    /// The next request that limits, fair queue and gate let through.
    fn limit(&mut self, now: Instant) -> Option<usize> {
        loop {
            let Dispatch { id, token, overdue, .. } = self.next_dispatch(now)?;
            let key = token as usize;
            let request = &mut self.work.requests[key];
            assert!(request.id.is_none(), "a piece of a request is dispatched once");
            request.id = Some(id);
            request.begun_late = parda_control::Span::ZERO;
            self.delays.dispatched(key, id);
            if of!(self.fronts, request.client, is_gone()) {
                self.work.finished.push((key, Err(client::gone())));
                continue;
            }
            self.disks[request.disk].stats.overdue += u64::from(overdue);
            return Some(key);
        }
    }

    /// Hands a request to its backend.
    fn start(&mut self, now: Instant, key: usize) {
        let request = &mut self.work.requests[key];
        let disk = &mut self.disks[request.disk];
        let ours = request.op == Op::Flush || !disk.backend.syncs_each();
        request.sync =
            (ours && losses::syncs(request.op)).then(|| match request.failures_before() {
                Some(failures) => disk.losses.begin_after_pieces(failures),
                None => disk.losses.begin(),
            });
        if let Some(model) = &mut self.model {
            let extent = request.extent();
            let extent = Extent { offset: extent.offset + disk.sizing.base, ..extent };
            request.modelled = true;
            model.submit(now, TimedId(key), io_of(request.op).kind, extent);
        }
        match &mut disk.backend {
            Backend::File(file) => {
                let is_first = std::mem::replace(&mut disk.begun, now) != now;
                self.copied.add(file, request.op, is_first);
                if let Some(outcome) = file.begin(&mut self.work.io, request, key) {
                    self.work.finished.push((key, outcome));
                }
            }
            Backend::Memory(memory) => {
                request.move_to_pool(&mut self.work.io.pool);
                let outcome = memory.perform(&mut self.work.io.pool, request);
                self.work.finished.push((key, outcome));
            }
            Backend::Remote(up) => {
                let disk = request.disk;
                request.move_to_pool(&mut self.work.io.pool);
                up.begin(now, &mut self.work, key);
                self.disks.stir(disk);
            }
        }
    }

    /// The backend is done with a request.
    fn data_done(&mut self, now: Instant, key: usize, outcome: Result<(), Failure>) {
        let request = &mut self.work.requests[key];
        assert!(request.outcome.is_none(), "a piece of a request is done once");
        request.outcome = Some(outcome);
        if !request.modelled {
            self.complete(now, key);
        }
    }

    /// Backend and model are done with a request.
    fn complete(&mut self, now: Instant, key: usize) {
        if self.work.requests[key].goes_on() {
            self.pieces.push(key);
            return;
        }
        let device = self.device_time(now, &self.work.requests[key]);
        let request = &mut self.work.requests[key];
        if matches!(request.outcome, Some(Ok(()))) {
            request.move_from_pool(&mut self.work.io.pool, 0);
        }
        let (client, op) = (request.client, request.asked);
        let outcome = &*request.outcome.get_or_insert(Ok(()));
        let disk = &mut self.disks[request.disk];
        if let Some(id) = request.id.take() {
            let ended = if outcome.is_ok() { Outcome::Done } else { Outcome::Failed };
            let heard = if request.delayed { Outcome::Failed } else { ended };
            let dropped = of!(self.fronts, client, is_gone());
            let done = taken_back(self.host.complete_after(now, id, heard, device), key);
            match outcome {
                Err(_) if dropped => {}
                Err(failure) if failure.asker => disk.stats.blame(client, 1),
                _ => {
                    disk.stats.record(&done, ended);
                    if let Err(failure) = outcome
                        && let Some(line) = disk.failures.note(now, op, failure)
                    {
                        let (volume, disk) = (&self.name, disk.name());
                        tracing::error!(volume, disk, event = "io_failed", "{line}");
                    }
                }
            }
        }
        let Some(sync) = request.sync.take() else { return self.reply(key, false) };
        let at = request.disk;
        disk.losses.end(sync, op, outcome, disk.backend.reports_once(), key);
        while let Some((key, failed)) = self.disks[at].losses.ready() {
            self.reply(key, failed);
        }
    }

    /// Replies to a request. `failed`: a sync of its disk has failed while it was under way.
    fn reply(&mut self, key: usize, failed: bool) {
        let request = self.work.requests.remove(key);
        let Request { client, disk, reply, asked: op, buffer, status, .. } = request;
        let mut outcome = request.outcome.unwrap_or(Ok(()));
        if client == Client::Volume {
            return self.flushed_last(disk, outcome);
        }
        let losses = &mut self.disks[disk].losses;
        // A gone client was told nothing.
        if losses::syncs(op) && !of!(self.fronts, client, is_gone()) {
            outcome = losses.tell(of!(self.fronts, client, witness()), op, outcome, failed);
        } else if losses::changes(op) && outcome.is_ok() {
            losses.wrote(of!(self.fronts, client, witness()));
        }
        let io = &mut self.work.io;
        let result = match (op, outcome, buffer) {
            (Op::Read(_), Ok(()), Some(buffer)) => Ok(Body::Data(buffer)),
            (Op::BlockStatus { .. }, Ok(()), _) => Ok(Body::Status(status)),
            (_, outcome, buffer) => {
                buffer.into_iter().for_each(|b| io.pool.put(b));
                outcome.map(|()| Body::Done)
            }
        };
        of!(self.fronts, client, reply(io, reply, op, result));
    }

    /// Starts all that front ends and servers behind disks have to do.
    fn pump(&mut self, now: Instant) {
        each!(self.fronts, pump(now, &mut self.work.io, &mut self.left));
        for witness in self.left.drain(..) {
            if let Some(disk) = self.disks.get_mut(witness.disk) {
                disk.losses.left(witness);
            }
        }
        self.disks.pump(&mut self.work);
    }

    fn timers(&mut self, now: Instant) {
        while let Some(TimedId(key)) = self.model.as_mut().and_then(|m| m.pop(now)) {
            let Some(request) = self.work.requests.get_mut(key) else { continue };
            request.modelled = false;
            if request.outcome.is_some() {
                self.complete(now, key);
            }
        }
        each!(self.fronts, turn(now));
        while let Some(timer) = self.work.io.timers.pop(now) {
            match timer {
                Timer::Accept(key) => self.fronts.listeners.rested(now, key),
                Timer::Nbd(timer) => self.fronts.nbd.timer(now, &mut self.work.io, timer),
                Timer::Vhost(timer) => self.fronts.vhost.timer(now, &mut self.work.io, timer),
                Timer::Upstream(disk) => {
                    self.disks.remote(disk).into_iter().for_each(|up| up.timer = None);
                    self.disks.stir(disk);
                }
            }
        }
        while let Some(key) = self.retries.pop(now) {
            let request = &mut self.work.requests[key];
            if let Backend::File(file) = &self.disks[request.disk].backend {
                file.issue(&mut self.work.io, request, key);
            }
        }
        self.upstream_timers(now);
    }
}

/// A completed IO, as the host counted it: each dispatched IO completes exactly once.
fn taken_back(done: Option<Completed>, key: usize) -> Completed {
    match done {
        Some(done) if done.token == key as u64 => done,
        other => unreachable!("request {key} was dispatched, and the host takes back {other:?}"),
    }
}
