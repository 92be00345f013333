//! What an IO costs in the law's own code: submit, dispatch, complete, for more and more backlogged
//! VMs, or for as many as the arguments say; without and with a limit, a reservation and a tenant for each. `cargo run --release -p parda-control --example speed`

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)] // It measures.

use std::time::Instant as Clock;

use parda_control::{
    Bytes, Config, Host, Instant, Io, IoKind, Limit, Outcome, Period, Rates, Shares, Span, Tenant,
    TenantId, VmConfig, VmId, Window,
};

const IOS: u64 = 2_000_000;
const READ: Io = Io { kind: IoKind::Read, bytes: Bytes::kib(4) };

fn main() {
    println!("{:>10} {:>12} {:>20}", "VMs", "ns per IO", "ns with guarantees");
    let chosen: Vec<usize> = std::env::args().skip(1).map(|vms| vms.parse().unwrap()).collect();
    let all = vec![1, 10, 100, 1_000, 10_000, 100_000];
    for vms in if chosen.is_empty() { all } else { chosen } {
        let [plain, guaranteed] = [false, true].map(|guaranteed| cost(vms, guaranteed));
        println!("{vms:>10} {plain:>12.0} {guaranteed:>20.0}");
    }
}

/// Nanoseconds per IO.
fn cost(vms: usize, guaranteed: bool) -> f64 {
    let mut config = Config::default();
    config.law.window_start = Window(64.0);
    let mut now = Instant(0);
    let mut period = Period::new(config).unwrap();
    let tenant = TenantId::of("gold");
    // Nobody reaches the limits: what is measured is what they cost.
    let limit =
        Limit { iops: Rates { total: Some(1e9.into()), ..Rates::default() }, ..Limit::default() };
    let shared = Tenant { shares: Some(Shares(1000)), limit, reservation: 1e5 };
    period.set_tenants(&[(tenant, shared)]);
    let mut host = Host::new(now, period.decision());
    for vm in 0..vms {
        let mut part = VmConfig::of(Shares(100 + vm as u32 % 1000));
        if guaranteed {
            part = VmConfig { limit, reservation: 100.0, tenant: Some(tenant), ..part };
        }
        host.add_vm(now, part);
    }
    // Afterwards, as slices are found anew when VMs have changed.
    (0..2 * vms).for_each(|io| host.submit(now, VmId(io / 2), READ, io as u64 / 2));
    let mut outstanding = std::collections::VecDeque::new();
    let started = Clock::now();
    for _ in 0..IOS {
        now = now + Span(500);
        while let Some(dispatch) = host.next_dispatch(now) {
            outstanding.push_back(dispatch.id);
        }
        let Some(id) = outstanding.pop_front() else { break };
        let done = host.complete(now, id, Outcome::Done).unwrap();
        host.submit(now, done.vm, READ, done.token);
    }
    started.elapsed().as_nanos() as f64 / IOS as f64
}
