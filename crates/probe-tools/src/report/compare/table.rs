//! A comparison of two probes as tables for the terminal.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{advice, curves, interval, side, summary, word};
use crate::report::comparison::{Comparison, Pair};
use crate::report::words::short;
use parda_probe::{Mix, Purpose};

/// Summary, all loads that both probes ran, their knees, and the advice of both.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut out = format!("{}\n{}\n", side("A", &comparison.a), side("B", &comparison.b));
    for line in summary(comparison) {
        let _ = write!(out, "\n{line}");
    }
    out.push('\n');
    for (mix, pairs) in by_mix(&comparison.loads) {
        let _ = write!(out, "\n{mix}\n{}\n", rows(&pairs));
    }
    for of in &comparison.curves {
        let _ = write!(out, "\n{}\n", of.mix);
        for line in curves(of) {
            let _ = writeln!(out, "  {line}");
        }
    }
    out.push_str("\nTo set\n");
    for line in advice(comparison) {
        let _ = writeln!(out, "  {line}");
    }
    out.replace('`', "")
}

/// Mixes that were swept have a table each. All other loads share one.
pub(super) fn by_mix(loads: &[Pair]) -> Vec<(String, Vec<&Pair>)> {
    let swept = |mix: &Mix| loads.iter().any(|p| p.purpose == Purpose::Depth && p.load.mix == *mix);
    let mut out: Vec<(String, Vec<&Pair>)> = Vec::new();
    for pair in loads {
        let mix = &pair.load.mix;
        let name = if swept(mix) { mix.to_string() } else { "Other loads".to_owned() };
        match out.iter_mut().find(|(n, _)| *n == name) {
            Some((_, pairs)) => pairs.push(pair),
            None => out.push((name, vec![pair])),
        }
    }
    for (name, pairs) in &mut out {
        if name == "Other loads" {
            pairs.sort_by_key(|p| p.load);
        } else {
            pairs.sort_by_key(|p| p.load.outstanding);
        }
    }
    out.sort_by_key(|(name, _)| name == "Other loads");
    out
}

/// What stands first in the row of a load.
pub(super) fn name(pair: &Pair, alone: bool) -> String {
    let n = pair.load.outstanding;
    if alone { n.to_string() } else { format!("{}, {n} outst.", pair.load.mix) }
}

fn rows(pairs: &[&Pair]) -> String {
    let alone = pairs.windows(2).all(|w| w[0].load.mix == w[1].load.mix);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let first = |text: String| if alone { right(text) } else { Cell::new(text) };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).force_no_tty();
    let numbers = ["IOPS A", "B", "B/A", "95 %", "mean ms A", "B", "p99 ms A", "B", "B/A"];
    let head = if alone { "outstanding" } else { "load" };
    let head = [first(head.to_owned())].into_iter().chain(numbers.map(|n| right(n.to_owned())));
    table.set_header(head.chain([Cell::new("B is")]));
    for pair in pairs {
        let (a, b) = (&pair.a, &pair.b);
        let numbers = [
            short(a.iops),
            short(b.iops),
            format!("{:.3}", pair.iops_ratio),
            interval(pair.iops_ratio_95),
            short(a.mean_ms),
            short(b.mean_ms),
            short(a.p99_ms),
            short(b.p99_ms),
            format!("{:.2}", pair.p99_ratio),
        ];
        let cells = [first(name(pair, alone))].into_iter().chain(numbers.map(right));
        table.add_row(cells.chain([Cell::new(word(pair.verdict))]));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::{document, empty, slower};

    #[test]
    fn a_comparison_tells_what_it_comes_to_and_every_load() {
        let comparison = Comparison::new(&document(), &slower(1.25));
        let table = table(&comparison);
        for part in [
            "A: model:example, the array model",
            "B has more throughput at 0, less at 64, the same at 0, and at 3 it cannot be said.",
            "B's throughput is 80 % of A's at the middle one of these loads",
            "4 KiB, writes, random\n",
            "Other loads\n",
            "Peak throughput: A 1,231 (1,194 to 1,268), B 985 (955 to 1,014) IOPS: 80 % of A's.",
            "Knee: A 12 (10.4 to 14.1), B 12 (10.4 to 14.1) outstanding: the same",
            "B's threshold is 125 % of A's.",
        ] {
            assert!(table.contains(part), "{part:?} is not in\n{table}");
        }
        assert_eq!(table.matches("  worse\n").count(), 64);
    }

    #[test]
    fn where_nothing_is_common_that_is_said() {
        let table = table(&Comparison::new(&document(), &empty()));
        assert!(
            table.contains("nothing to compare") && table.contains("Only A swept it"),
            "{table}"
        );
    }
}
