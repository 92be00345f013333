//! Keys of a limit: parda's own, and the words that QEMU, libvirt and Proxmox have for the same.

/// Unit of a rate, as its key names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Ios,
    Bytes,
    /// Bytes, written as a number of MiB.
    Mebibytes,
}

/// The IOs that a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    Reads,
    Writes,
}

/// The kind of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Of {
    pub(crate) unit: Unit,
    pub(crate) way: Way,
}

/// Keys of the rates, by [`Of::place`].
pub(crate) const RATES: [&str; 6] =
    ["iops", "iops_reads", "iops_writes", "bandwidth", "bandwidth_reads", "bandwidth_writes"];

impl Of {
    /// The kind of a place in [`RATES`].
    pub(crate) fn at(place: usize) -> Of {
        let unit = if place < 3 { Unit::Ios } else { Unit::Bytes };
        Of { unit, way: [Way::Both, Way::Reads, Way::Writes][place % 3] }
    }

    /// Each kind, by its place.
    pub(crate) fn all() -> impl Iterator<Item = Of> {
        (0..RATES.len()).map(Of::at)
    }

    /// Its place in [`RATES`].
    pub(crate) fn place(self) -> usize {
        self.way as usize + if self.unit == Unit::Ios { 0 } else { 3 }
    }

    /// Parda's own key of its rate.
    pub(crate) fn key(self) -> &'static str {
        RATES[self.place()]
    }
}

/// The part of a rate that a key sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Mean,
    /// The rate of its burst.
    Most,
    /// The length of its burst.
    Length,
}

/// A key of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Rate(Of, Part),
    Burst,
    BurstFor,
    Size,
}

/// Parda's own keys, in the order in which a limit is written.
pub(crate) const KEYS: [&str; 21] = [
    "iops",
    "iops_max",
    "iops_max_length",
    "iops_reads",
    "iops_reads_max",
    "iops_reads_max_length",
    "iops_writes",
    "iops_writes_max",
    "iops_writes_max_length",
    "bandwidth",
    "bandwidth_max",
    "bandwidth_max_length",
    "bandwidth_reads",
    "bandwidth_reads_max",
    "bandwidth_reads_max_length",
    "bandwidth_writes",
    "bandwidth_writes_max",
    "bandwidth_writes_max_length",
    "iops_size",
    "burst",
    "burst_for",
];

/// Words for the IOs of a rate, behind its unit (`iops_rd`) or before it (`read_iops_sec`).
const WAYS: [(Way, &[&str]); 3] = [
    (Way::Reads, &["reads", "read", "rd"]),
    (Way::Writes, &["writes", "write", "wr"]),
    (Way::Both, &["total"]),
];

impl Key {
    /// The key of a name, in the spelling of parda or of another program.
    pub(crate) fn named(name: &str) -> Option<Key> {
        // QEMU's throttle groups have the names of its drives with other dashes.
        let name = name.replace('-', "_");
        match name.as_str() {
            "burst" => return Some(Key::Burst),
            "burst_for" => return Some(Key::BurstFor),
            "iops_size" | "size_iops_sec" => return Some(Key::Size),
            _ => {}
        }
        // `_length` alone is an old name of Proxmox.
        let parts =
            [("_max_length", Part::Length), ("_length", Part::Length), ("_max", Part::Most)];
        let part = parts.iter().find_map(|(end, part)| Some((name.strip_suffix(end)?, *part)));
        let (rate, part) = part.unwrap_or((&name, Part::Mean));
        of_libvirt(rate).or_else(|| of_qemu(rate)).map(|of| Key::Rate(of, part))
    }
}

/// A rate as libvirt calls it: `read_iops_sec`.
fn of_libvirt(rate: &str) -> Option<Of> {
    let (way, unit) = rate.strip_suffix("_sec")?.split_once('_')?;
    let way = way_named(way).filter(|_| ["total", "read", "write"].contains(&way))?;
    let unit = match unit {
        "iops" => Unit::Ios,
        "bytes" => Unit::Bytes,
        _ => return None,
    };
    Some(Of { unit, way })
}

/// A rate as QEMU, Proxmox and parda call it: `iops_rd`, `iops_read`, `mbps_rd`, `bandwidth_reads`.
fn of_qemu(rate: &str) -> Option<Of> {
    let (unit, way) = match rate.split_once('_') {
        Some((unit, way)) => (unit, way_named(way)?),
        None => (rate, Way::Both),
    };
    let unit = match unit {
        "iops" => Unit::Ios,
        "bandwidth" | "bps" => Unit::Bytes,
        "mbps" => Unit::Mebibytes,
        _ => return None,
    };
    Some(Of { unit, way })
}

fn way_named(word: &str) -> Option<Way> {
    WAYS.iter().find(|(_, words)| words.contains(&word)).map(|(way, _)| *way)
}
