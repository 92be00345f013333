//! A probe as an HTML page.

use parda_plot::{Figure, PagePart, html};
use parda_probe::ProbeDocument;

use super::figures::figures;
use super::table::table;
use super::words::story;

const LOAD: &str = "\
So many IOs were kept outstanding, a new one whenever one was done. At first more of them bring more throughput at \
nearly the same latency. From the knee on the target is busy all the time: throughput stays, and latency doubles with \
each doubling. Whiskers are 95 % confidence.";

/// An HTML page without external files: the curves, then all that the terminal shows.
#[must_use]
pub fn page(document: &ProbeDocument) -> String {
    let pictures: Vec<Figure> = figures(document).into_iter().map(|(_, figure)| figure).collect();
    let (story, table) = (story(document), table(document));
    let mut parts = vec![PagePart::Text(&story)];
    if !pictures.is_empty() {
        parts.push(PagePart::Heading("How it answers load"));
        parts.extend([PagePart::Text(LOAD), PagePart::Figures(&pictures)]);
    }
    parts
        .extend([PagePart::Heading("What was measured, and what to set"), PagePart::Lines(&table)]);
    html(&format!("Probe of {}", document.target.name), &parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::{document, empty};
    use parda_probe::OpenQuestion;

    #[test]
    fn a_page_tells_what_was_measured_and_then_what_to_set() {
        let html = page(&document());
        let places: Vec<usize> = [
            "was probed on 2026-01-31",
            "How it answers load</h2>",
            "What was measured, and what to set</h2>",
            "write cache",
            "Not known",
            "latency_threshold = ",
        ]
        .iter()
        .map(|part| html.find(part).unwrap_or_else(|| panic!("{part} is not there")))
        .collect();
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn a_probe_that_measured_nothing_has_a_page_that_says_so() {
        let html = page(&empty());
        assert!(html.contains("0 loads") && html.contains("nothing on what to set"));
    }

    #[test]
    fn whatever_a_target_is_called_is_text() {
        let mut document = document();
        document.target.name = "<script>alert(1)</script>".to_owned();
        let load = document.points[0].load;
        let error = "<img src=x onerror=y>".to_owned();
        document.findings.unknown = vec![OpenQuestion::TargetFailed { load, error }];
        let html = page(&document);
        assert!(!html.contains("<script") && !html.contains("<img"));
    }
}
