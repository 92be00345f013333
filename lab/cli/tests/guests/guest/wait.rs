//! Waiting for what a process creates.

use std::time::{Duration, Instant};

use parda_lab::process::Process;

/// Waits for something that a process creates. Gives an error if the process does not.
pub(super) fn look_until<T>(
    deadline: Instant,
    process: &mut Process,
    mut there: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    loop {
        if let Some(it) = there() {
            return Ok(it);
        }
        if let Some(status) = process.ended() {
            return Err(format!("did not start, {status}"));
        }
        if Instant::now() > deadline {
            return Err("did not start".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
