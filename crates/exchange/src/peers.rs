//! The other hosts, and which of them are alive.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use parda_control::{Instant, Report, Span};

use crate::exchange::Message;
use crate::freshness::{Freshness, Liveness, Watch};
use crate::identity::{HostId, Incarnation, Sequence};

/// What is known of the other hosts, over any transport. It keeps no clock: every call says when.
#[derive(Debug)]
pub struct Peers {
    me: HostId,
    freshness: Freshness,
    /// One entry per run of a host: the run before may still be heard beside its successor.
    runs: BTreeMap<(HostId, Incarnation), Run>,
}

#[derive(Debug)]
struct Run {
    message: Message,
    watch: Watch<Sequence>,
}

/// Another host.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// What it said last.
    pub message: &'a Message,
    /// How long ago that was first heard, by our clock: it may have been said up to one of our
    /// own periods earlier.
    pub age: Span,
    /// How alive it looks.
    pub liveness: Liveness,
}

impl Peers {
    /// Nobody is known yet. Messages of the host `me` will be left out.
    #[must_use]
    pub fn new(me: HostId, freshness: Freshness) -> Peers {
        Peers { me, freshness, runs: BTreeMap::new() }
    }

    /// Takes in what was heard.
    pub fn observe(&mut self, now: Instant, messages: Vec<Message>) {
        let mut heard = BTreeMap::<_, Message>::new();
        for message in messages {
            let host = message.from.host.id();
            if host == self.me {
                continue;
            }
            // A host that moved to another slot has left its last word in the one before.
            let latest =
                heard.entry((host, message.from.incarnation)).or_insert_with(|| message.clone());
            if message.sequence.is_after(latest.sequence) {
                *latest = message;
            }
        }
        let freshness = self.freshness;
        self.runs.retain(|key, run| {
            // A dead run stays known while its record lies around: it must not look new again.
            heard.contains_key(key) || run.looks(now, freshness) != Liveness::Gone
        });
        for (key, message) in heard {
            let run = self.runs.entry(key).or_insert_with(|| Run {
                watch: Watch::new(now, message.sequence),
                message: message.clone(),
            });
            if run.watch.look(now, message.sequence) {
                run.message = message;
            }
        }
    }

    /// Every host that is known, each once: the run of it that looks most alive, the latest of
    /// these.
    pub fn all(&self, now: Instant) -> impl Iterator<Item = Peer<'_>> {
        let mut hosts = BTreeMap::<HostId, Peer<'_>>::new();
        for ((host, _), run) in &self.runs {
            let peer = run.peer(now, self.freshness);
            // Runs come in the order of their incarnations, so among equals the later one stays.
            match hosts.get(host) {
                Some(other) if vitality(other.liveness) > vitality(peer.liveness) => {}
                _ => {
                    hosts.insert(*host, peer);
                }
            }
        }
        hosts.into_values()
    }

    /// The reports of the hosts that are alive: what the law ticks with.
    #[must_use]
    pub fn live(&self, now: Instant) -> Vec<Report> {
        self.all(now)
            .filter(|peer| peer.liveness == Liveness::Live)
            .map(|peer| peer.message.body.report)
            .collect()
    }

    /// The same, or `None` while nothing can be said of the others: hosts are seen, and none of
    /// them has yet been seen to live.
    #[must_use]
    pub fn proven(&self, now: Instant) -> Option<Vec<Report>> {
        let live = self.live(now);
        let unproven = || self.all(now).any(|peer| peer.liveness == Liveness::Unproven);
        (!live.is_empty() || !unproven()).then_some(live)
    }
}

fn vitality(liveness: Liveness) -> impl Ord {
    Reverse(match liveness {
        Liveness::Live => 0,
        Liveness::Unproven => 1,
        Liveness::Stale => 2,
        Liveness::Left => 3,
        Liveness::Gone => 4,
    })
}

impl Run {
    fn looks(&self, now: Instant, freshness: Freshness) -> Liveness {
        self.watch.liveness(now, self.message.body.period, freshness)
    }

    fn peer(&self, now: Instant, freshness: Freshness) -> Peer<'_> {
        let liveness =
            if self.message.body.leaving { Liveness::Left } else { self.looks(now, freshness) };
        Peer { message: &self.message, age: self.watch.age(now), liveness }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PERIOD, at, identity, leaving, message};

    fn peers() -> Peers {
        Peers::new(identity("me", 1).host.id(), Freshness::default())
    }

    /// Name, run and liveness of everyone known.
    fn seen(peers: &Peers, now: Instant) -> Vec<(String, u64, Liveness)> {
        let mut all: Vec<_> = peers
            .all(now)
            .map(|p| {
                let from = &p.message.from;
                (from.host.to_string(), from.incarnation.0, p.liveness)
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn one(name: &str, run: u64, liveness: Liveness) -> Vec<(String, u64, Liveness)> {
        vec![(name.to_owned(), run, liveness)]
    }

    #[test]
    fn a_host_counts_from_its_first_change_until_it_falls_silent() {
        let mut peers = peers();
        peers.observe(at(0), vec![message(identity("a", 5), 8)]);
        assert_eq!(seen(&peers, at(0)), one("a", 5, Liveness::Unproven));
        assert!(peers.live(at(0)).is_empty());
        let last = vec![message(identity("a", 5), 9)];
        for period in 1..=4 {
            peers.observe(at(period), last.clone());
            assert_eq!(peers.live(at(period)), [last[0].body.report], "period {period}");
        }
        peers.observe(at(5), last.clone());
        assert_eq!(seen(&peers, at(5)), one("a", 5, Liveness::Stale));
        assert_eq!(peers.all(at(5)).next().unwrap().age, Span(4 * PERIOD.0));
        peers.observe(at(32), last.clone());
        assert_eq!(seen(&peers, at(32)), one("a", 5, Liveness::Gone));
        // As long as the record lies around, it must not look new again.
        peers.observe(at(33), last);
        assert_eq!(seen(&peers, at(33)), one("a", 5, Liveness::Gone));
        peers.observe(at(34), Vec::new());
        assert!(seen(&peers, at(34)).is_empty());
    }

    #[test]
    fn nothing_is_said_of_the_others_before_one_is_seen_to_live() {
        let mut peers = peers();
        assert_eq!(peers.proven(at(0)), Some(Vec::new()), "nobody is there");
        peers.observe(at(0), vec![message(identity("a", 1), 1), message(identity("b", 1), 1)]);
        assert_eq!(peers.proven(at(0)), None);
        peers.observe(at(1), vec![message(identity("a", 1), 2), message(identity("b", 1), 1)]);
        assert_eq!(peers.proven(at(1)).map(|live| live.len()), Some(1));
    }

    #[test]
    fn silence_is_measured_by_the_hosts_own_period() {
        let mut peers = peers();
        let quick = |sequence| {
            let mut quick = message(identity("quick", 1), sequence);
            quick.body.period = Span(PERIOD.0 / 4);
            quick
        };
        peers.observe(at(0), vec![quick(1), message(identity("slow", 1), 1)]);
        peers.observe(at(1), vec![quick(5), message(identity("slow", 1), 2)]);
        assert_eq!(peers.live(at(1)).len(), 2);
        let expected = [one("quick", 1, Liveness::Stale), one("slow", 1, Liveness::Live)].concat();
        assert_eq!(seen(&peers, at(2)), expected);
    }

    #[test]
    fn one_does_not_hear_oneself() {
        let mut peers = peers();
        for sequence in 0..3 {
            peers.observe(at(sequence), vec![message(identity("me", 1), sequence)]);
        }
        assert!(seen(&peers, at(2)).is_empty());
    }

    #[test]
    fn a_farewell_ends_it_at_once() {
        let mut peers = peers();
        peers.observe(at(0), vec![message(identity("a", 1), 1)]);
        peers.observe(at(1), vec![message(identity("a", 1), 2)]);
        assert_eq!(peers.live(at(1)).len(), 1);
        let mut farewell = message(identity("a", 1), 3);
        farewell.body = leaving();
        peers.observe(at(2), vec![farewell]);
        assert_eq!(seen(&peers, at(2)), one("a", 1, Liveness::Left));
        assert!(peers.live(at(2)).is_empty());
    }

    #[test]
    fn a_restarted_host_is_counted_once_throughout() {
        let mut peers = peers();
        peers.observe(at(0), vec![message(identity("a", 1), 1)]);
        peers.observe(at(1), vec![message(identity("a", 1), 2)]);
        peers.observe(at(2), vec![message(identity("a", 9), 1)]);
        assert_eq!(seen(&peers, at(2)), one("a", 1, Liveness::Live));
        peers.observe(at(3), vec![message(identity("a", 9), 2)]);
        assert_eq!(seen(&peers, at(3)), one("a", 9, Liveness::Live));
    }

    #[test]
    fn a_dead_run_does_not_hide_a_living_one_though_its_clock_was_ahead() {
        let mut peers = peers();
        for sequence in 0..9 {
            let dead = message(identity("a", 99), 7);
            peers.observe(at(sequence), vec![dead, message(identity("a", 1), sequence)]);
        }
        assert_eq!(seen(&peers, at(8)), one("a", 1, Liveness::Live));
    }

    #[test]
    fn the_last_word_in_a_slot_given_up_does_not_keep_a_host_alive() {
        let mut peers = peers();
        let left_behind = || message(identity("a", 1), 3);
        for sequence in 4..6 {
            let current = message(identity("a", 1), sequence);
            peers.observe(at(sequence), vec![current, left_behind()]);
        }
        assert_eq!(seen(&peers, at(5)), one("a", 1, Liveness::Live));
        for period in 6..20 {
            peers.observe(at(period), vec![message(identity("a", 1), 5), left_behind()]);
        }
        assert_eq!(seen(&peers, at(19)), one("a", 1, Liveness::Stale));
    }

    #[test]
    fn a_sequence_that_wraps_goes_on() {
        let mut peers = peers();
        for (period, sequence) in [(0, u64::MAX - 1), (1, u64::MAX), (2, 0), (3, 1)] {
            let kept = message(identity("a", 1), u64::MAX - 1);
            peers.observe(at(period), vec![message(identity("a", 1), sequence), kept]);
        }
        assert_eq!(peers.all(at(3)).next().unwrap().message.sequence, Sequence(1));
        assert_eq!(seen(&peers, at(3)), one("a", 1, Liveness::Live));
    }
}
