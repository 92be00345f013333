//! Loss, delay and partition around any transport, for tests and simulation. They count calls
//! and draw from a seed; they keep no clock.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use parda_control::Instant;

use crate::exchange::{CollectError, Counters, Exchange, Heard, PublishError};
use crate::identity::HostId;
use crate::message::{Message, Publication};

/// Loses publications and messages at random.
pub struct Lossy<E> {
    inner: E,
    loss: f64,
    rng: fastrand::Rng,
}

impl<E> Lossy<E> {
    /// Loses each publication and each message with probability `loss`, in [0, 1].
    pub fn new(inner: E, loss: f64, seed: u64) -> Lossy<E> {
        Lossy { inner, loss, rng: fastrand::Rng::with_seed(seed) }
    }

    fn lost(&mut self) -> bool {
        self.rng.f64() < self.loss
    }
}

impl<E: Exchange> Exchange for Lossy<E> {
    fn publish(&mut self, publication: &Publication) -> Result<(), PublishError> {
        if self.lost() { Ok(()) } else { self.inner.publish(publication) }
    }

    fn collect(&mut self, now: Instant) -> Result<Heard, CollectError> {
        let mut heard = self.inner.collect(now)?;
        heard.messages.retain(|_| !self.lost());
        Ok(heard)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Delivers what was heard some calls late.
pub struct Delayed<E> {
    inner: E,
    calls: usize,
    under_way: VecDeque<Vec<Arc<Message>>>,
}

impl<E> Delayed<E> {
    /// Holds messages back for `calls` calls of [`Exchange::collect`].
    pub fn new(inner: E, calls: usize) -> Delayed<E> {
        Delayed { inner, calls, under_way: VecDeque::new() }
    }
}

impl<E: Exchange> Exchange for Delayed<E> {
    fn publish(&mut self, publication: &Publication) -> Result<(), PublishError> {
        self.inner.publish(publication)
    }

    fn collect(&mut self, now: Instant) -> Result<Heard, CollectError> {
        let Heard { messages, events } = self.inner.collect(now)?;
        self.under_way.push_back(messages);
        let due = self.under_way.len() > self.calls;
        let messages = due.then(|| self.under_way.pop_front()).flatten().unwrap_or_default();
        Ok(Heard { messages, events })
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Which hosts are cut off from the others. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    cut_off: Arc<Mutex<BTreeSet<HostId>>>,
}

impl Partition {
    /// Cuts `host` off from those that are not cut off.
    pub fn cut(&self, host: HostId) {
        self.with(|cut_off| cut_off.insert(host));
    }

    /// All hear each other again.
    pub fn heal(&self) {
        self.with(BTreeSet::clear);
    }

    fn parts(&self, one: HostId, other: HostId) -> bool {
        self.with(|cut_off| cut_off.contains(&one) != cut_off.contains(&other))
    }

    fn with<T>(&self, look: impl FnOnce(&mut BTreeSet<HostId>) -> T) -> T {
        look(&mut self.cut_off.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Hears only the hosts on its own side of a [`Partition`].
pub struct Partitioned<E> {
    inner: E,
    me: HostId,
    partition: Partition,
}

impl<E> Partitioned<E> {
    /// The host `me`, on whichever side it is.
    pub fn new(inner: E, me: HostId, partition: Partition) -> Partitioned<E> {
        Partitioned { inner, me, partition }
    }
}

impl<E: Exchange> Exchange for Partitioned<E> {
    fn publish(&mut self, publication: &Publication) -> Result<(), PublishError> {
        self.inner.publish(publication)
    }

    fn collect(&mut self, now: Instant) -> Result<Heard, CollectError> {
        let mut heard = self.inner.collect(now)?;
        heard.messages.retain(|message| !self.partition.parts(self.me, message.from.host.id()));
        Ok(heard)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{identity, message, publication};

    /// Hears a and b, one sequence number further with each look.
    struct Steady(u64, u64);

    impl Exchange for Steady {
        fn publish(&mut self, _: &Publication) -> Result<(), PublishError> {
            self.1 += 1;
            Ok(())
        }
        fn collect(&mut self, _: Instant) -> Result<Heard, CollectError> {
            self.0 += 1;
            let said = |host| Arc::new(message(identity(host, 1), self.0));
            let messages = ["a", "b"].map(said).into();
            Ok(Heard { messages, events: Vec::new() })
        }
        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    fn heard(exchange: &mut impl Exchange) -> Vec<(String, u64)> {
        let messages = exchange.collect(Instant(0)).unwrap().messages;
        messages.into_iter().map(|m| (m.from.host.to_string(), m.sequence.0)).collect()
    }

    #[test]
    fn loss_is_as_frequent_as_asked_and_the_same_for_the_same_seed() {
        let run = |seed| {
            let mut lossy = Lossy::new(Steady(0, 0), 0.3, seed);
            let heard: Vec<_> = (0..1000).flat_map(|_| heard(&mut lossy)).collect();
            (0..1000).for_each(|_| lossy.publish(&publication(1.0)).unwrap());
            (heard, lossy.inner.1)
        };
        let (heard, published) = run(7);
        assert!((1300..1500).contains(&heard.len()), "{}", heard.len());
        assert!((630..770).contains(&published), "{published}");
        assert_eq!((&heard, published), (&run(7).0, run(7).1));
        assert_ne!(heard, run(8).0);
    }

    #[test]
    fn delay_keeps_the_order_and_loses_nothing() {
        let mut delayed = Delayed::new(Steady(0, 0), 2);
        let sequences: Vec<_> = (0..5).map(|_| heard(&mut delayed).first().map(|m| m.1)).collect();
        assert_eq!(sequences, [None, None, Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn a_partition_parts_both_sides_until_it_heals() {
        let partition = Partition::default();
        let host = |name| identity(name, 1).host.id();
        let on = |name| Partitioned::new(Steady(0, 0), host(name), partition.clone());
        let (mut a, mut c) = (on("a"), on("c"));
        let names = |exchange: &mut Partitioned<Steady>| -> Vec<_> {
            heard(exchange).into_iter().map(|m| m.0).collect()
        };
        partition.cut(host("a"));
        assert_eq!(names(&mut a), ["a"]);
        assert_eq!(names(&mut c), ["b"]);
        partition.heal();
        assert_eq!(names(&mut a), ["a", "b"]);
    }
}
