//! `pool` of a volume: volumes on the same drives, whose hosts meet in one exchange.

use parda_config::{Error, TablePart};
use parda_exchange::HostName;

use crate::file;

/// A pool, as seen from one of its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name of the pool, the same on all its volumes and hosts. Its volumes meet in one exchange of this name.
    pub name: String,
    /// Name of this host in the pool for this volume: `HOST/VOLUME`.
    pub member: HostName,
}

pub(super) fn check(
    at: &TablePart<'_>,
    host: &HostName,
    volume: &file::VolumeTable,
) -> Result<Option<Pool>, Error> {
    let Some(name) = &volume.pool else { return Ok(None) };
    at.refuse_if(name.is_empty(), "pool", "must not be empty")?;
    let message = "needs [volume.exchange]: volumes of a pool meet there, also those of one host";
    at.refuse_if(volume.exchange.is_none(), "pool", message)?;
    let message = "needs a volume's name without `/`: HOST/VOLUME would be ambiguous";
    at.refuse_if(volume.name.contains('/'), "name", message)?;
    let member = format!("{host}/{}", volume.name);
    let most = HostName::MAX_BYTES - 1;
    let too_long = format!(
        "needs host and the volume's name to be at most {most} bytes together, without control characters: the volume is \
         {member} in the pool"
    );
    let member = at.read("pool", HostName::new(&member).map_err(|_| too_long))?;
    Ok(Some(Pool { name: name.clone(), member }))
}
