//! Check that the exchanges and disks of a configuration do not overlap: an exchange that is a disk, or
//! a part of one, would be written into the data of a VM. Places are compared by what they are, not by
//! how they are spelled.

use std::net::SocketAddr;
use std::path::Path;

use parda_block::{Image, Stretch};
use parda_config::{Document, Error};

use super::exchange::Slots;
use super::meeting::are_one_pool;
use super::own;
use super::place::{Place, REGION_ALIGNMENT, stretch};
use super::volume::{Disk, Volume};

/// Checks every exchange against every disk and against every other exchange, over all volumes.
pub(super) fn exchanges(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let exchanges: Vec<(usize, &str, Stretch)> = (volumes.iter().enumerate())
        .filter_map(|(i, volume)| {
            let exchange = volume.exchange.as_ref()?;
            Some((i, exchange.file_key(), written(exchange.slots()?)))
        })
        .collect();
    for (n, (i, key, exchange)) in exchanges.iter().enumerate() {
        let wrong = |message: String| doc.error(&format!("volume.{i}.{key}"), message);
        for volume in volumes {
            for disk in volume.disks() {
                if exchange.meets(&stretch(&disk.place, disk.region.clone())) {
                    return Err(wrong(format!(
                        "is where the disk {} of volume {} has its data ({}): an exchange needs a \
                         file, device or region of its own",
                        disk.name, volume.name, disk.place
                    )));
                }
            }
        }
        let taken = |(other, _, place): &&(usize, &str, Stretch)| {
            exchange.meets(place) && !are_one_pool(&volumes[*i], &volumes[*other])
        };
        if let Some((other, ..)) = exchanges[..n].iter().find(taken) {
            let other = &volumes[*other].name;
            let message = format!(
                "is the exchange of volume {other}: each volume needs its own, but volumes of one `pool`"
            );
            return Err(wrong(message));
        }
    }
    Ok(())
}

/// Checks that no two volumes have one address: each would hear the other's hosts. Volumes of one pool may be in one
/// multicast group.
pub(super) fn addresses(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let all = volumes
        .iter()
        .enumerate()
        .filter_map(|(i, volume)| Some((i, volume, volume.exchange.as_ref()?.udp()?.address)));
    let all: Vec<_> = all.collect();
    for (n, (i, volume, address)) in all.iter().enumerate() {
        let taken = |(_, other, used): &&(usize, &Volume, SocketAddr)| {
            let one_group = address.ip().is_multicast() && are_one_pool(volume, other);
            collide(*used, *address) && !one_group
        };
        if let Some((_, other, _)) = all[..n].iter().find(taken) {
            let other = &other.name;
            let message =
                format!("is the address of volume {other}: each volume needs its own port");
            return Err(doc.error(&format!("volume.{i}.exchange.udp"), message));
        }
    }
    Ok(())
}

/// Whether a socket at one address would be in the way of one at the other: the port is the same, and so is the
/// address, or one of them is all addresses of this host.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    let family = one.is_ipv4() == other.is_ipv4();
    one.port() == other.port() && (one.ip() == other.ip() || any && family)
}

/// Checks every disk against every other, over all volumes.
pub(super) fn disks(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let disks: Vec<_> = (volumes.iter().enumerate())
        .flat_map(|(i, volume)| volume.disks().iter().enumerate().map(move |(j, d)| (i, j, d)))
        .map(|(i, j, disk)| (i, j, disk, stretch(&disk.place, disk.region.clone())))
        .collect();
    for (n, (i, j, disk, stretch)) in disks.iter().enumerate() {
        let overlaps = |(.., other, there): &&(usize, usize, &Disk, Stretch)| {
            !(disk.read_only && other.read_only) && stretch.meets(there)
        };
        if let Some((other, _, name, _)) = disks[..n].iter().find(overlaps) {
            let of = if other == i {
                String::new()
            } else {
                format!(" of volume {}", volumes[*other].name)
            };
            let message = format!(
                "overlaps the disk {}{of} ({}), and one of them is writable",
                name.name, name.place
            );
            return Err(doc.error(&format!("volume.{i}.disk.{j}.path"), message));
        }
    }
    Ok(())
}

/// Checks that no disk is an image of a format that would be served as if it were data. Only for
/// who asks: a guest can write such a header itself, and must not stop other disks by it.
pub(super) fn images(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    for (i, volume) in volumes.iter().enumerate() {
        for (j, disk) in volume.disks().iter().enumerate() {
            if let Some(image) = image(disk) {
                return Err(doc.error(&format!("volume.{i}.disk.{j}.path"), image.to_string()));
            }
        }
    }
    Ok(())
}

/// The format that a disk is an image of, if it would be served as if it were data.
pub(crate) fn image(disk: &Disk) -> Option<Image> {
    let Place::Path(path) = &disk.place else { return None };
    let begins = disk.region.as_ref().is_none_or(|region| region.start == 0);
    if disk.raw || !begins {
        return None;
    }
    Image::at(path, disk.name.as_str(), disk.read_only)
}

/// Bytes that an exchange may write to: all of a file that is its own, or as much of a device as it
/// needs.
fn written(exchange: &Slots) -> Stretch {
    let file = matches!(&exchange.place, Place::Path(path) if path.is_file());
    let range = (!file || exchange.offset.is_some()).then(|| {
        let start = exchange.offset.unwrap_or(0);
        start..start.saturating_add(u64::from(exchange.slots.get() + 1) * REGION_ALIGNMENT)
    });
    stretch(&exchange.place, range)
}

/// Checks that no disk has its data in what is the agent's own. Only for who asks: the other disks of a host start.
pub(super) fn own_files(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    for (i, volume) in volumes.iter().enumerate() {
        for (j, disk) in volume.disks().iter().enumerate() {
            if let Some(fault) = volume.own.fault(&disk.place, disk.region.as_ref()) {
                return Err(doc.error(&format!("volume.{i}.disk.{j}.path"), fault));
            }
        }
    }
    Ok(())
}

/// Refuses disks that listen at a socket of the agent itself.
pub(super) fn own_sockets(
    doc: &Document,
    status: Option<&Path>,
    volumes: &[Volume],
) -> Result<(), Error> {
    for (i, volume) in volumes.iter().enumerate() {
        for (j, disk) in volume.disks().iter().enumerate() {
            if let Some(taken) = own::taken(&disk.listen, status) {
                return Err(doc.error(&format!("volume.{i}.disk.{j}.listen"), taken));
            }
        }
    }
    Ok(())
}
