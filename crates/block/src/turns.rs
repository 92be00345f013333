//! A queue in which peers take turns.

use std::collections::VecDeque;

use crate::peer::Peer;

/// Queue: for each peer in the order in which it came, and one of each peer in each round. So
/// a peer with many of them delays another by one of its own, not by all.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    peers: VecDeque<(Peer, VecDeque<T>)>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { peers: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    /// Adds something of `peer`, behind all that the peer has here.
    pub(crate) fn push(&mut self, peer: Peer, item: T) {
        match self.peers.iter_mut().find(|(known, _)| *known == peer) {
            Some((_, items)) => items.push_back(item),
            None => self.peers.push_back((peer, VecDeque::from([item]))),
        }
    }

    /// Takes the first of the peer whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<(Peer, T)> {
        let (peer, mut items) = self.peers.pop_front()?;
        let item = items.pop_front()?;
        if !items.is_empty() {
            self.peers.push_back((peer, items));
        }
        Some((peer, item))
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.peers.iter().map(|(_, items)| items.len()).sum()
    }

    /// Takes the last of the peer that has most, unless `peer` has as many, or nobody has two.
    pub(crate) fn make_room_for(&mut self, peer: Peer) -> Option<(Peer, T)> {
        let of = |(known, items): &(Peer, VecDeque<T>)| (*known == peer).then_some(items.len());
        let own = self.peers.iter().find_map(of).unwrap_or(0);
        let (most, items) = self.peers.iter_mut().max_by_key(|(_, items)| items.len())?;
        // One is left of it, so its turn stays.
        (items.len() > own.max(1)).then(|| items.pop_back().map(|item| (*most, item)))?
    }

    /// Forgets what is not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.peers.iter_mut().for_each(|(_, items)| items.retain(&keep));
        self.peers.retain(|(_, items)| !items.is_empty());
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
        let first: Vec<_> = std::iter::from_fn(|| Some(turns.pop()?.1)).take(3).collect();
        assert_eq!(first, [(1, 0), (2, 0), (1, 1)]);
        // A peer that comes back waits for its turn as a new one does.
        turns.push(peer(2), (2, 1));
        let rest: Vec<_> = std::iter::from_fn(|| Some(turns.pop()?.1)).collect();
        assert_eq!(rest, [(1, 2), (2, 1), (1, 3)]);
        assert!(turns.peers.is_empty());
    }
}
