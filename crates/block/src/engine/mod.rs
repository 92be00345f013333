//! The volume's thread: one loop over one ring.
//!
//! Each turn takes all that the ring has done, lets every connection parse all that it received,
//! dispatches what the window admits, and then sends the replies of each connection with one `sendmsg` and
//! submits all other operations together, up to 32 for each call of `io_uring_enter`. So the number of
//! system calls depends on the connections of a turn, and hardly on its IOs.

mod closing;
mod copied;
mod ending;
mod mail;
mod members;
mod newcomer;
mod offers;
mod pieces;
mod pressure;
mod redial;
mod resize;
mod turn;
mod watch;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use parda_address::{Address, ExportName};
use parda_control::{Completed, Dispatch, Host, Instant, IoId, Outcome, Span, VmId};
use parda_disk::status::Descriptor;
use parda_disk::{Errno, Extent, Geometry, Op};
use slab::Slab;

use self::copied::Copied;
use self::newcomer::{Looks, Newcomer, Watch};
use self::offers::Offers;
use crate::answers::Answers;
use crate::backend::claims::Claim;
use crate::backend::disk_file::DiskFile;
use crate::backend::map::Mapper;
use crate::backend::sizing::Sizing;
use crate::backend::{Backend, Body, Failure, ReplyHandle, Request, Work, io_of};
use crate::budget::Budget;
use crate::buffer::{Buffer, Pool};
use crate::config::Limits;
use crate::conn::{Arrival, Conn, ConnError};
use crate::descriptors::Room;
use crate::disk_id::DiskId;
use crate::door::Door;
use crate::losses::{self, Losses};
use crate::mailbox::{Mailbox, Mailer};
use crate::pace::Pace;
use crate::ring::{Done, OpData, OpKey, Ring, Wire};
use crate::run_delay::RunDelay;
use crate::socket_file::SocketFile;
use crate::spin::Spin;
use crate::stats::{Dropped, Lateness, VmStats};
use crate::threads::threads_help;
use crate::timed::{Timed, TimedId};
use crate::timers::Timers;
use crate::tls::ListenerTls;

/// Parts with which a volume's thread is started.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) model: Option<Box<dyn Timed>>,
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) mailbox: Mailbox,
    pub(crate) mailer: Mailer,
}

/// Owner of an operation of the ring.
#[derive(Clone, Copy, Debug)]
enum Tag {
    Accept(usize),
    Conn(usize, Wire),
    File(usize),
    /// The disk, and which of its connections.
    Upstream(usize, usize, Wire),
    Mailbox,
}

/// Subject of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A connection and its serial number, as the place is used again.
    Conn(usize, u64),
    /// A listener that rests.
    Accept(usize),
    /// A disk whose NBD server may be given up.
    Upstream(usize),
    /// Newcomers whose handshake has not begun.
    Newcomers,
    /// Clients that wait for memory.
    Waiting,
    /// Clients that wait for an answer which takes no turn in the fair queue.
    Answers,
    /// Memory that nobody needs any more.
    Tidy,
    /// A request of a file for which the kernel had no worker.
    Again(usize),
}

struct Disk {
    id: DiskId,
    name: ExportName,
    description: String,
    geometry: Geometry,
    listen: Vec<Address>,
    vm_id: VmId,
    backend: Backend,
    /// Where holes can be looked for; nowhere behind an NBD server, which is asked instead.
    place: Option<DiskFile>,
    mapper: Mapper,
    /// It is on the list of disks that have something to do.
    stirred: bool,
    /// When a timer will look at it.
    timer: Option<Instant>,
    sizing: Sizing,
    /// Where the disk begins on its backend, in bytes.
    base: u64,
    /// Its file system did not answer to a look at the file, and still does not.
    is_silent: bool,
    stats: VmStats,
    losses: Losses<Answer>,
    /// Why the server behind it was not found, at the last attempt. Those who look for it end when
    /// this is gone.
    away: Arc<Mutex<Option<String>>>,
    leaving: Option<Leaving>,
    /// Goes last: another disk may have its data then.
    claim: Option<Arc<Claim>>,
    /// Room for its descriptors.
    room: Room,
}

/// A disk that is being removed.
struct Leaving {
    /// When its connections are closed though requests are not answered.
    by: Instant,
    closed: bool,
    gone: SyncSender<()>,
}

/// A request that is done, but for its reply.
struct Answer {
    conn: usize,
    reply: ReplyHandle,
    op: Op,
    outcome: Result<(), Failure>,
    buffer: Option<Buffer>,
    status: Vec<Descriptor>,
}

struct Listener {
    /// As it was asked for: with port 0, if so.
    address: Address,
    fd: Arc<OwnedFd>,
    file: Option<SocketFile>,
    tcp: bool,
    tls: Option<ListenerTls>,
    /// Somebody else holds the socket too: it must stay as it is.
    shared: bool,
    /// The accept that is under way.
    accepting: Option<OpKey>,
    /// When to accept again after the system could not.
    retry_at: Option<Instant>,
    /// It is being removed; who waits for that.
    leaving: Option<SyncSender<()>>,
}

impl Listener {
    fn accept(&mut self, ring: &mut Ring<Tag>, index: usize) {
        self.accepting = Some(ring.accept(&self.fd, Tag::Accept(index)));
    }

    /// Ends the accept that is under way. What waits to be accepted on a shared socket is left to
    /// whoever accepts there next; otherwise it is refused.
    fn stop(&mut self, ring: &mut Ring<Tag>) {
        match self.accepting {
            Some(key) if self.shared => ring.cancel(key),
            Some(_) if !self.shared => {
                // A listener that cannot be shut down has nobody waiting either.
                let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Both);
            }
            _ => {}
        }
        self.file = None;
        self.retry_at = None;
    }
}

/// How long an IO waits for which the kernel has no worker.
const AGAIN: Span = Span::from_millis(20);

/// How often that is tried again before it counts as failed: for half a minute.
const ATTEMPTS: u16 = 1500;

/// How long a listener rests when there are no descriptors or no memory for a connection.
const ACCEPT_PAUSE: Span = Span::from_millis(100);

pub(crate) struct Engine {
    name: String,
    started: std::time::Instant,
    ring: Ring<Tag>,
    work: Work,
    host: Host,
    model: Option<Box<dyn Timed>>,
    disks: Slab<Disk>,
    /// Keys of the disks that are not being removed.
    keys: HashMap<DiskId, usize>,
    next_disk: u64,
    listeners: Slab<Listener>,
    offers: Offers,
    conns: Slab<Conn>,
    next_serial: u64,
    limits: Limits,
    door: Door,
    pace: Pace<Newcomer>,
    timers: Timers<Timer>,
    watch: Watch,
    dropped: Dropped,
    mailbox: Mailbox,
    mailer: Mailer,
    mapper: Mapper,
    looks: Looks,
    bell: Arc<OwnedFd>,
    /// Connections that have something to do this turn.
    listed: Vec<usize>,
    arrivals: Vec<Arrival>,
    spin: Spin,
    run_delay: RunDelay,
    /// How late this turn began, for want of a processor.
    late: Span,
    /// Requests that were dispatched in this turn: the kernel may get them late.
    begun: Vec<(usize, IoId)>,
    /// How late all turns of this period were, and those of the last whole one.
    lateness: Lateness,
    last_lateness: Lateness,
    copied: Copied,
    /// Connections that have more to do than one turn gives them.
    unfinished: Vec<usize>,
    /// Requests of which a piece is done and another follows.
    pieces: Vec<usize>,
    /// Disks whose NBD server has something to do this turn.
    stirred: Vec<usize>,
    /// Disks that are being removed.
    leaving: Vec<usize>,
    /// When a shutdown must be over.
    stop_by: Option<Instant>,
    unanswered: usize,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        Ok(Self {
            name: parts.name,
            started: std::time::Instant::now(),
            ring: Ring::new()?,
            work: Work {
                pool: Pool::new(parts.budget.capacity()),
                budget: parts.budget,
                answers: Answers::new(),
                requests: Slab::new(),
                finished: Vec::new(),
            },
            host: parts.host,
            model: parts.model,
            disks: Slab::new(),
            keys: HashMap::new(),
            next_disk: 0,
            listeners: Slab::new(),
            offers: Offers::default(),
            conns: Slab::new(),
            next_serial: 0,
            door: Door::new(&parts.limits),
            pace: Pace::new(&parts.limits),
            timers: Timers::new(),
            watch: Watch::default(),
            dropped: Dropped::default(),
            limits: parts.limits,
            bell: parts.mailbox.bell(),
            mailbox: parts.mailbox,
            mapper: Mapper::new(parts.mailer.clone()),
            looks: Looks::default(),
            mailer: parts.mailer,
            listed: Vec::new(),
            arrivals: Vec::new(),
            unfinished: Vec::new(),
            pieces: Vec::new(),
            spin: Spin::new(),
            run_delay: RunDelay::new(Instant::default()),
            late: Span::ZERO,
            begun: Vec::new(),
            lateness: Lateness::default(),
            last_lateness: Lateness::default(),
            copied: Copied::default(),
            stirred: Vec::new(),
            leaving: Vec::new(),
            stop_by: None,
            unanswered: 0,
        })
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn completed(&mut self, now: Instant, done: Done<Tag>) {
        let Done { tag, kept, result, more, took } = done;
        match (tag, kept) {
            (Tag::Accept(listener), kept) => self.accepted(now, listener, kept, result),
            (Tag::Mailbox, _) => {
                self.mailbox.silence();
                while let Some(command) = self.mailbox.next() {
                    self.command(now, command);
                }
                self.ring.poll(&self.bell, Tag::Mailbox);
            }
            (Tag::File(key), kept) => {
                self.work.requests[key].took += Span::from(took);
                self.file_done(now, key, kept, result);
            }
            (Tag::Conn(key, wire), kept) => {
                self.list(key);
                let conn = &mut self.conns[key];
                let outcome = match kept {
                    OpData::Buffer(buffer) => conn.received(wire, buffer, result, more),
                    OpData::Batch(sending) => {
                        conn.sent(&mut self.ring, &mut self.work, sending, result, tag)
                    }
                    OpData::Nothing | OpData::Accepted(_) => Ok(()),
                };
                if let Err(error) = outcome {
                    self.fail(key, &error);
                }
            }
            (Tag::Upstream(disk, lane, wire), kept) => {
                self.stir(disk);
                let Backend::Nbd(up) = &mut self.disks[disk].backend else { return };
                let lost = match kept {
                    OpData::Buffer(buffer) => {
                        up.received(now, &mut self.work, (lane, wire), buffer, result)
                    }
                    OpData::Batch(sending) => {
                        let ring = &mut self.ring;
                        up.sent(now, &mut self.work, ring, (lane, tag), sending, result)
                    }
                    OpData::Nothing | OpData::Accepted(_) => None,
                };
                self.upstream_lost(disk, lost);
            }
        }
    }

    fn accepted(&mut self, now: Instant, index: usize, kept: OpData, result: Result<usize, i32>) {
        let listener = &mut self.listeners[index];
        listener.accepting = None;
        if self.stop_by.is_some() || listener.leaving.is_some() {
            self.bury_listener(index);
            return;
        }
        match (kept, result) {
            (_, Err(libc::EINTR | libc::ECONNABORTED | libc::EAGAIN)) => {}
            (_, Err(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                tracing::warn!(volume = self.name, %error, "cannot accept a connection");
                listener.retry_at = Some(now + ACCEPT_PAUSE);
                self.timers.add(now + ACCEPT_PAUSE, Timer::Accept(index));
                return;
            }
            (OpData::Accepted(fd), _) => self.admit(now, index, fd),
            _ => {}
        }
        let again = self.pace.accepted(now);
        let listener = &mut self.listeners[index];
        match again {
            None => listener.accept(&mut self.ring, index),
            Some(at) => {
                listener.retry_at = again;
                self.timers.add(at, Timer::Accept(index));
            }
        }
    }

    fn file_done(&mut self, now: Instant, key: usize, kept: OpData, result: Result<usize, i32>) {
        let request = &mut self.work.requests[key];
        if let OpData::Buffer(buffer) = kept {
            request.buffer = Some(buffer);
        }
        let disk = &mut self.disks[request.disk];
        let Backend::File(file) = &mut disk.backend else { return };
        // The kernel cancels it at a limit of threads, and nothing of it was done.
        if result == Err(libc::ECANCELED) && request.attempts < ATTEMPTS {
            if request.attempts == 0 {
                let (volume, disk, help) = (&self.name, disk.name.as_str(), threads_help());
                tracing::warn!(
                    volume,
                    disk,
                    "Linux has no worker for an IO, which is tried again{help}"
                );
            }
            request.attempts += 1;
            request.delayed = true;
            return self.timers.add(now + AGAIN, Timer::Again(key));
        }
        let (ring, pool) = (&mut self.ring, &mut self.work.pool);
        if let Some(outcome) = file.advance(ring, pool, request, result, Tag::File(key)) {
            // Those that waited for this one.
            while let Some((next, change)) = file.ready() {
                let request = &mut self.work.requests[next];
                request.change = Some(change);
                if let Some(outcome) = file.start(ring, pool, request, Tag::File(next)) {
                    self.work.finished.push((next, outcome));
                }
            }
            self.data_done(now, key, outcome);
        }
    }

    /// Tries a step of a request again.
    fn begin_again(&mut self, key: usize) {
        let request = &mut self.work.requests[key];
        if let Backend::File(file) = &self.disks[request.disk].backend {
            file.issue(&mut self.ring, &mut self.work.pool, request, Tag::File(key));
        }
    }

    /// Puts a connection on the list of those that have something to do.
    fn list(&mut self, key: usize) {
        let conn = &mut self.conns[key];
        if !conn.listed {
            conn.listed = true;
            self.listed.push(key);
        }
    }

    /// Puts a disk behind an NBD server on the list of those that have something to do.
    fn stir(&mut self, disk: usize) {
        if let Some(Disk { backend: Backend::Nbd(_), stirred: stirred @ false, .. }) =
            self.disks.get_mut(disk)
        {
            *stirred = true;
            self.stirred.push(disk);
        }
    }

    fn fail(&mut self, key: usize, error: &ConnError) {
        let conn = &mut self.conns[key];
        if !conn.is_dead() {
            tracing::info!(volume = self.name, connection = key, %error, "gave up a connection");
            conn.kill(&mut self.work);
            if !conn.chosen {
                // Its slot is free at once, for whoever it made room for.
                self.door.leave(key);
            }
            self.count(error);
            self.list(key);
        }
    }

    /// Lets requests in and dispatches until nothing moves any more.
    fn settle(&mut self, now: Instant) {
        loop {
            for (key, outcome) in std::mem::take(&mut self.work.finished) {
                self.data_done(now, key, outcome);
            }
            for i in 0..self.listed.len() {
                let _ = self.ring.reap();
                self.take_requests(now, self.listed[i]);
            }
            self.dispatch(now);
            let granted = self.work.budget.granted();
            for key in &granted {
                if let Some(conn) = self.conns.get_mut(*key) {
                    conn.granted();
                    self.list(*key);
                }
            }
            if self.work.finished.is_empty() && granted.is_empty() {
                break;
            }
        }
    }

    fn take_requests(&mut self, now: Instant, key: usize) {
        let conn = &mut self.conns[key];
        let offer = match self.listeners.get(conn.listener) {
            Some(listener) if conn.disk().is_none() => {
                self.offers.at(&listener.address, |offer, key| {
                    let disk = &self.disks[key];
                    offer.add(key, &disk.name, &disk.description, disk.geometry);
                })
            }
            _ => self.offers.nothing(),
        };
        let outcome = conn.take_requests(offer, &self.limits, &mut self.work, &mut self.arrivals);
        if !conn.chosen
            && let Some(disk) = conn.disk()
        {
            conn.chosen = true;
            match self.door.choose(key, disk) {
                Ok(false) => {}
                // The VM may have spent its credit on another host.
                Ok(true) => {
                    self.host.forget_credit(now, self.disks[disk].vm_id);
                }
                Err(turned_away) => return self.fail(key, &turned_away.into()),
            }
        }
        for Arrival { disk, reply, op, payload } in self.arrivals.drain(..) {
            let mut request = Request::new(key, disk, reply, op, payload);
            let disk = &mut self.disks[disk];
            disk.losses.seen(&mut conn.witness, request.disk);
            pieces::cut(&mut request, disk);
            let (op, io) = (request.op, io_of(request.op));
            let request = self.work.requests.insert(request);
            match (op, &disk.place) {
                // No IO of the array: it waits for no room in the window, and takes none.
                (Op::BlockStatus { extent, one }, Some(place)) => {
                    let peer = self.door.peer(key);
                    if let Err(failure) = disk.mapper.ask(peer, request, place, extent, one) {
                        self.work.finished.push((request, Err(failure)));
                    }
                }
                _ => self.host.submit(now, disk.vm_id, io, request as u64),
            }
        }
        if self.host.window().0.is_infinite() {
            // Without control the order is that in which they came, over all disks.
            self.dispatch(now);
        }
        if let Err(error) = outcome {
            self.fail(key, &error);
        }
    }

    fn dispatch(&mut self, now: Instant) {
        loop {
            let Some(Dispatch { id, token, overdue, .. }) = self.next_dispatch(now) else { return };
            let key = token as usize;
            let request = &mut self.work.requests[key];
            assert!(request.id.is_none(), "a piece of a request is dispatched once");
            request.id = Some(id);
            request.begun_late = Span::ZERO;
            self.begun.push((key, id));
            if self.conns[request.conn].is_dead() {
                // Nobody will hear of it, and it was not promised to anybody.
                let failure = Failure::new(Errno::Shutdown, "the client is gone");
                self.work.finished.push((key, Err(failure)));
                continue;
            }
            let disk = &mut self.disks[request.disk];
            disk.stats.overdue += u64::from(overdue);
            // A server behind a disk keeps a ledger of its own for writes with FUA.
            let ours = request.op == Op::Flush || !matches!(disk.backend, Backend::Nbd(_));
            request.sync =
                (ours && losses::syncs(request.op)).then(|| match request.failures_before() {
                    Some(failures) => disk.losses.begin_after_pieces(failures),
                    None => disk.losses.begin(),
                });
            if let Some(model) = &mut self.model {
                let extent = request.extent();
                let extent = Extent { offset: extent.offset + disk.base, ..extent };
                request.modelled = true;
                model.submit(now, TimedId(key), io_of(request.op).kind, extent);
            }
            match &mut disk.backend {
                Backend::File(file) => {
                    self.copied.add(file, request.op);
                    let (ring, pool) = (&mut self.ring, &mut self.work.pool);
                    if let Some(outcome) = file.begin(ring, pool, request, (key, Tag::File(key))) {
                        self.work.finished.push((key, outcome));
                    }
                }
                Backend::Memory(memory) => {
                    let outcome = memory.perform(&mut self.work.pool, request);
                    self.work.finished.push((key, outcome));
                }
                Backend::Nbd(up) => {
                    let disk = request.disk;
                    up.begin(now, &mut self.work, key);
                    self.stir(disk);
                }
            }
        }
    }

    /// The backend is done with a request.
    fn data_done(&mut self, now: Instant, key: usize, outcome: Result<(), Failure>) {
        let request = &mut self.work.requests[key];
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
        let request = self.work.requests.remove(key);
        let device = self.device_time(now, &request);
        let Request { asked: op, reply, conn, disk, delayed, sync, buffer, status, .. } = request;
        let outcome = request.outcome.unwrap_or(Ok(()));
        if let Some(id) = request.id {
            let ended = if outcome.is_ok() { Outcome::Done } else { Outcome::Failed };
            let heard = if delayed { Outcome::Failed } else { ended };
            let dropped = self.conns[conn].is_dead();
            let done = taken_back(self.host.complete_after(now, id, heard, device), key);
            if !(dropped && ended == Outcome::Failed) {
                self.disks[disk].stats.record(&done, ended);
            }
        }
        let answer = Answer { conn, reply, op, outcome, buffer, status };
        let Some(sync) = sync else { return self.answer(disk, answer, false) };
        let backend = &self.disks[disk].backend;
        let (once, outcome) = (backend.reports_once(), answer.outcome.clone());
        self.disks[disk].losses.end(sync, op, &outcome, once, answer);
        while let Some((answer, failed)) = self.disks[disk].losses.ready() {
            self.answer(disk, answer, failed);
        }
    }

    /// Replies to a request. `failed`: a sync of its disk has failed while it was under way.
    fn answer(&mut self, disk: usize, answer: Answer, failed: bool) {
        let Answer { conn: key, reply, op, mut outcome, buffer, status } = answer;
        let (conn, losses) = (&mut self.conns[key], &mut self.disks[disk].losses);
        // Who is gone was told nothing.
        if losses::syncs(op) && !conn.is_dead() {
            outcome = losses.tell(&mut conn.witness, op, outcome, failed);
        } else if losses::changes(op) && outcome.is_ok() {
            losses.wrote(&mut conn.witness);
        }
        let result = match (op, outcome, buffer) {
            (Op::Read(_), Ok(()), Some(buffer)) => Ok(Body::Data(buffer)),
            (Op::BlockStatus { .. }, Ok(()), _) => Ok(Body::Status(status)),
            (_, outcome, buffer) => {
                buffer.into_iter().for_each(|b| self.work.pool.put(b));
                outcome.map(|()| Body::Done)
            }
        };
        self.conns[key].reply(&mut self.work, reply, op, result);
        self.list(key);
    }

    /// Starts all that sockets have to do, and buries the dead.
    fn pump(&mut self, now: Instant) {
        for key in std::mem::take(&mut self.listed) {
            // An error is the next wait's as well.
            let _ = self.ring.reap();
            let conn = &mut self.conns[key];
            conn.listed = false;
            match conn.pump(now, &mut self.ring, &mut self.work, |wire| Tag::Conn(key, wire)) {
                Ok(true) => self.unfinished.push(key),
                Ok(false) => {}
                Err(error) => {
                    self.fail(key, &error);
                    // What follows is all that is to be done with it.
                    self.listed.retain(|other| *other != key);
                    self.conns[key].listed = false;
                }
            }
            let conn = &mut self.conns[key];
            if conn.is_finished() {
                conn.kill(&mut self.work);
            }
            if conn.is_idle() {
                let conn = self.conns.remove(key);
                if let Some(witness) = conn.witness
                    && let Some(disk) = self.disks.get_mut(witness.disk)
                {
                    disk.losses.left(witness);
                }
                debug_assert!(self.work.requests.iter().all(|(_, request)| request.conn != key));
                conn.dismantle(&mut self.work);
                self.door.leave(key);
                continue;
            }
            if conn.wants_turn() {
                self.unfinished.push(key);
            }
            if conn.progress().is_owing() && !conn.timed {
                conn.timed = true;
                let at = now + Span::from(self.limits.progress_timeout);
                self.timers.add(at, Timer::Conn(key, conn.serial));
            }
        }
        for index in std::mem::take(&mut self.stirred) {
            let Some(disk) = self.disks.get_mut(index) else { continue };
            disk.stirred = false;
            if let Backend::Nbd(up) = &mut disk.backend {
                let tag = |lane, wire| Tag::Upstream(index, lane, wire);
                up.pump(&mut self.ring, &mut self.work, tag);
                // A timer that comes too early finds that out, and is set again.
                let deadline = up.deadline();
                if let Some(at) = deadline.filter(|at| disk.timer.is_none_or(|set| *at < set)) {
                    disk.timer = deadline;
                    self.timers.add(at, Timer::Upstream(index));
                }
            }
        }
        self.watch_memory(now);
        self.watch_answers();
    }

    fn timers(&mut self, now: Instant) {
        while let Some(TimedId(key)) = self.model.as_mut().and_then(|m| m.pop(now)) {
            let Some(request) = self.work.requests.get_mut(key) else { continue };
            request.modelled = false;
            if request.outcome.is_some() {
                self.complete(now, key);
            }
        }
        for key in std::mem::take(&mut self.unfinished) {
            if self.conns.contains(key) {
                self.list(key);
            }
        }
        self.work.answers.turn(now);
        while let Some((key, serial)) = self.work.answers.next() {
            if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.serial == serial) {
                conn.may_answer(now);
                self.list(key);
            }
        }
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Conn(key, serial) => self.look_at(now, key, serial),
                Timer::Accept(index) => {
                    let Some(listener) = self.listeners.get_mut(index) else { continue };
                    if listener.retry_at.take_if(|at| now >= *at).is_some() {
                        listener.accept(&mut self.ring, index);
                    }
                }
                Timer::Upstream(disk) => {
                    if let Some(state) = self.disks.get_mut(disk) {
                        state.timer = None;
                    }
                    self.stir(disk);
                }
                Timer::Newcomers => {
                    self.watch.newcomers = false;
                    self.let_in(now);
                }
                Timer::Waiting => self.serve_waiting(now),
                Timer::Answers => self.watch.answers = false,
                Timer::Tidy => self.tidy(now),
                Timer::Again(key) => self.begin_again(key),
            }
        }
        self.upstream_timers(now);
    }
}

/// An IO that the host takes back: it has had each from its dispatch on, and has it once.
fn taken_back(done: Option<Completed>, key: usize) -> Completed {
    match done {
        Some(done) if done.token == key as u64 => done,
        other => unreachable!("request {key} was dispatched, and the host takes back {other:?}"),
    }
}
