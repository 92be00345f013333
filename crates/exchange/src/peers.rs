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
