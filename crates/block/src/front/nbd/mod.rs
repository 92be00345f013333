//! The NBD server: connections, their requests and replies, and the memory that they may take.

mod answers;
pub(crate) mod budget;
mod conn;
mod door;
mod newcomer;
mod now;
mod offers;
mod pace;
mod pressure;
pub(crate) mod progress;
mod rate;
pub(crate) mod tls;
mod watch;
mod work;
mod zeroes;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use parda_address::Address;
use parda_control::{Instant, Span};
use parda_disk::{Failure, Op};
use slab::Slab;

use self::answers::Answers;
use self::budget::Budget;
use self::conn::{Conn, ConnError};
use self::door::{Door, TurnedAway};
use self::newcomer::Newcomer;
use self::offers::Offers;
use self::pace::Pace;
use self::pressure::Pressure;
use self::work::Shared;
use crate::backend::Arrivals;
use crate::client::{Body, Client, Offered, ReplyHandle};
use crate::config::Limits;
use crate::descriptors;
use crate::front::front_end::FrontEnd;
use crate::front::listener::Place;
use crate::losses::Witness;
use crate::peer::Peer;
use crate::reactor::{NbdTimer, Reactor};
use crate::ring::{End, OpData, Wire};
use crate::stats::Dropped;

/// The NBD server of a volume.
pub(crate) struct Nbd {
    volume: String,
    limits: Limits,
    offers: Offers,
    pace: Pace<Newcomer>,
    door: Door,
    conns: Slab<Conn>,
    next_serial: u64,
    shared: Shared,
    pressure: Pressure,
    dropped: Dropped,
    /// A connection has died, with requests unanswered.
    leavers: bool,
    /// Connections that have something to do this turn.
    listed: Vec<usize>,
    /// Connections that have more to do than one turn gives them.
    unfinished: Vec<usize>,
    /// The connection whose requests were taken last broke the protocol behind them.
    broken: Option<(usize, ConnError)>,
}

impl Nbd {
    pub(crate) fn new(volume: String, limits: Limits, budget: Budget) -> Self {
        Self {
            volume,
            limits,
            offers: Offers::default(),
            pace: Pace::new(&limits),
            door: Door::new(&limits),
            conns: Slab::new(),
            next_serial: 0,
            shared: Shared { budget, answers: Answers::new() },
            pressure: Pressure::default(),
            dropped: Dropped::default(),
            leavers: false,
            listed: Vec::new(),
            unfinished: Vec::new(),
            broken: None,
        }
    }

    /// Connections that were given up or turned away.
    pub(crate) fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Keys of some connections.
    fn keys(&self, which: impl Fn(&Conn) -> bool) -> Vec<usize> {
        self.conns.iter().filter(|(_, conn)| which(conn)).map(|(key, _)| key).collect()
    }

    /// Puts a connection on the list of those that have something to do.
    fn list(&mut self, key: usize) {
        let conn = &mut self.conns[key];
        if !conn.listed {
            conn.listed = true;
            self.listed.push(key);
        }
    }

    fn fail(&mut self, io: &mut Reactor, key: usize, error: &ConnError) {
        let conn = &mut self.conns[key];
        if !conn.is_dead() {
            tracing::info!(volume = self.volume, connection = key, %error, "gave up a connection");
            conn.kill(&mut self.shared.with(io));
            if !conn.chosen {
                // Its slot is free at once, for whoever it made room for.
                self.door.leave(key);
            }
            self.count_dropped(error);
            self.list(key);
        }
    }

    /// An operation of a connection is done.
    pub(crate) fn conn_done(&mut self, io: &mut Reactor, key: usize, wire: Wire, end: End) {
        self.list(key);
        let (conn, result) = (&mut self.conns[key], end.result);
        let outcome = match end.kept {
            OpData::Buffer(buffer) => conn.received(wire, buffer, result, end.more),
            OpData::Batch(sending) => conn.sent(&mut self.shared.with(io), sending, result),
            OpData::Nothing => Ok(()),
        };
        if let Err(error) = outcome {
            self.fail(io, key, &error);
        }
    }

    /// A timer is due.
    pub(crate) fn timer(&mut self, now: Instant, io: &mut Reactor, timer: NbdTimer) {
        match timer {
            NbdTimer::Conn(key, serial) => self.look_at(now, io, key, serial),
            NbdTimer::Newcomers => self.let_in(now, io),
            NbdTimer::Waiting => self.serve_waiting(now, io),
            // The turn that begins looks for them.
            NbdTimer::Answers => {}
            NbdTimer::Tidy => self.tidy(now, io),
        }
    }

    fn finish_all(&mut self, which: impl Fn(&Conn) -> bool) {
        for key in self.keys(which) {
            self.conns[key].finish();
            self.list(key);
        }
    }
}

impl FrontEnd for Nbd {
    fn admit(&mut self, now: Instant, io: &mut Reactor, place: &Rc<Place>, fd: OwnedFd) {
        let peer = watch::peer(&fd, place.is_tcp());
        if descriptors::is_reserved(&fd) {
            return self.turn_away(peer, TurnedAway::Descriptors);
        }
        // Its handshake begins when the pace allows it.
        if let Some((peer, _)) = self.pace.arrive(peer, Newcomer { place: Rc::clone(place), fd }) {
            self.turn_away(peer, TurnedAway::Pace);
        }
        self.let_in(now, io);
    }

    fn next_accept(&mut self, now: Instant) -> Option<Instant> {
        self.pace.accepted(now)
    }

    fn unlisten(&mut self, io: &mut Reactor, place: &Rc<Place>) {
        for client in self.keys(|conn| conn.disk().is_none() && Rc::ptr_eq(&conn.place, place)) {
            self.conns[client].kill(&mut self.shared.with(io));
            self.list(client);
        }
        self.pace.retain(|newcomer| !Rc::ptr_eq(&newcomer.place, place));
    }

    fn turn(&mut self, now: Instant) {
        for key in std::mem::take(&mut self.unfinished) {
            if self.conns.contains(key) {
                self.list(key);
            }
        }
        self.shared.answers.turn(now);
        while let Some((key, serial)) = self.shared.answers.next() {
            if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.serial == serial) {
                conn.may_answer(now);
                self.list(key);
            }
        }
    }

    fn take(&mut self, i: usize, io: &mut Reactor, arrivals: &mut Arrivals) -> bool {
        if let Some((key, error)) = self.broken.take() {
            self.fail(io, key, &error);
        }
        let Some(&key) = self.listed.get(i) else { return false };
        // An error is the next wait's as well.
        let _ = io.ring.reap();
        let conn = &mut self.conns[key];
        let offer = match conn.disk() {
            None => self.offers.at(&conn.place.address),
            Some(_) => self.offers.nothing(),
        };
        let work = &mut self.shared.with(io);
        let outcome = conn.take_requests(offer, &self.limits, work, &mut arrivals.requests);
        if !conn.chosen
            && let Some(disk) = conn.disk()
        {
            conn.chosen = true;
            match self.door.choose(key, disk) {
                Ok(is_first) => arrivals.begun.extend(is_first.then_some(disk)),
                Err(turned_away) => {
                    self.fail(io, key, &turned_away.into());
                    return true;
                }
            }
        }
        if let Some(disk) = conn.disk() {
            arrivals.take_faults(Client::Nbd(key), disk, &mut conn.faults);
        }
        // Requests that came before the fault are done.
        self.broken = outcome.err().map(|error| (key, error));
        true
    }

    fn go_on(&mut self) -> bool {
        let granted = self.shared.budget.granted();
        for key in &granted {
            if let Some(conn) = self.conns.get_mut(*key) {
                conn.granted();
                self.list(*key);
            }
        }
        !granted.is_empty()
    }

    fn pump(&mut self, now: Instant, io: &mut Reactor, left: &mut Vec<Witness>) {
        for key in std::mem::take(&mut self.listed) {
            // An error is the next wait's as well.
            let _ = io.ring.reap();
            let conn = &mut self.conns[key];
            conn.listed = false;
            match conn.pump(now, &mut self.shared.with(io)) {
                Ok(true) => self.unfinished.push(key),
                Ok(false) => {}
                Err(error) => {
                    self.fail(io, key, &error);
                    // The calls that follow do all the work that the connection has.
                    self.listed.retain(|other| *other != key);
                    self.conns[key].listed = false;
                }
            }
            let conn = &mut self.conns[key];
            if conn.is_finished() {
                conn.kill(&mut self.shared.with(io));
            }
            if conn.is_idle() {
                let conn = self.conns.remove(key);
                left.extend(conn.witness);
                conn.dismantle(&mut self.shared.with(io));
                self.door.leave(key);
                continue;
            }
            self.leavers |= conn.is_dead() && !std::mem::replace(&mut conn.missed, true);
            if conn.wants_turn() {
                self.unfinished.push(key);
            }
            if conn.progress().is_owing() && !conn.timed {
                conn.timed = true;
                let at = now + Span::from(self.limits.progress_timeout);
                io.timers.add(at, NbdTimer::Conn(key, conn.serial).into());
            }
        }
        self.watch_memory(now, io);
        self.watch_answers(io);
    }

    fn has_leavers(&mut self) -> bool {
        std::mem::take(&mut self.leavers)
    }

    fn has_more(&self) -> bool {
        !self.unfinished.is_empty() || self.shared.budget.has_granted()
    }

    fn is_gone(&self, client: usize) -> bool {
        self.conns[client].is_dead()
    }

    fn peer(&self, client: usize) -> Peer {
        self.door.peer(client)
    }

    fn witness(&mut self, client: usize) -> &mut Option<Witness> {
        &mut self.conns[client].witness
    }

    fn reply(
        &mut self,
        client: usize,
        io: &mut Reactor,
        reply: ReplyHandle,
        op: Op,
        result: Result<Body, Failure>,
    ) {
        self.conns[client].reply(&mut self.shared.with(io), reply, op, result);
        self.list(client);
    }

    fn offer(&mut self, disk: usize, offered: &Offered, listen: &[Address]) {
        self.offers.add(disk, offered, listen);
    }

    fn withdraw(&mut self, disk: usize, offered: &Offered, listen: &[Address]) {
        self.offers.remove(disk, offered, listen);
    }

    /// NBD has no word from server to client for it: a client learns the size when it connects. So
    /// new connections see the new size. Existing connections keep their size, except for the part
    /// that is gone.
    fn resized(&mut self, disk: usize, size: u64) {
        let conns = self.conns.iter_mut().filter(|(_, conn)| conn.disk() == Some(disk));
        conns.for_each(|(_, conn)| conn.shrink(size));
    }

    fn count(&self, clients: &mut HashMap<usize, usize>) {
        for disk in self.conns.iter().filter_map(|(_, conn)| conn.disk()) {
            *clients.entry(disk).or_insert(0) += 1;
        }
    }

    fn serves(&self, disk: usize) -> bool {
        self.conns.iter().any(|(_, conn)| conn.disk() == Some(disk))
    }

    fn finish(&mut self, disk: usize) {
        self.finish_all(|conn| conn.disk() == Some(disk));
    }

    fn kill(&mut self, io: &mut Reactor, disk: usize) {
        for key in self.keys(|conn| conn.disk() == Some(disk)) {
            self.conns[key].kill(&mut self.shared.with(io));
            self.list(key);
        }
    }

    fn stop(&mut self, _: &mut Reactor) {
        self.pace.retain(|_| false);
        self.finish_all(|_| true);
    }

    fn close(&mut self, _: &mut Reactor) {
        // After a panic nothing is known of budget and pool, which are dropped with the engine.
        self.conns.iter().for_each(|(_, conn)| conn.shut_down());
    }

    fn has_clients(&self) -> bool {
        !self.conns.is_empty()
    }
}
