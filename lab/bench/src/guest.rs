//! The load of a guest: reads by vhost-user.

use std::io;
use std::path::Path;
use std::time::Instant;

use crate::driver::{Command, Driver, Shape};

use crate::cpu::{self, Servers};
use crate::measured::LoadMeasured;
use crate::pattern::Pattern;
use crate::plan::BenchPlan;

/// Runs a load of reads at the socket of a server of vhost-user, on one queue, and returns what was measured. Of the plan it takes no
/// URI, and all of the disk; its blocks are multiples of 512 bytes, its depth is at most 128. The thread sleeps when it has nothing to do, as the processor of a
/// guest does.
///
/// # Errors
/// The server cannot be reached, breaks the protocol, is silent, or fails a request.
pub fn run_guest(socket: &Path, plan: &BenchPlan) -> io::Result<LoadMeasured> {
    let servers = Servers::of(&plan.server)?;
    let depth = u16::try_from(plan.depth).map_err(io::Error::other)?;
    if plan.operation.writes() {
        return Err(io::Error::other("a guest only reads"));
    }
    let shape = Shape {
        queues: 1,
        slots: depth,
        data: plan.block.next_multiple_of(4096),
        indirect: true,
        event_idx: true,
    };
    let mut driver = Driver::connect(socket, shape)?;
    let size = driver.size()?;
    if size < plan.block.into() {
        return Err(io::Error::other(format!(
            "the disk of {size} bytes is smaller than a request"
        )));
    }
    let mut pattern = Pattern::new(plan.operation, &(0..size), plan.block, (0, 1), plan.seed);
    let mut submit = |driver: &mut Driver, slot| {
        let sector = pattern.next().extent().offset / 512;
        driver.submit(0, slot, Command::Read { sector, len: plan.block })
    };
    let mut measured = LoadMeasured::new(plan.block);
    let mut sent = vec![Instant::now(); depth.into()];
    let begin = Instant::now() + plan.warmup;
    let end = begin + plan.time;
    let (mut before, mut over, mut outstanding) = (None, false, depth);
    for slot in 0..depth {
        submit(&mut driver, slot)?;
    }
    driver.kick(0)?;
    while outstanding > 0 {
        if !driver.wait(0, plan.patience)? {
            return Err(io::Error::other(format!("it was silent for {:?}", plan.patience)));
        }
        let now = Instant::now();
        if before.is_none() && now >= begin {
            before = Some((now, cpu::of_this_thread(), servers.used_since(None)?));
        }
        if let (false, Some((began, cpu, servers_cpu))) = (over || now < end, before) {
            over = true;
            measured.elapsed = now - began;
            measured.client_cpu = cpu::of_this_thread() - cpu;
            measured.server_cpu = servers.used_since(servers_cpu)?;
        }
        while let Some((slot, status)) = driver.answered(0)? {
            if status != 0 {
                return Err(io::Error::other(format!("a read failed with status {status}")));
            }
            let place = &mut sent[usize::from(slot)];
            if before.is_some() && !over {
                measured.reads += 1;
                measured.latency.saturating_record((now - *place).as_nanos() as u64);
            }
            if over {
                outstanding -= 1;
                continue;
            }
            *place = now;
            submit(&mut driver, slot)?;
        }
        driver.kick(0)?;
    }
    driver.stop(0).map(|_| measured)
}
