use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::claim::SlotChoice;
use crate::memory::MemoryRegion;
use crate::region::{RegionFault, SlotCount};
use crate::testing::{at, exchange, identity, publication};

/// An exchange that, while cut, hears no host and reaches none.
struct Cut(Box<dyn Exchange>, Arc<AtomicBool>);

impl Exchange for Cut {
    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        match self.1.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.0.publish(publication),
        }
    }
    fn collect(&mut self, now: Instant) -> Result<Collected, ExchangeError> {
        let mut heard = self.0.collect(now)?;
        if self.1.load(Ordering::Relaxed) {
            heard.messages.clear();
        }
        Ok(heard)
    }
    fn reload(&mut self) {}
    fn loads_array(&self) -> bool {
        false
    }
    fn standing(&self) -> Standing {
        self.0.standing()
    }
}

/// Two hosts with two media, period by period.
struct Pair {
    first: MemoryRegion,
    second: MemoryRegion,
    cut: Arc<AtomicBool>,
    hosts: Vec<(WithFallback, Peers)>,
    period: u64,
    events: Vec<String>,
}

impl Pair {
    fn new() -> Pair {
        let media = || MemoryRegion::new(SlotCount::new(8).unwrap());
        let (first, second, cut) = (media(), media(), Arc::new(AtomicBool::new(false)));
        let host = |name: &str| {
            let of = |region: &MemoryRegion, run| {
                Box::new(exchange(region, identity(name, run), SlotChoice::Automatic))
            };
            let me = identity(name, 1).host.id();
            let one = Box::new(Cut(of(&first, 1), Arc::clone(&cut)));
            let both = WithFallback::new(one, of(&second, 2), me);
            (both, Peers::new(me))
        };
        let hosts = ["a", "b"].map(host).into();
        Pair { first, second, cut, hosts, period: 0, events: Vec::new() }
    }

    /// Runs periods. From `live` on, each host must see the other one alive, and no other.
    fn periods(&mut self, count: u64, live: bool) {
        for _ in 0..count {
            self.period += 1;
            let now = at(self.period);
            for (host, peers) in &mut self.hosts {
                let heard = host.collect(now).unwrap();
                let said = heard.events.iter().map(ToString::to_string);
                self.events.extend(said.filter(|event| event.contains("fall-back")));
                peers.observe(now, &heard.messages);
                host.publish(&publication(self.period as f64)).unwrap();
                let seen: Vec<_> = peers.all(now).map(|peer| peer.liveness).collect();
                assert!(!live || seen == [Liveness::Live], "period {}: {seen:?}", self.period);
            }
        }
    }

    fn in_force(&self) -> Vec<bool> {
        self.hosts.iter().map(|(host, _)| host.fallen).collect()
    }

    fn told(&mut self, what: &str) -> usize {
        let told = self.events.iter().filter(|event| event.contains(what)).count();
        self.events.clear();
        told
    }
}

#[test]
fn a_first_transport_that_fails_and_comes_back_loses_no_host_and_counts_none_twice() {
    let mut pair = Pair::new();
    pair.periods(5, false);
    pair.periods(20, true);
    assert_eq!((pair.in_force(), pair.told("")), (vec![false; 2], 0));
    pair.first.fail_reads(Some(|| RegionFault::ReadOnly));
    pair.periods(1, true);
    assert_eq!(pair.in_force(), [true, true]);
    pair.periods(40, true);
    assert_eq!(pair.told("fall-back is in force: "), 2, "once by each");
    pair.first.fail_reads(None);
    pair.periods(3, true);
    assert_eq!(pair.in_force(), [true, true], "not before it has worked for some rounds");
    pair.periods(5, true);
    assert_eq!((pair.in_force(), pair.told("no longer in force")), (vec![false; 2], 2));
    pair.periods(20, true);
    assert_eq!(pair.told(""), 0);
}

#[test]
fn a_host_that_only_the_fallback_carries_brings_it_in_force() {
    let mut pair = Pair::new();
    pair.periods(5, false);
    pair.cut.store(true, Ordering::Relaxed);
    // Nothing fails, and no datagram comes.
    pair.periods(12, true);
    assert_eq!(pair.in_force(), [true, true]);
    assert_eq!(pair.told("is heard there and not over the first transport"), 2);
    pair.cut.store(false, Ordering::Relaxed);
    pair.periods(12, true);
    assert_eq!((pair.in_force(), pair.told("no longer in force")), (vec![false; 2], 2));
}

#[test]
fn a_fallback_that_does_not_work_is_told_once_and_both_at_once_are_a_fault() {
    let mut pair = Pair::new();
    pair.periods(5, false);
    pair.second.fail_writes(Some(|| RegionFault::ReadOnly));
    pair.periods(30, true);
    assert_eq!(pair.in_force(), [false, false]);
    let Standing::Both(standing) = pair.hosts[0].0.standing() else { panic!("both") };
    assert!(standing.faults[0].is_none() && standing.faults[1].is_some());
    assert_eq!(pair.told("fall-back does not work: "), 2);
    pair.second.fail_reads(Some(|| RegionFault::ReadOnly));
    pair.first.fail_reads(Some(|| RegionFault::ReadOnly));
    let (host, _) = &mut pair.hosts[0];
    assert!(host.collect(at(40)).is_err());
    pair.first.fail_reads(None);
    pair.second.fail_reads(None);
    pair.second.fail_writes(None);
    pair.period = 40;
    pair.periods(12, false);
    pair.periods(10, true);
    assert_eq!(pair.in_force(), [false, false]);
    assert!(pair.told("fall-back works again") > 0);
}

#[test]
fn a_host_that_dies_is_given_up_within_six_periods() {
    let mut pair = Pair::new();
    pair.periods(9, false);
    pair.hosts.pop();
    pair.periods(6, false);
    let (_, peers) = &pair.hosts[0];
    let seen: Vec<_> = peers.all(at(pair.period)).map(|peer| peer.liveness).collect();
    assert_eq!(seen, [Liveness::Stale]);
}
