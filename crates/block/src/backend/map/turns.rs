//! Requests that wait for one worker, of peers that take turns.

use std::collections::VecDeque;

use crate::peer::Peer;

/// What waits: for each peer in the order in which it came, and one of each peer in each round. So
/// a peer with many connections delays another's request by one of its own, not by all of them.
#[derive(Debug)]
pub(super) struct Turns<T> {
    peers: VecDeque<(Peer, VecDeque<T>)>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { peers: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    /// Adds a request of `peer`, behind all that the peer has here.
    pub(super) fn push(&mut self, peer: Peer, item: T) {
        match self.peers.iter_mut().find(|(known, _)| *known == peer) {
            Some((_, items)) => items.push_back(item),
            None => self.peers.push_back((peer, VecDeque::from([item]))),
        }
    }

    /// Takes the first request of the peer whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (peer, mut items) = self.peers.pop_front()?;
        let item = items.pop_front();
        if !items.is_empty() {
            self.peers.push_back((peer, items));
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Host([127, 0, 0, last].into())
    }

    #[test]
    fn peers_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        (0..4).for_each(|n| turns.push(peer(1), (1, n)));
        turns.push(peer(2), (2, 0));
        let first: Vec<_> = std::iter::from_fn(|| turns.pop()).take(3).collect();
        assert_eq!(first, [(1, 0), (2, 0), (1, 1)]);
        // A peer that comes back waits for its turn as a new one does.
        turns.push(peer(2), (2, 1));
        let rest: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(rest, [(1, 2), (2, 1), (1, 3)]);
        assert!(turns.peers.is_empty());
    }
}
