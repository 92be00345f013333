//! What can only be shown with kernels of our own: stories with guests.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

mod cgroups;
mod harness;
mod knobs;
mod lab;
mod watch;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parda_lab::guest::{GuestConfig, unavailable};

/// The program under test.
const PARDA: &str = env!("CARGO_BIN_EXE_parda");

/// For what is done at once.
const SOON: Duration = Duration::from_secs(20);

/// A guest with the program under test.
fn guest(name: &str) -> GuestConfig {
    GuestConfig::new(name).program(Path::new(PARDA))
}

/// One after another: guests of several stories at once would only measure this machine.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for its turn, if there can be guests here; says so if not.
fn turn() -> Option<MutexGuard<'static, ()>> {
    if let Some(reason) = unavailable() {
        eprintln!("SKIPPED: {reason}");
        return None;
    }
    // A story that failed has left nothing behind.
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}
