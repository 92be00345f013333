//! Marks of the datagrams that this host has sent last.

use std::collections::{HashSet, VecDeque};

use super::datagram::Mark;

/// The last marks, and the number of all marks since the start.
#[derive(Debug)]
pub(super) struct Marks {
    most: usize,
    order: VecDeque<Mark>,
    known: HashSet<Mark>,
    count: u64,
}

impl Marks {
    pub(super) fn new(most: usize) -> Marks {
        Marks { most, order: VecDeque::new(), known: HashSet::new(), count: 0 }
    }

    pub(super) fn add(&mut self, mark: Mark) {
        self.count += 1;
        if self.order.len() == self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(mark);
        self.known.insert(mark);
    }

    pub(super) fn contains(&self, mark: Mark) -> bool {
        self.known.contains(&mark)
    }

    /// Number of marks added since the start.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut marks = Marks::new(3);
        for i in 0..5 {
            marks.add(Mark(i));
        }
        assert_eq!(
            (0..5).map(|i| marks.contains(Mark(i))).collect::<Vec<_>>(),
            [false, false, true, true, true]
        );
        assert_eq!((marks.count(), marks.order.len(), marks.known.len()), (5, 3, 3));
    }
}
