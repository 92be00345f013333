//! Admission of connections, those that overstay, and memory that is returned.

use std::os::fd::OwnedFd;

use parda_control::{Instant, Span};
use rustix::net::{self, sockopt};

use super::conn::{Conn, ConnError};
use super::door::TurnedAway;
use super::newcomer::Newcomer;
use super::progress::ClientState;
use super::{Nbd, pressure};
use crate::batch;
use crate::buffer::Pool;
use crate::peer::Peer;
use crate::reactor::{NbdTimer, Reactor};
use crate::stats::MemoryStats;

/// Time between two searches for memory that is not needed.
const TIDY: Span = Span::from_millis(2_000);

impl Nbd {
    /// Begins the handshakes that the pace allows now.
    pub(super) fn let_in(&mut self, now: Instant, io: &mut Reactor) {
        while let Some((peer, newcomer)) = self.pace.next(now) {
            self.greet(now, io, peer, newcomer);
        }
        if let Some(at) = self.pace.next_at() {
            io.timers.ensure(at, NbdTimer::Newcomers.into());
        }
    }

    pub(super) fn turn_away(&mut self, peer: Peer, error: TurnedAway) {
        tracing::info!(volume = self.volume, ?peer, %error, "turned a client away");
        self.dropped.turned_away += 1;
    }

    /// Begins the handshake of a new connection.
    fn greet(&mut self, now: Instant, io: &mut Reactor, peer: Peer, newcomer: Newcomer) {
        let Newcomer { place, fd } = newcomer;
        match self.door.knock(peer) {
            Err(error) => return self.turn_away(peer, error),
            Ok(Some(victim)) => self.fail(io, victim, &ConnError::MadeRoom),
            Ok(None) => {}
        }
        if place.is_tcp() {
            // Replies are sent whole, and a client that vanished without a word is noticed. A socket that
            // cannot be told so works as well.
            let _ = sockopt::set_tcp_nodelay(&fd, true);
            let _ = parda_dial::notice_silence(&fd, self.limits.progress_timeout);
        }
        let until = now + Span::from(self.limits.handshake_timeout);
        let entry = self.conns.vacant_entry();
        let key = entry.key();
        self.shared.budget.open(key, peer);
        let work = &mut self.shared.with(io);
        let conn = entry.insert(Conn::new(key, fd, place, until, work));
        conn.serial = self.next_serial;
        conn.timed = true;
        io.timers.add(until, NbdTimer::Conn(key, self.next_serial).into());
        self.next_serial += 1;
        self.door.enter(key, peer);
        self.list(key);
    }

    /// Looks at a connection whose time may be over.
    pub(super) fn look_at(&mut self, now: Instant, io: &mut Reactor, key: usize, serial: u64) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.serial == serial) else {
            return;
        };
        match conn.look(now, Span::from(self.limits.progress_timeout)) {
            Ok(ClientState::LookAgain(at)) => io.timers.add(at, NbdTimer::Conn(key, serial).into()),
            Ok(_) => conn.timed = false,
            Err(error) => self.fail(io, key, &error),
        }
    }

    /// Sees to it that clients which wait for memory and memory that waits for clients are looked
    /// at in time.
    pub(super) fn watch_memory(&mut self, now: Instant, io: &mut Reactor) {
        let budget = &self.shared.budget;
        io.pool.set_limit(budget.capacity() + self.conns.len() * batch::SMALL);
        if budget.waiting() > 0 || !self.pressure.is_over() {
            io.timers.ensure(now + pressure::LOOKS, NbdTimer::Waiting.into());
        }
        if io.pool.idle() > 0 {
            io.timers.ensure(now + TIDY, NbdTimer::Tidy.into());
        }
    }

    /// Sees to it that clients which wait for an answer have it in time.
    pub(super) fn watch_answers(&mut self, io: &mut Reactor) {
        if let Some(at) = self.shared.answers.next_at() {
            io.timers.ensure(at, NbdTimer::Answers.into());
        }
    }

    /// Looks at the clients that wait for memory, and at those that they wait for.
    pub(super) fn serve_waiting(&mut self, now: Instant, io: &mut Reactor) {
        self.shared.budget.serve();
        let patience = Span::from(self.limits.progress_timeout);
        for key in self.pressure.look(now, patience, &self.shared.budget, &mut self.conns) {
            self.fail(io, key, &ConnError::Stalled);
        }
    }

    /// Returns memory that was not needed for some time.
    pub(super) fn tidy(&mut self, now: Instant, io: &mut Reactor) {
        io.pool.cool();
        let mut large = false;
        for (_, conn) in &mut self.conns {
            large |= conn.tidy(&mut io.ring, &self.shared.budget);
        }
        if large {
            io.timers.ensure(now + TIDY, NbdTimer::Tidy.into());
        }
    }

    pub(super) fn count_dropped(&mut self, error: &ConnError) {
        let dropped = &mut self.dropped;
        *match error {
            ConnError::Slow | ConnError::MadeRoom => &mut dropped.handshake,
            ConnError::Stalled => &mut dropped.stalled,
            ConnError::Protocol(_) | ConnError::Injected => &mut dropped.protocol,
            ConnError::TurnedAway(_) | ConnError::NoMemory => &mut dropped.turned_away,
            ConnError::Io(_) | ConnError::Tls(_) => &mut dropped.socket,
        } += 1;
    }

    /// Memory that clients take.
    pub(crate) fn memory(&self, pool: &Pool) -> MemoryStats {
        let budget = &self.shared.budget;
        MemoryStats {
            buffers: pool.used(),
            idle: pool.idle(),
            granted: budget.used(),
            tls: budget.charged(),
            limit: budget.limit(),
            own: budget.own(),
            waiting: budget.waiting(),
            waits: budget.waits(),
        }
    }
}

/// Peer of a connection.
pub(super) fn peer(fd: &OwnedFd, is_tcp: bool) -> Peer {
    if is_tcp {
        let address = net::getpeername(fd).ok().flatten();
        let address = address.and_then(|a| std::net::SocketAddr::try_from(a).ok());
        return address.map_or(Peer::Unknown, |a| Peer::Host(a.ip().to_canonical()));
    }
    sockopt::socket_peercred(fd).map_or(Peer::Unknown, |credentials| Peer::Process {
        uid: credentials.uid.as_raw(),
        pid: credentials.pid.as_raw_nonzero().get(),
    })
}
