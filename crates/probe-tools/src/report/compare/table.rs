//! A comparison of two probes as tables for the terminal.

use std::fmt::Write;

use parda_plot::number;

use super::{advice, curves, interval, side, summary, word};
use crate::report::comparison::{Comparison, Pair};
use crate::report::table::in_text;
use crate::report::words::short;
use parda_probe::{Load, Mix, Purpose};

/// Summary, all loads that both probes ran, their knees, and the advice of both.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut out = format!("{}\n{}\n", side("A", &comparison.a), side("B", &comparison.b));
    for line in summary(comparison) {
        let _ = write!(out, "\n{line}");
    }
    out.push('\n');
    for (mix, pairs) in by_mix(&comparison.loads) {
        let verdict = |pair: &Pair| word(pair.verdict).to_owned();
        let texts = texts(&pairs);
        let row = |pair: &&Pair| row(pair, texts == 0).into_iter().chain([verdict(pair)]);
        let _ = write!(
            out,
            "\n{mix}\n{}\n",
            in_text(columns(&pairs), texts..10, pairs.iter().map(row))
        );
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

/// Heads of the columns of [`row`], and of the verdict after them.
pub(super) fn columns(pairs: &[&Pair]) -> [&'static str; 11] {
    let first = if of_one_mix(pairs) { "outstanding" } else { "load" };
    [first, "IOPS A", "B", "B/A", "95 %", "mean ms A", "B", "p99 ms A", "B", "B/A", "B is"]
}

fn of_one_mix(pairs: &[&Pair]) -> bool {
    pairs.windows(2).all(|pair| pair[0].load.mix == pair[1].load.mix)
}

/// How many columns of text come before the numbers.
pub(super) fn texts(pairs: &[&Pair]) -> usize {
    usize::from(!of_one_mix(pairs))
}

/// The row of a load without the verdict. `alone`: whether all rows are of one mix.
pub(super) fn row(pair: &Pair, alone: bool) -> [String; 10] {
    let (a, b, Load { mix, outstanding: n }) = (&pair.a, &pair.b, pair.load);
    [
        if alone { n.to_string() } else { format!("{mix}, {n} outst.") },
        short(a.iops),
        short(b.iops),
        number(pair.iops_ratio, 3),
        interval(pair.iops_ratio_95),
        short(a.mean_ms),
        short(b.mean_ms),
        short(a.p99_ms),
        short(b.p99_ms),
        number(pair.p99_ratio, 2),
    ]
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
            "Peak throughput: A 1,231 (1,227 to 1,242), B 985 (981 to 994) IOPS: 80 % of A's.",
            "Knee: A 13.8 (13.4 to 14.5), B 13.8 (13.4 to 14.5) outstanding: the same",
            "B's threshold is 124 % of A's.",
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
