//! A probe as tables for the terminal.

use std::fmt::Write;
use std::ops::Range;

use comfy_table::{Cell, CellAlignment, Table, presets};
use parda_plot::number;

use super::words::{CHOICE_COLUMNS, choices, curves, mb_per_s, ms, others, percent, short, story};
use crate::report::sentences;
use parda_probe::{KindMeasured, Point, ProbeDocument, Purpose};

/// Columns after the first. The first differs from table to table.
const COLUMNS: [&str; 10] =
    ["IOPS", "MB/s", "mean ms", "stddev", "p50", "p90", "p99", "p99.9", "max", "X·L"];

/// A table for the terminal. Columns of `numbers` are at the right, their heads as well.
pub(super) fn in_text<'a>(
    columns: impl IntoIterator<Item = &'a str>,
    numbers: Range<usize>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).force_no_tty();
    let aligned = |(i, text): (usize, String)| match Cell::new(text) {
        cell if numbers.contains(&i) => cell.set_alignment(CellAlignment::Right),
        cell => cell,
    };
    table.set_header(columns.into_iter().map(str::to_owned).enumerate().map(aligned));
    table.add_rows(rows.into_iter().map(|row| row.into_iter().enumerate().map(aligned)));
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A table of each sweep, then the findings, then the advice.
#[must_use]
pub fn table(document: &ProbeDocument) -> String {
    let mut out = format!("{}\n", story(document));
    for about in &document.target.about {
        let _ = writeln!(out, "  {about}");
    }
    for (heading, first, points) in sections(document) {
        let marked = |(name, point): (String, &Point)| {
            let mark = if point.settled { "" } else { " *" };
            cells(format!("{name}{mark}"), point)
        };
        let columns = [first].into_iter().chain(COLUMNS);
        let texts = usize::from(first != "outstanding");
        let table = in_text(columns, texts..COLUMNS.len() + 1, points.into_iter().map(marked));
        let _ = write!(out, "\n{heading}\n{table}\n");
    }
    if !document.points.is_empty() {
        out.push_str(
            "\nLatencies in ms. X·L: outstanding by Little's law, throughput × mean latency.\n",
        );
        if document.points.iter().any(|p| !p.settled) {
            out.push_str("* did not settle: its numbers may be those of a transition.\n");
        }
    }
    let found = &document.findings;
    list(&mut out, "Found", curves(document).into_iter().chain(others(document)));
    list(&mut out, "Suspected", found.suspicions.iter().map(sentences::suspicion));
    list(&mut out, "Not known", found.unknown.iter().map(sentences::unknown));
    match &found.advice {
        Some(advice) => {
            let line = format!(
                "latency_threshold = {}, window_max = {}: {} of the peak",
                ms(advice.latency_threshold_ms),
                short(advice.window_max),
                percent(advice.throughput_fraction),
            );
            let why = advice.why.iter().map(sentences::why);
            list(&mut out, "To set", std::iter::once(line).chain(why));
            out.push('\n');
            for line in sentences::snippet(document, advice).trim_end().lines() {
                let _ = writeln!(out, "    {line}");
            }
            if advice.choices.len() > 1 {
                let table = in_text(CHOICE_COLUMNS, 0..CHOICE_COLUMNS.len(), choices(advice));
                let _ = write!(out, "\nOther thresholds\n  {}\n{table}\n", sentences::CHOICES);
            }
        }
        None => out.push_str("\nTo set\n  These points say nothing on what to set.\n"),
    }
    out
}

fn list(out: &mut String, heading: &str, lines: impl Iterator<Item = String>) {
    for (i, line) in lines.enumerate() {
        if i == 0 {
            let _ = write!(out, "\n{heading}\n");
        }
        let _ = writeln!(out, "  {line}");
    }
}

/// A table's heading, the title of its first column, and its points, each with its value for that column.
type Section<'a> = (String, &'static str, Vec<(String, &'a Point)>);

/// Points grouped by sweep.
pub(super) fn sections(document: &ProbeDocument) -> Vec<Section<'_>> {
    let mut sections: Vec<Section> = Vec::new();
    for point in &document.points {
        let mix = &point.load.mix;
        let name = format!("{mix}, {} outst.", point.load.outstanding);
        let (heading, first, name) = match point.purpose {
            Purpose::Depth => (mix.to_string(), "outstanding", point.load.outstanding.to_string()),
            Purpose::Size => ("Sizes".to_owned(), "size", name),
            Purpose::Mix => ("Mixes".to_owned(), "mix", name),
            Purpose::Repeat => ("Again".to_owned(), "load", name),
        };
        match sections.iter_mut().find(|s| s.0 == heading) {
            Some(section) => section.2.push((name, point)),
            None => sections.push((heading, first, vec![(name, point)])),
        }
    }
    // A sweep is not run in ascending order.
    sections.iter_mut().for_each(|section| section.2.sort_by_key(|(_, point)| point.load));
    sections
}

/// The row of a load under [`COLUMNS`], after its name.
fn cells(name: String, point: &Point) -> impl Iterator<Item = String> + use<> {
    let KindMeasured { iops, bytes_per_s, mean_ms, stddev_ms, .. } = point.all;
    let KindMeasured { p50_ms, p90_ms, p99_ms, p99_9_ms, max_ms, .. } = point.all;
    let rates = [iops, mb_per_s(bytes_per_s)];
    let latencies = [mean_ms, stddev_ms, p50_ms, p90_ms, p99_ms, p99_9_ms, max_ms];
    let numbers = rates.into_iter().chain(latencies).map(short);
    let outstanding = number(point.outstanding_measured, 2);
    std::iter::once(name).chain(numbers).chain([outstanding])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::{document, empty};

    #[test]
    fn a_table_tells_all_points_and_what_to_set() {
        let document = document();
        let table = table(&document);
        for part in [
            "was probed on 2026-01-31 12:00 UTC for 3 min 20 s",
            "4 KiB, reads, random\n",
            "Sizes\n",
            "Mixes\n",
            "Again\n",
            "Suspected\n",
            "Not known\n",
            "To set\n",
            "latency_threshold = 71 ms, window_max = 11",
            "    latency_threshold = \"71ms\"",
            "* did not settle",
            "Other thresholds\n",
            "advised: 71 ms",
        ] {
            assert!(table.contains(part), "{part:?} is not in\n{table}");
        }
        let starred = table.lines().filter(|l| l.contains(" * ")).count();
        assert_eq!(starred, document.points.iter().filter(|p| !p.settled).count());
        let longest = table.lines().filter(|l| !l.ends_with('.')).map(|l| l.chars().count()).max();
        assert!(longest <= Some(120), "{longest:?}\n{table}");
    }

    #[test]
    fn a_probe_without_points_says_so() {
        let table = table(&empty());
        assert!(table.contains("0 loads") && table.contains("nothing on what to set"), "{table}");
    }
}
