//! That the places of a configuration are apart: an exchange that is a disk, or a part of one, would
//! be written into the data of a VM. Places are compared by what they are, not by how they are spelled.

use parda_config::{Document, Error};

use super::{Exchange, Place, Volume};
use crate::medium::Stretch;

/// Checks every exchange against every disk and against every other exchange, over all volumes.
pub(super) fn exchanges(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let exchanges: Vec<(usize, Stretch)> = (volumes.iter().enumerate())
        .filter_map(|(i, volume)| Some((i, stretch(volume.exchange.as_ref()?))))
        .collect();
    for (n, (i, exchange)) in exchanges.iter().enumerate() {
        let wrong = |message: String| doc.error(&format!("volume.{i}.exchange.file"), message);
        for volume in volumes {
            for disk in volume.disks() {
                if exchange.meets(&Stretch::of(&disk.place, disk.region.clone())) {
                    return Err(wrong(format!(
                        "is where the disk {} of volume {} has its data ({}): an exchange needs a \
                         file, device or region of its own",
                        disk.name, volume.name, disk.place
                    )));
                }
            }
        }
        if let Some((other, _)) = exchanges[..n].iter().find(|(_, other)| exchange.meets(other)) {
            let other = &volumes[*other].name;
            let message = format!("is the exchange of volume {other}: each volume needs its own");
            return Err(wrong(message));
        }
    }
    Ok(())
}

/// What an exchange may write to: all of a file that is its own, or as much of a device as it needs.
fn stretch(exchange: &Exchange) -> Stretch {
    let file = matches!(&exchange.place, Place::Path(path) if path.is_file());
    let range = (!file || exchange.offset.is_some()).then(|| {
        let start = exchange.offset.unwrap_or(0);
        start..start.saturating_add(u64::from(exchange.slots.get() + 1) * super::REGION_ALIGNMENT)
    });
    Stretch::of(&exchange.place, range)
}
