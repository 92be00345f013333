//! Start-time fair queuing among the VMs of one host: the order of their IOs.
//!
//! SFQ(D) as PARDA uses it inside a host: each IO has a start tag, and the smallest start tag goes next. Virtual time is the start tag of
//! the IO dispatched last. D, the number of IOs in service at once, is the host's window; the queue does not depend on it. A flow's finish
//! tag grows by cost / shares per IO, with the shares in force at the dispatch. So weights may change at any time.
//!
//! Only the head of each flow is tagged: a flow's later IOs follow from it. So every operation is logarithmic in the number of backlogged
//! flows, whatever their depths.
//!
//! SFQ lets a flow without waiting IOs begin at virtual time, so that an idle flow gathers no credit. But a client with one or two IOs
//! under way often has none waiting although it demands all of its part: these IOs are at the array. Its arrears are kept, up to a few IOs
//! (`OWED`), and no other flow receives them. An IO that its flow may have at the array in any case needs no turn: it goes
//! [ahead](FairQueue::push_ahead).
//!
//! No flow waits without bound, whatever its shares. After [`FairQueue::set_patience`] without service, a flow is [`FairQueue::overdue`].

use alloc::collections::binary_heap::PeekMut;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;

use slab::Slab;

use crate::mechanism::{Mechanism, on};
use crate::units::{Instant, Shares, Span};

/// Charge of one IO to its VM's share, in slots of the window ([`Costs`](crate::io::Costs)). Kept in 1/1024 of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

impl Cost {
    const UNIT: u64 = 1024;
    const MOST: u64 = i64::MAX as u64;

    /// The cost of one slot.
    pub const ONE: Cost = Cost(Self::UNIT);

    /// `slots` slots, at least the smallest possible cost: an IO at no cost would let its VM starve the others.
    #[must_use]
    pub fn slots(slots: f64) -> Cost {
        Cost(((slots * Self::UNIT as f64) as u64).clamp(1, Self::MOST))
    }

    /// This cost in slots.
    #[must_use]
    pub fn as_slots(self) -> f64 {
        // Signed, as that takes the processor a third of the time.
        self.0 as i64 as f64 / Self::UNIT as f64
    }
}

/// A flow. The id of one that was removed is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub usize);

/// A start or finish tag. 96 bits count, which never wrap: 2^56 slots at one share.
type Tag = u128;

/// Head of a backlogged flow: start tag above flow id in one number, which the heap compares without a branch. The order is reversed, as
/// the heap yields its greatest entry first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head(Reverse<u128>);

impl Head {
    fn new(start: Tag, FlowId(flow): FlowId) -> Head {
        Head(Reverse(start << u32::BITS | u128::from(flow as u32)))
    }

    fn start(self) -> Tag {
        self.0.0 >> u32::BITS
    }

    fn flow(self) -> FlowId {
        FlowId(self.0.0 as u32 as usize)
    }
}

/// Shift of slots before the division by shares: a million shares still leave twenty significant bits.
const TAG_SHIFT: u32 = 30;

/// Range of shares that tags distinguish: every IO has a charge.
const SHARES: (f64, f64) = (1e-6, 1e12);

/// Most IOs by which a flow without waiting IOs may be behind virtual time. Without a bound, a flow with slow IOs that cannot use its part
/// would gather arrears without end.
const OWED: Tag = 8;

/// Fields that each IO needs come first and fill one line of the processor's cache.
#[derive(Debug)]
#[repr(C, align(64))]
struct Flow<T> {
    waiting: VecDeque<(Cost, T)>,
    /// Finish tag of the IO dispatched last. While the flow is backlogged: start tag of its head.
    finish: Tag,
    /// Tag units per slot: a division for each IO would cost a tenth of all time.
    slot: u64,
    /// Time of its last service, or of becoming backlogged.
    served: Instant,
    burst: Cost,
    /// The time of its entry in [`FairQueue::dues`], if it has one.
    due: Option<Instant>,
}

impl<T> Flow<T> {
    /// Start tag of an item of this cost that arrives in an empty flow: virtual time, less the credit.
    fn start(&self, virtual_time: Tag, cost: Cost, keeps: bool) -> Tag {
        // Arrears of its finish tag, at most a few IOs or the burst.
        let few = if keeps && on(Mechanism::Owed) { OWED * self.tag_of(cost) } else { 0 };
        self.finish.max(virtual_time.saturating_sub(few.max(self.tag_of(self.burst))))
    }

    /// Tag units of a cost.
    fn tag_of(&self, cost: Cost) -> Tag {
        if cost == Cost::ONE {
            return self.slot.into();
        }
        Tag::from(self.slot) * Tag::from(cost.0) / Tag::from(Cost::UNIT)
    }
}

/// Tag units of one slot.
fn slot(weight: f64) -> u64 {
    ((Cost::UNIT << TAG_SHIFT) as f64 / weight.clamp(SHARES.0, SHARES.1)) as u64
}

/// A fair queue of `T`s. See the module's documentation.
#[derive(Debug)]
pub struct FairQueue<T> {
    flows: Slab<Flow<T>>,
    /// Items that need no turn, oldest first.
    ahead: VecDeque<(FlowId, Cost, T)>,
    /// Start tag of the head of every backlogged flow; ties go to the lower id.
    heads: BinaryHeap<Head>,
    /// Entries of `heads` that stand for a head which was taken out of turn.
    stale: usize,
    /// Time at which each backlogged flow becomes overdue, or earlier. An entry is updated only when its time has come, so that serving a
    /// flow costs nothing here.
    dues: BinaryHeap<Reverse<(Instant, FlowId)>>,
    patience: Span,
    virtual_time: Tag,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        FairQueue {
            flows: Slab::new(),
            ahead: VecDeque::new(),
            heads: BinaryHeap::new(),
            stale: 0,
            dues: BinaryHeap::new(),
            patience: Span(u64::MAX),
            virtual_time: 0,
            len: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Adds a flow. `burst`: cost gathered while idle and then spent ahead of the others (PARDA §3, "burst handling"); zero slots for none.
    pub fn add_flow(&mut self, Shares(shares): Shares, burst: Cost) -> FlowId {
        let finish = self.virtual_time;
        let (waiting, served, due) = (VecDeque::new(), Instant(0), None);
        let slot = slot(shares.into());
        let flow = Flow { slot, burst, finish, waiting, served, due };
        FlowId(self.flows.insert(flow))
    }

    /// Removes a flow of which nothing waits; `false` if something does, or there is no such flow.
    pub fn remove_flow(&mut self, flow: FlowId) -> bool {
        let none = self.flows.get(flow.0).is_some_and(|f| f.waiting.is_empty());
        let idle = none && self.ahead.iter().all(|(of, ..)| *of != flow);
        idle && self.flows.try_remove(flow.0).is_some()
    }

    /// Changes the shares that a flow counts with, from its next dispatched IO on.
    pub fn set_weight(&mut self, flow: FlowId, weight: f64) {
        self.flows[flow.0].slot = slot(weight);
    }

    /// Changes how much a flow may gather while idle.
    pub fn set_burst(&mut self, flow: FlowId, burst: Cost) {
        self.flows[flow.0].burst = burst;
    }

    /// Removes the credit that an empty flow gathered while idle.
    pub fn forget_credit(&mut self, flow: FlowId) {
        let flow = &mut self.flows[flow.0];
        if flow.waiting.is_empty() {
            flow.finish = flow.finish.max(self.virtual_time);
        }
    }

    /// Changes for how long a backlogged flow waits at most before it is [`overdue`](Self::overdue).
    pub fn set_patience(&mut self, patience: Span) {
        if patience == self.patience {
            return;
        }
        self.patience = patience;
        self.dues.clear();
        for (id, flow) in &mut self.flows {
            flow.due = (!flow.waiting.is_empty()).then(|| flow.served + patience);
            self.dues.extend(flow.due.map(|due| Reverse((due, FlowId(id)))));
        }
    }

    /// Charges all waiting items anew, after a change of the cost unit. All flows begin at virtual time again, as their credit and arrears
    /// had the earlier unit. `anew` receives the flow, the earlier cost and the item. O(items).
    pub fn charge_anew(&mut self, mut anew: impl FnMut(FlowId, Cost, &T) -> Cost) {
        for (flow, cost, item) in &mut self.ahead {
            *cost = anew(*flow, *cost, item);
        }
        self.heads.clear();
        self.stale = 0;
        for (id, flow) in &mut self.flows {
            for (cost, item) in &mut flow.waiting {
                *cost = anew(FlowId(id), *cost, item);
            }
            flow.finish = self.virtual_time;
            if !flow.waiting.is_empty() {
                self.heads.push(Head::new(flow.finish, FlowId(id)));
            }
        }
    }

    /// Queues an item. `keeps`: the flow keeps its arrears, up to a few IOs, although it was empty. O(log backlogged flows) for an empty
    /// flow, O(1) otherwise.
    pub fn push(&mut self, now: Instant, flow: FlowId, cost: Cost, keeps: bool, item: T) {
        let f = &mut self.flows[flow.0];
        if f.waiting.is_empty() {
            let start = f.start(self.virtual_time, cost, keeps);
            f.finish = start;
            f.served = now;
            self.heads.push(Head::new(start, flow));
            if f.due.is_none() {
                let due = now + self.patience;
                f.due = Some(due);
                self.dues.push(Reverse((due, flow)));
            }
        }
        f.waiting.push_back((cost, item));
        self.len += 1;
    }

    /// Queues an item that needs no turn, in a flow without waiting items. The charge is as if it had gone at virtual time: no item that
    /// went ahead delays a later one. O(1).
    pub fn push_ahead(&mut self, flow: FlowId, cost: Cost, item: T) {
        let f = &mut self.flows[flow.0];
        let start = f.start(self.virtual_time, cost, true).min(self.virtual_time);
        f.finish = start + f.tag_of(cost);
        self.ahead.push_back((flow, cost, item));
        self.len += 1;
    }

    /// Takes the oldest item that needs no turn.
    pub fn pop_ahead(&mut self) -> Option<(FlowId, Cost, T)> {
        let ahead = self.ahead.pop_front();
        self.len -= usize::from(ahead.is_some());
        ahead
    }

    /// Whether items of this flow wait for their turn.
    #[must_use]
    pub fn waits(&self, flow: FlowId) -> bool {
        !self.flows[flow.0].waiting.is_empty()
    }

    /// Items of this flow that wait for their turn.
    #[must_use]
    pub fn waiting(&self, flow: FlowId) -> usize {
        self.flows.get(flow.0).map_or(0, |flow| flow.waiting.len())
    }

    /// Takes the item with the smallest start tag, of those that wait for their turn. O(log backlogged flows).
    pub fn pop(&mut self, now: Instant) -> Option<(FlowId, Cost, T)> {
        self.pop_if(now, |_, _| true)
    }

    /// As `pop`, if the item `may` go by its flow and its cost.
    pub fn pop_if(
        &mut self,
        now: Instant,
        may: impl FnOnce(FlowId, Cost) -> bool,
    ) -> Option<(FlowId, Cost, T)> {
        let head = self.heads.peek()?;
        let (start, id) = (head.start(), head.flow());
        let flow = &mut self.flows[id.0];
        let cost = flow.waiting.front()?.0;
        if !may(id, cost) {
            return None;
        }
        let mut head = self.heads.peek_mut()?;
        let (_, item) = flow.waiting.pop_front()?;
        self.virtual_time = self.virtual_time.max(start);
        flow.finish = start + flow.tag_of(cost);
        flow.served = now;
        if flow.waiting.is_empty() {
            PeekMut::pop(head);
        } else {
            // Changed in place, the entry sinks once; taken out and put back it would move twice.
            *head = Head::new(flow.finish, id);
            drop(head);
        }
        self.len -= 1;
        self.forget_stale();
        Some((id, cost, item))
    }

    /// The backlogged flow that has waited longest, if it was not served for longer than the patience.
    pub fn overdue(&mut self, now: Instant) -> Option<FlowId> {
        while let Some(&Reverse((due, id))) = self.dues.peek() {
            if due > now {
                return None;
            }
            // An entry of a removed flow does not count for a new flow with its id.
            let flow = self.flows.get_mut(id.0).filter(|flow| flow.due == Some(due));
            let Some(flow) = flow else {
                self.dues.pop();
                continue;
            };
            if flow.waiting.is_empty() {
                flow.due = None;
                self.dues.pop();
                continue;
            }
            let next = flow.served + self.patience;
            if next <= now {
                return Some(id);
            }
            flow.due = Some(next);
            if let Some(mut entry) = self.dues.peek_mut() {
                *entry = Reverse((next, id));
            }
        }
        None
    }

    /// Lower bound of the time at which a flow becomes overdue. The caller asks again at that time.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.dues.peek().map(|Reverse((due, _))| *due)
    }

    /// Removes a flow's oldest item, whatever its turn. The charge is as if it had gone at virtual time. Service beyond the flow's turns,
    /// by a reservation or after too long a wait, is no debt.
    pub fn pop_of(&mut self, now: Instant, id: FlowId) -> Option<(Cost, T)> {
        let flow = self.flows.get_mut(id.0)?;
        let (cost, item) = flow.waiting.pop_front()?;
        flow.finish = flow.finish.min(self.virtual_time) + flow.tag_of(cost);
        flow.served = now;
        // The entry of the removed head stays in the heap as a stale one.
        self.stale += 1;
        if !flow.waiting.is_empty() {
            self.heads.push(Head::new(flow.finish, id));
        }
        self.len -= 1;
        self.forget_stale();
        Some((cost, item))
    }

    /// Removes the items of a flow that `gone` selects, at any place in the queue. The others keep their turns, and removed items cost the
    /// flow nothing. O(items of the flow, and items that need no turn).
    pub fn withdraw(&mut self, id: FlowId, mut gone: impl FnMut(&T) -> bool) -> Vec<(Cost, T)> {
        let flow = &mut self.flows[id.0];
        let backlogged = !flow.waiting.is_empty();
        let (taken, kept): (VecDeque<_>, _) =
            mem::take(&mut flow.waiting).into_iter().partition(|(_, item)| gone(item));
        flow.waiting = kept;
        let mut out = Vec::from(taken);
        let waits = !flow.waiting.is_empty();
        for (of, cost, item) in mem::take(&mut self.ahead) {
            if of != id || !gone(&item) {
                self.ahead.push_back((of, cost, item));
                continue;
            }
            if !waits {
                flow.finish = flow.finish.saturating_sub(flow.tag_of(cost));
            }
            out.push((cost, item));
        }
        self.len -= out.len();
        // The entry of the removed head is stale.
        self.stale += usize::from(backlogged && !waits);
        self.forget_stale();
        out
    }

    /// Removes entries from the top of `heads` that stand for no head.
    fn forget_stale(&mut self) {
        while self.stale > 0
            && let Some(&head) = self.heads.peek()
        {
            let flow = self.flows.get(head.flow().0);
            if flow.is_some_and(|flow| flow.finish == head.start() && !flow.waiting.is_empty()) {
                return;
            }
            self.heads.pop();
            self.stale -= 1;
        }
    }

    /// Items waiting in all flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no IO of any flow waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
