//! The pages that probes make, opened in a browser.

use parda_probe::{Comparison, Document, report};

use crate::browser::{Seen, holds, look};
use crate::stage::Stage;

/// A probe, as a page and as a document.
fn probe(stage: &Stage, name: &str, arguments: &[&str]) -> (String, Document) {
    let (json, html) = (format!("{name}.json"), format!("{name}.html"));
    let line = [&["probe"], arguments, &["--json", &json, "--page", &html]].concat();
    let done = stage.parda(&line);
    assert!(done.status.success(), "{}", done.err);
    let page = String::from_utf8(stage.read(&html)).unwrap();
    (page, Document::read(&stage.path(&json)).unwrap())
}

fn titles(seen: &Seen) -> Vec<&str> {
    seen.plots.iter().map(|plot| plot.title.as_str()).collect()
}

#[test]
fn the_pages_of_probes_are_drawn_and_readable_on_a_phone_and_on_a_desktop_in_light_and_in_dark() {
    let stage = Stage::new();
    let (disk, of_disk) = probe(&stage, "disk", &["model:drive-7200", "--full"]);
    let mixes = ["--mix", "4k,100,100", "--mix", "8k,67,70", "--mix", "64k,0,0"];
    let array = [&["model:cx3-40-raid5-vms", "--quick"], &mixes[..]].concat();
    let (array, of_array) = probe(&stage, "array", &array);
    let mixes = ["model:drive-15k", "--quick", "--mix", "4k,100,100", "--mix", "8k,67,70"];
    let (_, other) = probe(&stage, "other", &mixes);
    let both = report::compare::page(&of_array, &other);

    let pages = [("disk", disk), ("array", array), ("both", both)];
    for seen in look(&pages) {
        holds(&seen);
        let swept = |document: &Document| document.findings.curves.len();
        match seen.page.as_str() {
            "disk" => {
                let titles = titles(&seen);
                for title in [
                    "Throughput and latency against outstanding",
                    "Throughput against latency",
                    "4 KiB, reads, random",
                    "Latency against size",
                    "256 KiB, 8 outstanding",
                ] {
                    assert!(titles.contains(&title), "{title}: {titles:?}");
                }
                let spread = seen.plots.iter().find(|p| p.title == "4 KiB, reads, random").unwrap();
                assert!(spread.shapes > 100, "a heat map is of many areas: {spread:?}");
                let loads =
                    of_disk.points.iter().filter(|p| p.purpose == parda_probe::Purpose::Depth);
                // Throughput and latency: a line and a mark a load each.
                let load = &seen.plots[0];
                assert!(load.panels == 2 && load.shapes >= 2 * (1 + loads.count()), "{load:?}");
            }
            "array" => assert!(seen.plots.len() >= 2 + swept(&of_array), "{:?}", titles(&seen)),
            _ => {
                let common = Comparison::new(&of_array, &other);
                let common = common.curves.iter().filter(|c| c.a.is_some() && c.b.is_some());
                assert_eq!(seen.plots.len(), 1 + 4 * common.count(), "{:?}", titles(&seen));
            }
        }
        // On a desktop two stand side by side.
        let widest = seen.plots.iter().map(|plot| plot.width).fold(0.0, f64::max);
        assert!(widest < 560.0, "{} px", widest);
    }
}

#[test]
fn a_page_that_is_broken_is_noticed() {
    let noticed = |what: &str, page: &str| {
        let page = page.to_owned();
        let seen = std::panic::catch_unwind(|| look(&[("broken", page)]).iter().for_each(holds));
        assert!(seen.is_err(), "{what} is not noticed");
    };
    let with = |more: &str| {
        format!(
            "<!doctype html><html><head></head><body style='height:2000px'>{more}</body></html>"
        )
    };
    noticed("a script that fails", &with("<script>no.such.thing()</script>"));
    noticed("a path that is none", &with("<svg><title>t</title><path d='M 1 NaN'/></svg>"));
    noticed("what is too wide", &with("<p style='width:2000px'>wide</p>"));
}
