//! One turn after the other: what a turn waits for, and how much it does.

use std::io;
use std::time::Duration;

use parda_control::{Dispatch, Instant, Span};

use super::Engine;
use super::copied::Copied;
use crate::backend::{Backend, Request};
use crate::front::any;
use crate::front::front_end::FrontEnd;
use crate::reactor::Tag;
use crate::spin::Awaited;

impl Engine {
    /// One turn after the other, until the volume is told to end. `Err`: the ring failed.
    pub(super) fn turns(&mut self) -> io::Result<()> {
        self.work.io.ring.poll(&self.mailbox.bell(), Tag::Mailbox);
        let mut now = self.now();
        self.pump(now);
        while !self.is_over(now) {
            now = self.wait(now)?;
            self.turn(now);
        }
        Ok(())
    }

    /// Waits for something to do, after a turn that began at `began`. Returns the time.
    pub(super) fn wait(&mut self, began: Instant) -> io::Result<Instant> {
        let timeout = self.timeout();
        let awaited = match self.work.requests.len() {
            0 => Awaited::Clients,
            n if n == self.work.io.ring.writing() => Awaited::Writers,
            _ => Awaited::Devices,
        };
        // The kernel gets now what this turn has begun.
        let waits = self.now();
        self.spin.wait(&mut self.work.io.ring, timeout, awaited, &mut self.fronts)?;
        let now = self.now();
        // All completions until now are seen before any peer is judged late: this thread may have been stopped.
        self.work.io.ring.reap()?;
        self.delays.turn(now, waits, waits.since(began), &mut self.work.requests);
        Ok(now)
    }

    /// Does all that is to be done now. A request goes through [`Engine::steps`], in one turn or several.
    pub(super) fn turn(&mut self, now: Instant) {
        self.copied = Copied::default();
        while let Some((tag, end)) = self.work.io.ring.next() {
            self.completed(now, tag, end);
        }
        self.timers(now);
        self.go_on(now);
        self.move_on(now);
        self.let_go(now);
        self.check();
    }

    /// The steps of a request, repeated until nothing moves any more: parse, admit, limit, start, complete, reply.
    pub(super) fn steps(&mut self, now: Instant) {
        loop {
            for (key, outcome) in std::mem::take(&mut self.work.finished) {
                // Completes it, and replies to it, unless a piece of it follows or another sync is waited for.
                self.data_done(now, key, outcome);
            }
            // Clients take turns.
            for client in 0.. {
                if !self.parse(client) {
                    break;
                }
                self.admit(now);
            }
            while let Some(key) = self.limit(now) {
                self.start(now, key);
            }
            if !any!(self.fronts, go_on()) && self.work.finished.is_empty() {
                break;
            }
        }
    }

    /// Parses the requests of the `i`th client of each front end. False if there is none.
    fn parse(&mut self, i: usize) -> bool {
        any!(self.fronts, take(i, &mut self.work.io, &mut self.arrivals))
    }

    /// Checks between two turns that each IO that the gate and the queue count is one request. Each
    /// dispatched request is one that the gate counts. Finished requests are replied to, except for
    /// pieces that go on and syncs that wait for others.
    fn check(&self) {
        let (host, requests) = (&self.host, &self.work.requests);
        assert!(host.outstanding() + host.held() <= requests.len());
        let dispatched = || requests.iter().filter(|(_, request)| request.id.is_some()).count();
        debug_assert_eq!(dispatched(), host.outstanding());
        debug_assert!(requests.iter().all(|(_, r)| self.disks.contains(r.disk)));
        let done = requests.iter().filter(|(_, r)| r.outcome.is_some() && !r.modelled);
        let waiting: usize = self.disks.iter().map(|(_, disk)| disk.losses.waiting()).sum();
        debug_assert_eq!(done.count(), self.pieces.len() + waiting);
    }

    /// Time until something needs to be done if nothing happens.
    fn timeout(&self) -> Option<Duration> {
        if any!(self.fronts, has_more()) || !self.pieces.is_empty() || self.copied.held_up {
            return Some(Duration::ZERO);
        }
        let next = [
            self.host.next_wakeup(),
            self.model.as_ref().and_then(|m| m.next()),
            self.work.io.timers.next(),
            self.retries.next(),
            self.stop_by,
            self.next_look(),
        ]
        .into_iter()
        .flatten()
        .chain(self.disks.close_at())
        .min()?;
        Some(next.since(self.now()).into())
    }

    /// IOs that may be dispatched in this turn.
    pub(super) fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        if self.copied.is_enough(self.work.requests.len()) {
            self.copied.held_up = self.host.held() > 0;
            return None;
        }
        self.host.next_dispatch(now)
    }

    /// Upper bound of the time that the array had a request. A model's IOs are this thread's.
    pub(super) fn device_time(&self, now: Instant, request: &Request) -> Span {
        if self.model.is_some() {
            return Span(u64::MAX);
        }
        let is_file = matches!(self.disks[request.disk].backend, Backend::File(_));
        let took = if is_file { request.took } else { Span(u64::MAX) };
        self.delays.device_time(now, &self.host, took, request)
    }
}
