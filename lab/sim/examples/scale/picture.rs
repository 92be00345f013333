//! The rows as a picture: when clusters settle, and what a host sends and receives, against the number of hosts.

use parda_plot::{Across, Figure, Panel};

use crate::Fallible;
use crate::cluster::Row;
use crate::transport::TRANSPORTS;

/// Draws the rows of a JSON file as SVG.
pub(crate) fn draw(from: &str, to: &str) -> Fallible<()> {
    let text = std::fs::read_to_string(from).map_err(|e| format!("{from}: {e}"))?;
    let rows: Vec<Row> = serde_json::from_str(&text).map_err(|e| format!("{from}: {e}"))?;
    let figure = figure(&rows);
    std::fs::write(to, figure.svg()).map_err(|e| format!("{to}: {e}"))?;
    Ok(())
}

fn figure(rows: &[Row]) -> Figure {
    let panel = |label: &str, unit: &str, value: fn(&Row) -> f64| {
        let panel = Panel { log: true, ..Panel::new(label, unit) };
        TRANSPORTS.iter().fold(panel, |panel, transport| {
            let rows = rows.iter().filter(|row| row.transport == transport.name);
            let points: Vec<_> = rows.map(|row| (row.hosts as f64, value(row))).collect();
            if points.is_empty() { panel } else { panel.line(transport.name, points) }
        })
    };
    Figure::new("Many hosts of one volume, by transport", Across::Log("hosts".to_owned()))
        .subtitle("simulated; all hosts begin at once")
        .panel(panel("Latency at its threshold after", "s", |row| row.latency_settled_s))
        .panel(panel("Windows settled after", "s", |row| row.windows_settled_s))
        .panel(panel("A host sends", "kB/s", |row| row.sent_bytes / 1e3))
        .panel(panel("A host receives", "kB/s", |row| row.received_bytes / 1e3))
}
