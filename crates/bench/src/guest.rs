//! The load of a guest: reads by vhost-user.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parda_vhost::driver::{Command, Driver, Shape};

use crate::cpu::{self, ServerCpu};
use crate::measured::Measured;
use crate::pattern::Pattern;
use crate::plan::Operation;

/// A load of reads by vhost-user, on one queue, and how long it is measured.
#[derive(Clone, Debug)]
pub struct GuestPlan {
    /// Socket of the server.
    pub socket: PathBuf,
    /// Reads at random offsets, and not one after the other.
    pub random: bool,
    /// Size of each request, in bytes: a multiple of 512.
    pub block: u32,
    /// Requests outstanding, up to 128.
    pub depth: u16,
    /// Time for which the load runs before it is measured.
    pub warmup: Duration,
    /// Length of the measured time.
    pub time: Duration,
    /// Seed of the sequence of offsets.
    pub seed: u64,
    /// Time without an answer after which the server is given up.
    pub patience: Duration,
    /// Process ids of servers whose CPU time is measured.
    pub server: Vec<u32>,
}

/// Runs a load as a guest and returns what was measured. The thread sleeps when it has nothing to do, as the processor of a
/// guest does.
///
/// # Errors
/// The server cannot be reached, breaks the protocol, is silent, or fails a request.
pub fn run_guest(plan: &GuestPlan) -> io::Result<Measured> {
    let servers =
        plan.server.iter().map(|pid| ServerCpu::of(*pid)).collect::<io::Result<Vec<_>>>()?;
    let server_cpu = || servers.iter().map(ServerCpu::used).sum::<io::Result<Duration>>();
    let shape = Shape {
        queues: 1,
        slots: plan.depth,
        data: plan.block.next_multiple_of(4096),
        indirect: true,
        event_idx: true,
    };
    let mut driver = Driver::connect(&plan.socket, shape)?;
    let size = driver.size()?;
    if size < plan.block.into() {
        return Err(io::Error::other(format!(
            "the disk of {size} bytes is smaller than a request"
        )));
    }
    let operation = if plan.random { Operation::RandomRead } else { Operation::Read };
    let mut pattern = Pattern::new(operation, &(0..size), plan.block, (0, 1), plan.seed);
    let mut submit = |driver: &mut Driver, slot| {
        let sector = pattern.next().extent().offset / 512;
        driver.submit(0, slot, Command::Read { sector, len: plan.block })
    };
    let mut measured = Measured::new(plan.block);
    let mut sent = vec![Instant::now(); plan.depth.into()];
    let begin = Instant::now() + plan.warmup;
    let end = begin + plan.time;
    let (mut before, mut over, mut outstanding) = (None, false, plan.depth);
    for slot in 0..plan.depth {
        submit(&mut driver, slot)?;
    }
    driver.kick(0)?;
    while outstanding > 0 {
        if !driver.wait(0, plan.patience)? {
            return Err(io::Error::other(format!("it was silent for {:?}", plan.patience)));
        }
        let now = Instant::now();
        if before.is_none() && now >= begin {
            before = Some((now, cpu::of_this_thread(), server_cpu()?));
        }
        if let (false, Some((began, cpu, servers_cpu))) = (over || now < end, before) {
            over = true;
            measured.elapsed = now - began;
            measured.client_cpu = cpu::of_this_thread() - cpu;
            measured.server_cpu = (!servers.is_empty())
                .then(|| server_cpu().map(|now| now - servers_cpu))
                .transpose()?;
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
