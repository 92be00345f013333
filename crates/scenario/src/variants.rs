//! The phases of many variants for people, one a row.

use comfy_table::{Attribute, Cell, Table};

use crate::answer::{Answer, PhaseAnswer};
use crate::shares::{host_errors, largest};
use crate::table::{right, short};

/// Fills a table with a row for each phase of each variant.
pub(crate) fn table(answer: &Answer, mut table: Table) -> Table {
    let bold = |text: &str| right(text).add_attribute(Attribute::Bold);
    table.set_header([
        Cell::new("variant"),
        Cell::new("phase"),
        right("hosts"),
        bold("IOPS"),
        right("MiB/s"),
        bold("device ms"),
        right("window"),
        right("off share"),
        right("settled"),
    ]);
    table.add_rows(answer.phases.iter().map(row));
    table
}

fn row(phase: &PhaseAnswer) -> [Cell; 9] {
    let or_dash = |number: Option<String>| right(number.unwrap_or_else(|| "-".to_owned()));
    let windows: Vec<f64> = phase.hosts.iter().filter_map(|host| host.window).collect();
    let least = windows.iter().copied().reduce(f64::min);
    let most = windows.iter().copied().reduce(f64::max);
    let window = least.zip(most).map(|(least, most)| {
        let (least, most) = (format!("{least:.1}"), format!("{most:.1}"));
        if least == most { least } else { format!("{least} to {most}") }
    });
    let off = largest(host_errors(&phase.hosts).into_values());
    [
        Cell::new(phase.variant.as_deref().unwrap_or_default()),
        Cell::new(phase.own_name()),
        right(phase.hosts.len()),
        right(format!("{:.0}", phase.total.iops)),
        right(format!("{:.1}", phase.total.mib_per_s)),
        or_dash(phase.total.device_latency_ms.map(short)),
        or_dash(window),
        or_dash(off.map(|off| format!("{:.1}%", 100.0 * off))),
        or_dash(phase.total.settled_s.map(|s| format!("{s:.0} s"))),
    ]
}
