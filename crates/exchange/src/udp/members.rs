//! The runs of other hosts that were heard, and which of them are believed. There is no socket and no clock: time is
//! counted in our own publications.
//!
//! A signature proves that a host once wrote a datagram, not that it wrote it now. So a run of another host must first echo the mark of
//! one of our last [`MEMORY`] datagrams. No earlier recording can contain such a mark. From then on its sequence numbers must rise. A
//! run is forgotten after it was silent for [`MEMORY`] publications of ours. By then every mark that it can have echoed is forgotten as
//! well. So its recorded datagrams prove nothing any more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::identity::{HostId, Identity, Incarnation, VolumeId};
use crate::message::Message;

use super::counters::{DatagramStanding, OneWay, Refused};
use super::datagram::{Datagram, Mark};
use super::marks::Marks;

/// Number of our own publications for which marks and silent runs are remembered.
pub(super) const MEMORY: u64 = 256;

/// Most proven runs that are remembered, and most unproven ones.
const MOST_RUNS: usize = 2048;

/// Most unproven runs of one host that are remembered: those with the latest starts.
const MOST_UNPROVEN: usize = 4;

/// Number of datagrams in a row that echo a new run, so that the loss of some does no harm.
const REPEATS: u32 = 8;

/// Most echoes of new runs in one datagram.
const MOST_NEW: usize = 56;

/// Most echoes of other runs in one datagram. These runs take turns.
const MOST_OTHERS: usize = super::datagram::MOST_ECHOES - MOST_NEW;

/// Most publications of ours for which a run may be silent and is still echoed.
const ECHOED_WITHIN: u64 = 3;

/// Publications of ours within which a host that is heard all the time can show that it hears us.
const TIME_TO_ECHO: u64 = 4;

/// Most hosts that are named for a way that works in one direction alone. The others are counted.
const MOST_NAMED: usize = 8;

type Key = (HostId, Incarnation);

/// All runs of other hosts that were heard.
#[derive(Debug)]
pub(super) struct Members {
    me: Identity,
    volume: VolumeId,
    marks: Marks,
    runs: BTreeMap<Key, Run>,
    /// Number of proven runs.
    proven: usize,
    /// The last run that was echoed in turn: the next turn begins after it.
    turn: Option<Key>,
    /// Number of our publications when a proven run was last heard, and whether that was a goodbye.
    last: (u64, bool),
    pub(super) counters: DatagramStanding,
}

/// One run of another host.
#[derive(Debug)]
struct Run {
    message: Arc<Message>,
    mark: Mark,
    from: SocketAddr,
    /// Whether it has echoed a datagram of ours, and so is believed.
    proven: bool,
    /// Numbers of our publications when it was first and last heard.
    first: u64,
    heard: u64,
    /// Number of our datagrams that echoed it.
    echoed: u32,
}

impl Members {
    pub(super) fn new(me: Identity, volume: VolumeId) -> Members {
        Members {
            me,
            volume,
            marks: Marks::new(MEMORY as usize),
            runs: BTreeMap::new(),
            proven: 0,
            turn: None,
            last: (0, false),
            counters: DatagramStanding::new(),
        }
    }

    /// Takes in a datagram whose signature is right. Returns the reason if it is refused.
    pub(super) fn hear(&mut self, datagram: Datagram, from: SocketAddr) -> Option<Refused> {
        let why = self.judge(datagram, from);
        if let Some(why) = why {
            self.counters.refuse(why);
        }
        why
    }

    fn judge(&mut self, datagram: Datagram, from: SocketAddr) -> Option<Refused> {
        let Datagram { volume, message, echoes, mark } = datagram;
        if volume != self.volume {
            return Some(Refused::OtherVolume);
        }
        if message.from == self.me {
            self.counters.own += 1;
            return None;
        }
        let key = (message.from.host.id(), message.from.incarnation);
        let known = self.runs.get(&key);
        let is_news = known.is_none_or(|run| message.sequence.is_after(run.message.sequence));
        let was_proven = known.is_some_and(|run| run.proven);
        if !is_news && was_proven {
            return Some(Refused::Replayed);
        }
        let proven = was_proven || echoes.iter().any(|echo| self.marks.contains(*echo));
        if known.is_none() && !self.make_room(key, proven) {
            return Some(Refused::Crowded);
        }
        self.proven += usize::from(proven && !was_proven);
        let now = self.marks.count();
        let message = Arc::new(message);
        let run = self.runs.entry(key).or_insert_with(|| Run {
            message: Arc::clone(&message),
            mark,
            from,
            proven,
            first: now,
            heard: now,
            echoed: 0,
        });
        run.proven = proven;
        if is_news {
            (run.message, run.mark, run.from, run.heard) = (message, mark, from, now);
        }
        if !proven {
            return Some(Refused::Unproven);
        }
        self.last = (now, run.message.body.leaving);
        self.counters.heard += 1;
        None
    }

    /// Makes room for one more run, if need be by forgetting the earliest unproven run of the same host. Returns whether there is room.
    fn make_room(&mut self, key: Key, proven: bool) -> bool {
        if proven {
            return self.proven < MOST_RUNS;
        }
        let all = (key.0, Incarnation(0))..=(key.0, Incarnation(u64::MAX));
        let mut unproven = self.runs.range(all).filter(|(_, run)| !run.proven).map(|(key, _)| *key);
        let earliest = unproven.next();
        if unproven.count() + 1 < MOST_UNPROVEN {
            return self.runs.len() - self.proven < MOST_RUNS;
        }
        match earliest {
            Some(earliest) if earliest < key => self.runs.remove(&earliest).is_some(),
            _ => false,
        }
    }

    /// The last message of each proven run of another host.
    pub(super) fn messages(&self) -> Vec<Arc<Message>> {
        self.runs.values().filter(|run| run.proven).map(|run| Arc::clone(&run.message)).collect()
    }

    /// Number of hosts that are heard now and have no proven run.
    pub(super) fn unproven(&self) -> usize {
        let mut hosts: BTreeMap<HostId, bool> = BTreeMap::new();
        for ((host, _), run) in &self.runs {
            if self.is_recent(run) {
                *hosts.entry(*host).or_default() |= run.proven;
            }
        }
        hosts.values().filter(|proven| !**proven).count()
    }

    /// Hosts that are heard and, in the time that they had, have not shown that they hear this one. Their number, and the first of
    /// them. `is_peer`: whether this host sends to an address.
    pub(super) fn one_way(&self, is_peer: impl Fn(&SocketAddr) -> bool) -> (usize, Vec<OneWay>) {
        let now = self.marks.count();
        let mut hosts: BTreeMap<HostId, (bool, &Run)> = BTreeMap::new();
        for ((host, _), run) in self.runs.iter().filter(|(_, run)| self.is_recent(run)) {
            let shown = run.proven || now - run.first < TIME_TO_ECHO;
            let known = hosts.entry(*host).or_insert((shown, run));
            *known = (known.0 | shown, run);
        }
        let silent = hosts.values().filter(|(shown, _)| !shown);
        let named = silent.clone().take(MOST_NAMED).map(|(_, run)| OneWay {
            host: run.message.from.host.to_string(),
            from: run.from.to_string(),
            is_peer: is_peer(&run.from),
        });
        (silent.count(), named.collect())
    }

    /// Publications of ours since the last datagram of a host that is believed. `None` while one is remembered, and after the
    /// last one said goodbye.
    pub(super) fn alone_for(&self) -> Option<u64> {
        let (heard, goodbye) = self.last;
        (self.proven == 0 && !goodbye).then(|| self.marks.count() - heard)
    }

    /// Addresses of the proven runs that are heard now.
    pub(super) fn sources(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.runs.values().filter(|run| run.proven && self.is_recent(run)).map(|run| run.from)
    }

    fn is_recent(&self, run: &Run) -> bool {
        self.marks.count() - run.heard <= ECHOED_WITHIN
    }

    /// Marks for the next datagram to echo: of all new runs, and of some others in turn.
    pub(super) fn echoes(&mut self) -> Vec<Mark> {
        let recent = |(key, run): (&Key, &Run)| self.is_recent(run).then_some((*key, run.echoed));
        let (mut new, others): (Vec<_>, Vec<_>) =
            self.runs.iter().filter_map(recent).partition(|(_, echoed)| *echoed < REPEATS);
        // Runs that were echoed least come first.
        new.sort_by_key(|(_, echoed)| *echoed);
        let first = others.partition_point(|(key, _)| Some(*key) <= self.turn);
        let turns = others[first..].iter().chain(&others[..first]).take(MOST_OTHERS);
        let turns: Vec<Key> = turns.map(|(key, _)| *key).collect();
        self.turn = turns.last().copied().or(self.turn);
        let chosen = new.into_iter().take(MOST_NEW).map(|(key, _)| key).chain(turns);
        let marks = chosen.filter_map(|key| {
            let run = self.runs.get_mut(&key)?;
            run.echoed = run.echoed.saturating_add(1);
            Some(run.mark)
        });
        marks.collect()
    }

    /// Records that a datagram of ours with this mark was sent. Forgets runs that were silent for too long.
    pub(super) fn publish(&mut self, mark: Mark) {
        self.marks.add(mark);
        let now = self.marks.count();
        self.runs.retain(|_, run| {
            let silent = now - run.heard;
            silent < MEMORY && (run.proven || silent <= u64::from(REPEATS))
        });
        self.proven = self.runs.values().filter(|run| run.proven).count();
    }
}

#[cfg(test)]
mod tests;
