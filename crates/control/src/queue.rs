//! Start-time fair queuing among the VMs of one host: whose IO goes next.
//!
//! SFQ(D) as PARDA uses it inside a host: each IO has a start tag, the smallest start tag goes
//! next, and virtual time is the start tag of the IO dispatched last. D, the number of IOs in
//! service at once, is the host's window; the queue does not know it. A flow's finish tag grows
//! by cost / shares per IO, with the shares in force when the IO is dispatched, so that weights
//! may change at any time.
//!
//! Only the head of each flow is tagged: a flow's later IOs follow from it. That keeps every
//! operation logarithmic in the number of backlogged flows, whatever their depths.

use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

use slab::Slab;

use crate::units::Shares;

/// What one IO takes from its VM's share, in slots of the window: 1 for each IO under IOPS
/// fairness, the number of size units under bytes fairness. Kept in 1/1024 of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

impl Cost {
    const UNIT: u64 = 1024;

    /// One slot.
    pub const ONE: Cost = Cost(Self::UNIT);

    /// `slots` slots, at least the smallest cost there is: an IO that costs nothing would let its
    /// VM starve the others.
    #[must_use]
    pub fn slots(slots: f64) -> Cost {
        Cost(((slots * Self::UNIT as f64) as u64).max(1))
    }

    /// This cost in slots.
    #[must_use]
    pub fn as_slots(self) -> f64 {
        self.0 as f64 / Self::UNIT as f64
    }
}

/// A flow. The id of one that was removed is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub usize);

/// A start or finish tag. Wide enough that it never wraps: 2^64 slots at one share.
type Tag = u128;

/// Slots are shifted by this much before they are divided by shares, so that a million shares
/// still leave twenty significant bits.
const TAG_SHIFT: u32 = 30;

#[derive(Debug)]
struct Flow<T> {
    shares: Shares,
    burst: Cost,
    /// Finish tag of the IO dispatched last.
    finish: Tag,
    waiting: VecDeque<(Cost, T)>,
}

impl<T> Flow<T> {
    fn tag_of(&self, cost: Cost) -> Tag {
        let shares = self.shares.0.max(1);
        // As good as always the quotient of two machine words.
        if cost.0 >> (u64::BITS - TAG_SHIFT) == 0 {
            Tag::from((cost.0 << TAG_SHIFT) / u64::from(shares))
        } else {
            (Tag::from(cost.0) << TAG_SHIFT) / Tag::from(shares)
        }
    }
}

/// A fair queue of `T`s. See the module's documentation.
#[derive(Debug)]
pub struct FairQueue<T> {
    flows: Slab<Flow<T>>,
    /// Start tag of the head of every backlogged flow; ties go to the lower id.
    heads: BinaryHeap<Reverse<(Tag, FlowId)>>,
    virtual_time: Tag,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        FairQueue { flows: Slab::new(), heads: BinaryHeap::new(), virtual_time: 0, len: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Adds a flow. `burst` is how much it may gather while idle and then spend ahead of the
    /// others as one batch (PARDA §3, "burst handling"); [`Cost`] of zero slots for none.
    pub fn add_flow(&mut self, shares: Shares, burst: Cost) -> FlowId {
        let finish = self.virtual_time;
        FlowId(self.flows.insert(Flow { shares, burst, finish, waiting: VecDeque::new() }))
    }

    /// Removes a flow of which nothing waits; `false` if something does, or there is no such flow.
    pub fn remove_flow(&mut self, flow: FlowId) -> bool {
        // Only a backlogged flow has an entry in `heads`.
        let idle = self.flows.get(flow.0).is_some_and(|f| f.waiting.is_empty());
        idle && self.flows.try_remove(flow.0).is_some()
    }

    /// Changes a flow's shares from its next dispatched IO on.
    pub fn set_shares(&mut self, flow: FlowId, shares: Shares) {
        self.flows[flow.0].shares = shares;
    }

    /// Changes how much a flow may gather while idle.
    pub fn set_burst(&mut self, flow: FlowId, burst: Cost) {
        self.flows[flow.0].burst = burst;
    }

    /// Queues an item. O(log backlogged flows) if the flow was idle, O(1) otherwise.
    pub fn push(&mut self, flow: FlowId, cost: Cost, item: T) {
        let f = &mut self.flows[flow.0];
        if f.waiting.is_empty() {
            // An idle flow starts at virtual time, less the credit that it gathered: how far its
            // finish tag has fallen behind, at most the burst.
            let earliest = self.virtual_time.saturating_sub(f.tag_of(f.burst));
            let start = f.finish.max(earliest);
            f.finish = start;
            self.heads.push(Reverse((start, flow)));
        }
        f.waiting.push_back((cost, item));
        self.len += 1;
    }

    /// The cost of the item that [`pop`](Self::pop) would give.
    #[must_use]
    pub fn head_cost(&self) -> Option<Cost> {
        let Reverse((_, flow)) = self.heads.peek()?;
        self.flows[flow.0].waiting.front().map(|&(cost, _)| cost)
    }

    /// Takes the item with the smallest start tag. O(log backlogged flows).
    pub fn pop(&mut self) -> Option<(FlowId, Cost, T)> {
        let Reverse((start, id)) = self.heads.pop()?;
        let flow = &mut self.flows[id.0];
        let (cost, item) = flow.waiting.pop_front()?;
        self.virtual_time = self.virtual_time.max(start);
        flow.finish = start + flow.tag_of(cost);
        if !flow.waiting.is_empty() {
            self.heads.push(Reverse((flow.finish, id)));
        }
        self.len -= 1;
        Some((id, cost, item))
    }

    /// Items waiting in all flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
