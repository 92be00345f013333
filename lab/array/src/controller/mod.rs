//! The controller: what every IO costs before it reaches the drives, the links to the hosts, and
//! the caches.

mod prefetch;
mod read_cache;
mod sweep;
mod write_cache;

use alloc::collections::VecDeque;

use crate::error::{ParamError, check};
use crate::units::{Bytes, Nanos, Rate};

pub use prefetch::PrefetchParams;
pub(crate) use prefetch::{FetchId, Prefetch};
pub(crate) use read_cache::ReadCache;
pub use read_cache::ReadCacheParams;
pub use write_cache::WriteCacheParams;
pub(crate) use write_cache::{LineId, WriteCache};

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerParams {
    /// Time of the front end for one IO; IOs take it one after another.
    pub io_cost: Nanos,
    /// Rate of the link to the hosts, both directions together.
    pub link: Rate,
    /// The write-back cache, if there is one. Without it a write is done when the drives are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<WriteCacheParams>,
    /// Cache of recently read and written data, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_cache: Option<ReadCacheParams>,
    /// Sequential prefetch, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<PrefetchParams>,
}

impl ControllerParams {
    pub(crate) fn validate(&self, element: Bytes) -> Result<(), ParamError> {
        let possible = self.io_cost <= Nanos::from_millis(10_000);
        check(possible, "controller.io_cost", self.io_cost, "be at most 10s")?;
        check(self.link > Rate(0), "controller.link", self.link, "be above 0B/s")?;
        self.write_cache.map_or(Ok(()), |cache| cache.validate(element))?;
        self.read_cache.map_or(Ok(()), |cache| cache.validate())?;
        self.prefetch.map_or(Ok(()), |prefetch| prefetch.validate())
    }
}

/// A first-come-first-served server: the front end, the link, or a fixed delay. Its order never
/// changes, so the next to leave is always at the front.
#[derive(Clone, Debug)]
pub(crate) struct Server<T> {
    inside: VecDeque<(Nanos, T)>,
    free_at: Nanos,
    /// Time at which the first of the queue leaves: read at every event of the array.
    pub(crate) next: Nanos,
}

impl<T> Server<T> {
    pub(crate) fn new() -> Server<T> {
        Server { inside: VecDeque::new(), free_at: Nanos::ZERO, next: Nanos::NEVER }
    }

    /// Queues `what` at `now`. The server will work on it for `cost`.
    pub(crate) fn enter(&mut self, now: Nanos, what: T, cost: Nanos) {
        self.free_at = self.free_at.max(now) + cost;
        self.push(self.free_at, what);
    }

    /// Delays `what` from `now` by `delay`, beside all others. The delay must be the same for each,
    /// so that they leave in order.
    pub(crate) fn hold(&mut self, now: Nanos, what: T, delay: Nanos) {
        self.push(now + delay, what);
    }

    fn push(&mut self, at: Nanos, what: T) {
        if self.inside.is_empty() {
            self.next = at;
        }
        self.inside.push_back((at, what));
    }

    pub(crate) fn into_all(self) -> impl Iterator<Item = T> {
        self.inside.into_iter().map(|(_, what)| what)
    }

    pub(crate) fn leave(&mut self) -> Option<T> {
        let (_, what) = self.inside.pop_front()?;
        self.next = self.inside.front().map_or(Nanos::NEVER, |(at, _)| *at);
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_one_after_another() {
        let mut server = Server::new();
        server.enter(Nanos(10), 'a', Nanos(5));
        server.enter(Nanos(12), 'b', Nanos(5));
        server.enter(Nanos(100), 'c', Nanos(5));
        let mut left = [Nanos::ZERO; 3];
        for (at, what) in left.iter_mut().zip('a'..) {
            *at = server.next;
            assert_eq!(server.leave(), Some(what));
        }
        assert_eq!(left, [Nanos(15), Nanos(20), Nanos(105)]);
        assert_eq!(server.next, Nanos::NEVER);
    }
}
