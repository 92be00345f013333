//! A probe as tables for the terminal.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Table, presets};
use parda_plot::number;

use super::words::{
    CHOICE_COLUMNS, curves, in_a_row, in_rows, ms, others, percent, short, size, story,
};
use crate::report::sentences;
use parda_probe::ProbeDocument;
use parda_probe::Purpose;
use parda_probe::{Advice, Point};

/// Columns after the first. The first differs from table to table.
const COLUMNS: [&str; 10] =
    ["IOPS", "MB/s", "mean ms", "stddev", "p50", "p90", "p99", "p99.9", "max", "X·L"];

/// A table of each sweep, then the findings, then the advice.
#[must_use]
pub fn table(document: &ProbeDocument) -> String {
    let mut out = format!("{}\n", story(document).replace('`', ""));
    for about in &document.target.about {
        let _ = writeln!(out, "  {about}");
    }
    for (heading, first, points) in sections(document) {
        let _ = write!(out, "\n{heading}\n{}\n", rows(first, &points));
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
            list(
                &mut out,
                "To set",
                std::iter::once(line).chain(advice.why.iter().map(sentences::why)),
            );
            let _ = writeln!(out);
            for line in sentences::snippet(document, advice).trim_end().lines() {
                let _ = writeln!(out, "    {line}");
            }
            if advice.choices.len() > 1 {
                let _ = write!(out, "\nOther thresholds\n  {}\n", sentences::CHOICES);
                let _ = writeln!(out, "{}", choices(advice));
            }
        }
        None => out.push_str("\nTo set\n  These points say nothing on what to set.\n"),
    }
    out
}

/// What each threshold costs and gives.
fn choices(advice: &Advice) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).force_no_tty();
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    table.set_header(CHOICE_COLUMNS.map(|column| right(column.to_owned())));
    for row in in_rows(advice) {
        table.add_row(row.map(right));
    }
    table.to_string()
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
        let (heading, first, name) = match point.purpose {
            Purpose::Depth => (mix.to_string(), "outstanding", point.load.outstanding.to_string()),
            Purpose::Size => {
                ("Sizes".to_owned(), "size", format!("{}, {}", size(mix.size), rest(point)))
            }
            Purpose::Mix => {
                ("Mixes".to_owned(), "mix", format!("{mix}, {} outst.", point.load.outstanding))
            }
            Purpose::Repeat => {
                ("Again".to_owned(), "load", format!("{mix}, {} outst.", point.load.outstanding))
            }
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

/// A mix without its size, and the number of outstanding IOs.
fn rest(point: &Point) -> String {
    let mix = point.load.mix.to_string();
    let rest = mix.split_once(", ").map_or("", |(_, rest)| rest);
    format!("{rest}, {} outst.", point.load.outstanding)
}

fn rows(first: &str, points: &[(String, &Point)]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).force_no_tty();
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    // Headings of numbers are aligned like the numbers.
    let counted = first == "outstanding";
    let named = |text: String| if counted { right(text) } else { Cell::new(text) };
    let head = COLUMNS.map(|c| right(c.to_owned()));
    table.set_header([named(first.to_owned())].into_iter().chain(head));
    for (name, point) in points {
        let mark = if point.settled { "" } else { " *" };
        let numbers = in_a_row(&point.all);
        let outstanding = number(point.outstanding_measured, 2);
        let cells = numbers.map(short).into_iter().chain([outstanding]).map(right);
        table.add_row([named(format!("{name}{mark}"))].into_iter().chain(cells));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
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
            "latency_threshold = 40 ms, window_max = 16",
            "    latency_threshold = \"40ms\"",
            "* did not settle",
            "Other thresholds\n",
            "advised: 40 ms",
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
