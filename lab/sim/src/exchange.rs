//! Slots of the exchange, and the visits of a host to them.
//!
//! A visit is an IO on the exchange's LUN, so the array's latency delays what hosts learn of each other. Over UDP and etcd a visit is no IO
//! and takes no time. Tests of `parda-exchange` cover the layout and the claiming of slots; here every host owns a slot from the start.

use std::collections::VecDeque;
use std::rc::Rc;

use parda_array::{ArrayIo, Bytes, IoKind, LunId};
use parda_control::belief::Judging;
use parda_control::{Instant, PeriodClock, Report, Span, TenantPart, Totals};
use parda_exchange::{
    HostName, Identity, Incarnation, Message, Peers, Publication, Sequence, etcd, reach,
};
use parda_scenario::exchange::MeetingTransport;
use parda_scenario::scenario::{EXCHANGE_HEADER, SLOT};
use parda_scenario::{HostIndex, Scenario};

use crate::events::{Life, Visit};

/// All slots.
#[derive(Debug)]
pub(crate) struct Slots {
    lun: LunId,
    count: u32,
    /// Number of slots ever written, and the highest of them.
    used: (u32, Option<u32>),
    /// Slot of each host, in ascending order of host ids, as in [`Peers`]: so no lookup is needed.
    held: Vec<(HostIndex, Slot<Rc<Message>>)>,
    /// Index of each host of the scenario in `held`.
    places: Vec<usize>,
    /// Time for which a reader may still get a message that was written over.
    keep: Span,
}

/// Contents of a slot, now and before: each with its time of writing.
#[derive(Debug)]
struct Slot<T> {
    /// Current message, which nearly all readers want: n of them for each slot in a period.
    last: Option<(Instant, T)>,
    before: VecDeque<(Instant, T)>,
}

impl<T> Slot<T> {
    fn new() -> Slot<T> {
        Slot { last: None, before: VecDeque::new() }
    }

    fn put(&mut self, now: Instant, message: T, keep: Span) {
        self.before.extend(self.last.replace((now, message)));
        // The first message that stays was current at `now` − `keep`.
        while !self.before.is_empty()
            && let Some((at, _)) = self.before.get(1).or(self.last.as_ref())
            && now.since(*at) >= keep
        {
            self.before.pop_front();
        }
    }

    /// Message that the slot held at `then`.
    fn at(&self, then: Instant) -> Option<&T> {
        let (at, last) = self.last.as_ref()?;
        if *at <= then {
            return Some(last);
        }
        self.before.iter().rev().find(|(at, _)| *at <= then).map(|(_, message)| message)
    }
}

impl Slots {
    pub(crate) fn new(lun: LunId, scenario: &Scenario) -> Slots {
        let mut by_id: Vec<HostIndex> = scenario.host_ids().map(|(id, _)| id).collect();
        by_id.sort_by_cached_key(|host| {
            HostName::new(&scenario.host(*host).name).map(|name| name.id()).ok()
        });
        let mut places = vec![0; by_id.len()];
        by_id.iter().enumerate().for_each(|(place, host)| places[host.0] = place);
        let held = by_id.into_iter().map(|host| (host, Slot::new())).collect();
        let keep = scenario.longest_delay().into();
        Slots { lun, count: scenario.exchange_slots, used: (0, None), held, places, keep }
    }

    /// One large read of the header and the slots that are in use.
    pub(crate) fn read(&self) -> ArrayIo {
        let (used, last) = self.used;
        let slots = u64::from(reach(used, last, self.count));
        let len = Bytes(EXCHANGE_HEADER.0 + SLOT.0 * slots);
        ArrayIo { lun: self.lun, kind: IoKind::Read, offset: Bytes(0), len }
    }

    /// One write of a host's own.
    pub(crate) fn write(&self, host: HostIndex) -> ArrayIo {
        let offset = Bytes(EXCHANGE_HEADER.0 + SLOT.0 * host.0 as u64);
        ArrayIo { lun: self.lun, kind: IoKind::Write, offset, len: Bytes(SLOT.0) }
    }

    /// Stores a written message.
    pub(crate) fn put(&mut self, now: Instant, host: HostIndex, message: Rc<Message>) {
        let (_, slot) = &mut self.held[self.places[host.0]];
        if slot.last.is_none() {
            let (used, last) = self.used;
            self.used = (used + 1, last.max(Some(host.0 as u32)));
        }
        slot.put(now, message, self.keep);
    }

    /// Messages that the slots of some hosts held at `then`; none if `then` is `None`. `drawn`: in the order of the scenario, as chance
    /// decides about each; otherwise in the order of host ids.
    pub(crate) fn shown(
        &self,
        then: Option<Instant>,
        drawn: bool,
        whose: impl Fn(HostIndex) -> bool,
    ) -> impl Iterator<Item = &Rc<Message>> {
        let places = self.places.iter().enumerate();
        let order = places.map(move |(i, place)| &self.held[if drawn { *place } else { i }]);
        order.filter(move |(host, _)| whose(*host)).filter_map(move |(_, slot)| slot.at(then?))
    }
}

/// Step of a host's control thread.
#[derive(Debug)]
pub(crate) enum Step {
    /// Waits for the end of the period.
    Waits,
    /// Reads the slots, since the given time.
    Reads(Instant),
    /// Writes the message to its own slot.
    Writes(Rc<Message>),
}

/// Rounds of a host: clock, peers, and the visit under way.
#[derive(Debug)]
pub(crate) struct Rounds {
    me: Identity,
    peers: Peers<Rc<Message>>,
    sequence: Sequence,
    /// Clock of the periods.
    pub(crate) clock: PeriodClock,
    step: Step,
    visit: Visit,
}

impl Rounds {
    /// Begins at the phase that the host's name determines, as the agent does. So hosts that start together do not all visit the exchange
    /// at once.
    pub(crate) fn new(now: Instant, host: HostName, life: Life, period: Span) -> Rounds {
        let phase = host.id().phase();
        let me = Identity { host, incarnation: Incarnation(life.0) };
        Rounds {
            peers: Peers::new(me.host.id()),
            me,
            sequence: Sequence::default(),
            clock: PeriodClock::new(now, period, phase),
            step: Step::Waits,
            visit: Visit(0),
        }
    }

    /// Begins a round, if one is due or became due while the host hung.
    pub(crate) fn begin_round(&mut self, now: Instant) -> bool {
        let due = self.clock.is_due(now);
        if due {
            self.clock.begin();
        }
        due
    }

    /// Begins to read the slots.
    pub(crate) fn read(&mut self, now: Instant) -> Visit {
        self.step = Step::Reads(now);
        self.begin()
    }

    /// Records the result of a round, which determines the time of the next one.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        transport: MeetingTransport,
        others: Option<&Totals>,
        own: &Report,
    ) {
        match transport {
            MeetingTransport::File => self.clock.settle(self.peers.present(now), others, own),
            MeetingTransport::Udp => {}
            MeetingTransport::Etcd => self.clock.set_least(etcd::pace(self.peers.present(now))),
        }
    }

    /// Begins to write the round's report.
    pub(crate) fn write(&mut self, report: Report, tenants: Vec<TenantPart>) -> Visit {
        self.sequence = self.sequence.next();
        self.peers.says(&report);
        let body = Publication {
            period: self.clock.period(),
            slowed: false,
            leaving: false,
            report,
            tenants,
        };
        self.step = Step::Writes(Rc::new(Message::new(self.me.clone(), self.sequence, body)));
        self.begin()
    }

    fn begin(&mut self) -> Visit {
        self.visit = Visit(self.visit.0 + 1);
        self.visit
    }

    /// Message of this visit, if it is a write that has not ended.
    pub(crate) fn writes(&self, visit: Visit) -> Option<Rc<Message>> {
        match &self.step {
            Step::Writes(message) if visit == self.visit => Some(Rc::clone(message)),
            _ => None,
        }
    }

    /// Ends a visit that `worked` or was given up. Returns its step; [`Step::Waits`] if it ended already.
    pub(crate) fn end(&mut self, visit: Visit, worked: bool) -> Step {
        if visit != self.visit {
            return Step::Waits;
        }
        let step = std::mem::replace(&mut self.step, Step::Waits);
        if matches!(step, Step::Writes(_)) {
            self.peers.published(worked);
        }
        step
    }

    /// Ends the round after a write that failed before it began.
    pub(crate) fn not_written(&mut self) {
        self.peers.published(false);
    }

    /// Sum over the slots as a read that began at `since` shows them. `None` while the totals are unknown, because no shown host has yet
    /// been seen to live.
    pub(crate) fn hear<'a>(
        &mut self,
        since: Instant,
        shown: impl Iterator<Item = &'a Rc<Message>>,
        judging: &mut Judging,
    ) -> Option<Totals> {
        let others = shown.filter(|message| message.from.incarnation != self.me.incarnation);
        self.peers.observe(since, others);
        self.peers.totals(since, judging)
    }

    /// Parts of the other hosts in tenants.
    pub(crate) fn tenants(&self, since: Instant) -> Vec<TenantPart> {
        self.peers.tenants(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slot contents at each of `times`, after writes at 10, 20 and 30. The slot keeps overwritten messages for `keep`.
    fn held(keep: u64, times: [u64; 6]) -> [Option<u64>; 6] {
        let mut slot = Slot::new();
        for at in [10, 20, 30] {
            slot.put(Instant(at), at, Span(keep));
        }
        times.map(|at| slot.at(Instant(at)).copied())
    }

    #[test]
    fn a_slot_shows_what_it_held_at_any_time_that_may_still_be_asked_for() {
        let times = [9, 10, 19, 20, 29, 30];
        let all = [None, Some(10), Some(10), Some(20), Some(20), Some(30)];
        assert_eq!(held(100, times), all);
        // From 30 on, no reader wants messages from before 15.
        assert_eq!(held(15, times), all);
        assert_eq!(held(10, times), [None, None, None, Some(20), Some(20), Some(30)]);
        assert_eq!(held(0, times), [None, None, None, None, None, Some(30)]);
    }
}
