//! The interface between the engine and a front end.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use parda_address::Address;
use parda_control::Instant;
use parda_disk::{Failure, Op};

use crate::backend::Arrivals;
use crate::client::{Body, Offered, ReplyHandle};
use crate::front::listener::Place;
use crate::losses::Witness;
use crate::peer::Peer;
use crate::reactor::Reactor;

/// Server of one protocol: where requests come from, and replies go to. Clients are known by a key.
///
/// Order of the calls in a turn of the engine: results of its operations of the ring, [`FrontEnd::turn`], its timers. Then requests
/// ([`FrontEnd::take`]) and replies ([`FrontEnd::reply`]) until nothing moves any more, and [`FrontEnd::pump`]. Each request gets exactly
/// one reply, also if its client is gone. Until then the client's key is not used again.
pub(crate) trait FrontEnd {
    /// Takes a new connection, or closes it.
    fn admit(&mut self, now: Instant, io: &mut Reactor, place: &Rc<Place>, fd: OwnedFd);

    /// A connection was accepted, or gone before. When to accept the next one there, if not now.
    fn next_accept(&mut self, now: Instant) -> Option<Instant>;

    /// A listener is closed. A client that connected through it and is still in its handshake loses
    /// the connection.
    fn unlisten(&mut self, _io: &mut Reactor, _place: &Rc<Place>) {}

    /// A turn of the engine begins.
    fn turn(&mut self, now: Instant);

    /// Takes the requests of the `i`th client that has something to do; `false` if there is none.
    fn take(&mut self, i: usize, io: &mut Reactor, arrivals: &mut Arrivals) -> bool;

    /// Lets clients go on whose wait for memory is over; `false` if there are none.
    fn go_on(&mut self) -> bool {
        false
    }

    /// Begins what is to be done on sockets and descriptors. `left` gets the witnesses of clients that
    /// are gone.
    fn pump(&mut self, now: Instant, io: &mut Reactor, left: &mut Vec<Witness>);

    /// Whether clients have gone, or want to stop, since the last call, whose requests may be held.
    fn has_leavers(&mut self) -> bool;

    /// Whether clients have something to do that was left for the next turn.
    fn has_more(&self) -> bool;

    /// Whether replies to this client reach nobody any more.
    fn is_gone(&self, client: usize) -> bool;

    /// Whether the client wants to stop, and waits for this request.
    fn is_awaited(&self, _client: usize, _reply: ReplyHandle) -> bool {
        false
    }

    /// Peer of the client, where clients take turns.
    fn peer(&self, _client: usize) -> Peer {
        Peer::Unknown
    }

    /// Failed syncs that the client was told of.
    fn witness(&mut self, client: usize) -> &mut Option<Witness>;

    /// Replies to a request.
    fn reply(
        &mut self,
        client: usize,
        io: &mut Reactor,
        reply: ReplyHandle,
        op: Op,
        result: Result<Body, Failure>,
    );

    /// Offers a disk at addresses, or offers it there as it is now.
    fn offer(&mut self, disk: usize, offered: &Offered, listen: &[Address]);

    /// Offers a disk no more.
    fn withdraw(&mut self, disk: usize, offered: &Offered, listen: &[Address]);

    /// A disk has another size, in bytes.
    fn resized(&mut self, disk: usize, size: u64);

    /// Adds the number of clients of each disk.
    fn count(&self, clients: &mut HashMap<usize, usize>);

    /// Whether a disk has clients.
    fn serves(&self, disk: usize) -> bool;

    /// Takes no more requests of a disk; what is in flight is answered.
    fn finish(&mut self, disk: usize);

    /// Ends the connections of a disk though requests are not answered.
    fn kill(&mut self, io: &mut Reactor, disk: usize);

    /// Takes no more clients and no more requests.
    fn stop(&mut self, io: &mut Reactor);

    /// Ends all operations of the ring, after anything, also a panic.
    fn close(&mut self, io: &mut Reactor);

    fn has_clients(&self) -> bool;
}
