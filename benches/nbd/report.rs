//! Samples as Markdown: medians with their spread, and parda over the best peer of each cell.

use std::fmt::Write;

use crate::cell::Cell;
use crate::sample::{CellKey, Sample};
use crate::server::Kind;

/// Median, least and most.
#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

fn spread(samples: &[&Sample], of: impl Fn(&Sample) -> f64) -> Spread {
    let mut values: Vec<f64> = samples.iter().map(|s| of(s)).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    let [least, .., most] = values[..] else {
        return Spread { median: low, least: low, most: low };
    };
    Spread { median: (low + high) / 2.0, least, most }
}

/// One server in one cell.
struct Entry {
    server: &'static str,
    kind: Kind,
    iops: Spread,
    bytes_per_s: f64,
    p50: f64,
    p99: f64,
    cpu: f64,
    server_cores: f64,
    client_cpu: f64,
    client_cores: f64,
}

fn entries(samples: &[&Sample]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for kind in Kind::ALL {
        let own: Vec<&Sample> =
            samples.iter().copied().filter(|s| s.server == kind.name()).collect();
        if own.is_empty() {
            continue;
        }
        let median = |of: fn(&Sample) -> f64| spread(&own, of).median;
        entries.push(Entry {
            server: kind.name(),
            kind,
            iops: spread(&own, |s| s.iops),
            bytes_per_s: median(|s| s.bytes_per_s),
            p50: median(|s| s.p50_us),
            p99: median(|s| s.p99_us),
            cpu: median(|s| s.server_cpu_us),
            server_cores: median(|s| s.server_cores),
            client_cpu: median(|s| s.client_cpu_us),
            client_cores: median(|s| s.client_cores),
        });
    }
    entries
}

fn find(entries: &[Entry], kind: Kind) -> Option<&Entry> {
    entries.iter().find(|e| e.kind == kind)
}

/// The peer with the most IOPS.
fn best_peer(entries: &[Entry]) -> Option<&Entry> {
    entries
        .iter()
        .filter(|e| matches!(e.kind, Kind::QemuNbd | Kind::Nbdkit | Kind::StorageDaemon))
        .max_by(|a, b| a.iops.median.total_cmp(&b.iops.median))
}

/// A cell in one line, while it is measured.
pub(crate) fn line(cell: &Cell, samples: &[Sample]) -> String {
    let (place, load) = (cell.place().to_owned(), cell.load());
    let (place, load) = (place.as_str(), load.as_str());
    let key = CellKey { place, load, depth: cell.depth, connections: cell.connections };
    let own: Vec<&Sample> = samples.iter().filter(|s| s.cell() == key).collect();
    let mut text = format!("{cell}:");
    for e in entries(&own) {
        let _ = write!(text, "  {} {:.0} ({:.2} µs)", e.server, e.iops.median, e.cpu);
    }
    text
}

/// Cells in the order in which they were first measured.
fn cells(samples: &[Sample]) -> Vec<Vec<&Sample>> {
    let mut cells: Vec<Vec<&Sample>> = Vec::new();
    for sample in samples {
        match cells.iter_mut().find(|c| c[0].cell() == sample.cell()) {
            Some(cell) => cell.push(sample),
            None => cells.push(vec![sample]),
        }
    }
    cells
}

pub(crate) fn markdown(samples: &[Sample]) -> String {
    let cells = cells(samples);
    let mut text = summary(&cells);
    let mut heading = String::new();
    for cell in &cells {
        let first = cell[0];
        let own =
            format!("\n### {}, {}\n", first.load.replace('/', " "), first.place.replace('/', ", "));
        if own != heading {
            let _ = writeln!(
                text,
                "{own}\n| depth × connections | server | IOPS, median (least to most) | MB/s | p50 µs | p99 µs \
                 | server CPU µs/IO (cores) | client CPU µs/IO (cores) | parda: IOPS | parda: CPU |\n\
                 | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
            );
            heading = own;
        }
        let entries = entries(cell);
        let parda = find(&entries, Kind::Parda);
        for e in &entries {
            let ratios = match parda {
                Some(parda) if e.kind != Kind::Parda => format!(
                    "× {:.2} | × {:.2}",
                    parda.iops.median / e.iops.median,
                    parda.cpu / e.cpu
                ),
                _ => "|".to_owned(),
            };
            let _ = writeln!(
                text,
                "| {} × {} | {} | {:.0} ({:.0} to {:.0}) | {:.0} | {:.0} | {:.0} | {:.2} ({:.2}) | {:.2} ({:.2}) | {ratios} |",
                first.depth,
                first.connections,
                e.server,
                e.iops.median,
                e.iops.least,
                e.iops.most,
                e.bytes_per_s / 1e6,
                e.p50,
                e.p99,
                e.cpu,
                e.server_cores,
                e.client_cpu,
                e.client_cores,
            );
        }
    }
    text
}

/// Parda over the best peer in each cell, in one table.
fn summary(cells: &[Vec<&Sample>]) -> String {
    let mut text = String::from(
        "| cell | parda IOPS | best peer | IOPS: of best peer | CPU per IO | p50 | p99 | of bare ring | of control off |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for cell in cells {
        let entries = entries(cell);
        let (Some(parda), Some(peer)) = (find(&entries, Kind::Parda), best_peer(&entries)) else {
            continue;
        };
        let first = cell[0];
        let of = |kind| {
            find(&entries, kind).map_or_else(String::new, |other| {
                format!("{:.2}", parda.iops.median / other.iops.median)
            })
        };
        let _ = writeln!(
            text,
            "| {}/{}/d{}/c{} | {:.0} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} |",
            first.place,
            first.load,
            first.depth,
            first.connections,
            parda.iops.median,
            peer.server,
            parda.iops.median / peer.iops.median,
            parda.cpu / peer.cpu,
            parda.p50 / peer.p50,
            parda.p99 / peer.p99,
            of(Kind::Bare),
            of(Kind::PardaOff),
        );
    }
    text
}
