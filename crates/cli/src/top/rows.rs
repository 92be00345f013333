//! Rows and columns of the two tables: VMs of this host, and hosts of the exchange.

use std::cmp::Ordering;

use parda_agent::status::{DiskState, VolumeStatus};
use parda_exchange::Liveness;
use ratatui::text::Line;

use super::fit::{self, PAST};
use crate::status::recent::Recent;

/// A value in a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Number(f64, usize),
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
            (Cell::Number(a, _), Cell::Number(b, _)) => a.total_cmp(b),
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Text(_), Cell::Number(..)) => Ordering::Less,
            (Cell::Number(..), Cell::Text(_)) => Ordering::Greater,
        };
        if descending { order.reverse() } else { order }
    }

    /// Its text, at most so wide.
    pub(super) fn shown(&self, width: u16) -> Line<'static> {
        match self {
            Cell::Text(text) => fit::line(text.clone(), width),
            Cell::Number(value, digits) => fit::number(*value, *digits, width).into(),
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
pub(super) const VMS: [Column; 9] = [
    text("VM", 12),
    number("shares", 7),
    number("IO/s", 7),
    number("MiB/s", 6),
    number("array", 6),
    number("held", 6),
    number("outst", 6),
    text("limited by", 14),
    Column { title: "lately", width: 8, most: PAST as u16, numeric: false },
];

/// Columns of the table of VMs in the order in which a narrow terminal leaves them out.
pub(super) const VMS_DROP: [usize; 7] = [8, 7, 1, 3, 6, 5, 4];

/// Columns of the table of hosts.
pub(super) const HOSTS: [Column; 6] = [
    text("host", 18),
    text("state", 8),
    number("heard s", 8),
    number("shares", 8),
    number("window", 8),
    number("latency", 8),
];

/// The same for the table of hosts.
pub(super) const HOSTS_DROP: [usize; 4] = [2, 3, 5, 1];

/// A VM or a host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) cells: Vec<Cell>,
    /// Whether to highlight it: a disk with a fault or short of its reservation, or a host that is not live.
    pub(super) alarm: bool,
}

impl Row {
    fn new(name: &str, alarm: bool, others: impl IntoIterator<Item = Cell>) -> Row {
        let cells = std::iter::once(Cell::Text(name.to_owned())).chain(others).collect();
        Row { name: name.to_owned(), cells, alarm }
    }
}

pub(super) fn vms(recent: &Recent, volume: &VolumeStatus) -> Vec<Row> {
    let served = volume.disks.iter().map(|disk| {
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
                Cell::Text(vm.held_back_by().unwrap_or("the kernel".to_owned())),
            ],
        )
    });
    served.chain(steered).collect()
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
                Cell::maybe(peer.window, 2),
                Cell::maybe(peer.latency_ms, 1),
            ],
        )
    });
    std::iter::once(own).chain(peers).collect()
}
