//! Policy for connections: which clients are admitted. No sockets here.
//!
//! A client is in the handshake until it has chosen an export. Handshakes have slots of their own,
//! so that silent sockets cannot keep others from the slots of clients. When all slots for
//! handshakes are taken, the peer with most of them loses its oldest handshake. A connection counts
//! against its volume, its export and its peer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::config::Limits;
use crate::peer::Peer;

/// Reason why a client is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TurnedAway {
    #[error("the volume has as many connections as connections allows")]
    Volume,
    #[error("the export has as many connections as connections_per_export allows")]
    Export,
    #[error("the peer has as many connections as connections_per_peer allows")]
    Peer,
    #[error("too many begin their handshake at once for handshakes_per_second")]
    Pace,
    #[error("the process has as many descriptors as its limit (RLIMIT_NOFILE) leaves to clients")]
    Descriptors,
}

struct Guest {
    peer: Peer,
    /// Handshakes in the order in which they began.
    turn: u64,
    /// The disk that it has chosen; none in the handshake.
    disk: Option<usize>,
}

/// The connections of a volume. They are counted where one comes: that costs less than its handshake.
pub(crate) struct Door {
    limits: Limits,
    guests: BTreeMap<usize, Guest>,
    next_turn: u64,
}

impl Door {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: *limits, guests: BTreeMap::new(), next_turn: 0 }
    }

    fn count(&self, which: impl Fn(&Guest) -> bool) -> usize {
        self.guests.values().filter(|guest| which(guest)).count()
    }

    /// Whether one more connection of this peer may begin its handshake. The key, if any, is of the
    /// connection to close for it.
    pub(crate) fn knock(&self, peer: Peer) -> Result<Option<usize>, TurnedAway> {
        if self.count(|guest| guest.peer == peer) >= self.limits.connections_per_peer {
            return Err(TurnedAway::Peer);
        }
        if self.count(|guest| guest.disk.is_none()) < self.limits.handshakes() {
            return Ok(None);
        }
        let mut of: HashMap<Peer, (usize, Reverse<u64>, usize)> = HashMap::new();
        for (key, guest) in self.guests.iter().filter(|(_, guest)| guest.disk.is_none()) {
            let (number, oldest, of_oldest) =
                of.entry(guest.peer).or_insert((0, Reverse(guest.turn), *key));
            *number += 1;
            (*oldest, *of_oldest) = (*oldest, *of_oldest).max((Reverse(guest.turn), *key));
        }
        Ok(of.into_values().max().map(|(.., of_oldest)| of_oldest))
    }

    /// A connection begins its handshake.
    pub(crate) fn enter(&mut self, key: usize, peer: Peer) {
        let turn = self.next_turn;
        self.next_turn += 1;
        let before = self.guests.insert(key, Guest { peer, turn, disk: None });
        assert!(before.is_none(), "the one before has left");
    }

    /// Whether a connection whose handshake chose this disk may be served. If so, whether it is the disk's only one.
    pub(crate) fn choose(&mut self, key: usize, disk: usize) -> Result<bool, TurnedAway> {
        if self.count(|guest| guest.disk.is_some()) >= self.limits.connections {
            return Err(TurnedAway::Volume);
        }
        let of_disk = self.count(|guest| guest.disk == Some(disk));
        if of_disk >= self.limits.connections_per_export {
            return Err(TurnedAway::Export);
        }
        if let Some(guest) = self.guests.get_mut(&key) {
            guest.disk = Some(disk);
        }
        Ok(of_disk == 0)
    }

    /// Peer of the connection.
    pub(crate) fn peer(&self, key: usize) -> Peer {
        self.guests.get(&key).map_or(Peer::Unknown, |guest| guest.peer)
    }

    /// A connection is gone.
    pub(crate) fn leave(&mut self, key: usize) {
        self.guests.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(connections: usize, per_export: usize, per_peer: usize) -> Door {
        Door::new(&Limits {
            connections,
            connections_per_export: per_export,
            connections_per_peer: per_peer,
            ..Limits::default()
        })
    }

    fn process(pid: i32) -> Peer {
        Peer::Process { uid: 0, pid }
    }

    /// As the engine does it: closes who makes room, then lets the newcomer in.
    fn enter(door: &mut Door, key: usize, peer: Peer) -> Result<Option<usize>, TurnedAway> {
        let victim = door.knock(peer)?;
        victim.into_iter().for_each(|victim| door.leave(victim));
        door.enter(key, peer);
        Ok(victim)
    }

    #[test]
    fn silent_sockets_never_keep_a_newcomer_out() {
        let mut door = door(1024, 1024, 1024);
        for key in 0..700 {
            enter(&mut door, key, process(1)).unwrap();
        }
        assert_eq!(door.guests.len(), 256);
        // The newcomer's handshake outlives any number of more of them.
        enter(&mut door, 1000, process(2)).unwrap();
        for key in 2000..4000 {
            assert_ne!(enter(&mut door, key, process(1)), Ok(Some(1000)));
        }
        assert_eq!(door.choose(1000, 0), Ok(true));
    }

    #[test]
    fn each_limit_turns_away_whom_it_is_for() {
        let mut door = door(5, 3, 3);
        for key in 0..3 {
            enter(&mut door, key, process(1)).unwrap();
            assert_eq!(door.choose(key, 0), Ok(key == 0));
        }
        assert_eq!(enter(&mut door, 9, process(1)), Err(TurnedAway::Peer));
        enter(&mut door, 3, process(2)).unwrap();
        assert_eq!(door.choose(3, 0), Err(TurnedAway::Export));
        door.leave(3);
        for key in 3..5 {
            enter(&mut door, key, process(2)).unwrap();
            door.choose(key, 1).unwrap();
        }
        enter(&mut door, 5, process(3)).unwrap();
        assert_eq!(door.choose(5, 1), Err(TurnedAway::Volume));
        (0..6).for_each(|key| door.leave(key));
        assert!(door.guests.is_empty());
    }
}
