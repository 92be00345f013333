//! `pool` of a volume: volumes on the same drives, whose hosts meet in one exchange.

use parda_config::Error;
use parda_exchange::HostName;

use crate::file;

/// A pool, as one of its volumes has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name of the pool, the same on all its volumes and hosts. Its volumes meet in one exchange of this name.
    pub name: String,
    /// What this host is called there at this volume: `HOST/VOLUME`.
    pub member: HostName,
}

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    host: &HostName,
    volume: &file::Volume,
) -> Result<Option<Pool>, Error> {
    let Some(name) = &volume.pool else { return Ok(None) };
    if name.is_empty() {
        return Err(wrong("pool", "must not be empty".into()));
    }
    if volume.exchange.is_none() {
        let message =
            "needs [volume.exchange]: volumes of a pool meet there, also those of one host";
        return Err(wrong("pool", message.into()));
    }
    if volume.name.contains('/') {
        let message = "needs a volume's name without `/`: HOST/VOLUME would be ambiguous";
        return Err(wrong("name", message.into()));
    }
    let member = HostName::new(&format!("{host}/{}", volume.name)).map_err(|_| {
        let most = HostName::MAX_BYTES;
        let message = format!(
            "needs host and the volume's name to be at most {} bytes together, without control characters: \
             the volume is {host}/{} in the pool",
            most - 1,
            volume.name
        );
        wrong("pool", message)
    })?;
    Ok(Some(Pool { name: name.clone(), member }))
}
