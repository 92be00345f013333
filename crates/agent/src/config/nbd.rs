//! `[volume.disk.nbd]`: how the NBD server behind a disk is used.

use std::time::Duration;

use parda_block::NbdOptions;
use parda_config::Error;

use super::place::Place;
use crate::file;

/// More connections than the cores of a large server have nothing to give.
const MAX_CONNECTIONS: u32 = 16;

/// Longer than any client waits.
const LONGEST: Duration = Duration::from_secs(3600);

/// A request of 32 MiB over a slow link takes longer than this, and is not a server that is gone.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    place: &Place,
    nbd: Option<&file::Nbd>,
) -> Result<NbdOptions, Error> {
    let defaults = NbdOptions::default();
    let Some(nbd) = nbd else { return Ok(defaults) };
    if let Place::Path(_) = place {
        let message =
            "is only for a disk whose path is an NBD URI, and this one is a file or device";
        return Err(wrong("nbd", message.into()));
    }
    let connections = nbd.connections.unwrap_or(defaults.connections as u32);
    if connections == 0 || connections > MAX_CONNECTIONS {
        return Err(wrong("nbd.connections", format!("must be from 1 to {MAX_CONNECTIONS}")));
    }
    let hold = nbd.hold.unwrap_or(defaults.hold);
    if hold > LONGEST {
        return Err(wrong("nbd.hold", "must be from 0s (fail at once) to 1h".into()));
    }
    let timeout = nbd.timeout.unwrap_or(defaults.timeout);
    if !(SHORTEST_TIMEOUT..=LONGEST).contains(&timeout) {
        return Err(wrong("nbd.timeout", "must be from 1s to 1h".into()));
    }
    Ok(NbdOptions { connections: connections as usize, hold, timeout })
}
