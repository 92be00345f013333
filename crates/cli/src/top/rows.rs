//! Rows and columns of the two tables: VMs of this host, and hosts of the exchange.

use std::cmp::Ordering;

use parda_agent::status::{self, DiskState, DiskStatus, VolumeStatus};
use parda_exchange::Liveness;
use ratatui::text::Line;

use super::fit::{self, PAST};
use crate::status::recent::Recent;

/// A value in a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Number(f64, usize),
    /// A part of a whole, shown in percent.
    Part(f64),
    /// No value is known. Sorts last in both orders.
    Unknown,
}

impl Cell {
    fn maybe(value: Option<f64>, digits: usize) -> Cell {
        value.map_or(Cell::Unknown, |value| Cell::Number(value, digits))
    }

    pub(super) fn compare(&self, other: &Cell, descending: bool) -> Ordering {
        let order = match (self, other) {
            (Cell::Unknown, Cell::Unknown) => return Ordering::Equal,
            (Cell::Unknown, _) => return Ordering::Greater,
            (_, Cell::Unknown) => return Ordering::Less,
            (Cell::Number(a, _), Cell::Number(b, _)) | (Cell::Part(a), Cell::Part(b)) => {
                a.total_cmp(b)
            }
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            // No column has values of two kinds.
            (Cell::Text(_), _) | (Cell::Number(..), Cell::Part(_)) => Ordering::Less,
            (_, Cell::Text(_)) | (Cell::Part(_), Cell::Number(..)) => Ordering::Greater,
        };
        if descending { order.reverse() } else { order }
    }

    fn part(part: Option<f64>) -> Cell {
        part.map_or(Cell::Unknown, Cell::Part)
    }

    /// Its text, at most so wide.
    pub(super) fn shown(&self, width: u16) -> Line<'static> {
        match self {
            Cell::Text(text) => fit::line(text.clone(), width),
            Cell::Number(value, digits) => fit::number(*value, *digits, width).into(),
            Cell::Part(part) => {
                (fit::number(100.0 * part, 0, width.saturating_sub(1)) + "%").into()
            }
            Cell::Unknown => Line::from("-"),
        }
    }
}

/// A column: its heading, its least and its most width in characters, and whether it has numbers.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: u16,
    pub(super) most: u16,
    pub(super) numeric: bool,
}

const fn text(title: &'static str, width: u16) -> Column {
    Column { title, width, most: width, numeric: false }
}

const fn number(title: &'static str, width: u16) -> Column {
    Column { title, width, most: width + 4, numeric: true }
}

/// Columns of the table of VMs: 80 characters. The last one has a chart of the last looks, and no values to sort by.
pub(super) const VMS: [Column; 10] = [
    text("VM", 9),
    number("shares", 7),
    number("IO/s", 6),
    number("MiB/s", 6),
    number("array", 6),
    number("held", 5),
    number("outst", 6),
    number("of share", 9),
    text("limited by", 13),
    Column { title: "past", width: 4, most: PAST as u16, numeric: false },
];

/// Columns of the table of VMs in the order in which a narrow terminal drops them. The limiting factor of a VM stays
/// longest.
pub(super) const VMS_DROP: [usize; 8] = [9, 3, 1, 6, 4, 5, 7, 2];

/// Columns of the table of hosts.
pub(super) const HOSTS: [Column; 7] = [
    text("host", 18),
    text("state", 8),
    number("heard s", 8),
    number("shares", 8),
    number("of share", 8),
    number("window", 8),
    number("latency", 8),
];

/// The same for the table of hosts.
pub(super) const HOSTS_DROP: [usize; 5] = [2, 3, 6, 5, 4];

/// A VM or a host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) cells: Vec<Cell>,
    /// Whether to highlight the row: a disk with a fault or short of its reservation, or a silent host.
    pub(super) alarm: bool,
}

impl Row {
    fn new(name: &str, alarm: bool, others: impl IntoIterator<Item = Cell>) -> Row {
        let cells = std::iter::once(Cell::Text(name.to_owned())).chain(others).collect();
        Row { name: name.to_owned(), cells, alarm }
    }
}

pub(super) fn vms(recent: &Recent, volume: &VolumeStatus) -> Vec<Row> {
    let of_share = of_share(recent, volume);
    let served = volume.disks.iter().zip(of_share).map(|(disk, of_share)| {
        let (device, held) = (disk.device.summary(), disk.held.summary());
        let ios = disk.reads.ios + disk.writes.ios;
        let timed = |ms: f64| if ios == 0 { Cell::Unknown } else { Cell::Number(ms, 1) };
        let fault = disk.fault.is_some() || disk.state != DiskState::Serving;
        let short = disk.reservation.is_some_and(|reservation| reservation.short);
        let limit = match (fault, short) {
            (true, _) => disk.state.to_string(),
            (false, true) => "SHORT".to_owned(),
            (false, false) => volume.limit_of(disk).to_string(),
        };
        Row::new(
            &disk.name,
            fault || short,
            [
                Cell::Number(f64::from(disk.shares), 0),
                Cell::Number(recent.rate(ios), 0),
                Cell::Number(recent.mib(disk.reads.bytes + disk.writes.bytes), 1),
                timed(device.mean),
                timed(held.mean),
                Cell::Number(recent.at_a_time(&disk.device), 1),
                Cell::part(of_share),
                Cell::Text(limit),
            ],
        )
    });
    let steered = volume.steer.iter().flat_map(|steer| &steer.vms).map(|vm| {
        Row::new(
            &vm.name,
            false,
            [
                Cell::Number(f64::from(vm.shares), 0),
                Cell::Number(recent.rate(vm.ios), 0),
                Cell::Number(recent.mib(vm.bytes), 1),
                Cell::Unknown,
                Cell::Unknown,
                Cell::Number(vm.pending, 1),
                Cell::Unknown,
                Cell::Text(vm.held_back_by().unwrap_or("the kernel".to_owned())),
            ],
        )
    });
    served.chain(steered).collect()
}

/// Part of its share that each disk has which is held back, as the dashboard shows it.
fn of_share(recent: &Recent, volume: &VolumeStatus) -> Vec<Option<f64>> {
    let costs = volume.settings.as_ref().and_then(|settings| settings.costs);
    let had = |disk: &DiskStatus| match costs {
        None => recent.at_a_time(&disk.device),
        Some(costs) => costs.slots(
            [disk.reads, disk.writes].map(|of| (recent.rate(of.ios), recent.rate(of.bytes))),
        ),
    };
    let is_held = |disk: &DiskStatus| volume.limit_of(disk).is_held();
    let held = volume.disks.iter().filter(|disk| is_held(disk));
    let held: Vec<_> = held.map(|disk| (had(disk), f64::from(disk.shares))).collect();
    let of_host = volume.own.as_ref().and_then(|own| own.of_share);
    let mut of_held = status::of_share(&held, of_host).into_iter();
    let of = |disk| is_held(disk).then(|| of_held.next().flatten()).flatten();
    volume.disks.iter().map(of).collect()
}

/// Rows of this host and of the others that the exchange shows.
pub(super) fn hosts(recent: &Recent, volume: &VolumeStatus) -> Vec<Row> {
    let own = Row::new(
        &recent.status.host,
        false,
        [
            Cell::Text("here".to_owned()),
            Cell::Unknown,
            Cell::Number(f64::from(volume.shares), 0),
            Cell::part(volume.own.as_ref().and_then(|own| own.of_share)),
            Cell::maybe(volume.window, 2),
            Cell::maybe(volume.own.as_ref().and_then(|own| own.latency_ms), 1),
        ],
    );
    let peers = volume.exchange.iter().flat_map(|exchange| &exchange.peers).map(|peer| {
        Row::new(
            &peer.name,
            peer.liveness != Liveness::Live,
            [
                Cell::Text(peer.liveness.to_string()),
                Cell::Number(peer.age_s, 1),
                Cell::Number(peer.shares.into(), 0),
                Cell::part(peer.of_share),
                Cell::maybe(peer.window, 2),
                Cell::maybe(peer.latency_ms, 1),
            ],
        )
    });
    std::iter::once(own).chain(peers).collect()
}
