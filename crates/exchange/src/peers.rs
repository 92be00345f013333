//! The other hosts, and which of them are alive.
//!
//! In a cluster of n hosts every host hears n others in each period. So the work for each of them is small. Messages are shared and not
//! copied. The contribution of a report to the sums is computed once for all hosts that hear it. A known host is first looked up at its
//! index of the time before. A simulation keeps n² runs, so these are small, too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use parda_control::belief::{Belief, Doubt, Heard, Judging, NEW};
use parda_control::{Instant, Part, Report, Span, TenantPart, Totals, Tuning};

use crate::freshness::{Liveness, STALE_AFTER, Seen};
use crate::identity::{HostId, Identity, Incarnation, Sequence};
use crate::message::{Message, Publication};

/// The other hosts and their liveness, for any transport. No clock is read: every call is handed `now`. `M`: pointer to a shared message.
#[derive(Debug)]
pub struct Peers<M = Arc<Message>> {
    me: HostId,
    /// Runs of other hosts, sorted by key. A host has several while an earlier run is still heard beside its successor.
    runs: Vec<Run<M>>,
    /// Index in `runs` of the sender of each message at the last look. A hint only, as messages mostly come in the same
    /// order.
    places: Vec<u32>,
    /// Number of looks since the start.
    looks: u32,
    /// A message of another host spoke of tenants.
    tenants: bool,
    /// The automatic threshold of our own previous run.
    before: Option<Span>,
    /// Publications of this host in a row that did not reach the exchange, the last ones.
    unheard: u32,
    /// Last report of this host.
    own: Part,
    own_belief: Belief,
    /// Hosts that count for nothing.
    ignored: BTreeSet<HostId>,
    /// Beliefs about hosts of which no run is known.
    past: BTreeMap<HostId, Belief>,
}

type Key = (HostId, Incarnation);

/// A run of another host, in whole lines of the processor's cache: a simulation has n² of them. The fields that a look needs are copied
/// from the message. The messages of a large cluster are far from the processor.
#[derive(Debug)]
#[repr(align(64))]
struct Run<M> {
    key: Key,
    seen: Seen,
    /// The last message that was heard, its number, its period, and whether it says goodbye.
    message: M,
    sequence: Sequence,
    period: Span,
    leaving: bool,
    /// The looks at which it was first and last heard.
    first: u32,
    heard: u32,
    /// Belief about the run, and the last message that it comes from.
    belief: Belief,
    judged: Option<Sequence>,
}

/// Another host of the volume, as seen from here.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The number that stands for its name.
    pub host: HostId,
    /// The last message that was heard of it.
    pub message: &'a Message,
    /// Time since the message was first heard, by our clock. Its publication may be up to one of our own periods older.
    pub age: Span,
    /// Its liveness, by the age of the message.
    pub liveness: Liveness,
    /// Reason why the host's report counts for less.
    pub doubt: Option<Doubt>,
    /// Whether it was told to leave the host out.
    pub ignored: bool,
    /// Whether another run of its name lives as well: two hosts have one name, or somebody else uses it.
    pub several: bool,
}

impl<M: Deref<Target = Message> + Clone> Peers<M> {
    /// A list without hosts. Messages of the host `me` will be left out.
    #[must_use]
    pub fn new(me: HostId) -> Peers<M> {
        Peers {
            me,
            runs: Vec::new(),
            places: Vec::new(),
            looks: 0,
            tenants: false,
            before: None,
            unheard: 0,
            own: Part::of(&Report::default()),
            own_belief: Belief::default(),
            ignored: BTreeSet::new(),
            past: BTreeMap::new(),
        }
    }

    /// Takes in this host's own report, by which it judges the reports of the others.
    pub fn says(&mut self, report: &Report) {
        let before = std::mem::replace(&mut self.own, Part::of(report));
        if before.settings() != self.own.settings() {
            let own = std::iter::once(&mut self.own_belief);
            self.runs.iter_mut().map(|run| &mut run.belief).chain(own).for_each(Belief::renew);
        }
    }

    /// Takes in whether this host's own publication reached the exchange.
    pub fn published(&mut self, worked: bool) {
        self.unheard = if worked { 0 } else { self.unheard.saturating_add(1) };
    }

    /// Takes in the messages of one look, of all runs but this one.
    pub fn observe<'a>(&mut self, now: Instant, messages: impl IntoIterator<Item = &'a M>)
    where
        M: 'a,
    {
        self.looks = self.looks.wrapping_add(1);
        let look = self.looks;
        let mut strangers = BTreeMap::<Key, &M>::new();
        let (mut known, mut next) = (0, 0);
        for (place, message) in messages.into_iter().enumerate() {
            let key = (message.from.host.id(), message.from.incarnation);
            if key.0 == self.me && look == 1 && message.body.report.tuning == Tuning::Auto {
                self.before = Some(message.body.report.threshold);
            }
            self.tenants |= !message.body.tenants.is_empty();
            // A host that moved to another slot has left its last message in the old one.
            let Some(run) = self.find(place, &mut next, key) else {
                let latest = strangers.entry(key).or_insert(message);
                if message.sequence.is_after(latest.sequence) {
                    *latest = message;
                }
                continue;
            };
            known += usize::from(run.hear(now, look, message));
        }
        if known < self.runs.len() {
            // A dead run stays known while its record is still heard; otherwise it would be taken for a new one.
            let past = &mut self.past;
            self.runs.retain(|run| {
                let stays = run.heard == look || run.looks(now) != Liveness::Gone;
                if !stays && past.len() < MOST_PAST {
                    past.insert(run.key.0, run.belief);
                }
                stays
            });
        }
        if !strangers.is_empty() {
            let known = |runs: &[Run<M>], host| {
                runs.iter().rev().find(|run| run.key.0 == host).map(|run| run.belief)
            };
            self.runs.reserve_exact(strangers.len());
            let new = |(key, message): (Key, &M)| {
                // A host that starts again is known.
                let belief = known(&self.runs, key.0).or_else(|| self.past.remove(&key.0));
                Run::new(key, message, now, look, belief.unwrap_or_default())
            };
            let strangers: Vec<_> = strangers.into_iter().map(new).collect();
            self.runs.extend(strangers);
            self.runs.sort_unstable_by_key(|run| run.key);
        }
    }

    /// The run that sent the message at this place, if it is known. Searched at its last index, at `next` (after the one before), then
    /// anywhere.
    fn find(&mut self, place: usize, next: &mut u32, key: Key) -> Option<&mut Run<M>> {
        if self.places.len() <= place {
            self.places.resize(place + 1, 0);
        }
        let hint = &mut self.places[place];
        let is_at = |index: u32| self.runs.get(index as usize).is_some_and(|run| run.key == key);
        if !is_at(*hint) {
            let anywhere =
                || Some(self.runs.binary_search_by_key(&key, |run| run.key).ok()? as u32);
            *hint = Some(*next).filter(|next| is_at(*next)).or_else(anywhere)?;
        }
        *next = *hint + 1;
        self.runs.get_mut(*hint as usize)
    }

    /// Another live run of this host's name: two hosts have one name. Earlier runs of this host no longer change, so that
    /// they are not live.
    #[must_use]
    pub fn twin(&self, now: Instant) -> Option<&Identity> {
        let own = self.runs.iter().filter(|run| run.key.0 == self.me);
        let mut live = own.filter(|run| run.peer(now).liveness == Liveness::Live);
        live.next_back().map(|run| &run.message.from)
    }

    /// The run of every other host that stands for it: the run that looks most alive.
    fn hosts(&self, now: Instant) -> impl Iterator<Item = &Run<M>> {
        // Runs come in the order of their incarnations, so among equals the last one is the latest.
        let hosts = self.runs.chunk_by(|one, other| one.key.0 == other.key.0);
        let others = hosts.filter(|runs| runs[0].key.0 != self.me);
        others.filter_map(move |runs| runs.iter().max_by_key(|run| run.vitality(now)))
    }

    /// Every other host that is known, each once.
    pub fn all(&self, now: Instant) -> impl Iterator<Item = Peer<'_>> {
        self.hosts(now).map(move |run| Peer {
            ignored: self.ignored.contains(&run.key.0),
            several: self.is_several(run.key, now),
            ..run.peer(now)
        })
    }

    /// Whether another run of a host's name lives as well.
    fn is_several(&self, key: Key, now: Instant) -> bool {
        let from = self.runs.partition_point(|run| run.key.0 < key.0);
        let same = self.runs[from..].iter().take_while(|run| run.key.0 == key.0);
        let live = |run: &Run<M>| run.peer(now).liveness == Liveness::Live;
        same.filter(|run| run.key != key).any(live)
    }

    /// Leaves these hosts out of all sums, and no others.
    pub fn ignore(&mut self, hosts: impl IntoIterator<Item = HostId>) {
        self.ignored = hosts.into_iter().collect();
    }

    /// Number of hosts in the exchange: the known ones that are not gone and have not left, and this one.
    #[must_use]
    pub fn present(&self, now: Instant) -> usize {
        let away = |peer: &Peer<'_>| matches!(peer.liveness, Liveness::Gone | Liveness::Left);
        1 + self.all(now).filter(|peer| !away(peer)).count()
    }

    /// Reports of the live hosts on tenants.
    #[must_use]
    pub fn tenants(&self, now: Instant) -> Vec<TenantPart> {
        if !self.tenants {
            return Vec::new();
        }
        let heard = |run: &&Run<M>| !self.ignored.contains(&run.key.0);
        let live = |run: &&Run<M>| run.peer(now).liveness == Liveness::Live;
        let parts = |run: &Run<M>| {
            let (all, belief) = (run.tenant_shares(), run.belief);
            let said = run.message.clone();
            (0..said.body.tenants.len()).map(move |i| belief.tenant(&said.body.tenants[i], all))
        };
        self.hosts(now).filter(heard).filter(live).flat_map(parts).collect()
    }

    /// Sum of the last reports of all live hosts in the order of their ids, the law's input. `None` while hosts are unproven and none is
    /// live, as records are seen and none has yet changed. `None` also when so many publications of this host have failed that it is stale
    /// for the others. The others do not count a host that they do not hear. `judging`: lists for this call, which a simulation has once
    /// for all hosts.
    #[must_use]
    pub fn totals(&mut self, now: Instant, judging: &mut Judging) -> Option<Totals> {
        if self.unheard >= STALE_AFTER {
            return None;
        }
        let mut totals = Totals::default();
        totals.thresholds.before = self.before;
        judging.hosts.clear();
        let (mut unproven, mut first) = (false, 0);
        for runs in self.runs.chunk_by_mut(|one, other| one.key.0 == other.key.0) {
            let from = first;
            first += runs.len();
            if runs[0].key.0 == self.me || self.ignored.contains(&runs[0].key.0) {
                continue;
            }
            let all = runs.iter_mut().enumerate();
            let Some((i, run)) = all.max_by_key(|(_, run)| run.vitality(now)) else { continue };
            match run.peer(now).liveness {
                Liveness::Live => judging.hosts.push(run.judgement(from + i)),
                Liveness::Unproven => unproven = true,
                // A silent host may be dead or cut off: its shares count as missing.
                Liveness::Stale => {
                    let shares = run.message.part().counted().unwrap_or_default();
                    let known = run.judged.is_some() || run.first > NEW;
                    totals.missing += if known { run.belief.counted(shares) } else { shares };
                }
                // Hosts that are gone or have left do not count.
                Liveness::Gone | Liveness::Left => {}
            }
        }
        let (place, part, belief) = (self.runs.len(), self.own, self.own_belief);
        judging.hosts.push(Heard { place, part, belief, tenants: 0.0, news: true });
        judging.judge(self.looks <= NEW);
        if let Some(own) = judging.hosts.pop() {
            self.own_belief = own.belief;
            totals.own = own.belief.weights();
        }
        for heard in &judging.hosts {
            let run = &mut self.runs[heard.place];
            run.belief = heard.belief;
            totals.hear(&heard.part, run.key.0.0, run.key.0 < self.me);
        }
        (!judging.hosts.is_empty() || !unproven).then_some(totals)
    }
}

/// Most hosts of which something is known while none of their runs is.
const MOST_PAST: usize = 4096;

impl<M: Deref<Target = Message> + Clone> Run<M> {
    fn new(key: Key, message: &M, now: Instant, look: u32, belief: Belief) -> Run<M> {
        let Publication { period, leaving, .. } = message.body;
        Run {
            key,
            seen: Seen::first(now),
            message: message.clone(),
            sequence: message.sequence,
            period,
            leaving,
            first: look,
            heard: look,
            belief,
            judged: None,
        }
    }

    /// Takes in a message of this run. False if it was heard before in this look.
    fn hear(&mut self, now: Instant, look: u32, message: &M) -> bool {
        // An older message is the last one in a slot that the host has given up.
        if message.sequence.is_after(self.sequence) {
            self.seen.change(now);
            self.message = message.clone();
            self.sequence = message.sequence;
            self.period = message.body.period;
            self.leaving = message.body.leaving;
        }
        std::mem::replace(&mut self.heard, look) != look
    }

    fn looks(&self, now: Instant) -> Liveness {
        self.seen.liveness(now, self.period)
    }

    fn peer(&self, now: Instant) -> Peer<'_> {
        let liveness = if self.leaving { Liveness::Left } else { self.looks(now) };
        Peer {
            host: self.key.0,
            message: &self.message,
            age: self.seen.age(now),
            liveness,
            doubt: self.belief.doubt(),
            ignored: false,
            several: false,
        }
    }

    /// Order of the runs of a host by liveness. The first of two live runs counts: a name in use belongs to its first holder.
    fn vitality(&self, now: Instant) -> impl Ord + use<M> {
        Reverse(match self.peer(now).liveness {
            Liveness::Live => (0, self.first),
            Liveness::Unproven => (1, 0),
            // Among these the latest run determines the state of its host.
            Liveness::Stale | Liveness::Left | Liveness::Gone => (2, 0),
        })
    }

    /// Shares of its tenants' VMs.
    fn tenant_shares(&self) -> f64 {
        self.message.body.tenants.iter().map(|part| part.shares).sum()
    }

    /// Input of the judgement: the last message and the belief. `place`: its index among the runs.
    fn judgement(&mut self, place: usize) -> Heard {
        let news = self.judged.replace(self.sequence) != Some(self.sequence);
        let (part, belief) = (*self.message.part(), self.belief);
        Heard { place, part, belief, tenants: self.tenant_shares(), news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::testing::{PERIOD, at, identity, leaving, live};

    fn message(from: Identity, sequence: u64) -> Arc<Message> {
        Arc::new(crate::testing::message(from, sequence))
    }

    fn peers() -> Peers {
        Peers::new(identity("me", 1).host.id())
    }

    fn totals(peers: &mut Peers, now: Instant) -> Option<Totals> {
        peers.totals(now, &mut Judging::default())
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
        peers.observe(at(0), &[message(identity("a", 5), 8)]);
        assert_eq!(seen(&peers, at(0)), one("a", 5, Liveness::Unproven));
        assert!(live(&peers, at(0)).is_empty());
        let last = vec![message(identity("a", 5), 9)];
        for period in 1..=4 {
            peers.observe(at(period), &last);
            assert_eq!(live(&peers, at(period)), [last[0].body.report], "period {period}");
        }
        peers.observe(at(5), &last);
        assert_eq!(seen(&peers, at(5)), one("a", 5, Liveness::Stale));
        assert_eq!(peers.all(at(5)).next().unwrap().age, Span(4 * PERIOD.0));
        peers.observe(at(32), &last);
        assert_eq!(seen(&peers, at(32)), one("a", 5, Liveness::Gone));
        // As long as the record lies around, it must not look new again.
        peers.observe(at(33), &last);
        assert_eq!(seen(&peers, at(33)), one("a", 5, Liveness::Gone));
        peers.observe(at(34), []);
        assert!(seen(&peers, at(34)).is_empty());
    }

    #[test]
    fn another_live_run_of_our_name_is_a_twin_and_an_earlier_one_of_ours_is_not() {
        let mut peers = peers();
        for period in 0..12 {
            let earlier = message(identity("me", 1), 7);
            let other = message(identity("me", 9), period.max(5));
            peers.observe(at(period), &[earlier, other]);
            let twin = peers.twin(at(period)).map(|twin| twin.incarnation.0);
            assert_eq!(twin, (period > 5).then_some(9), "period {period}");
            assert!(peers.all(at(period)).next().is_none(), "it is no other host");
        }
        assert_eq!(peers.twin(at(16)), None, "it fell silent");
    }

    #[test]
    fn nothing_is_said_of_the_others_before_one_is_seen_to_live() {
        let mut peers = peers();
        assert_eq!(totals(&mut peers, at(0)), Some(Totals::default()), "nobody is there");
        peers.observe(at(0), &[message(identity("a", 1), 1), message(identity("b", 1), 1)]);
        assert_eq!(totals(&mut peers, at(0)), None);
        peers.observe(at(1), &[message(identity("a", 1), 2), message(identity("b", 1), 1)]);
        let report = message(identity("a", 1), 2).body.report;
        let (mut one, a) = (Totals::default(), identity("a", 1).host.id());
        one.hear(&Part::of(&report), a.0, a < peers.me);
        assert_eq!(totals(&mut peers, at(1)), Some(one));
    }

    #[test]
    fn a_host_that_is_not_heard_hears_nobody() {
        let mut peers = peers();
        peers.observe(at(0), &[message(identity("a", 1), 1)]);
        peers.observe(at(1), &[message(identity("a", 1), 2)]);
        for _ in 0..STALE_AFTER {
            assert!(
                totals(&mut peers, at(1)).is_some(),
                "the others still count what it said last"
            );
            peers.published(false);
        }
        assert_eq!(totals(&mut peers, at(1)), None);
        assert_eq!(peers.present(at(1)), 2, "the other one is still there");
        peers.published(true);
        assert!(totals(&mut peers, at(1)).is_some());
    }

    #[test]
    fn the_first_by_its_names_hash_leads_and_every_host_sees_the_same_one() {
        let names = ["a", "b", "c", "d"];
        let first = names.iter().min_by_key(|name| identity(name, 1).host.id()).unwrap();
        let said = |name: &str, sequence| {
            let mut message = crate::testing::message(identity(name, 1), sequence);
            message.body.report.threshold = Span(name.as_bytes()[0].into());
            Arc::new(message)
        };
        for me in names {
            let mut peers = Peers::new(identity(me, 1).host.id());
            for sequence in [1, 2] {
                let all: Vec<_> = names.iter().map(|name| said(name, sequence)).collect();
                peers.observe(at(sequence), &all);
            }
            let leader = totals(&mut peers, at(2)).unwrap().thresholds.leader;
            let expected = (me != *first).then(|| Span(first.as_bytes()[0].into()));
            assert_eq!(leader, expected, "seen by {me}");
        }
    }

    #[test]
    fn a_host_that_starts_finds_what_its_run_before_had_learned() {
        let mut peers = peers();
        assert_eq!(totals(&mut peers, at(0)).unwrap().thresholds.before, None);
        peers.observe(at(0), &[message(identity("me", 1), 8)]);
        let learned = Some(crate::testing::publication(0.0).report.threshold);
        assert_eq!(totals(&mut peers, at(0)).unwrap().thresholds.before, learned);
        // A later report of our own changes nothing.
        let mut later = crate::testing::message(identity("me", 2), 1);
        later.body.report.threshold = Span(1);
        peers.observe(at(1), &[Arc::new(later)]);
        assert_eq!(totals(&mut peers, at(1)).unwrap().thresholds.before, learned);
    }

    #[test]
    fn silence_is_measured_by_the_hosts_own_period() {
        let mut peers = peers();
        let quick = |sequence| {
            let mut quick = crate::testing::message(identity("quick", 1), sequence);
            quick.body.period = Span(PERIOD.0 / 4);
            Arc::new(quick)
        };
        peers.observe(at(0), &[quick(1), message(identity("slow", 1), 1)]);
        peers.observe(at(1), &[quick(5), message(identity("slow", 1), 2)]);
        assert_eq!(live(&peers, at(1)).len(), 2);
        let expected = [one("quick", 1, Liveness::Stale), one("slow", 1, Liveness::Live)].concat();
        assert_eq!(seen(&peers, at(2)), expected);
    }

    #[test]
    fn one_does_not_hear_oneself() {
        let mut peers = peers();
        for sequence in 0..3 {
            peers.observe(at(sequence), &[message(identity("me", 1), sequence)]);
        }
        assert!(seen(&peers, at(2)).is_empty());
    }

    #[test]
    fn a_farewell_ends_it_at_once() {
        let mut peers = peers();
        peers.observe(at(0), &[message(identity("a", 1), 1)]);
        peers.observe(at(1), &[message(identity("a", 1), 2)]);
        assert_eq!(live(&peers, at(1)).len(), 1);
        let farewell = Message::new(identity("a", 1), Sequence(3), leaving());
        peers.observe(at(2), &[Arc::new(farewell)]);
        assert_eq!(seen(&peers, at(2)), one("a", 1, Liveness::Left));
        assert!(live(&peers, at(2)).is_empty());
    }

    #[test]
    fn a_run_that_was_left_behind_hides_no_later_farewell() {
        let mut peers = peers();
        let left_behind = message(identity("a", 1), 2);
        peers.observe(at(0), &[message(identity("a", 1), 1)]);
        peers.observe(at(1), &[Arc::clone(&left_behind), message(identity("a", 9), 1)]);
        peers.observe(at(2), &[Arc::clone(&left_behind), message(identity("a", 9), 2)]);
        let farewell = Message::new(identity("a", 9), Sequence(3), leaving());
        peers.observe(at(5), &[left_behind, Arc::new(farewell)]);
        assert_eq!(seen(&peers, at(5)), one("a", 9, Liveness::Left));
        assert_eq!(totals(&mut peers, at(5)).unwrap().missing, 0.0, "nobody is missed");
    }

    #[test]
    fn a_restarted_host_is_counted_once_throughout() {
        let mut peers = peers();
        peers.observe(at(0), &[message(identity("a", 1), 1)]);
        peers.observe(at(1), &[message(identity("a", 1), 2)]);
        peers.observe(at(2), &[message(identity("a", 9), 1)]);
        assert_eq!(seen(&peers, at(2)), one("a", 1, Liveness::Live));
        peers.observe(at(3), &[message(identity("a", 9), 2)]);
        assert_eq!(seen(&peers, at(3)), one("a", 1, Liveness::Live), "it may live as well");
        peers.observe(at(5), &[message(identity("a", 9), 4)]);
        assert_eq!(seen(&peers, at(5)), one("a", 9, Liveness::Live));
    }

    #[test]
    fn a_later_run_does_not_take_the_name_of_one_that_lives() {
        let mut peers = peers();
        let mut impostor = crate::testing::message(identity("a", u64::MAX), 0);
        impostor.body.report.shares = parda_control::Shares(u32::MAX);
        for period in 0..40 {
            impostor.sequence = Sequence(period);
            let mut all = vec![message(identity("a", 1), period)];
            all.extend((period > 10).then(|| Arc::new(impostor.clone())));
            peers.observe(at(period), &all);
        }
        assert_eq!(seen(&peers, at(39)), one("a", 1, Liveness::Live));
        assert!(peers.all(at(39)).all(|peer| peer.several), "and it is seen");
    }

    #[test]
    fn a_host_that_is_ignored_counts_for_nothing_and_is_not_missed() {
        let mut peers = peers();
        let (a, b) = (identity("a", 1), identity("b", 1));
        for sequence in 0..4 {
            let all = [message(a.clone(), sequence), message(b.clone(), sequence)];
            peers.observe(at(sequence), &all);
        }
        let both = totals(&mut peers, at(3)).unwrap().governed.shares;
        peers.ignore([b.host.id()]);
        let one = totals(&mut peers, at(3)).unwrap().governed.shares;
        assert!(one > 0.0 && (both / one - 2.0).abs() < 1e-9, "{one} of {both}");
        assert_eq!(totals(&mut peers, at(7)).unwrap().missing, one, "b is silent, too");
        let ignored: Vec<_> = peers.all(at(3)).map(|peer| peer.ignored).collect();
        assert_eq!(ignored.iter().filter(|ignored| **ignored).count(), 1);
        peers.ignore([]);
        assert_eq!(totals(&mut peers, at(3)).unwrap().governed.shares, both);
    }

    #[test]
    fn a_dead_run_does_not_hide_a_living_one_though_its_clock_was_ahead() {
        let mut peers = peers();
        for sequence in 0..9 {
            let dead = message(identity("a", 99), 7);
            peers.observe(at(sequence), &[dead, message(identity("a", 1), sequence)]);
        }
        assert_eq!(seen(&peers, at(8)), one("a", 1, Liveness::Live));
    }

    #[test]
    fn the_last_word_in_a_slot_given_up_does_not_keep_a_host_alive() {
        let mut peers = peers();
        let left_behind = || message(identity("a", 1), 3);
        for sequence in 4..6 {
            let current = message(identity("a", 1), sequence);
            peers.observe(at(sequence), &[current, left_behind()]);
        }
        assert_eq!(seen(&peers, at(5)), one("a", 1, Liveness::Live));
        for period in 6..20 {
            peers.observe(at(period), &[message(identity("a", 1), 5), left_behind()]);
        }
        assert_eq!(seen(&peers, at(19)), one("a", 1, Liveness::Stale));
    }

    #[test]
    fn what_was_said_before_is_no_news() {
        let mut peers = peers();
        for sequence in [5, 6] {
            peers.observe(at(sequence), &[message(identity("a", 1), sequence)]);
        }
        // An old copy of the exchange comes to light.
        for period in 7..20 {
            peers.observe(at(period), &[message(identity("a", 1), period % 5)]);
        }
        assert_eq!(peers.all(at(19)).next().unwrap().message.sequence, Sequence(6));
        assert_eq!(seen(&peers, at(19)), one("a", 1, Liveness::Stale));
    }

    #[test]
    fn hosts_are_told_apart_wherever_their_messages_lie() {
        let mut peers = peers();
        let hosts = ["a", "b", "c", "d"];
        for sequence in 0..12 {
            let mut order: Vec<_> =
                hosts.iter().map(|host| message(identity(host, 1), sequence)).collect();
            order.rotate_left(sequence as usize % 4);
            // Nobody is in all of them, nor in the same place.
            order.truncate(3);
            peers.observe(at(sequence), &order);
        }
        let live: Vec<_> = hosts.iter().flat_map(|host| one(host, 1, Liveness::Live)).collect();
        assert_eq!(seen(&peers, at(11)), live);
        let reports = peers.all(at(11)).map(|peer| peer.message.sequence.0);
        let mut reports: Vec<_> = reports.collect();
        reports.sort_unstable();
        assert_eq!(reports, [10, 11, 11, 11]);
    }

    #[test]
    fn a_sequence_that_wraps_goes_on() {
        let mut peers = peers();
        for (period, sequence) in [(0, u64::MAX - 1), (1, u64::MAX), (2, 0), (3, 1)] {
            let kept = message(identity("a", 1), u64::MAX - 1);
            peers.observe(at(period), &[message(identity("a", 1), sequence), kept]);
        }
        assert_eq!(peers.all(at(3)).next().unwrap().message.sequence, Sequence(1));
        assert_eq!(seen(&peers, at(3)), one("a", 1, Liveness::Live));
    }
}
