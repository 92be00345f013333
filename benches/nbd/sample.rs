//! One turn of one server, as a line of JSON.

use std::io;
use std::path::Path;

use parda_bench::BenchSummary;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::server::Kind;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) place: String,
    pub(crate) load: String,
    pub(crate) depth: u32,
    pub(crate) connections: u32,
    pub(crate) server: String,
    pub(crate) round: u32,
    pub(crate) iops: f64,
    pub(crate) bytes_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) server_cpu_us: f64,
    pub(crate) client_cpu_us: f64,
    pub(crate) server_cores: f64,
    pub(crate) client_cores: f64,
}

impl Sample {
    pub(crate) fn new(cell: &Cell, server: Kind, round: u32, measured: &BenchSummary) -> Self {
        Self {
            place: cell.place().to_owned(),
            load: cell.load(),
            depth: cell.depth,
            connections: cell.connections,
            server: server.name().to_owned(),
            round,
            iops: measured.iops,
            bytes_per_s: measured.bytes_per_s,
            p50_us: measured.p50_us,
            p99_us: measured.p99_us,
            server_cpu_us: measured.server_cpu_us_per_io.unwrap_or(f64::NAN),
            client_cpu_us: measured.client_cpu_us_per_io,
            server_cores: measured.server_cores.unwrap_or(f64::NAN),
            client_cores: measured.client_cores,
        }
    }

    /// What samples of one cell have in common.
    pub(crate) fn cell(&self) -> CellKey<'_> {
        let Sample { place, load, depth, connections, .. } = self;
        CellKey { place, load, depth: *depth, connections: *connections }
    }
}

/// What is measured: a load at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CellKey<'a> {
    pub(crate) place: &'a str,
    pub(crate) load: &'a str,
    pub(crate) depth: u32,
    pub(crate) connections: u32,
}

/// Reads what runs have appended.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Sample>> {
    let wrong = |e: &dyn std::fmt::Display, line: usize| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}:{line}: {e}", path.display()))
    };
    let text = std::fs::read_to_string(path)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    text.lines()
        .enumerate()
        .map(|(line, text)| serde_json::from_str(text).map_err(|e| wrong(&e, line + 1)))
        .collect()
}
