//! The pages that probes make, opened in a browser.

use parda_probe::{ProbeDocument, Purpose};
use parda_probe_tools::report::Comparison;

use crate::browser::{Seen, holds, look};
use crate::stage::Stage;

/// A probe, as a page and as a document.
fn probe(stage: &Stage, name: &str, arguments: &[&str]) -> (String, ProbeDocument) {
    let (json, html) = (format!("{name}.json"), format!("{name}.html"));
    done(stage, &[&["probe"], arguments, &["--json", &json, "--page", &html]].concat());
    (page(stage, &html), ProbeDocument::read(&stage.path(&json)).unwrap())
}

fn done(stage: &Stage, line: &[&str]) -> String {
    let done = stage.parda(line);
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
    let flash = ["model:flash-sata", "--quick", "--mix", "4k,100,100", "--mix", "8k,67,70"];
    let (_, of_flash) = probe(&stage, "flash", &flash);
    let both = ["probe", "compare", "mixed.json", "flash.json", "--page", "both.html"];
    done(&stage, &both);

    let pages = [("disk", disk), ("mixed", mixed), ("both", page(&stage, "both.html"))];
    for seen in look(&pages) {
        holds(&seen);
        let swept = |document: &ProbeDocument| document.findings.curves.len();
        match seen.page.as_str() {
            "disk" => {
                let titles = titles(&seen);
                for title in [
                    "Throughput and latency against outstanding",
                    "Throughput against latency",
                    "4 KiB, reads, random",
                    "Latency against size",
                    "4 KiB, 8 outstanding",
                ] {
                    assert!(titles.contains(&title), "{title}: {titles:?}");
                }
                let spread = seen.plots.iter().find(|p| p.title == "4 KiB, reads, random").unwrap();
                assert!(spread.shapes > 100, "a heat map is of many areas: {spread:?}");
                let loads = of_disk.points.iter().filter(|p| p.purpose == Purpose::Depth);
                // Throughput and latency: a line and a mark a load each.
                let load = &seen.plots[0];
                assert!(load.panels == 2 && load.shapes >= 2 * (1 + loads.count()), "{load:?}");
            }
            "mixed" => assert!(seen.plots.len() >= 2 + swept(&of_mixed), "{:?}", titles(&seen)),
            _ => {
                let common = Comparison::new(&of_mixed, &of_flash);
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

#[test]
fn stored_probes_are_drawn_again_and_put_side_by_side() {
    let stage = Stage::new();
    let (html, a) = probe(&stage, "a", &["model:drive-7200", "--quick"]);
    assert_eq!(done(&stage, &["probe", "page", "a.json"]).trim_end(), html.trim_end());
    done(&stage, &["probe", "page", "a.json", "--out", "again.html"]);
    assert_eq!(page(&stage, "again.html"), html);

    // Another seed is the same drive, and a faster one is faster.
    probe(&stage, "b", &["model:drive-7200", "--quick", "--seed", "2"]);
    probe(&stage, "c", &["model:drive-15k", "--quick"]);
    let compare =
        |b: &str, more: &[&str]| done(&stage, &[&["probe", "compare", "a.json", b], more].concat());
    let rows = |csv: &str, verdict: &str| csv.lines().filter(|row| row.ends_with(verdict)).count();
    let (same, faster) = (compare("b.json", &["--csv", "-"]), compare("c.json", &["--csv", "-"]));
    let loads = |csv: &str| csv.lines().count() - 1;
    assert!(loads(&same) > 5 && loads(&same) <= a.points.len(), "{same}");
    assert_eq!(rows(&same, ",same"), loads(&same), "{same}");
    assert_eq!(rows(&faster, ",better"), loads(&faster), "{faster}");

    let table = compare("c.json", &[]);
    for part in ["A: model:drive-7200", "B: model:drive-15k", "better", "Knee: A ", "To set"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let json = compare("c.json", &["--json", "-"]);
    let comparison: Comparison = serde_json::from_str(&json).unwrap();
    assert_eq!(comparison.loads.len(), loads(&faster));

    stage.write("no.json", "{}");
    for line in [["probe", "compare", "a.json", "no.json"], ["probe", "page", "no.json", "--out=x"]]
    {
        let refused = stage.parda(&line);
        assert_eq!(refused.status.code(), Some(2));
        assert!(refused.err.contains("no.json:1:2: not a probe"), "{}", refused.err);
    }
}
