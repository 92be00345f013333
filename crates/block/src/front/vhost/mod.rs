//! Guests by vhost-user. Their memory and queues are shared, so that data goes between disk and guest memory without a copy. The virtio
//! part is in `parda-vhost`.
//!
//! Each address is of one disk, which has one front end at a time. A front end waits for unanswered requests of the one before it: the
//! guest may bring the same requests again.
//!
//! QEMU 7.2 never comes back from a connection that ends before its handshake is done. So no connection is accepted and closed while the
//! front end may be right.

mod guest;
mod lane;
pub(crate) mod mail;
mod pieces;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use parda_address::{Address, Protocol};
use parda_control::{Instant, Span};
use parda_disk::{Failure, Op};
use parda_vhost::Broken;
use parda_vhost::blk::Scratch;
use slab::Slab;

use self::guest::{Copies, Guest, Next, State};
use self::mail::{GuestMail, GuestNews};
use super::AgentMemory;
use crate::backend::Arrivals;
use crate::backend::check_guests;
use crate::client::{Body, Client, Offered, ReplyHandle};
use crate::config::Limits;
use crate::descriptors;
use crate::front::front_end::FrontEnd;
use crate::front::listener::Place;
use crate::losses::Witness;
use crate::mailbox::Mailer;
use crate::reactor::{Reactor, VhostTimer};
use crate::ring::End;

/// Pause of a listener after each connection. A client that connects over and over costs little.
const ACCEPT_PAUSE: Span = Span::from_millis(20);

/// Time that a front end waits for another one that shows no sign of ending.
const PATIENCE: Span = Span::from_millis(5000);

/// Time from the start of a front end's first queue until it is told the size of the disk. An agent before this one may
/// have served another size. QEMU 7.2 would ask for the size in the midst of its start.
const STARTS: Span = Span::from_millis(1000);

/// Time between two looks at a queue without kicks, while the thread sleeps.
const POLL: Span = Span::from_micros(500);

/// Time between two requests for memory.
const MEMORY_PAUSE: Span = Span::from_millis(5);

const TURNED_AWAY: &str = "turned a front end away: this disk has another one";

/// The guests of a volume.
pub(crate) struct Vhost {
    volume: String,
    limits: Limits,
    memory: AgentMemory,
    mailer: Mailer,
    /// The disk at each address.
    offers: HashMap<Address, (usize, Offered)>,
    guests: Slab<Guest>,
    next_serial: u64,
    scratch: Scratch,
    turn: u64,
    /// Guests that have something to do this turn.
    listed: Vec<usize>,
    /// Guests that are looked at in each turn, until they are asked to kick because the thread sleeps.
    watched: Vec<usize>,
    /// Guests that have broken the protocol.
    broken: u64,
    /// A guest has gone, with requests unanswered, or has broken the rules, or a queue of it is to stop.
    leavers: bool,
    stopped: bool,
    now: Instant,
}

impl Vhost {
    pub(crate) fn new(
        volume: String,
        limits: Limits,
        memory: AgentMemory,
        mailer: Mailer,
    ) -> Vhost {
        Vhost {
            volume,
            limits,
            memory,
            mailer,
            offers: HashMap::new(),
            guests: Slab::new(),
            next_serial: 0,
            scratch: Scratch::default(),
            turn: 0,
            listed: Vec::new(),
            watched: Vec::new(),
            broken: 0,
            leavers: false,
            stopped: false,
            now: Instant::default(),
        }
    }

    /// Number of connected guests.
    pub(crate) fn guests(&self) -> usize {
        self.guests.len()
    }

    /// Guests that have broken the protocol.
    pub(crate) fn broken(&self) -> u64 {
        self.broken
    }

    /// A timer is due.
    pub(crate) fn timer(&mut self, now: Instant, io: &mut Reactor, timer: VhostTimer) {
        match timer {
            // They ask again.
            VhostTimer::Waiting => self.list_all(Guest::waits_for_memory),
            VhostTimer::Next(guest, serial) => self.look_at_next(now, io, guest, serial),
            VhostTimer::Poll(key, serial) => {
                let guest = self.guests.get_mut(key).filter(|guest| guest.serial == serial);
                if let Some(guest) = guest.filter(|guest| guest.is_polled()) {
                    guest.poll();
                    self.list(key);
                    io.timers.ensure(now + POLL, VhostTimer::Poll(key, serial).into());
                }
            }
            VhostTimer::Size(key, serial) => {
                let guest = self.guests.get(key).filter(|guest| guest.serial == serial);
                guest.into_iter().for_each(Guest::tell_size);
            }
        }
    }

    /// Checks a front end that waits for the end of another one. The waiting one is turned away unless the other is ending.
    fn look_at_next(&mut self, now: Instant, io: &mut Reactor, key: usize, serial: u64) {
        let Some(guest) = self.guests.get_mut(key).filter(|guest| guest.serial == serial) else {
            return;
        };
        let ends = guest.is_ending();
        let Some(next) = guest.next.as_mut().filter(|next| now >= next.until) else { return };
        if ends {
            next.until = now + PATIENCE;
            io.timers.add(next.until, VhostTimer::Next(key, serial).into());
        } else {
            guest.next = None;
            let (volume, disk) = (&self.volume, guest.offered.name.as_str());
            tracing::warn!(volume, disk, "{TURNED_AWAY}");
        }
    }

    fn serve(&mut self, io: &mut Reactor, place: &Place, fd: OwnedFd) {
        let offer = self.offers.get(&place.address).filter(|_| !self.stopped);
        let Some((disk, offered)) = offer.cloned() else { return };
        let name = (self.guests.vacant_key(), self.next_serial);
        self.next_serial += 1;
        let served = fd
            .try_clone()
            .and_then(|socket| mail::serve(socket, offered.geometry, name, self.mailer.clone()));
        if let Err(error) = served {
            tracing::warn!(volume = self.volume, %error, "cannot serve a front end");
            return;
        }
        let key = self.guests.insert(Guest::new(name, (disk, offered), fd));
        assert_eq!(key, name.0);
        // The ring may have been idle.
        let _ = io.ring.reap();
    }

    /// Mail of a control socket.
    pub(crate) fn mail(&mut self, now: Instant, io: &mut Reactor, mail: GuestMail) {
        let GuestMail { guest: key, serial, what } = mail;
        let Some(guest) = self.guests.get_mut(key).filter(|guest| guest.serial == serial) else {
            return;
        };
        match what {
            GuestNews::Order(..) if guest.state == State::Gone => {}
            GuestNews::Order(order, done) => {
                if let Err(broken) = guest.order(io, order, done) {
                    self.stop_guest(key, broken);
                }
                let guest = &mut self.guests[key];
                self.leavers |= guest.is_stopping();
                if guest.is_polled() {
                    io.timers.ensure(now + POLL, VhostTimer::Poll(key, serial).into());
                }
                if guest.is_started() && !std::mem::replace(&mut guest.started, true) {
                    io.timers.add(now + STARTS, VhostTimer::Size(key, serial).into());
                }
            }
            GuestNews::Gone(why) => {
                if let Some(why) = why.filter(|_| guest.state == State::Open) {
                    let (volume, disk) = (&self.volume, guest.offered.name.as_str());
                    tracing::warn!(volume, disk, why, "gave up the connection of a front end");
                    self.broken += 1;
                }
                guest.kill(io);
            }
        }
        self.list(key);
    }

    /// A guest broke the rules: nothing more is taken from it, or written to its queues, until it is reset.
    fn stop_guest(&mut self, key: usize, why: Broken) {
        let guest = &mut self.guests[key];
        if !std::mem::replace(&mut guest.broken, true) {
            self.broken += 1;
            let (volume, disk) = (&self.volume, guest.offered.name.as_str());
            tracing::warn!(
                volume,
                disk,
                why = %why,
                "the guest broke the rules of virtio: its disk stops until the guest is reset"
            );
        }
    }

    /// A queue of a guest was kicked, or is not watched any more.
    pub(crate) fn kicked(&mut self, io: &mut Reactor, key: usize, queue: u16, end: &End) {
        self.guests[key].kicked(io, queue, !end.more);
        self.list(key);
    }

    /// Whether there are guests that were not asked to kick.
    pub(crate) fn is_awake(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether guests have requests of which the ring does not tell.
    pub(crate) fn has_news(&self) -> bool {
        self.watched.iter().any(|key| self.guests[*key].has_news())
    }

    /// Asks all guests to kick for their next requests, as the thread is about to sleep. `false` if there is one already.
    pub(crate) fn ask_for_kicks(&mut self) -> bool {
        let mut sleeps = true;
        for key in std::mem::take(&mut self.watched) {
            let guest = &mut self.guests[key];
            match guest.ask_for_kick() {
                Ok(true) => guest.watched = false,
                Ok(false) => {
                    self.watched.push(key);
                    sleeps = false;
                }
                Err(broken) => {
                    guest.watched = false;
                    self.stop_guest(key, broken);
                }
            }
        }
        sleeps
    }

    fn list(&mut self, key: usize) {
        let guest = &mut self.guests[key];
        if !guest.listed {
            guest.listed = true;
            self.listed.push(key);
        }
    }

    fn list_all(&mut self, which: impl Fn(&Guest) -> bool) {
        let keys = self.guests.iter().filter(|(_, guest)| which(guest)).map(|(key, _)| key);
        keys.collect::<Vec<_>>().into_iter().for_each(|key| self.list(key));
    }

    fn finish_all(&mut self, which: impl Fn(&Guest) -> bool) {
        for (_, guest) in self.guests.iter_mut().filter(|(_, guest)| which(guest)) {
            guest.finish();
        }
        self.list_all(which);
    }
}

impl FrontEnd for Vhost {
    /// A new front end waits for the end of the one before it.
    fn admit(&mut self, now: Instant, io: &mut Reactor, place: &Rc<Place>, fd: OwnedFd) {
        let (volume, address) = (&self.volume, &place.address);
        if descriptors::is_reserved(&fd) {
            tracing::warn!(volume, %address, "no descriptor is left for a front end: raise LimitNOFILE=");
            return;
        }
        // A disk that is not open yet, or not any more, has nobody for it.
        let Some((disk, _)) = self.offers.get(address) else { return };
        let Some((key, guest)) = self.guests.iter_mut().find(|(_, guest)| guest.disk == *disk)
        else {
            return self.serve(io, place, fd);
        };
        let until = now + PATIENCE;
        if guest.next.replace(Next { place: Rc::clone(place), fd, until }).is_some() {
            tracing::warn!(volume, disk = guest.offered.name.as_str(), "{TURNED_AWAY}");
        }
        io.timers.add(until, VhostTimer::Next(key, guest.serial).into());
    }

    fn next_accept(&mut self, now: Instant) -> Option<Instant> {
        Some(now + ACCEPT_PAUSE)
    }

    fn turn(&mut self, now: Instant) {
        self.now = now;
        self.turn += 1;
        for at in 0..self.watched.len() {
            self.list(self.watched[at]);
        }
    }

    fn take(&mut self, i: usize, io: &mut Reactor, arrivals: &mut Arrivals) -> bool {
        let Some(&key) = self.listed.get(i) else { return false };
        // An error is the next wait's as well.
        let _ = io.ring.reap();
        let guest = &mut self.guests[key];
        let copies = Copies { agent: &self.memory, most: self.limits.memory_per_connection };
        let before = arrivals.requests.len();
        let taken = guest.take(self.turn, &copies, &mut self.scratch, &mut arrivals.requests);
        // One that has waited for memory.
        self.leavers |= arrivals.requests.len() > before && guest.is_stopping();
        if arrivals.requests.len() > before && !std::mem::replace(&mut guest.begun, true) {
            arrivals.begun.push(guest.disk);
        }
        arrivals.take_faults(Client::Vhost(key), guest.disk, &mut guest.faults);
        if guest.waits_for_memory() {
            io.timers.ensure(self.now + MEMORY_PAUSE, VhostTimer::Waiting.into());
        }
        if let Err(broken) = taken {
            self.stop_guest(key, broken);
        }
        true
    }

    fn pump(&mut self, _: Instant, io: &mut Reactor, left: &mut Vec<Witness>) {
        for key in std::mem::take(&mut self.listed) {
            let guest = &mut self.guests[key];
            guest.listed = false;
            if !std::mem::replace(&mut guest.watched, true) {
                self.watched.push(key);
            }
            if let Err(broken) = guest.notify(io) {
                self.stop_guest(key, broken);
            }
            let guest = &mut self.guests[key];
            if guest.is_drained() {
                guest.kill(io);
            }
            if guest.is_idle() {
                let guest = self.guests.remove(key);
                self.watched.retain(|other| *other != key);
                left.extend(guest.witness);
                if let Some(next) = guest.next {
                    self.serve(io, &next.place, next.fd);
                }
                continue;
            }
            let missed = guest.is_gone();
            self.leavers |= missed && !std::mem::replace(&mut guest.missed, missed);
        }
    }

    fn has_leavers(&mut self) -> bool {
        std::mem::take(&mut self.leavers)
    }

    fn has_more(&self) -> bool {
        self.has_news()
    }

    fn is_gone(&self, client: usize) -> bool {
        self.guests[client].is_gone()
    }

    fn is_awaited(&self, client: usize, reply: ReplyHandle) -> bool {
        self.guests[client].is_awaited(reply)
    }

    fn witness(&mut self, client: usize) -> &mut Option<Witness> {
        &mut self.guests[client].witness
    }

    fn reply(
        &mut self,
        client: usize,
        io: &mut Reactor,
        reply: ReplyHandle,
        _: Op,
        result: Result<Body, Failure>,
    ) {
        if let Err(broken) = self.guests[client].reply(reply, &result) {
            self.stop_guest(client, broken);
        }
        if let Ok(Body::Data(buffer)) = result {
            io.pool.put(buffer);
        }
        self.list(client);
    }

    fn offer(&mut self, disk: usize, offered: &Offered, listen: &[Address]) {
        if let Err(error) = check_guests(&offered.geometry, listen) {
            // Its place was changed while it was open; when it is opened again, it is refused.
            let volume = &self.volume;
            tracing::error!(volume, disk = offered.name.as_str(), "not offered to guests: {error}");
            return;
        }
        for address in listen.iter().filter(|address| address.protocol() == Protocol::Vhost) {
            self.offers.insert(address.clone(), (disk, offered.clone()));
        }
    }

    fn withdraw(&mut self, disk: usize, _: &Offered, listen: &[Address]) {
        for address in listen {
            if self.offers.get(address).is_some_and(|(other, _)| *other == disk) {
                self.offers.remove(address);
            }
        }
    }

    fn resized(&mut self, disk: usize, size: u64) {
        let guests = self.guests.iter_mut().filter(|(_, guest)| guest.disk == disk);
        guests.for_each(|(_, guest)| guest.resized(size));
    }

    fn count(&self, clients: &mut HashMap<usize, usize>) {
        for (_, guest) in self.guests.iter().filter(|(_, guest)| guest.state != State::Gone) {
            *clients.entry(guest.disk).or_insert(0) += 1;
        }
    }

    fn serves(&self, disk: usize) -> bool {
        self.guests.iter().any(|(_, guest)| guest.disk == disk)
    }

    fn finish(&mut self, disk: usize) {
        self.finish_all(|guest| guest.disk == disk);
    }

    fn kill(&mut self, io: &mut Reactor, disk: usize) {
        for (_, guest) in self.guests.iter_mut().filter(|(_, guest)| guest.disk == disk) {
            guest.kill(io);
        }
        self.list_all(|guest| guest.disk == disk);
    }

    fn stop(&mut self, _: &mut Reactor) {
        self.stopped = true;
        self.finish_all(|_| true);
    }

    fn close(&mut self, io: &mut Reactor) {
        self.guests.iter_mut().for_each(|(_, guest)| guest.shut_down(io));
    }

    fn has_clients(&self) -> bool {
        !self.guests.is_empty()
    }
}
