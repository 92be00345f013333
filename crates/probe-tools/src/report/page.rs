//! A probe as an HTML page.

use parda_plot::{Figure, html, list, table};

use super::figures::{self, figures};
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
    let mut text = format!("{}\n\n{}\n", story(document), list(&document.target.about));
    text += &facts(document);
    text += &advice(document);
    text += &answers(document);
    let spreads = figures::spread(document);
    if !spreads.is_empty() {
        text += &format!(
            "## How latencies are spread\n\nA mean hides what single IOs see. Each column is one load, the stronger its \
             grey the more IOs had a latency there: each step is ten times as many. All pictures have the same axes.\n\n{}",
            beside(&spreads)
        );
    }
    text += &sizes_and_mixes(document);
    let found = &document.findings;
    if !found.suspicions.is_empty() {
        text += &format!(
            "## What may be in between\n\nA cache or a limit between us and the medium makes a device look like another \
             one. What speaks for one:\n\n{}\n",
            list(found.suspicions.iter().map(sentences::suspicion))
        );
    }
    let always = "What the target does when it is fuller, older or busier with others than it was.";
    let unknown = found.unknown.iter().map(sentences::unknown).chain([always.to_owned()]);
    text += &format!("## What this cannot tell\n\n{}\n", list(unknown));
    text += &points(document);
    let pictures = figures(document);
    html(&format!("Probe of {}", document.target.name), &text, |name| {
        pictures.iter().find(|(known, _)| known == name).map(|(_, figure)| figure.svg())
    })
}

/// The numbers that matter most.
fn facts(document: &ProbeDocument) -> String {
    let found = &document.findings;
    let mut facts: Vec<[String; 3]> = Vec::new();
    let mut add = |name: &str, number: String, word: String| {
        facts.push([name.to_owned(), format!("**{}**", unbroken(number)), unbroken(word)]);
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
    if facts.is_empty() { String::new() } else { table(["", "", ""], 3, facts) + "\n" }
}

/// Throughput and latency over the load.
fn answers(document: &ProbeDocument) -> String {
    let figures = figures::load(document);
    if figures.is_empty() {
        return String::new();
    }
    let captions = [
        "Outstanding and latency are on logarithmic scales: each step up is so many times as much. Whiskers are 95 % \
         confidence; most are smaller than the marks.",
        "The same points, one against the other: up is more throughput, left is less latency. Where a curve bends to the \
         right, more outstanding buys nothing but waiting.",
    ];
    let pictures =
        figures.iter().zip(captions).map(|((name, _), text)| format!("![{text}]({name})\n"));
    format!(
        "## How it answers load\n\nSo many IOs were kept outstanding, a new one whenever one was done. At first more of \
         them bring more throughput at nearly the same latency; from the knee on the target is busy all the time, and \
         more of them only wait for one another: throughput stays, latency doubles with each doubling.\n\n{}\n{}\n",
        pictures.collect::<String>(),
        list(curves(document))
    )
}

fn sizes_and_mixes(document: &ProbeDocument) -> String {
    let mut text = String::new();
    let sizes: Vec<(String, Figure)> = figures::sizes(document).into_iter().collect();
    let others = others(document);
    if !sizes.is_empty() || !others.is_empty() {
        text += &format!(
            "## What size costs, and what else was found\n\n{}{}\n",
            beside(&sizes),
            list(others)
        );
    }
    let mixes = figures::mixes(document);
    if !mixes.is_empty() {
        text += &format!(
            "## Reads, writes, randomness\n\nLatency and bandwidth of mixes, at one depth. All pictures have the same \
             axes.\n\n{}",
            beside(&mixes)
        );
    }
    text
}

/// Charts beside one another.
pub(super) fn beside(figures: &[(String, Figure)]) -> String {
    let pictures = figures.iter().map(|(name, _)| format!("![]({name})\n"));
    pictures.chain(["\n".to_owned()]).collect()
}

/// Text in which no line breaks between a number and its unit.
fn unbroken(text: String) -> String {
    ["ms", "µs", "KiB", "MiB", "%"]
        .iter()
        .fold(text, |text, unit| text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}")))
}

fn advice(document: &ProbeDocument) -> String {
    let Some(advice) = &document.findings.advice else {
        return "## What to set\n\nThese points say nothing on what to set: see below what this cannot tell.\n\n".to_owned();
    };
    let mut text = format!(
        "## What to set\n\n{}\nFor `parda.toml`:\n\n```\n{}\n```\n\n",
        list(advice.why.iter().map(sentences::why)),
        sentences::snippet(document, advice).trim_end()
    );
    if advice.choices.len() > 1 {
        let choices = table(CHOICE_COLUMNS, 0, choices(advice));
        text += &format!("{}\n\n**Thresholds to choose from**\n\n{choices}\n", sentences::CHOICES);
    }
    text
}

/// All points, with a table for each sweep.
fn points(document: &ProbeDocument) -> String {
    if document.points.is_empty() {
        return "## All points\n\nNothing was measured.\n".to_owned();
    }
    let mut text = "## All points\n\nLatencies are in milliseconds, from issue to completion. X·L is what was outstanding by \
        Little's law: throughput times mean latency. Warm-up is not in any number.\n\n"
        .to_owned();
    let columns = "IOPS,MB/s,mean,stddev,p50,p90,p99,p99.9,max,X·L,measured s,settled".split(',');
    for (heading, first, points) in sections(document) {
        let knee = points
            .first()
            .filter(|_| first == "outstanding")
            .and_then(|(_, p)| curve(document, &p.load.mix)?.knee);
        let knee = knee.map_or(String::new(), |knee| {
            format!(": knee at {} outstanding", estimate(&knee.outstanding, ""))
        });
        let rows = points.into_iter().map(|(name, point)| {
            let settled = if point.settled { "✓ yes" } else { "**✗ no**" };
            cells(name, point).into_iter().chain([short(point.measured_s), settled.to_owned()])
        });
        let texts = usize::from(first != "outstanding");
        let table = table([first].into_iter().chain(columns.clone()), texts, rows);
        text += &format!("**{heading}**{knee}\n\n{table}\n");
    }
    text
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
            "latency_threshold = \"12.4ms\"",
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
