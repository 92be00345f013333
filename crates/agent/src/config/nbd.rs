//! `[volume.disk.nbd]`: how the NBD server behind a disk is used.

use std::time::Duration;

use parda_address::Place;
use parda_block::NbdOptions;
use parda_config::{Error, TablePart};

use crate::file;

/// More connections than a large server has cores gain no throughput.
const MAX_CONNECTIONS: u32 = 16;

/// Longer than any client waits.
const LONGEST: Duration = Duration::from_secs(3600);

/// A request of 32 MiB over a slow link takes longer than a shorter timeout, although its server is alive.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn check(
    at: &TablePart<'_>,
    place: &Place,
    nbd: Option<&file::Nbd>,
) -> Result<NbdOptions, Error> {
    let defaults = NbdOptions::default();
    let Some(nbd) = nbd else { return Ok(defaults) };
    let message = "is only for a disk whose path is an NBD URI, and this one is a file or device";
    at.refuse_if(matches!(place, Place::Path(_)), "nbd", message)?;
    let connections = nbd.connections.unwrap_or(defaults.connections as u32);
    let message = format!("must be from 1 to {MAX_CONNECTIONS}");
    at.refuse_if(!(1..=MAX_CONNECTIONS).contains(&connections), "nbd.connections", message)?;
    let hold = nbd.hold.unwrap_or(defaults.hold);
    at.refuse_if(hold > LONGEST, "nbd.hold", "must be from 0s (fail at once) to 1h")?;
    let timeout = nbd.timeout.unwrap_or(defaults.timeout);
    let good = (SHORTEST_TIMEOUT..=LONGEST).contains(&timeout);
    at.refuse_if(!good, "nbd.timeout", "must be from 1s to 1h")?;
    Ok(NbdOptions { connections: connections as usize, hold, timeout })
}
