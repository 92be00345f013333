//! The exchange that a configuration names: opened for a control thread, looked at for `parda check`.

use std::time::Duration;

use parda_control::Bytes;
use parda_exchange::region::{Deadline, FileRegion, NbdRegion};
use parda_exchange::slots::SlotSettings;
use parda_exchange::{Location, PlaceFault, RegionFault, Site, SlotExchange, VolumeId, look};

use crate::config::{Exchange, Place, Volume};

/// How long one exchange IO may take. Far above any latency at which the exchange is still of use,
/// as an array that is not yet under control may be slow; but bounded, because the law ticks on.
const LIMIT: Duration = Duration::from_secs(5);

/// The exchange that a configuration names. Nothing is opened yet: a volume that comes up later
/// than its agent is no reason not to start.
pub(crate) fn open(exchange: &Exchange, settings: SlotSettings) -> Result<SlotExchange, String> {
    let offset = exchange.offset.map(Bytes);
    let made = match &exchange.place {
        Place::Nbd(uri) => {
            let region =
                NbdRegion::new(uri.clone(), offset.unwrap_or(Bytes(0)), exchange.slots, LIMIT);
            SlotExchange::new(region.map_err(|e| e.to_string())?, settings)
        }
        Place::Path(path) => {
            let region = FileRegion::new(path, offset, exchange.slots);
            let bounded = Deadline::new(region.map_err(|e| e.to_string())?, LIMIT)
                .map_err(|e| format!("cannot start the exchange's thread: {e}"))?;
            SlotExchange::new(bounded, settings)
        }
    };
    made.map_err(|e| e.to_string())
}

/// Looks whether the exchange of a volume can be used, and changes nothing. Answers what is still to be
/// done, if anything is; no server is asked over a network.
///
/// # Errors
/// What is there is not this volume's exchange.
pub fn examine(volume: &Volume) -> Result<Option<String>, String> {
    let Some(exchange) = &volume.exchange else { return Ok(None) };
    let Place::Path(path) = &exchange.place else { return Ok(None) };
    let site = Site::new(Location::Path(path.clone()), exchange.offset.map(Bytes))
        .map_err(|e| e.to_string())?;
    let wrong = |fault: PlaceFault| Err(format!("exchange {}: {fault}", exchange.place));
    let header = match look(&site, LIMIT) {
        Ok(Ok(found)) => found.header,
        Ok(Err(PlaceFault::Missing | PlaceFault::Blank)) => {
            return Ok(Some(format!("not made yet: on one host, {}", exchange.make)));
        }
        Ok(Err(fault)) => return wrong(fault),
        Err(e) if matches!(e.fault, RegionFault::Open(_)) => {
            return Ok(Some(format!("not looked at: {}", e.fault)));
        }
        Err(e) => return Err(e.to_string()),
    };
    let (found, configured) = (header.slots.get(), exchange.slots.get());
    match header.volume.filter(|named| named.id() != VolumeId::of(&volume.name)) {
        Some(other) => wrong(PlaceFault::Volume(other.as_str().to_owned())),
        None if found != configured => wrong(PlaceFault::Slots { found, configured }),
        None => Ok(None),
    }
}
