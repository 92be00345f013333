//! What can only be shown with kernels of our own: stories with guests.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cgroups;
mod harness;
mod knobs;
mod watch;

use std::path::Path;
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

/// Whether there can be guests here; says so if not.
fn possible() -> bool {
    let reason = unavailable();
    if let Some(reason) = &reason {
        eprintln!("SKIPPED: {reason}");
    }
    reason.is_none()
}
