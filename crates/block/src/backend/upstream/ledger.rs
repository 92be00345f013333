//! Writes that a server may lose with a connection: acknowledged there, and not covered by a flush
//! since.

/// The writes of one connection, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ledger {
    /// Writes, trims and zeroes that were acknowledged and are not durable by themselves.
    acknowledged: u64,
    /// Number of these, from the first on, that a flush has covered.
    covered: u64,
}

/// Writes that a flush covers: all that were acknowledged when it was sent, and none after that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

impl Ledger {
    /// The server has acknowledged a write that is not durable by itself.
    pub(super) fn acknowledge(&mut self) {
        self.acknowledged += 1;
    }

    /// A flush is sent.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.acknowledged)
    }

    /// A flush has succeeded.
    pub(super) fn flushed(&mut self, Mark(covered): Mark) {
        assert!(covered <= self.acknowledged, "a flush covers writes of its own connection");
        self.covered = self.covered.max(covered);
    }

    /// Whether something is lost if the server loses all that is not durable.
    pub(super) fn is_dirty(&self) -> bool {
        self.acknowledged > self.covered
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A server that writes one by one to a volatile cache, and keeps what a flush finds there.
    #[derive(Default)]
    struct Server {
        acknowledged: BTreeSet<u32>,
        durable: BTreeSet<u32>,
    }

    #[test]
    fn it_is_dirty_exactly_when_a_server_would_lose_an_acknowledged_write() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut ledger, mut server) = (Ledger::default(), Server::default());
            let mut flushes: Vec<(Mark, BTreeSet<u32>)> = Vec::new();
            for write in 0..60 {
                match random.u32(..5) {
                    // A write is acknowledged, perhaps while flushes are under way.
                    0 | 1 => {
                        server.acknowledged.insert(write);
                        ledger.acknowledge();
                    }
                    // A flush is sent. A server may do no more than it must: it covers what was
                    // acknowledged by now.
                    2 => flushes.push((ledger.mark(), server.acknowledged.clone())),
                    // A flush succeeds, in any order.
                    3 if !flushes.is_empty() => {
                        let (mark, kept) = flushes.swap_remove(random.usize(..flushes.len()));
                        server.durable.extend(kept);
                        ledger.flushed(mark);
                    }
                    // A flush fails and covers nothing.
                    _ => drop(flushes.pop()),
                }
                let lost = server.acknowledged.difference(&server.durable).count();
                assert_eq!(ledger.is_dirty(), lost > 0, "seed {seed}, write {write}");
            }
        }
    }
}
