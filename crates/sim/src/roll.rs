//! What hosts hear of one another, kept once for all of them where all of them hear the same.
//!
//! Each host hears each other in each period, so n hosts that each keep what they hear look at n² messages a period. Where no
//! message is lost, no side is cut off, all delays are the same and no host is started again, all hosts find the same
//! messages, each from the same moment on, and differ only in when they look. So messages are kept here, in blocks with sums,
//! and of a host only its looks. A host takes the sums of those blocks whose hosts all live, and adds up host by
//! host the block that it is in itself and blocks with a silent host.
//!
//! The rules are those of [`parda_exchange::Peers`], which each host has for itself where they hear differently. The totals are the same:
//! to the last bit up to [`ALONE`] hosts, which are one block, and but for the rounding of sums beyond.

use std::collections::VecDeque;
use std::ops::Range;

use parda_control::{Instant, Part, Span, Totals};
use parda_exchange::{Freshness, HostId, Liveness, Message, Sum};
use parda_scenario::{Action, Scenario};

/// Hosts of a block in a cluster of more than [`ALONE`].
const BLOCK: usize = 64;

/// Up to so many hosts are one block.
const ALONE: usize = 256;

/// Whether all hosts of a scenario hear the same at any time, but for the times at which they look.
fn all_hear_alike(scenario: &Scenario) -> bool {
    let mut hearings = scenario.hosts.iter().map(|host| host.exchange.hearing());
    let Some(first) = hearings.next() else { return false };
    let whole = first.loss <= 0.0 && first.reachable && first.writable;
    let changes = scenario.timeline.iter().any(|event| {
        matches!(event.action, Action::SetExchange(..) | Action::Etcd(_) | Action::StartHost(_))
    });
    whole && !changes && hearings.all(|hearing| hearing == first)
}

/// The last message of each host, in the order of their ids.
#[derive(Debug)]
pub(crate) struct Roll {
    ids: Vec<HostId>,
    hosts: Vec<Entry>,
    blocks: Vec<Block>,
    /// Hosts of a block.
    size: usize,
    /// What was published and is not shown yet, with the time from which on it is.
    pending: VecDeque<(Instant, HostId, Said)>,
    /// The longest period of a host.
    longest: Span,
}

/// Content of a message, as far as others need it.
#[derive(Clone, Copy, Debug)]
struct Said {
    part: Part,
    period: Span,
    leaving: bool,
}

/// A host, by what is shown of it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    said: Said,
    /// When its first message was shown, and when its last one was.
    first: Instant,
    last: Instant,
}

/// Neighbouring hosts, as if all of them were alive.
#[derive(Clone, Copy, Debug)]
struct Block {
    totals: Totals,
    /// The latest first message, and the earliest last one.
    newest: Instant,
    oldest: Instant,
    /// The least period of these hosts.
    period: Span,
    leaving: bool,
    /// A host has said something since this was added up.
    changed: bool,
}

impl Roll {
    /// The roll of a scenario in which all hosts hear alike. `None` if they do not.
    pub(crate) fn of(scenario: &Scenario) -> Option<Roll> {
        all_hear_alike(scenario).then(|| Roll {
            ids: Vec::new(),
            hosts: Vec::new(),
            blocks: Vec::new(),
            size: ALONE,
            pending: VecDeque::new(),
            longest: Span::ZERO,
        })
    }

    /// A message of a host, which is shown from now on.
    pub(crate) fn put(&mut self, now: Instant, message: &Message) {
        let body = &message.body;
        let part = Part::of(&body.report);
        let said = Said { part, period: body.period, leaving: body.leaving };
        self.pending.push_back((now, message.from.host.id(), said));
    }

    /// Takes in what is shown `until` then.
    pub(crate) fn advance(&mut self, until: Instant) {
        while let Some((at, id, said)) =
            self.pending.front().copied().filter(|(at, ..)| *at <= until)
        {
            self.pending.pop_front();
            self.longest = self.longest.max(said.period);
            match self.ids.binary_search(&id) {
                Ok(index) => {
                    let entry = &mut self.hosts[index];
                    (entry.said, entry.last) = (said, at);
                    self.blocks[index / self.size].changed = true;
                }
                Err(index) => {
                    self.ids.insert(index, id);
                    self.hosts.insert(index, Entry { said, first: at, last: at });
                    self.size = if self.hosts.len() > ALONE { BLOCK } else { ALONE };
                    let blocks = self.hosts.len().div_ceil(self.size);
                    self.blocks = vec![Block { changed: true, ..Block::of(&[], &[]) }; blocks];
                }
            }
        }
        let (ids, hosts) = (self.ids.chunks(self.size), self.hosts.chunks(self.size));
        for ((block, ids), hosts) in self.blocks.iter_mut().zip(ids).zip(hosts) {
            if block.changed {
                *block = Block::of(ids, hosts);
            }
        }
    }

    /// Each block, with the indices of its hosts.
    fn blocks(&self) -> impl Iterator<Item = (&Block, Range<usize>)> {
        let (size, end) = (self.size, self.hosts.len());
        let starts = (0..end).step_by(size);
        self.blocks.iter().zip(starts).map(move |(block, from)| (block, from..end.min(from + size)))
    }
}

impl Block {
    fn of(ids: &[HostId], hosts: &[Entry]) -> Block {
        let mut block = Block {
            totals: Totals::default(),
            newest: Instant(0),
            oldest: Instant(u64::MAX),
            period: Span(u64::MAX),
            leaving: false,
            changed: false,
        };
        for (id, Entry { said, first, last }) in ids.iter().zip(hosts) {
            block.totals.hear(&said.part, id.0, false);
            block.newest = block.newest.max(*first);
            block.oldest = block.oldest.min(*last);
            block.period = block.period.min(said.period);
            block.leaving |= said.leaving;
        }
        block
    }
}

/// A look at the roll: the time that it is known by to its host, and the time up to which messages were shown to it.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    shown: Instant,
}

/// A host's looks at the roll: as far back as one of them matters.
#[derive(Debug)]
pub(crate) struct Looks {
    me: HostId,
    freshness: Freshness,
    past: VecDeque<Look>,
}

impl Looks {
    pub(crate) fn new(me: HostId, freshness: Freshness) -> Looks {
        Looks { me, freshness, past: VecDeque::new() }
    }

    /// Looks at the roll, which shows what there was until `shown`.
    pub(crate) fn look(&mut self, at: Instant, shown: Instant, roll: &Roll) {
        self.past.push_back(Look { at, shown });
        // Who last said something before the earliest look that is kept is gone.
        let kept = Span(roll.longest.0.saturating_mul(self.freshness.gone_after.into()));
        while self.past.get(1).is_some_and(|look| at.since(look.at) > kept) {
            self.past.pop_front();
        }
    }

    /// What all others say, as the last look found it, added to `sum`.
    pub(crate) fn totals(&self, now: Instant, roll: &Roll, mut sum: Sum) -> Option<Totals> {
        for (block, hosts) in roll.blocks() {
            let (first, last) = (roll.ids[hosts.start], roll.ids[hosts.end - 1]);
            let all = self.all_live(now, block).then_some(Liveness::Live);
            if all.is_some() && !(first..=last).contains(&self.me) {
                sum.add_live(first, &block.totals);
                continue;
            }
            for index in hosts.filter(|index| roll.ids[*index] != self.me) {
                let host = &roll.hosts[index];
                if let Some(liveness) = all.or_else(|| self.liveness(now, host)) {
                    sum.add(roll.ids[index], liveness, &host.said.part);
                }
            }
        }
        sum.totals()
    }

    /// Number of hosts in the exchange, with this one: see [`parda_exchange::Peers::present`].
    pub(crate) fn present(&self, now: Instant, roll: &Roll) -> usize {
        let there = |index: &usize| {
            let liveness = self.liveness(now, &roll.hosts[*index]);
            liveness.is_some_and(|liveness| !matches!(liveness, Liveness::Gone | Liveness::Left))
        };
        let others = roll.blocks().map(|(block, hosts)| {
            let all = self.all_live(now, block);
            hosts.filter(|index| roll.ids[*index] != self.me && (all || there(index))).count()
        });
        1 + others.sum::<usize>()
    }

    /// Index of the first look that was shown what came at this time.
    fn first(&self, came: Instant) -> usize {
        self.past.partition_point(|look| look.shown < came)
    }

    /// Whether all hosts of a block look alive for sure.
    fn all_live(&self, now: Instant, block: &Block) -> bool {
        let Some(oldest) = self.past.get(self.first(block.oldest)) else { return false };
        let Some(newest) = self.past.get(self.first(block.newest)) else { return false };
        let moved = newest.shown < block.oldest;
        let liveness = self.freshness.liveness(now.since(oldest.at), block.period, moved);
        liveness == Liveness::Live && !block.leaving
    }

    /// How alive a host looks. `None` if it was not seen yet.
    fn liveness(&self, now: Instant, host: &Entry) -> Option<Liveness> {
        let seen = self.past.get(self.first(host.first))?;
        // What came after the last look will be seen with the next one.
        let Some(changed) = self.past.get(self.first(host.last)) else {
            return Some(Liveness::Live);
        };
        if host.said.leaving {
            return Some(Liveness::Left);
        }
        let (age, moved) = (now.since(changed.at), seen.shown < host.last);
        Some(self.freshness.liveness(age, host.said.period, moved))
    }
}
