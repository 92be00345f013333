//! The pages that probes make, opened in a browser.

use parda_probe::{ProbeDocument, Purpose};

use crate::browser::{Seen, holds, look};
use crate::stage::Stage;

/// A probe, as a page and as a document.
fn probe(stage: &Stage, name: &str, arguments: &[&str]) -> (String, ProbeDocument) {
    let (json, html) = (format!("{name}.json"), format!("{name}.html"));
    done(stage, &[&["probe"], arguments, &["--json", &json, "--page", &html]].concat());
    (page(stage, &html), ProbeDocument::read(&stage.path(&json)).unwrap())
}

fn done(stage: &Stage, line: &[&str]) -> String {
    let done = stage.lab(line);
    assert!(done.status.success(), "{line:?}: {}", done.err);
    done.out
}

fn page(stage: &Stage, name: &str) -> String {
    String::from_utf8(stage.read(name)).unwrap()
}

fn titles(seen: &Seen) -> Vec<&str> {
    seen.plots.iter().map(|plot| plot.title.as_str()).collect()
}

#[test]
fn the_pages_of_probes_are_drawn_and_readable_on_a_phone_and_on_a_desktop_in_light_and_in_dark() {
    let stage = Stage::new();
    // Some of all questions, and then more mixes.
    let (disk, of_disk) = probe(&stage, "disk", &["model:drive-7200"]);
    let mixes = ["--mix", "4k,100,100", "--mix", "8k,67,70", "--mix", "64k,0,0"];
    let (mixed, of_mixed) =
        probe(&stage, "mixed", &[&["model:drive-15k", "--quick"], &mixes[..]].concat());
    assert_eq!(of_mixed.findings.curves.len(), 3);

    for seen in look(&[("disk", disk), ("mixed", mixed)]) {
        holds(&seen);
        assert_eq!(
            titles(&seen),
            ["Throughput and latency against outstanding", "Throughput against latency"]
        );
        match seen.page.as_str() {
            "disk" => {
                let loads = of_disk.points.iter().filter(|p| p.purpose == Purpose::Depth);
                // Throughput and latency: a line and a mark a load each.
                let load = &seen.plots[0];
                assert!(load.panels == 2 && load.shapes >= 2 * (1 + loads.count()), "{load:?}");
            }
            _ => assert!(seen.plots[0].shapes > 3 * 2 * 4, "{:?}", seen.plots[0]),
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

#[test]
fn stored_probes_are_drawn_again() {
    let stage = Stage::new();
    let (html, _) = probe(&stage, "a", &["model:drive-7200", "--quick"]);
    assert_eq!(done(&stage, &["probe", "page", "a.json"]).trim_end(), html.trim_end());
    done(&stage, &["probe", "page", "a.json", "--out", "again.html"]);
    assert_eq!(page(&stage, "again.html"), html);

    stage.write("no.json", "{}");
    let refused = stage.parda(&["probe", "page", "no.json", "--out=x"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.err.contains("no.json:1:2: not a probe"), "{}", refused.err);
}
