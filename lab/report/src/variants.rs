//! Table of the phases of many variants, one per row.

use comfy_table::{Attribute, Cell, Table};
use parda_scenario::answer::{PhaseAnswer, RunAnswer};
use parda_scenario::expectation::Verdict;
use parda_scenario::shares::{host_errors, largest};

use crate::table::{right, short};

/// Adds a row for each phase of each variant to a table.
pub(crate) fn table(answer: &RunAnswer, mut table: Table) -> Table {
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
        right("fairness"),
        right("as expected"),
    ]);
    table.add_rows(answer.phases.iter().map(|phase| row(phase, &answer.expectations)));
    table
}

fn row(phase: &PhaseAnswer, expectations: &[Verdict]) -> [Cell; 11] {
    let or_dash = |number: Option<String>| right(number.unwrap_or_else(|| "-".to_owned()));
    let windows: Vec<f64> = phase.hosts.iter().filter_map(|host| host.window).collect();
    let least = windows.iter().copied().reduce(f64::min);
    let most = windows.iter().copied().reduce(f64::max);
    let window = least.zip(most).map(|(least, most)| {
        let (least, most) = (format!("{least:.1}"), format!("{most:.1}"));
        if least == most { least } else { format!("{least} to {most}") }
    });
    let off = largest(host_errors(&phase.hosts, None).into_values());
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
        or_dash(phase.total.fairness.map(|f| format!("{f:.3}"))),
        or_dash(held(phase, expectations)),
    ]
}

/// Number of expectations of a phase that hold, of those that are judged.
fn held(phase: &PhaseAnswer, expectations: &[Verdict]) -> Option<String> {
    let of_phase = |verdict: &&Verdict| {
        verdict.what.strip_prefix(&phase.name).is_some_and(|rest| rest.starts_with('/'))
    };
    let judged: Vec<&Verdict> =
        expectations.iter().filter(of_phase).filter(|v| v.exempt.is_none()).collect();
    let held = judged.iter().filter(|v| v.ok).count();
    (!judged.is_empty()).then(|| format!("{held} of {}", judged.len()))
}
