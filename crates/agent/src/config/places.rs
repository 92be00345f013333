//! Places of the data of disks and exchanges, as far as their file systems answer.

use std::fs::{Metadata, metadata};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use parda_address::{Address, Place, Uri};
use parda_block::{DiskConfig, Stretch, file_help};
use parda_control::Span;
use parda_control::law::Mode;
use rustix::fs::{Access, access, major, minor};
use rustix::io::Errno;

use super::exchange::{Exchange, Slots};
use super::place::{REGION_ALIGNMENT, stretch};
use super::volume::{Volume, Work};
use crate::patience::{self, LOOK_BEHIND, Question};

/// Bytes of all disks and exchanges of a configuration. Places on a silent file system are listed by name: the opener of such a place
/// compares what it opened.
pub(super) struct Places {
    /// Disks of each volume, in its order.
    pub(super) disks: Vec<Vec<Stretch>>,
    /// Slots in which the hosts of each volume meet, if it has an exchange of slots.
    pub(super) exchanges: Vec<Option<Stretch>>,
}

impl Places {
    /// Looks at all of them. Waits for a file system that does not answer for a bounded time, and only once until it has answered.
    pub(super) fn look(volumes: &[Volume]) -> Places {
        let disks = || volumes.iter().map(Volume::disks);
        let exchanges = || volumes.iter().map(|v| v.exchange.as_ref().and_then(Exchange::slots));
        let of_disks = disks().flatten().map(|disk| {
            let (place, region) = (disk.backend.place(), disk.bytes());
            question(&place.clone(), move || stretch(&place, region))
        });
        let of_exchanges = exchanges().flatten().map(|slots| {
            let asked = slots.clone();
            question(&slots.place, move || written(&asked))
        });
        let mut answers = patience::ask(of_disks.chain(of_exchanges).collect()).into_iter();
        let mut next = |place: &Place, range: Option<Range<u64>>| {
            answers.next().flatten().unwrap_or_else(|| unseen(place, range))
        };
        let mut all = |of: &[DiskConfig]| -> Vec<Stretch> {
            of.iter().map(|disk| next(&disk.backend.place(), disk.bytes())).collect()
        };
        let disks = disks().map(&mut all).collect();
        let exchanges = exchanges().map(|slots| slots.map(|slots| next(&slots.place, None)));
        Places { disks, exchanges: exchanges.collect() }
    }
}

/// Question about a place.
pub(super) fn question<T>(place: &Place, ask: impl FnOnce() -> T + Send + 'static) -> Question<T> {
    let path = match place {
        Place::Path(path) | Place::Nbd(Uri { address: Address::Unix(path), .. }) => path,
        // The name of a host is not looked up.
        Place::Nbd(_) => Path::new(""),
    };
    Question::new(path, ask)
}

/// Fault of a place without a byte.
const EMPTY: &str =
    "has 0 bytes: clients find a disk without room. Give it a size: truncate -s SIZE";

/// Fault of a place whose file system does not answer.
const SILENT: &str = "does not answer";

/// Notes on disks whose data is not there, or does not answer.
pub(super) fn missing(volumes: &[Volume]) -> Vec<String> {
    let disks = volumes.iter().flat_map(Volume::disks);
    let paths = disks.filter_map(|disk| Some((disk, disk.backend.path()?)));
    let paths: Vec<_> = paths.collect();
    let questions = paths.iter().map(|(disk, path)| {
        let (asked, region, read_only) = (path.to_path_buf(), disk.bytes(), disk.read_only);
        Question::new(path, move || fault(&asked, region).or_else(|| refused(&asked, read_only)))
    });
    let answers = patience::ask(questions.collect());
    let faults = paths.into_iter().zip(answers).filter_map(|((disk, path), answer)| {
        let name = &disk.name;
        let fault = answer.unwrap_or_else(|| Some(SILENT.to_owned()))?;
        let help = match fault.as_str() {
            EMPTY => String::new(),
            SILENT => format!(": the agent waits for it; {LOOK_BEHIND}"),
            _ => ": the agent waits for it".to_owned(),
        };
        Some(format!("{name}: {}: {fault}{help}", path.display()))
    });
    faults.collect()
}

/// Directory of a path, if the path names one.
pub(crate) fn directory_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|directory| !directory.as_os_str().is_empty())
}

/// Reason why the data of a disk is not there.
fn fault(path: &Path, region: Option<Range<u64>>) -> Option<String> {
    let file = match metadata(path) {
        Ok(file) => file,
        Err(error) => {
            let missing = directory_of(path).filter(|directory| !directory.exists());
            let help = missing.map_or_else(
                || file_help(&error, path).to_string(),
                |parent| format!(" (there is no directory {}: is it mounted?)", parent.display()),
            );
            return Some(format!("{error}{help}"));
        }
    };
    if size(&file) == Some(0) {
        return Some(EMPTY.to_owned());
    }
    // A device does not tell its size here.
    let end = region.filter(|region| file.is_file() && region.end > file.len())?.end;
    Some(format!("has {} bytes, and the disk's region ends at {end}", file.len()))
}

/// Bytes of a file or a block device. `None` where that is not known.
fn size(file: &Metadata) -> Option<u64> {
    if file.is_file() {
        return Some(file.len());
    }
    let blocks = std::fs::read_to_string(sysfs(file.rdev()).join("size")).ok()?;
    blocks.trim().parse::<u64>().ok().map(|blocks| blocks * 512)
}

/// Directory of a block device in sysfs.
fn sysfs(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

/// Whether a place is on a drive that turns. `None` where that is not known, as of a file system of another host.
fn turns(path: &Path) -> Option<bool> {
    let file = metadata(path).ok()?;
    let device = if file.file_type().is_block_device() { file.rdev() } else { file.dev() };
    // A partition has its queue at its disk.
    let queues = ["queue/rotational", "../queue/rotational"].map(|at| sysfs(device).join(at));
    let said = queues.iter().find_map(|queue| std::fs::read_to_string(queue).ok())?;
    Some(said.trim() == "1")
}

/// Times in which hardly an IO of flash is done, and of drives that turn.
const OF_FLASH: Span = Span(100_000);
const OF_DISKS: Span = Span::from_millis(1);

/// Notes on thresholds that are below the time of a single IO.
pub(super) fn thresholds(volumes: &[Volume]) -> Vec<String> {
    let low = volumes.iter().filter(|volume| {
        let controlled = !matches!(volume.law.law.mode, Mode::Off | Mode::Static);
        controlled && volume.law.law.threshold < OF_DISKS
    });
    let places = low.map(|volume| {
        let paths =
            volume.disks().iter().filter_map(|disk| disk.backend.path().map(Path::to_owned));
        let steered = match &volume.work {
            Work::Steer(steer) => Some(steer.device.clone()),
            Work::Serve(_) | Work::Qemu(_) => None,
        };
        (volume, paths.chain(steered).next())
    });
    let notes = places.filter_map(|(volume, path)| {
        let threshold = volume.law.law.threshold;
        let asked = path.map(|path| Question::new(&path.clone(), move || turns(&path)));
        let disks = asked.and_then(patience::ask_one).flatten() == Some(true);
        let takes = match disks {
            true => "Linux says that its drives turn, and an IO takes those some milliseconds",
            false if threshold < OF_FLASH => "an IO takes flash about 0.1 ms, and disks some milliseconds",
            false => return None,
        };
        let ms = threshold.secs() * 1e3;
        Some(format!(
            "volume {}: latency_threshold is {ms:.3} ms: {takes}. Where no IO is as fast, windows stay at their least: parda probe finds \
             the threshold",
            volume.name
        ))
    });
    notes.collect()
}

/// Reason why the user that asks may not open the data of a disk, or an exchange.
pub(crate) fn refused(path: &Path, read_only: bool) -> Option<String> {
    let wanted = if read_only { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
    // The opener of the file reports any other fault.
    let wrong = |error: &Errno| matches!(*error, Errno::ACCESS | Errno::ROFS);
    let error = access(path, wanted).err().filter(wrong)?.into();
    Some(format!("{error}{}", file_help(&error, path)))
}

/// Bytes of a place, by its name.
fn unseen(place: &Place, range: Option<Range<u64>>) -> Stretch {
    match place {
        Place::Path(path) => Stretch::named(path, range),
        Place::Nbd(_) => Stretch::named(&PathBuf::from(place.to_string()), range),
    }
}

/// Bytes that an exchange may write to: a whole file, or as much of a device as it needs.
fn written(exchange: &Slots) -> Stretch {
    let file = matches!(&exchange.place, Place::Path(path) if path.is_file());
    let range = (!file || exchange.offset.is_some()).then(|| {
        let start = exchange.offset.unwrap_or(0);
        start..start.saturating_add(u64::from(exchange.slots.get() + 1) * REGION_ALIGNMENT)
    });
    stretch(&exchange.place, range)
}
