//! Hosts that hear each other over a network that delays, drops, repeats and records, without sockets.

use super::*;
use crate::identity::{HostName, Sequence};
use crate::testing::message;
use crate::udp::datagram::{self, MOST_ECHOES};
use crate::udp::key::Keys;

/// A host: its members, and the number of its last datagram.
struct Host {
    members: Members,
    sequence: u64,
}

fn address() -> SocketAddr {
    "127.0.0.1:7077".parse().unwrap()
}

fn host(name: &str, incarnation: u64) -> Host {
    let me = Identity { host: HostName::new(name).unwrap(), incarnation: Incarnation(incarnation) };
    Host { members: Members::new(me, VolumeId::of("array-a")), sequence: 0 }
}

impl Host {
    fn say(&mut self) -> Datagram {
        self.sequence += 1;
        let keys = Keys::public();
        let echoes = self.members.echoes();
        let message = message(self.members.me.clone(), self.sequence);
        let (bytes, mark) = datagram::seal(&keys, self.members.volume, &message, &echoes).unwrap();
        self.members.publish(mark);
        datagram::open(&keys, &bytes).unwrap()
    }

    fn hear(&mut self, datagram: &Datagram) -> Option<Refused> {
        self.members.hear(datagram.clone(), address())
    }

    /// Hosts and sequence numbers that are believed.
    fn believes(&self) -> Vec<(String, u64)> {
        let messages = self.members.messages();
        messages.iter().map(|m| (m.from.host.to_string(), m.sequence.0)).collect()
    }
}

/// One period: everybody speaks, then everybody hears what `passes` from one to the other.
fn period(hosts: &mut [Host], mut passes: impl FnMut(usize, usize) -> bool) -> Vec<Datagram> {
    let said: Vec<_> = hosts.iter_mut().map(Host::say).collect();
    for (from, datagram) in said.iter().enumerate() {
        for (to, host) in hosts.iter_mut().enumerate() {
            if to != from && passes(from, to) {
                host.hear(datagram);
            }
        }
    }
    said
}

fn pair() -> [Host; 2] {
    let mut hosts = [host("a", 10), host("b", 10)];
    for _ in 0..3 {
        period(&mut hosts, |_, _| true);
    }
    hosts
}

#[test]
fn a_host_is_believed_when_it_has_echoed_us() {
    let mut hosts = [host("a", 1), host("b", 1)];
    period(&mut hosts, |_, _| true);
    assert!(hosts.iter().all(|host| host.believes().is_empty()), "it is not known who spoke");
    assert_eq!(hosts[0].members.unproven(), 1);
    period(&mut hosts, |_, _| true);
    assert_eq!(hosts[0].believes(), [("b".to_owned(), 2)]);
    assert_eq!(hosts[1].believes(), [("a".to_owned(), 2)]);
    assert_eq!(hosts[0].members.unproven(), 0);
    let counters = &hosts[0].members.counters;
    assert_eq!((counters.heard, counters.refused[Refused::Unproven.name()]), (1, 1));
}

#[test]
fn what_was_heard_once_is_not_heard_again() {
    let mut hosts = pair();
    let [a, b] = &mut hosts;
    let (early, late) = (b.say(), b.say());
    assert_eq!(a.hear(&late), None);
    for old in [&late, &early] {
        assert_eq!(a.hear(old), Some(Refused::Replayed));
    }
    assert_eq!(a.believes(), [("b".to_owned(), late.message.sequence.0)]);
}

/// The whole session of a host is recorded and replayed in every order. The replays come after the host
/// was killed, after it was forgotten, and to a successor of its hearer.
#[test]
fn recordings_of_an_earlier_run_prove_nothing() {
    let mut hosts = [host("a", 10), host("b", 10)];
    let mut recorded = Vec::new();
    for _ in 0..20 {
        recorded.push(period(&mut hosts, |_, _| true).swap_remove(1));
    }
    let [mut a, _] = hosts;
    let believed = a.believes();
    let replay = |a: &mut Host| {
        for datagram in recorded.iter().chain(recorded.iter().rev()) {
            assert!(a.hear(datagram).is_some(), "sequence {:?}", datagram.message.sequence);
        }
    };
    replay(&mut a);
    assert_eq!(a.believes(), believed);
    // As many periods later as it takes to forget the host; each with a replay, which must not keep it.
    for _ in 0..MEMORY + 5 {
        a.say();
        replay(&mut a);
    }
    assert_eq!(a.believes(), [], "it is forgotten, and not learned anew");
    // The host that had heard it starts anew, even with a clock that went back.
    for incarnation in [5, 11, 99] {
        let mut successor = host("a", incarnation);
        successor.say();
        replay(&mut successor);
        assert_eq!(successor.believes(), []);
    }
}

#[test]
fn a_restarted_host_is_believed_though_its_clock_went_back_and_its_recordings_are_replayed() {
    let mut hosts = [host("a", 10), host("b", 10)];
    let mut recorded = Vec::new();
    for _ in 0..20 {
        recorded.push(period(&mut hosts, |_, _| true).swap_remove(1));
    }
    hosts[1] = host("b", 3);
    for _ in 0..4 {
        period(&mut hosts, |_, _| true);
        for datagram in &recorded {
            hosts[0].hear(datagram);
        }
    }
    let messages = hosts[0].members.messages();
    let run = |incarnation| {
        let is = |m: &&Arc<Message>| m.from.incarnation == Incarnation(incarnation);
        messages.iter().find(is).unwrap().sequence
    };
    assert_eq!((run(3), run(10)), (Sequence(4), Sequence(20)));
}

#[test]
fn a_silent_host_is_remembered_for_as_long_as_its_recordings_could_prove_anything() {
    let mut hosts = pair();
    let [a, b] = &mut hosts;
    let last = b.say();
    a.hear(&last);
    for _ in 0..MEMORY - 1 {
        a.say();
        assert_eq!(a.hear(&last), Some(Refused::Replayed));
    }
    a.say();
    // The datagram answers a present mark, and only its age makes it unproven.
    assert_eq!(a.hear(&last), Some(Refused::Unproven));
    assert_eq!(a.believes(), []);
}

#[test]
fn hosts_come_back_after_any_silence() {
    for silence in [1, 40, MEMORY - 1, MEMORY, MEMORY + 1, 3 * MEMORY] {
        for one_way in [false, true] {
            let mut hosts = pair();
            for _ in 0..silence {
                period(&mut hosts, |from, _| one_way && from == 0);
            }
            let mut after = 0;
            let now = |hosts: &[Host]| {
                hosts.iter().all(|host| {
                    host.believes().iter().any(|(_, sequence)| *sequence + 1 >= host.sequence)
                })
            };
            while !now(&hosts) {
                period(&mut hosts, |_, _| true);
                after += 1;
                assert!(after <= 3, "silence of {silence} periods");
            }
        }
    }
}

#[test]
fn who_does_not_hear_us_is_not_believed_and_is_shown() {
    let mut hosts = [host("a", 1), host("b", 1)];
    for _ in 0..20 {
        period(&mut hosts, |from, _| from == 1);
    }
    assert_eq!((hosts[0].believes(), hosts[0].members.unproven()), (vec![], 1));
    assert_eq!((hosts[1].believes(), hosts[1].members.unproven()), (vec![], 0));
}

#[test]
fn many_hosts_believe_each_other_soon_in_spite_of_loss() {
    let mut random = 1u64;
    let mut lost = |percent: u64| {
        // Knuth's constants.
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % 100 < percent
    };
    for (count, loss, periods) in [(64, 0, 3), (64, 30, 30), (200, 0, 6), (100, 30, 40)] {
        let mut hosts: Vec<_> = (0..count).map(|i| host(&format!("h{i}"), 1)).collect();
        for _ in 0..periods {
            period(&mut hosts, |_, _| !lost(loss));
        }
        let known: Vec<_> = hosts.iter().map(|host| host.believes().len()).collect();
        assert_eq!(known, vec![count - 1; count], "{count} hosts, {loss} % lost");
    }
}

#[test]
fn a_datagram_of_a_settled_cluster_has_few_echoes() {
    for (count, echoes) in [(2, 1), (8, 7), (9, 8), (64, 8)] {
        let mut hosts: Vec<_> = (0..count).map(|i| host(&format!("h{i}"), 1)).collect();
        for _ in 0..30 {
            period(&mut hosts, |_, _| true);
        }
        assert_eq!(hosts[0].say().echoes.len(), echoes, "{count} hosts");
        // All of them in turn.
        let turns = (0..count).flat_map(|_| hosts[0].say().echoes);
        assert!(turns.collect::<std::collections::BTreeSet<_>>().len() < count);
    }
}

#[test]
fn other_volumes_and_our_own_datagrams_are_counted() {
    let mut a = host("a", 1);
    let own = a.say();
    assert_eq!(a.hear(&own), None);
    let mut other = host("b", 1);
    other.members.volume = VolumeId::of("array-b");
    let foreign = other.say();
    assert_eq!(a.hear(&foreign), Some(Refused::OtherVolume));
    let counters = &a.members.counters;
    assert_eq!((counters.own, counters.refused[Refused::OtherVolume.name()]), (1, 1));
    assert_eq!((counters.heard, a.members.unproven(), a.believes()), (0, 0, vec![]));
}

#[test]
fn hosts_of_one_name_hear_each_other_and_a_recording_of_an_earlier_run_is_not_heard() {
    let mut hosts = [host("a", 1), host("a", 2), host("c", 1)];
    for _ in 0..9 {
        period(&mut hosts, |_, _| true);
    }
    assert_eq!(hosts[0].believes(), [("a".to_owned(), 9), ("c".to_owned(), 9)]);
    let mut earlier = host("d", 1);
    let recorded = earlier.say();
    let mut later = host("d", 2);
    later.say();
    assert_eq!(later.hear(&recorded), Some(Refused::Unproven));
    assert_eq!(later.believes(), []);
}

#[test]
fn recordings_of_any_number_of_runs_take_a_bounded_memory() {
    let mut hosts = pair();
    for incarnation in 0..10_000 {
        let recorded = host("b", 20 + incarnation).say();
        assert!(hosts[0].hear(&recorded).is_some());
    }
    assert_eq!(hosts[0].members.runs.len(), 1 + MOST_UNPROVEN);
    for i in 0..5_000 {
        let recorded = host(&format!("h{i}"), 1).say();
        assert!(hosts[0].hear(&recorded).is_some());
    }
    assert!(hosts[0].members.runs.len() <= 1 + MOST_RUNS);
    assert!(hosts[0].members.counters.refused[Refused::Crowded.name()] > 0);
    assert!(hosts[0].members.echoes().len() <= MOST_ECHOES);
    // The host that was there is still heard.
    let news = hosts[1].say();
    assert_eq!(hosts[0].hear(&news), None);
    for _ in 0..=REPEATS {
        hosts[0].say();
    }
    assert_eq!(hosts[0].members.runs.len(), 1, "recordings are forgotten soon");
}

#[test]
fn a_host_that_does_not_hear_us_is_named_once_it_had_time_to() {
    let mut hosts = [host("a", 1), host("b", 1), host("c", 1)];
    // What a and b send does not reach c, which they do not have as a peer.
    let named = |hosts: &[Host; 3], at: usize| {
        let (count, named) = hosts[at].members.one_way(|_| false);
        assert_eq!(count, named.len());
        named.into_iter().map(|of| of.host).collect::<Vec<_>>()
    };
    for round in 0..10 {
        period(&mut hosts, |_, to| to != 2);
        let expected: &[&str] = if round < 4 { &[] } else { &["c"] };
        assert_eq!(named(&hosts, 0), expected, "round {round}");
        assert_eq!(named(&hosts, 1), expected, "round {round}");
        assert_eq!(named(&hosts, 2), [""; 0]);
        assert_eq!(hosts[2].members.alone_for(), Some(round + 1));
    }
    assert_eq!(hosts[0].members.alone_for(), None, "b is heard");
    for _ in 0..3 {
        period(&mut hosts, |_, _| true);
    }
    assert_eq!(named(&hosts, 0), [""; 0], "it hears us now");
    assert_eq!(hosts[2].members.alone_for(), None);
}

#[test]
fn of_many_hosts_that_do_not_hear_us_the_first_are_named_and_all_are_counted() {
    let mut hosts: Vec<_> = (0..40).map(|n| host(&format!("host-{n}"), 1)).collect();
    for _ in 0..6 {
        period(&mut hosts, |_, to| to == 0);
    }
    let (count, named) = hosts[0].members.one_way(|_| true);
    assert_eq!((count, named.len()), (39, MOST_NAMED));
}

#[test]
fn a_goodbye_explains_silence_and_a_crash_does_not_once_it_is_forgotten() {
    for leaving in [true, false] {
        let [mut a, mut b] = pair();
        b.sequence += 1;
        let mut message = message(b.members.me.clone(), b.sequence);
        message.body.leaving = leaving;
        let keys = Keys::public();
        let echoes = b.members.echoes();
        let (bytes, _) = datagram::seal(&keys, b.members.volume, &message, &echoes).unwrap();
        assert_eq!(a.hear(&datagram::open(&keys, &bytes).unwrap()), None);
        assert_eq!(a.members.alone_for(), None, "b is remembered");
        for _ in 0..=MEMORY {
            a.say();
        }
        assert_eq!(a.members.alone_for().is_none(), leaving);
    }
}
