//! What an IO costs in the law's own code: submit, dispatch, complete, for more and more backlogged
//! VMs, or for as many as the arguments say. `cargo run --release -p parda-control --example speed`

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)] // It measures.

use std::time::Instant as Clock;

use parda_control::{
    Bytes, Config, Host, Instant, Io, IoKind, Outcome, Shares, Span, VmConfig, VmId, Window,
};

const IOS: u64 = 2_000_000;
const READ: Io = Io { kind: IoKind::Read, bytes: Bytes::kib(4) };

fn main() {
    println!("{:>10} {:>10} {:>14}", "VMs", "ns per IO", "IO/s");
    let chosen: Vec<usize> = std::env::args().skip(1).map(|vms| vms.parse().unwrap()).collect();
    let all = vec![1, 10, 100, 1_000, 10_000, 100_000];
    for vms in if chosen.is_empty() { all } else { chosen } {
        let mut config = Config::default();
        config.law.window_start = Window(64.0);
        let mut now = Instant(0);
        let mut host = Host::new(now, config).unwrap();
        for vm in 0..vms {
            let shares = Shares(100 + vm as u32 % 1000);
            host.add_vm(now, VmConfig::of(shares));
            (0..2).for_each(|_| host.submit(now, VmId(vm), READ, vm as u64));
        }
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
        let ns = started.elapsed().as_nanos() as f64 / IOS as f64;
        println!("{vms:>10} {ns:>10.0} {:>14.0}", 1e9 / ns);
    }
}
