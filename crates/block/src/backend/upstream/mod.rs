//! Another NBD server as a backend: many requests in flight on one or several connections. Lost
//! connections are replaced.
//!
//! Requests of a lost connection are sent again, on another connection or on a new one that comes
//! in time. Acknowledged writes that were not flushed may have died with the server. Clients were
//! promised that a successful FLUSH covers them. So each loss is counted, and the volume fails the
//! next FLUSH of every client. Each connection has its own ledger. A FLUSH goes to every connection
//! that acknowledged something since its last. So its result holds even if the server was replaced
//! between two connections.

mod ledger;
mod link;
pub(crate) mod search;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use parda_control::{Instant, Span};
use parda_dial::Connected;
use parda_disk::status::Extents;
use parda_disk::{Errno, Failure, Op};
use parda_nbd::{Framing, TransmissionFlags};

use self::link::{Answered, Lane, Sent, Stop, broken};
use self::search::{Owner, Search};
use super::Work;
use super::connect::Opened;
use super::file::Step;
use crate::buffer::{Buffer, Pool};
use crate::losses::loses;
use crate::reactor::Tag;
use crate::ring::{Sending, Wire};

/// Longest piece sent at once of a request that exceeds 32 bits, in bytes.
const PIECE: u64 = 2 << 30;

/// Time that the end of a volume waits for a silent server.
const LAST_SILENCE: Span = Span::from_millis(3_000);

/// An NBD server that is a backend.
pub(crate) struct Upstream {
    /// Search target when a connection is lost.
    sought: Search,
    base: u64,
    lanes: Vec<Lane>,
    /// Requests that no connection can take.
    waiting: VecDeque<usize>,
    next_cookie: u64,
    /// Unanswered parts of a FLUSH that went to several connections.
    parts: BTreeMap<usize, usize>,
    /// When the connection of a request was lost for the first time.
    lost_at: BTreeMap<usize, Instant>,
    /// Since when no connection works. A new one works when it has answered something.
    down_since: Option<Instant>,
    /// The last connection was given up because it was silent.
    after_silence: bool,
    /// When something was answered last.
    answered_at: Option<Instant>,
    /// Losses of acknowledged writes that were not flushed, and were not asked for yet.
    losses: u64,
    /// Why the server was not found, at the last attempt. Searches end when this is dropped.
    away: Arc<Mutex<Option<String>>>,
    /// The server is on the list of those that have something to do.
    pub(crate) stirred: bool,
    /// When a timer will look at it.
    pub(crate) timer: Option<Instant>,
}

impl Upstream {
    /// A backend with its first connection open; the others are looked for.
    pub(crate) fn new(
        now: Instant,
        opened: Opened,
        base: u64,
        owner: Owner,
        pool: &mut Pool,
    ) -> Self {
        let Opened { connected, uri, options, .. } = opened;
        let (agreed, away) = (connected.agreed, Arc::default());
        let shared = agreed.flags.contains(TransmissionFlags::CAN_MULTI_CONN);
        let lanes = if shared { options.connections } else { 1 };
        let sought = Search { owner, uri, options, agreed, away: Arc::downgrade(&away) };
        let mut up = Self {
            sought,
            base,
            lanes: (0..lanes.max(1)).map(|_| Lane::default()).collect(),
            waiting: VecDeque::new(),
            next_cookie: 0,
            parts: BTreeMap::new(),
            lost_at: BTreeMap::new(),
            down_since: None,
            after_silence: false,
            answered_at: None,
            losses: 0,
            away,
            stirred: false,
            timer: None,
        };
        let timeout = up.timeout();
        up.lanes[0].open(now, connected, timeout, pool);
        (1..up.lanes.len()).for_each(|lane| up.look_for(lane, 0));
        up
    }

    fn look_for(&self, lane: usize, failures: u32) {
        self.sought.clone().begin(lane, failures);
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.idlest().is_some()
    }

    /// Why the server was not found, at the last attempt, while it is looked for.
    pub(crate) fn away(&self) -> Option<String> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold(&self) -> Span {
        Span::from(self.sought.options.hold)
    }

    fn timeout(&self) -> Span {
        Span::from(self.sought.options.timeout)
    }

    /// Most bytes of a request that go to the server at once.
    pub(crate) fn at_once(&self, op: Op) -> u64 {
        match (self.sought.agreed.framing, op) {
            // A server that has no better way writes them, and has `timeout` for each request.
            (_, Op::WriteZeroes { fast: false, .. }) => PIECE,
            (Framing::Simple | Framing::Structured, _) => PIECE,
            (Framing::Extended, _) => u64::MAX,
        }
    }

    /// Sends a request, or keeps it until there is a connection.
    pub(crate) fn begin(&mut self, now: Instant, work: &mut Work, key: usize) {
        let request = &mut work.requests[key];
        request.step = Step::Transfer(0);
        if let (Op::BlockStatus { extent, .. }, None) = (request.op, self.sought.agreed.allocation)
        {
            // A server that does not tell: all of it is data.
            let extents = Extents::all_data(extent).finish();
            let outcome = extents.map(|extents| request.status = extents);
            let unknown = |errno| Failure::new(errno, "nothing is known of this range");
            return self.finish(work, key, outcome.map_err(unknown));
        }
        self.route(now, work, key);
    }

    /// Sends a request on the connections that it belongs to, or has it wait.
    fn route(&mut self, now: Instant, work: &mut Work, key: usize) {
        let idlest = self.idlest();
        let Some(idlest) = idlest else { return self.wait(now, work, key) };
        if work.requests[key].op != Op::Flush {
            return self.send(now, work, idlest, key);
        }
        let dirty = |lane: &Lane| lane.is_up() && lane.ledger.is_dirty();
        let lanes: Vec<usize> = (0..self.lanes.len()).filter(|i| dirty(&self.lanes[*i])).collect();
        if let [] | [_] = lanes[..] {
            let lane = lanes.first().copied().unwrap_or(idlest);
            return self.send(now, work, lane, key);
        }
        let before = self.parts.insert(key, lanes.len());
        assert!(before.is_none(), "a flush is sent again when all of its parts are answered");
        lanes.into_iter().for_each(|lane| self.send(now, work, lane, key));
    }

    /// The open connection with the fewest requests in flight.
    fn idlest(&self) -> Option<usize> {
        let up = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_up());
        up.min_by_key(|(_, lane)| lane.in_flight.len()).map(|(i, _)| i)
    }

    fn send(&mut self, now: Instant, work: &mut Work, lane: usize, key: usize) {
        let request = &work.requests[key];
        let op = if request.step == Step::Sync { Op::Flush } else { self.translate(request.op) };
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.lanes[lane].send(now, work, Sent { cookie, key, op });
    }

    /// Has a request wait for a connection, unless the server has been away for too long.
    fn wait(&mut self, now: Instant, work: &mut Work, key: usize) {
        if self.down_since.is_some_and(|since| now >= since + self.hold()) {
            return self.finish(work, key, Err(gone()));
        }
        work.requests[key].delayed = true;
        self.waiting.push_back(key);
    }

    fn finish(&mut self, work: &mut Work, key: usize, outcome: Result<(), Failure>) {
        self.lost_at.remove(&key);
        work.finished.push((key, outcome));
    }

    /// The request as this server takes it: moved to the disk's place, FUA only if offered.
    fn translate(&self, op: Op) -> Op {
        let mut extent = op.extent();
        extent.offset += self.base;
        if let Op::Cache(_) = op {
            // QEMU refuses to fetch more than it would read at once.
            extent.len = extent.len.min(self.sought.agreed.blocks.max().into());
        }
        let there = op.at(extent);
        if self.has_fua() { there } else { there.without_fua() }
    }

    fn has_fua(&self) -> bool {
        self.sought.agreed.flags.contains(TransmissionFlags::SEND_FUA)
    }

    /// Starts what the connections have to do.
    pub(crate) fn pump(&mut self, work: &mut Work, tag: impl Fn(usize, Wire) -> Tag) {
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            lane.pump(work, |wire| tag(i, wire));
        }
    }

    /// Takes the result of a receive.
    pub(crate) fn received(
        &mut self,
        now: Instant,
        work: &mut Work,
        (lane, wire): (usize, Wire),
        buffer: Buffer,
        result: Result<usize, i32>,
    ) {
        let outcome = self.lanes[lane].received(work, wire, buffer, result);
        let outcome = outcome.and_then(|()| self.take_answers(now, work, lane));
        self.settle(now, work, lane, outcome);
    }

    /// Takes the result of a send.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        work: &mut Work,
        (lane, tag): (usize, Tag),
        sending: Sending,
        result: Result<usize, i32>,
    ) {
        let outcome = self.lanes[lane].sent(work, sending, result, tag);
        self.settle(now, work, lane, outcome);
    }

    fn take_answers(&mut self, now: Instant, work: &mut Work, lane: usize) -> Result<(), String> {
        let (base, min) = (self.base, self.sought.agreed.blocks.min());
        loop {
            match self.lanes[lane].next_answer(work, base, min) {
                Ok(None) => return Ok(()),
                Ok(Some(answered)) => self.conclude(now, work, lane, answered),
                Err(Stop::ShuttingDown) => self.retire(now, work, lane, "it is shutting down"),
                Err(Stop::Broken(error, blamed)) => {
                    if let Some(key) = blamed {
                        self.part_done(work, key, Err(broken(&error)));
                    }
                    return Err(error);
                }
            }
        }
    }

    /// The last piece of a reply has come.
    fn conclude(&mut self, now: Instant, work: &mut Work, lane: usize, answered: Answered) {
        (self.down_since, self.after_silence, self.answered_at) = (None, false, Some(now));
        let Answered { key, flush, mut outcome } = answered;
        let request = &mut work.requests[key];
        let syncs_apart = request.op.fua() && !self.has_fua();
        let ledger = &mut self.lanes[lane].ledger;
        if matches!(request.op, Op::BlockStatus { .. }) && request.status.is_empty() {
            let nothing = || Failure::new(Errno::Io, "the server told nothing of the range");
            outcome = outcome.and_then(|()| Err(nothing()));
        }
        if outcome.is_ok() {
            match flush {
                Some(mark) => ledger.flushed(mark),
                None if syncs_apart => {
                    // A server without FUA: flushed, where it was written, before anything is
                    // acknowledged.
                    request.step = Step::Sync;
                    return self.send(now, work, lane, key);
                }
                None if request.op.changes() && !request.op.fua() => ledger.acknowledge(),
                None => {}
            }
        } else if let Err(failure) = &outcome
            && request.op.fua()
            && loses(request.op, failure)
        {
            // The server's sync may have been told of the loss of other writes.
            self.losses += 1;
        }
        self.part_done(work, key, outcome);
    }

    /// A request, or one part of it, is done.
    fn part_done(&mut self, work: &mut Work, key: usize, outcome: Result<(), Failure>) {
        let Some(left) = self.parts.get_mut(&key) else { return self.finish(work, key, outcome) };
        let request = &mut work.requests[key];
        if let Err(failure) = outcome {
            request.error.get_or_insert(failure);
        }
        assert!(*left > 0, "each part is answered once");
        *left -= 1;
        if *left == 0 {
            self.parts.remove(&key);
            let outcome = request.error.take().map_or(Ok(()), Err);
            self.finish(work, key, outcome);
        }
    }

    /// Loses a connection if something was wrong with it, and lets go of one that is lost.
    fn settle(&mut self, now: Instant, work: &mut Work, index: usize, outcome: Result<(), String>) {
        let lane = &mut self.lanes[index];
        if let (Err(why), Some(link)) = (outcome, &lane.link) {
            // One that is being drained is looked for already.
            if link.drained_by.is_none() {
                let lived =
                    link.answered || now >= link.since + Span::from(self.sought.options.hold);
                self.give_up(now, work, index, lived, &why);
            }
            self.lanes[index].cut(work);
        }
        self.release(now, work, index);
    }

    /// Gives up a connection whose server may still do its requests: these are sent again when the server has closed.
    fn retire(&mut self, now: Instant, work: &mut Work, index: usize, why: &str) {
        let until = now + self.hold();
        let lane = &mut self.lanes[index];
        let answered = lane.link.as_ref().is_some_and(|link| link.answered);
        lane.drain(work, until);
        self.give_up(now, work, index, answered, why);
    }

    /// Takes a connection out of use, and looks for another one. `worked` says that the server was there.
    fn give_up(&mut self, now: Instant, work: &mut Work, index: usize, worked: bool, why: &str) {
        let lane = &mut self.lanes[index];
        self.losses += u64::from(lane.ledger.is_dirty());
        lane.ledger = ledger::Ledger::default();
        let failures = lane.failures;
        lane.failures += 1;
        for asked in lane.in_flight.values() {
            work.requests[asked.key].delayed = true;
        }
        let others = self.lanes.iter().enumerate().any(|(i, lane)| i != index && lane.is_up());
        if !others && (worked || self.down_since.is_none()) {
            self.down_since = Some(now);
        }
        // Connections that end again and again are not worth a line each.
        if failures == 0 || failures.is_power_of_two() {
            let (volume, disk) = (&self.sought.owner.volume, &self.sought.owner.name);
            let unflushed = if self.losses > 0 {
                ": writes that were not flushed may be lost, and the next flush will say so"
            } else {
                ""
            };
            tracing::warn!(
                volume,
                disk,
                error = why,
                failures,
                event = "server_lost",
                "lost the NBD server{unflushed}"
            );
        }
        self.look_for(index, failures);
    }

    /// Sends the requests of a lost connection again once nothing of it is under way.
    fn release(&mut self, now: Instant, work: &mut Work, index: usize) {
        let lane = &mut self.lanes[index];
        if lane.link.is_some() || !lane.is_quiet() || lane.in_flight.is_empty() {
            return;
        }
        for asked in std::mem::take(&mut lane.in_flight).into_values() {
            let key = asked.key;
            if self.parts.contains_key(&key) {
                // One part of a flush. Whether something was lost is known already.
                self.part_done(work, key, Ok(()));
                continue;
            }
            let first = *self.lost_at.entry(key).or_insert(now);
            if now > first && now >= first + self.hold() {
                self.finish(work, key, Err(gone()));
                continue;
            }
            let request = &mut work.requests[key];
            request.step = Step::Transfer(0);
            request.status.clear();
            self.route(now, work, key);
        }
    }

    /// Takes a new connection, which is used as soon as nothing of the old one is under way.
    pub(crate) fn reconnected(&mut self, lane: usize, connected: Connected) {
        // The next server must have the size that clients are told from now on.
        self.sought.agreed.size = self.sought.agreed.size.max(connected.agreed.size);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.next = Some(connected);
        }
    }

    /// Does what is due.
    pub(crate) fn timers(&mut self, now: Instant, work: &mut Work) {
        (0..self.lanes.len()).for_each(|index| self.time_out(now, work, index));
        if self.idlest().is_none() && self.down_since.is_some_and(|at| now >= at + self.hold()) {
            for key in std::mem::take(&mut self.waiting) {
                self.finish(work, key, Err(gone()));
            }
        }
    }

    fn time_out(&mut self, now: Instant, work: &mut Work, index: usize) {
        let lane = &mut self.lanes[index];
        if !lane.is_late(now) {
            return;
        }
        if lane.is_up() {
            self.after_silence = true;
            let why = "it is silent: a request was not answered in time";
            return self.retire(now, work, index, why);
        }
        // The server never let go of what it was sent. The server may still do those requests, so
        // none is sent again.
        for asked in std::mem::take(&mut lane.in_flight).into_values() {
            self.part_done(work, asked.key, Err(gone()));
        }
        self.lanes[index].cut(work);
    }

    /// Goes over to new connections. Tells the log if the server was away and is back.
    pub(crate) fn resume(&mut self, now: Instant, work: &mut Work) {
        let mut back = false;
        for index in 0..self.lanes.len() {
            self.release(now, work, index);
            let was_away = self.idlest().is_none();
            let patience =
                if self.after_silence { self.timeout().min(self.hold()) } else { self.timeout() };
            let lane = &mut self.lanes[index];
            if lane.link.is_some() || !lane.is_quiet() {
                continue;
            }
            let Some(connected) = lane.next.take() else { continue };
            back |= was_away && lane.failures.is_power_of_two();
            lane.open(now, connected, patience, &mut work.io.pool);
            for key in std::mem::take(&mut self.waiting) {
                self.route(now, work, key);
            }
        }
        debug_assert!(self.waiting.is_empty() || self.idlest().is_none(), "none waits in vain");
        if back {
            let (volume, disk) = (&self.sought.owner.volume, &self.sought.owner.name);
            tracing::info!(volume, disk, event = "server_back", "the NBD server is back");
        }
    }

    /// When something is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waiting = self.down_since.filter(|_| !self.waiting.is_empty());
        let waiting = waiting.map(|since| since + self.hold());
        self.lanes.iter().filter_map(Lane::deadline).chain(waiting).min()
    }

    /// Whether nobody needs to wait for it any more, as the volume ends: it is away or silent.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        let then = Instant(now.0.saturating_sub(LAST_SILENCE.0));
        let mut asked = self.lanes.iter().filter(|lane| lane.is_up() && !lane.in_flight.is_empty());
        asked.all(|lane| lane.waits_since(then)) && self.answered_at.is_none_or(|at| at <= then)
    }

    /// Losses of unflushed writes since the last call.
    pub(crate) fn take_losses(&mut self) -> u64 {
        std::mem::take(&mut self.losses)
    }

    /// Ends the connections for good: what waits for an answer fails.
    pub(crate) fn abandon(&mut self, work: &mut Work) {
        let mut keys: Vec<usize> = std::mem::take(&mut self.waiting).into();
        for lane in &mut self.lanes {
            lane.next = None;
            keys.extend(std::mem::take(&mut lane.in_flight).into_values().map(|asked| asked.key));
            lane.cut(work);
        }
        self.parts.clear();
        // A flush may have gone to several connections.
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| self.finish(work, key, Err(gone())));
    }

    /// Whether the ring has nothing of it any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.iter().all(Lane::is_quiet)
    }

    /// Ends all connections of the disk.
    pub(crate) fn close(&mut self) {
        self.lanes.iter_mut().for_each(Lane::close);
    }
}

fn gone() -> Failure {
    Failure::new(Errno::Io, "the NBD server behind this disk does not answer")
}
