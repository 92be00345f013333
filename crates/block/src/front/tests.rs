//! A front end in this process: tests hand requests over without a socket, in memory of their own.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use parda_address::Address;
use parda_control::Instant;
use parda_disk::{Failure, Op};

use super::front_end::FrontEnd;
use super::listener::Place;
use crate::backend::{Arrivals, Request};
use crate::buffer::Buffer;
use crate::client::{Body, Client, Offered, ReplyHandle};
use crate::losses::Witness;
use crate::reactor::Reactor;

/// Reply to a request: its handle, and the result.
pub(crate) type Reply = (u64, Result<Body, Failure>);

#[derive(Default)]
struct Guest {
    disk: usize,
    asked: Vec<Request>,
    in_flight: usize,
    replies: Vec<Reply>,
    witness: Option<Witness>,
    gone: bool,
    leaves: bool,
}

/// Clients that are functions of a test.
#[derive(Default)]
pub(crate) struct Local {
    guests: Vec<Option<Guest>>,
}

impl Local {
    /// A new client of a disk.
    pub(crate) fn connect(&mut self, disk: usize) -> usize {
        self.guests.push(Some(Guest { disk, ..Guest::default() }));
        self.guests.len() - 1
    }

    fn guest(&mut self, client: usize) -> &mut Guest {
        self.guests[client].as_mut().unwrap()
    }

    /// Asks for something in the next turn.
    pub(crate) fn ask(&mut self, client: usize, handle: u64, op: Op, buffer: Option<Buffer>) {
        let guest = self.guest(client);
        let (disk, reply) = (guest.disk, ReplyHandle(handle));
        guest.asked.push(Request::new(Client::Local(client), disk, reply, op, buffer));
    }

    /// Replies that came since the last call.
    pub(crate) fn replies(&mut self, client: usize) -> Vec<Reply> {
        std::mem::take(&mut self.guest(client).replies)
    }

    /// The client is gone.
    pub(crate) fn leave(&mut self, client: usize) {
        let guest = self.guest(client);
        (guest.gone, guest.leaves) = (true, true);
    }
}

impl FrontEnd for Local {
    fn admit(&mut self, _: Instant, _: &mut Reactor, _: &Rc<Place>, _: OwnedFd) {}

    fn next_accept(&mut self, _: Instant) -> Option<Instant> {
        None
    }

    fn turn(&mut self, _: Instant) {}

    fn take(&mut self, i: usize, _: &mut Reactor, arrivals: &mut Arrivals) -> bool {
        let Some(guest) = self.guests.get_mut(i) else { return false };
        if let Some(guest) = guest {
            guest.in_flight += guest.asked.len();
            arrivals.requests.append(&mut guest.asked);
        }
        true
    }

    fn pump(&mut self, _: Instant, _: &mut Reactor, left: &mut Vec<Witness>) {
        for guest in &mut self.guests {
            let gone = guest.take_if(|guest| guest.gone && guest.in_flight == 0);
            left.extend(gone.and_then(|guest| guest.witness));
        }
    }

    fn has_leavers(&mut self) -> bool {
        let guests = self.guests.iter_mut().flatten();
        guests.map(|guest| std::mem::take(&mut guest.leaves)).max() == Some(true)
    }

    fn has_more(&self) -> bool {
        self.guests.iter().flatten().any(|guest| !guest.asked.is_empty())
    }

    fn is_gone(&self, client: usize) -> bool {
        self.guests[client].as_ref().is_none_or(|guest| guest.gone)
    }

    fn witness(&mut self, client: usize) -> &mut Option<Witness> {
        &mut self.guest(client).witness
    }

    fn reply(
        &mut self,
        client: usize,
        _: &mut Reactor,
        reply: ReplyHandle,
        _: Op,
        result: Result<Body, Failure>,
    ) {
        let guest = self.guest(client);
        guest.in_flight -= 1;
        guest.replies.push((reply.0, result));
    }

    fn offer(&mut self, _: usize, _: &Offered, _: &[Address]) {}

    fn withdraw(&mut self, _: usize, _: &Offered, _: &[Address]) {}

    fn resized(&mut self, _: usize, _: u64) {}

    fn count(&self, clients: &mut HashMap<usize, usize>) {
        for guest in self.guests.iter().flatten() {
            *clients.entry(guest.disk).or_insert(0) += 1;
        }
    }

    fn serves(&self, disk: usize) -> bool {
        self.guests.iter().flatten().any(|guest| guest.disk == disk)
    }

    fn finish(&mut self, disk: usize) {
        self.guests.iter_mut().flatten().filter(|g| g.disk == disk).for_each(|g| g.gone = true);
    }

    fn kill(&mut self, _: &mut Reactor, disk: usize) {
        self.finish(disk);
    }

    fn stop(&mut self, _: &mut Reactor) {
        self.guests.iter_mut().flatten().for_each(|guest| guest.gone = true);
    }

    fn close(&mut self, _: &mut Reactor) {}

    fn has_clients(&self) -> bool {
        self.guests.iter().any(Option::is_some)
    }
}
