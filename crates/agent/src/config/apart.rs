//! Check that the exchanges and disks of a configuration do not overlap. An exchange on a disk, or on a part of one, would overwrite the
//! data of a VM. Places are compared by what they are, not by how they are spelled.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;

use parda_address::{Address, ExportName, Place, Uri};
use parda_block::{BackendConfig, DiskConfig, Image, Stretch, Stretches};
use parda_config::{Document, Error};

use super::http::Http;
use super::meeting::are_one_pool;
use super::own;
use super::places::{self, Places};
use super::volume::Volume;
use crate::patience::{self, Question};

/// Checks every exchange against every disk and against every other exchange, over all volumes.
pub(super) fn exchanges(doc: &Document, volumes: &[Volume], places: &Places) -> Result<(), Error> {
    let exchanges: Vec<(usize, &str, &Stretch)> =
        (volumes.iter().zip(&places.exchanges).enumerate())
            .filter_map(|(i, (volume, place))| {
                Some((i, volume.exchange.as_ref()?.file_key(), place.as_ref()?))
            })
            .collect();
    for (n, (i, key, exchange)) in exchanges.iter().enumerate() {
        let wrong = |message: String| doc.error(&format!("volume.{i}.{key}"), message);
        for (volume, places) in volumes.iter().zip(&places.disks) {
            for (disk, place) in volume.disks().iter().zip(places) {
                if exchange.meets(place) {
                    return Err(wrong(format!(
                        "is where the disk {} of volume {} has its data ({}): an exchange needs a \
                         file, device or region of its own",
                        disk.name,
                        volume.name,
                        disk.backend.place()
                    )));
                }
            }
        }
        let taken = |(other, _, place): &&(usize, &str, &Stretch)| {
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

/// Whether a socket at one address would be in the way of one at the other. They collide if their ports are equal, and their addresses are
/// equal or one is all addresses of this host.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    let family = one.is_ipv4() == other.is_ipv4();
    one.port() == other.port() && (one.ip() == other.ip() || any && family)
}

/// Checks every disk against every other, over all volumes.
pub(super) fn disks(doc: &Document, volumes: &[Volume], places: &Places) -> Result<(), Error> {
    let disks: Vec<_> = (volumes.iter().zip(&places.disks).enumerate())
        .flat_map(|(i, (volume, places))| {
            let disks = volume.disks().iter().zip(places).enumerate();
            disks.map(move |(j, (disk, place))| (i, j, disk, place))
        })
        .collect();
    let mut seen: Stretches<usize> = Stretches::default();
    for (n, (i, j, disk, stretch)) in disks.iter().enumerate() {
        let overlaps = |n: &&usize| !(disk.read_only && disks[**n].2.read_only);
        if let Some((other, _, name, _)) =
            seen.meeting(stretch).filter(overlaps).min().map(|n| &disks[*n])
        {
            let of = format!(" of volume {}", volumes[*other].name);
            let of = if other == i { "" } else { &of };
            let message = format!(
                "overlaps the disk {}{of} ({}), and one of them is writable",
                name.name,
                name.backend.place()
            );
            return Err(doc.error(&format!("volume.{i}.disk.{j}.path"), message));
        }
        seen.insert((*stretch).clone(), n);
    }
    Ok(())
}

/// Checks the data of disks, as far as it exists. The data must be in regular files or block devices, and not in the agent's own places. An
/// image of a format that would be served as raw data is refused. An agent that starts skips this check: a guest can write such a header,
/// and other disks must start.
pub(super) fn data(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let disks = volumes.iter().enumerate().flat_map(|(i, volume)| {
        let disks = volume.disks().iter().enumerate();
        disks.map(move |(j, disk)| (format!("volume.{i}.disk.{j}.path"), question(volume, disk)))
    });
    let (keys, questions): (Vec<String>, Vec<_>) = disks.unzip();
    let faults = patience::ask(questions).into_iter().map(Option::flatten);
    let first = keys.into_iter().zip(faults).find_map(|(key, fault)| Some((key, fault?)));
    first.map_or(Ok(()), |(key, fault)| Err(doc.error(&key, fault)))
}

/// Fault of a disk that is to be added, if its file system answers.
pub(crate) fn look_into(volume: &Volume, disk: &DiskConfig) -> Result<(), String> {
    match patience::ask_one(question(volume, disk)) {
        Some(None) => Ok(()),
        Some(Some(fault)) => Err(fault),
        None => Err("does not answer".to_owned()),
    }
}

/// The fault of a disk's data, if it has one, as a question to its file system.
fn question(volume: &Volume, disk: &DiskConfig) -> Question<Option<String>> {
    let (own, asked) = (Arc::clone(&volume.own), disk.clone());
    let place = disk.backend.place();
    places::question(&place.clone(), move || {
        let image = || image(&asked).map(|image| image.to_string());
        let fault = kind(&place).or_else(image);
        fault.or_else(|| own.fault(&place, asked.bytes().as_ref()))
    })
}

/// The fault of a place that is neither a regular file nor a block device.
fn kind(place: &Place) -> Option<String> {
    let Place::Path(path) = place else { return None };
    let what = match std::fs::metadata(path).ok()?.file_type() {
        kind if kind.is_file() || kind.is_block_device() => return None,
        kind if kind.is_dir() => "a directory",
        kind if kind.is_char_device() => "a character device",
        kind if kind.is_fifo() => "a FIFO",
        _ => "a socket",
    };
    Some(format!("is {what}: a disk's data is in a regular file or on a block device"))
}

/// The format that a disk is an image of, if it would be served as if it were data.
fn image(disk: &DiskConfig) -> Option<Image> {
    let BackendConfig::File { path, raw: false, .. } = &disk.backend else { return None };
    if disk.region.is_some_and(|region| region.offset.0 > 0) {
        return None;
    }
    Image::at(path, disk.name.as_str(), disk.read_only)
}

/// Refuses an address for two, of disks and of the agent itself, and a socket by two spellings. Asks the file systems of the sockets.
pub(super) fn sockets(
    doc: &Document,
    status: Option<&Path>,
    http: Option<&Http>,
    volumes: &[Volume],
) -> Result<(), Error> {
    let mut seen = HashSet::new();
    let listens = volumes.iter().enumerate().flat_map(|(i, volume)| {
        let disks = volume.disks().iter().enumerate();
        disks.map(move |(j, disk)| (format!("volume.{i}.disk.{j}.listen"), &disk.listen))
    });
    let listens = listens.filter(|(_, listen)| seen.insert(*listen)).map(|(key, listen)| {
        (key, listen.clone(), format!("is the socket of {listen}: write it the same way"))
    });
    let own = |key: &str, address: Address, whose: &str| {
        (key.to_owned(), address, format!("is {whose}: give it an address of its own"))
    };
    let status = status.into_iter().flat_map(|path| {
        let (at, api) = (Address::Unix(path.to_owned()), Address::Unix(own::api_beside(path)));
        let whose = "the socket of the API, beside the status socket";
        [own("status", at, "the status socket's"), own("status", api, whose)]
    });
    let http = http.map(|http| own("http.address", http.address.clone(), "the address of [http]"));
    let mut all: Stretches<String> = Stretches::default();
    for (key, address, taken) in status.chain(http).chain(listens) {
        // A server of the agent is identified by its address alone, so the export is empty.
        let place = Uri { address, export: ExportName::default(), tls: None };
        let place = Stretch::of_export(&place, None);
        if let Some(taken) = all.meeting(&place).next() {
            return Err(doc.error(&key, taken));
        }
        all.insert(place, taken);
    }
    Ok(())
}
