//! What can only be shown with kernels of our own: stories with guests.
//!
//! `make test` runs one guest for each thing that nothing else shows: blocks of servers, disks over NBD while their agent is killed and
//! replaced, a steered kernel and an agent that serve one array, shares of cgroups by a real elevator, and the harness.
//! The others repeat on another kernel, transport or number of hosts what a faster test shows, which `#[ignore]` names:
//! `make nightly` runs all.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

mod blocks;
mod cgroups;
mod guest;
mod harness;
mod host;
mod knobs;
mod lab;
mod restarts;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use guest::{GuestConfig, unavailable};

/// The laboratory's program, which serves arrays.
const LAB: &str = env!("CARGO_BIN_EXE_parda-lab");

/// The program of agents, which is beside it.
static PARDA: LazyLock<PathBuf> = LazyLock::new(|| Path::new(LAB).with_file_name("parda"));

/// For what is done at once, on a machine that may be busy.
const SOON: Duration = Duration::from_secs(60);

/// A guest with the program under test.
fn guest(name: &str) -> GuestConfig {
    GuestConfig::new(name).program(&PARDA)
}

/// As many stories at a time as tests run, which is as many as there are processors: guests mostly wait
/// for their array. One that must have the machine to itself waits for the others, and they for it.
static MACHINE: RwLock<()> = RwLock::new(());

/// Takes part in the machine, if there can be guests here; says so if not.
fn turn() -> Option<RwLockReadGuard<'static, ()>> {
    if let Some(reason) = unavailable() {
        eprintln!("SKIPPED: {reason}");
        return None;
    }
    // A story that failed has left nothing behind.
    Some(MACHINE.read().unwrap_or_else(PoisonError::into_inner))
}

/// Waits until no other story runs.
fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}
