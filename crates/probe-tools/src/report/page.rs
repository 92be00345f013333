//! A probe as an HTML page.

use parda_plot::{Cell, Figure, Page, Table};

use super::figures;
use super::sentences;
use super::table::{cells, sections};
use super::words::{
    CHOICE_COLUMNS, choices, curve, curves, estimate, mb_per_s, ms, others, percent, short, story,
};
use parda_probe::{Estimate, ProbeDocument};

/// An HTML page without external files: target, advice with its reasons, curves, suspicions,
/// open questions, and a table of all points.
#[must_use]
pub fn page(document: &ProbeDocument) -> String {
    let mut page = Page::new(format!("Probe of `{}`", document.target.name));
    page.prose(&story(document));
    if !document.target.about.is_empty() {
        page.list(&document.target.about);
    }
    facts(&mut page, document);
    advice(&mut page, document);
    answers(&mut page, document);
    spreads(&mut page, document);
    sizes_and_mixes(&mut page, document);
    let found = &document.findings;
    if !found.suspicions.is_empty() {
        page.heading("What may be in between");
        page.prose(
            "A cache or a limit between us and the medium makes a device look like another one. What speaks for one:",
        );
        page.list(found.suspicions.iter().map(sentences::suspicion));
    }
    page.heading("What this cannot tell");
    let always = "What the target does when it is fuller, older or busier with others than it was.";
    page.list(found.unknown.iter().map(sentences::unknown).chain([always.to_owned()]));
    points(&mut page, document);
    page.html()
}

/// The numbers that matter most.
fn facts(page: &mut Page, document: &ProbeDocument) {
    let found = &document.findings;
    let mut facts: Vec<[String; 3]> = Vec::new();
    let mut add = |name: &str, number: String, word: String| {
        facts.push([name.to_owned(), number, word].map(unbroken))
    };
    if let Some(advice) = &found.advice {
        add(
            "latency threshold to set",
            ms(advice.latency_threshold_ms),
            format!("{} of the peak throughput", percent(advice.throughput_fraction)),
        );
        add("largest window of a host", short(advice.window_max), "IOs outstanding".to_owned());
    }
    if let Some(first) = found.curves.first() {
        if let Some(service) = &first.service_ms {
            add("service time", ms(service.value), format!("one outstanding; {}", first.mix));
        }
        if let Some(knee) = &first.knee {
            let Estimate { value, low, high } = knee.outstanding;
            let word = format!(
                "outstanding, at {}; 95 % sure: {} to {}",
                ms(knee.latency_ms.value),
                short(low),
                short(high)
            );
            add("knee", short(value), word);
        }
        let peak = format!("IOPS, {} MB/s; {}", short(mb_per_s(first.peak_bytes_per_s)), first.mix);
        add("peak throughput", short(first.peak_iops.value), peak);
    }
    if !facts.is_empty() {
        page.facts(facts);
    }
}

/// Throughput and latency over the load.
fn answers(page: &mut Page, document: &ProbeDocument) {
    let figures = figures::load(document);
    if figures.is_empty() {
        return;
    }
    page.heading("How it answers load");
    page.prose(
        "So many IOs were kept outstanding, a new one whenever one was done. At first more of them bring more throughput at \
         nearly the same latency; from the knee on the target is busy all the time, and more of them only wait for one \
         another: throughput stays, latency doubles with each doubling.",
    );
    let captions = [
        "Outstanding and latency are on logarithmic scales: each step up is so many times as much. Whiskers are 95 % \
         confidence; most are smaller than the marks.",
        "The same points, one against the other: up is more throughput, left is less latency. Where a curve bends to the \
         right, more outstanding buys nothing but waiting.",
    ];
    named(page, figures, &captions);
    if !document.findings.curves.is_empty() {
        page.list(curves(document));
    }
}

fn spreads(page: &mut Page, document: &ProbeDocument) {
    let figures = figures::spread(document);
    if figures.is_empty() {
        return;
    }
    page.heading("How latencies are spread");
    page.prose(
        "A mean hides what single IOs see. Each column is one load, the stronger its grey the more IOs had a latency \
         there: each step is ten times as many. All pictures have the same axes.",
    );
    named(page, figures, &[]);
}

fn sizes_and_mixes(page: &mut Page, document: &ProbeDocument) {
    let sizes: Vec<(String, Figure)> = figures::sizes(document).into_iter().collect();
    let others = others(document);
    if !sizes.is_empty() || !others.is_empty() {
        page.heading("What size costs, and what else was found");
        named(page, sizes, &[]);
        page.list(others);
    }
    let mixes = figures::mixes(document);
    if !mixes.is_empty() {
        page.heading("Reads, writes, randomness");
        page.prose(
            "Latency and bandwidth of mixes, at one depth. All pictures have the same axes.",
        );
        named(page, mixes, &[]);
    }
}

fn named(page: &mut Page, figures: Vec<(String, Figure)>, captions: &[&str]) {
    side_by_side(page, figures.into_iter().map(|(_, figure)| figure), captions);
}

/// Charts with their captions, if there are any. A chart may have none.
pub(super) fn side_by_side(
    page: &mut Page,
    figures: impl IntoIterator<Item = Figure>,
    captions: &[&str],
) {
    let captions = captions.iter().copied().chain(std::iter::repeat(""));
    let with: Vec<(Figure, String)> = figures
        .into_iter()
        .zip(captions)
        .map(|(figure, caption)| (figure, caption.to_owned()))
        .collect();
    if !with.is_empty() {
        page.side_by_side(&with);
    }
}

/// Text in which no line breaks between a number and its unit.
fn unbroken(text: String) -> String {
    ["ms", "µs", "KiB", "MiB", "%"]
        .iter()
        .fold(text, |text, unit| text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}")))
}

fn advice(page: &mut Page, document: &ProbeDocument) {
    page.heading("What to set");
    let Some(advice) = &document.findings.advice else {
        page.prose("These points say nothing on what to set: see below what this cannot tell.");
        return;
    };
    page.list(advice.why.iter().map(sentences::why));
    page.prose("For `parda.toml`:");
    page.code(&sentences::snippet(document, advice));
    if advice.choices.len() > 1 {
        page.prose(sentences::CHOICES);
        let table = Table::new(CHOICE_COLUMNS).caption("Thresholds to choose from".to_owned());
        page.table(choices(advice).into_iter().fold(table, Table::row));
    }
}

/// All points, with a table for each sweep.
fn points(page: &mut Page, document: &ProbeDocument) {
    page.heading("All points");
    if document.points.is_empty() {
        page.prose("Nothing was measured.");
        return;
    }
    page.prose(
        "Latencies are in milliseconds, from issue to completion. X·L is what was outstanding by Little's law: throughput \
         times mean latency. Warm-up is not in any number.",
    );
    let columns = [
        "IOPS",
        "MB/s",
        "mean",
        "stddev",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "X·L",
        "measured, s",
    ];
    for (heading, first, points) in sections(document) {
        let knee = points
            .first()
            .filter(|_| first == "outstanding")
            .and_then(|(_, p)| curve(document, &p.load.mix)?.knee);
        let caption = match knee {
            Some(knee) => {
                format!("{heading}: knee at {} outstanding", estimate(&knee.outstanding, ""))
            }
            None => heading,
        };
        let head = [first].into_iter().chain(columns).chain(["settled"]);
        let mut table = Table::new(head).caption(caption);
        for (name, point) in points {
            let measured = Cell::Number(short(point.measured_s));
            let settled = Cell::verdict(point.settled, if point.settled { "yes" } else { "no" });
            table = table.row(cells(first, name, point).into_iter().chain([measured, settled]));
        }
        page.table(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::{document, empty};
    use parda_probe::Evidence;

    #[test]
    fn a_page_tells_what_to_set_before_it_tells_why_and_how_it_was_found() {
        let html = page(&document());
        let places: Vec<usize> = [
            "was probed on 2026-01-31",
            "latency threshold to set",
            "What to set</h2>",
            "latency_threshold = &quot;12.4ms&quot;",
            "How it answers load</h2>",
            "write cache",
            "What this cannot tell</h2>",
            "All points</h2>",
        ]
        .iter()
        .map(|part| html.find(part).unwrap_or_else(|| panic!("{part} is not there")))
        .collect();
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn a_probe_that_measured_nothing_has_a_page_that_says_so() {
        let html = page(&empty());
        assert!(html.contains("Nothing was measured") && html.contains("nothing on what to set"));
    }

    #[test]
    fn whatever_a_target_is_called_is_text() {
        let mut document = document();
        document.target.name = "<script>alert(1)</script>".to_owned();
        document.findings.suspicions[0].evidence =
            vec![Evidence::Sentence("<img src=x onerror=y>".to_owned())];
        let html = page(&document);
        assert!(!html.contains("<script") && !html.contains("<img"));
    }
}
