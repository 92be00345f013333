//! The fair queue against an oracle that looks at every flow, and against SFQ's theorems.

use std::collections::VecDeque;

use parda_control::queue::{Cost, FairQueue, FlowId};
use parda_control::{Instant, Shares};
use proptest::prelude::*;

/// Start-time fair queuing as the textbook has it: every item is tagged when it becomes its flow's
/// head, and the smallest tag is found by looking at all flows. Exact fractions over a common
/// denominator are not needed: it uses the same integer division as is documented.
struct Oracle {
    flows: Vec<OracleFlow>,
    ahead: VecDeque<(usize, u64, f64)>,
    virtual_time: u128,
}

struct OracleFlow {
    shares: u32,
    burst: f64,
    finish: u128,
    start: u128,
    waiting: VecDeque<(f64, u64)>,
}

fn tag(slots: f64, shares: u32) -> u128 {
    (u128::from(((slots * 1024.0) as u64).max(1)) << 30) / u128::from(shares)
}

impl Oracle {
    /// The start tag of a flow that has nothing waiting.
    fn begins(&self, flow: usize, slots: f64, keeps: bool) -> u128 {
        let f = &self.flows[flow];
        let few = if keeps { 8 * tag(slots, f.shares) } else { 0 };
        f.finish.max(self.virtual_time.saturating_sub(few.max(tag(f.burst, f.shares))))
    }

    fn push(&mut self, flow: usize, slots: f64, keeps: bool, item: u64) {
        if self.flows[flow].waiting.is_empty() {
            let start = self.begins(flow, slots, keeps);
            let f = &mut self.flows[flow];
            (f.start, f.finish) = (start, start);
        }
        self.flows[flow].waiting.push_back((slots, item));
    }

    fn push_ahead(&mut self, flow: usize, slots: f64, item: u64) {
        let start = self.begins(flow, slots, true).min(self.virtual_time);
        let f = &mut self.flows[flow];
        f.finish = start + tag(slots, f.shares);
        self.ahead.push_back((flow, item, slots));
    }

    fn forget(&mut self, flow: usize) {
        let f = &mut self.flows[flow];
        if f.waiting.is_empty() {
            f.finish = f.finish.max(self.virtual_time);
        }
    }

    /// As if those items had never come; what went ahead was charged at once, and is given back.
    fn withdraw(&mut self, flow: usize, gone: impl Fn(u64) -> bool) -> Vec<u64> {
        let f = &mut self.flows[flow];
        let waits: Vec<u64> = f.waiting.iter().map(|(_, item)| *item).collect();
        let ahead = self.ahead.iter().filter(|(of, ..)| *of == flow).map(|(_, item, _)| *item);
        let out: Vec<u64> = waits.into_iter().chain(ahead).filter(|item| gone(*item)).collect();
        f.waiting.retain(|(_, item)| !gone(*item));
        for (_, item, slots) in self.ahead.iter().filter(|(of, ..)| *of == flow) {
            if gone(*item) && f.waiting.is_empty() {
                f.finish = f.finish.saturating_sub(tag(*slots, f.shares));
            }
        }
        self.ahead.retain(|(of, item, _)| *of != flow || !gone(*item));
        out
    }

    fn pop(&mut self) -> Option<(usize, u64)> {
        if let Some((flow, item, _)) = self.ahead.pop_front() {
            return Some((flow, item));
        }
        let backlogged = self.flows.iter().enumerate().filter(|(_, f)| !f.waiting.is_empty());
        let (i, _) = backlogged.min_by_key(|&(i, f)| (f.start, i))?;
        let f = &mut self.flows[i];
        let (slots, item) = f.waiting.pop_front()?;
        self.virtual_time = self.virtual_time.max(f.start);
        f.finish = f.start + tag(slots, f.shares);
        f.start = f.finish;
        Some((i, item))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { flow: usize, slots: f64, keeps: bool },
    Ahead { flow: usize, slots: f64 },
    Pop,
    Reweigh { flow: usize, shares: u32 },
    Forget { flow: usize },
    Withdraw { flow: usize, every: u64 },
}

fn steps(flows: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..flows, 0.25..32.0f64, any::<bool>())
            .prop_map(|(flow, slots, keeps)| Step::Push { flow, slots, keeps }),
        1 => (0..flows, 0.25..32.0f64).prop_map(|(flow, slots)| Step::Ahead { flow, slots }),
        3 => Just(Step::Pop),
        1 => (0..flows, 1..5000u32).prop_map(|(flow, shares)| Step::Reweigh { flow, shares }),
        1 => (0..flows).prop_map(|flow| Step::Forget { flow }),
        1 => (0..flows, 1..4u64).prop_map(|(flow, every)| Step::Withdraw { flow, every }),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn it_gives_what_the_oracle_gives(
        config in prop::collection::vec((1..5000u32, 0.0..16.0f64), 1..12),
        script in steps(12),
    ) {
        let mut queue = FairQueue::default();
        let mut oracle = Oracle { flows: Vec::new(), ahead: VecDeque::new(), virtual_time: 0 };
        for &(shares, burst) in &config {
            queue.add_flow(Shares(shares), Cost::slots(burst));
            oracle.flows.push(OracleFlow {
                shares, burst, finish: 0, start: 0, waiting: VecDeque::new(),
            });
        }
        let mut waiting = 0usize;
        for (n, step) in script.into_iter().enumerate() {
            match step {
                Step::Push { flow, slots, keeps } => {
                    let flow = flow % config.len();
                    queue.push(Instant(0), FlowId(flow), Cost::slots(slots), keeps, n as u64);
                    oracle.push(flow, slots, keeps, n as u64);
                    waiting += 1;
                }
                Step::Ahead { flow, slots } if !queue.waits(FlowId(flow % config.len())) => {
                    let flow = flow % config.len();
                    queue.push_ahead(FlowId(flow), Cost::slots(slots), n as u64);
                    oracle.push_ahead(flow, slots, n as u64);
                    waiting += 1;
                }
                Step::Ahead { .. } => {}
                Step::Pop => {
                    let ahead = queue.pop_ahead().map(|(f, _, item)| (f, item));
                    let next = ahead.or_else(|| queue.pop(Instant(0)).map(|(f, _, item)| (f, item)));
                    let ours = next.map(|(f, item)| (f.0, item));
                    // Work conservation: something comes out whenever anything waits.
                    prop_assert_eq!(ours.is_some(), waiting > 0);
                    prop_assert_eq!(ours, oracle.pop());
                    waiting -= usize::from(ours.is_some());
                }
                Step::Forget { flow } => {
                    queue.forget_credit(FlowId(flow % config.len()));
                    oracle.forget(flow % config.len());
                }
                Step::Withdraw { flow, every } => {
                    let flow = flow % config.len();
                    let gone = |item: u64| item.is_multiple_of(every);
                    let out = queue.withdraw(FlowId(flow), |item| gone(*item));
                    let out: Vec<u64> = out.into_iter().map(|(_, item)| item).collect();
                    waiting -= out.len();
                    prop_assert_eq!(out, oracle.withdraw(flow, gone));
                }
                Step::Reweigh { flow, shares } => {
                    let flow = flow % config.len();
                    queue.set_weight(FlowId(flow), f64::from(shares));
                    oracle.flows[flow].shares = shares;
                }
            }
            prop_assert_eq!(queue.len(), waiting);
        }
    }

    /// Goyal, Vin and Cheng's bound: over any stretch in which two flows are both backlogged, their
    /// services per share differ by at most one largest IO per share of each.
    #[test]
    fn backlogged_flows_stay_within_sfqs_bound(
        flows in prop::collection::vec((1..2000u32, 0.25..16.0f64), 2..8),
        from in 0usize..200,
        stretch in 1usize..600,
        seed in any::<u64>(),
    ) {
        let mut queue = FairQueue::default();
        for &(shares, _) in &flows {
            queue.add_flow(Shares(shares), Cost::slots(0.0));
        }
        // Sizes vary up to the flow's largest; each flow always has a second IO waiting.
        let mut state = seed | 1;
        let mut size = |largest: f64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (largest * ((state >> 40) as f64 / (1u64 << 24) as f64)).max(0.25)
        };
        for (i, &(_, largest)) in flows.iter().enumerate() {
            for _ in 0..2 {
                queue.push(Instant(0), FlowId(i), Cost::slots(size(largest)), false, ());
            }
        }
        let mut served = vec![0.0; flows.len()];
        for n in 0..from + stretch {
            let (flow, cost, ()) = queue.pop(Instant(0)).unwrap();
            if n >= from {
                served[flow.0] += cost.as_slots();
            }
            queue.push(Instant(0), flow, Cost::slots(size(flows[flow.0].1)), false, ());
        }
        let per_share = |i: usize| served[i] / f64::from(flows[i].0);
        let slack = |i: usize| flows[i].1 / f64::from(flows[i].0);
        for i in 0..flows.len() {
            for j in 0..i {
                let apart = (per_share(i) - per_share(j)).abs();
                prop_assert!(apart <= slack(i) + slack(j) + 1e-6, "{} > {}", apart, slack(i) + slack(j));
            }
        }
    }

    /// No starvation: with shares at least one part in a thousand, an IO goes within the bound's time.
    #[test]
    fn the_smallest_flow_is_served(big in 1..1000u32, others in 1usize..8) {
        let mut queue = FairQueue::default();
        let small = queue.add_flow(Shares(1), Cost::slots(0.0));
        for _ in 0..others {
            let flow = queue.add_flow(Shares(big), Cost::slots(0.0));
            queue.push(Instant(0), flow, Cost::ONE, false, ());
        }
        queue.push(Instant(0), small, Cost::ONE, false, ());
        queue.push(Instant(0), small, Cost::ONE, false, ());
        let mut waits = 0usize;
        let mut longest = 0;
        for _ in 0..10 * big as usize * others {
            let (flow, _, ()) = queue.pop(Instant(0)).unwrap();
            queue.push(Instant(0), flow, Cost::ONE, false, ());
            waits = if flow == small { 0 } else { waits + 1 };
            longest = longest.max(waits);
        }
        prop_assert!(longest <= (big as usize + 1) * others, "{} of {}", longest, big);
    }
}

#[test]
fn an_idle_flow_spends_its_burst_as_one_batch_and_no_more() {
    let mut queue = FairQueue::default();
    let busy = queue.add_flow(Shares(100), Cost::slots(0.0));
    let bursty = queue.add_flow(Shares(100), Cost::slots(8.0));
    for _ in 0..200 {
        queue.push(Instant(0), busy, Cost::ONE, false, ());
    }
    (0..50).for_each(|_| assert_eq!(queue.pop(Instant(0)).unwrap().0, busy));
    for _ in 0..100 {
        queue.push(Instant(0), bursty, Cost::ONE, false, ());
    }
    let order: Vec<_> = (0..60).map(|_| queue.pop(Instant(0)).unwrap().0).collect();
    let batch = order.iter().take_while(|&&f| f == bursty).count();
    // The eight, its own turn, and one more where tags tie.
    assert!((8..=10).contains(&batch), "{batch}");
    // After the batch the two alternate: the credit was bounded.
    let rest = &order[batch..];
    let gave = rest.iter().filter(|&&f| f == bursty).count();
    assert!(gave.abs_diff(rest.len() / 2) <= 1, "{gave} of {}", rest.len());
}

#[test]
fn a_client_that_begins_has_no_credit_of_the_time_before() {
    let mut queue = FairQueue::default();
    let busy = queue.add_flow(Shares(100), Cost::slots(0.0));
    let arrives = queue.add_flow(Shares(100), Cost::slots(8.0));
    for _ in 0..200 {
        queue.push(Instant(0), busy, Cost::ONE, false, ());
    }
    (0..50).for_each(|_| assert_eq!(queue.pop(Instant(0)).unwrap().0, busy));
    queue.forget_credit(arrives);
    for _ in 0..100 {
        queue.push(Instant(0), arrives, Cost::ONE, false, ());
    }
    let gave = (0..20).filter(|_| queue.pop(Instant(0)).unwrap().0 == arrives).count();
    assert!(gave.abs_diff(10) <= 1, "{gave}");
}

#[test]
fn without_burst_idling_gives_nothing() {
    let mut queue = FairQueue::default();
    let busy = queue.add_flow(Shares(100), Cost::slots(0.0));
    let idle = queue.add_flow(Shares(100), Cost::slots(0.0));
    for _ in 0..200 {
        queue.push(Instant(0), busy, Cost::ONE, false, ());
    }
    (0..50).for_each(|_| assert_eq!(queue.pop(Instant(0)).unwrap().0, busy));
    for _ in 0..100 {
        queue.push(Instant(0), idle, Cost::ONE, false, ());
    }
    let gave = (0..60).filter(|_| queue.pop(Instant(0)).unwrap().0 == idle).count();
    assert!(gave.abs_diff(30) <= 1, "{gave}");
}

/// A client that keeps one IO has nothing waiting while that IO is at the array.
#[test]
fn who_keeps_its_place_is_given_what_it_is_behind_and_no_more_than_eight_items() {
    for (keeps, before, expected) in [(false, 5, 1), (true, 5, 5), (true, 50, 8)] {
        let mut queue = FairQueue::default();
        let busy = queue.add_flow(Shares(100), Cost::slots(0.0));
        let client = queue.add_flow(Shares(100), Cost::slots(0.0));
        (0..100).for_each(|_| queue.push(Instant(0), busy, Cost::ONE, true, ()));
        // The last of them is at virtual time, so that those before it are what the client is behind.
        (0..=before).for_each(|_| assert_eq!(queue.pop(Instant(0)).unwrap().0, busy));
        let mut in_a_row = 0;
        loop {
            queue.push(Instant(0), client, Cost::ONE, keeps, ());
            if queue.pop(Instant(0)).unwrap().0 != client {
                break;
            }
            in_a_row += 1;
        }
        assert!((expected..=expected + 1).contains(&in_a_row), "{in_a_row} for {expected}");
    }
}

#[test]
fn an_item_that_needs_no_turn_goes_first_and_delays_what_follows_by_no_more_than_itself() {
    let mut queue = FairQueue::default();
    let busy = queue.add_flow(Shares(1_000_000), Cost::slots(0.0));
    let client = queue.add_flow(Shares(1), Cost::slots(0.0));
    queue.push(Instant(0), busy, Cost::ONE, true, ());
    for _ in 0..3 {
        queue.push_ahead(client, Cost::ONE, ());
        assert_eq!((queue.len(), queue.waits(client)), (2, false));
        assert!(!queue.remove_flow(client), "an item of it waits");
        assert_eq!(queue.pop_ahead(), Some((client, Cost::ONE, ())));
    }
    queue.push(Instant(0), client, Cost::ONE, false, ());
    let order = [(); 2].map(|()| queue.pop(Instant(0)).unwrap().0);
    assert_eq!(order, [busy, client], "charged for one IO beyond virtual time, not for three");
    assert!(queue.is_empty() && queue.remove_flow(client));
}
