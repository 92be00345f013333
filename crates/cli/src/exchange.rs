//! `parda exchange show`.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use parda_exchange::region::SlotCount;
use parda_exchange::slot::SLOT_BYTES;
use parda_exchange::{Content, inspect};
use serde::Serialize;

use crate::{Failure, output};

#[derive(Subcommand)]
pub(crate) enum Exchange {
    /// Show the slots of an exchange file that are not empty
    Show(Show),
}

#[derive(Args)]
#[command(after_help = "\
Example:
  parda exchange show /mnt/array-a/parda.exchange")]
pub(crate) struct Show {
    /// The file, or a block device
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the answer as JSON to a file, - for standard output
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

/// One slot, as it is shown.
#[derive(Serialize)]
struct Row {
    slot: u32,
    host: Option<String>,
    volume: Option<String>,
    sequence: Option<u64>,
    period_s: Option<f64>,
    window: Option<f64>,
    would_be: Option<f64>,
    beta: Option<f64>,
    shares: Option<u32>,
    active_shares: Option<f64>,
    iops: Option<f64>,
    latency_ms: Option<f64>,
    leaving: Option<bool>,
    fault: Option<String>,
}

impl Exchange {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Exchange::Show(show) = self;
        show.run()
    }
}

impl Show {
    fn run(&self) -> Result<(), Failure> {
        // A block device may be large; its slots are at the front and not many.
        let most = u64::from(SlotCount::MAX) * SLOT_BYTES as u64;
        let mut bytes = Vec::new();
        File::open(&self.file)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(|e| Failure::new(format!("{}: {e}", self.file.display())))?;
        let rows: Vec<Row> =
            inspect(&bytes).into_iter().filter_map(|s| row(s.slot.0, s.content)).collect();
        match &self.json {
            Some(out) => output::json(out, &rows),
            None if rows.is_empty() => output::print("every slot is empty"),
            None => output::print(&table(&rows)),
        }
    }
}

fn row(slot: u32, content: Content) -> Option<Row> {
    let mut row = Row {
        slot,
        host: None,
        volume: None,
        sequence: None,
        period_s: None,
        window: None,
        would_be: None,
        beta: None,
        shares: None,
        active_shares: None,
        iops: None,
        latency_ms: None,
        leaving: None,
        fault: None,
    };
    match content {
        Content::Empty => return None,
        Content::Fault(fault) => row.fault = Some(fault.to_string()),
        Content::Record(record) => {
            let body = &record.message.body;
            let all = body.report.interval.reads.plus(body.report.interval.writes);
            let elapsed = body.report.elapsed.secs();
            row.host = Some(record.message.from.host.to_string());
            row.volume = Some(record.volume.to_string());
            row.sequence = Some(record.message.sequence.0);
            row.period_s = Some(body.period.secs());
            row.window = body.report.in_force().map(|w| w.0);
            row.would_be = body.report.would_be().map(|w| w.0);
            row.beta = Some(body.report.beta);
            row.shares = Some(body.report.shares.0);
            row.active_shares = Some(body.report.active);
            row.iops = (elapsed > 0.0).then(|| all.ios as f64 / elapsed);
            row.latency_ms = all.mean().map(|s| s * 1e3);
            row.leaving = Some(body.leaving);
        }
    }
    Some(row)
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "slot",
        "host",
        "sequence",
        "window",
        "would be",
        "shares",
        "active",
        "IOPS",
        "latency ms",
        "",
    ]);
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.2}"));
    for row in rows {
        let note = match (&row.fault, row.leaving) {
            (Some(fault), _) => fault.clone(),
            (None, Some(true)) => "has left".to_owned(),
            _ => String::new(),
        };
        table.add_row([
            row.slot.to_string(),
            row.host.clone().unwrap_or_default(),
            row.sequence.map_or(String::new(), |s| s.to_string()),
            number(row.window),
            number(row.would_be),
            row.shares.map_or(String::new(), |s| s.to_string()),
            number(row.active_shares),
            number(row.iops),
            number(row.latency_ms),
            note,
        ]);
    }
    table.to_string()
}
