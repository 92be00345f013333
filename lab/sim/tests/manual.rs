//! Numbers and pictures of docs/elling.md and docs/probe.md are what the probe gives, and near Elling's. With `PARDA_RENEW` set they are
//! renewed, as by `make reproduce`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod truth;

use parda_array::Preset;
use parda_plot::brief;
use parda_probe::{Effort, LoadMix, Point, ProbeDocument, Purpose, Wishes};
use parda_probe_tools::report;
use parda_testkit::manual::{docs, is_shown};

/// The scenario that has Elling's numbers; they stand nowhere else.
const PUBLISHED: &str = include_str!("../../../scenarios/papers/elling12.toml");

const READS: LoadMix = LoadMix { size: 4096, read_percent: 100, random_percent: 100 };
const WRITES: LoadMix = LoadMix { read_percent: 0, ..READS };

/// Pictures of a probe, each under a name of its own, in a folder beside the page that shows them.
fn are_shown(page: &str, document: &ProbeDocument, pictures: &[(&str, &str)]) {
    let (text, figures) = (std::fs::read_to_string(docs(page)).unwrap(), report::figures(document));
    for (name, file) in pictures {
        let (_, figure) = figures.iter().find(|(figure, _)| figure == name).unwrap();
        is_shown(file, &figure.svg());
        assert!(text.contains(&format!("]({file})")), "{page} shows {file}");
    }
}

fn probe(model: &str, mixes: &[LoadMix], elling: bool) -> ProbeDocument {
    let mut target = parda_sim::probe::target(model).unwrap();
    let wishes = Wishes {
        mixes: mixes.to_vec(),
        outstanding: 1..=256,
        all: mixes.len() == 1,
        purposes: vec![Purpose::Depth],
        effort: if mixes.len() == 1 { Effort::Usual } else { Effort::Quick },
        elling,
        writes: true,
        largest: 1 << 20,
    };
    target.probe(wishes, None, 1, &mut ())
}

#[test]
fn the_manual_shows_what_a_page_shows() {
    let second = LoadMix { size: 8192, read_percent: 67, random_percent: 70 };
    let pictures = [("load", "probe/load.svg"), ("answer", "probe/answer.svg")];
    are_shown("probe.md", &probe("drive-15k", &[READS, second], false), &pictures);
}

/// A number of the post, by its name in the scenario: `reads,outstanding=1.steady/total/iops`.
fn published(mix: LoadMix, outstanding: u32, what: &str) -> Option<f64> {
    let name = format!("{},outstanding={outstanding}.steady/{what}", kind(mix));
    let scenario: toml::Table = PUBLISHED.parse().unwrap();
    let expected =
        scenario["expect"].as_array()?.iter().find(|e| e["what"].as_str() == Some(&name))?;
    expected["expected"].as_float().or(expected["expected"].as_integer().map(|n| n as f64))
}

fn kind(mix: LoadMix) -> &'static str {
    if mix.read_percent == 100 { "reads" } else { "writes" }
}

/// The points of a mix, ascending in depth.
fn points(document: &ProbeDocument, mix: LoadMix) -> Vec<&Point> {
    let mut points: Vec<&Point> =
        document.points.iter().filter(|point| point.load.mix == mix).collect();
    points.sort_by_key(|point| point.load.outstanding);
    points
}

/// Reads, then writes, each with the number outstanding.
fn both(document: &ProbeDocument) -> impl Iterator<Item = (LoadMix, u32, &Point)> {
    let of = |mix| points(document, mix).into_iter().map(move |p| (mix, p.load.outstanding, p));
    [READS, WRITES].into_iter().flat_map(of)
}

/// Three digits, in a unit in which they are seen.
fn time(ms: f64) -> String {
    match ms {
        ms if ms >= 1000.0 => format!("{} s", brief(ms / 1e3)),
        ms if ms >= 1.0 => format!("{} ms", brief(ms)),
        ms => format!("{} µs", brief(ms * 1e3)),
    }
}

/// A table. Columns with a name are numbers, at the right.
fn table(head: &str, rows: impl IntoIterator<Item = String>) -> String {
    let rule =
        |cell: &str| if ["", "×", "="].contains(&cell.trim()) { " --- |" } else { " ---: |" };
    let rule: String = head.trim_matches('|').split('|').map(rule).collect();
    let rows: Vec<String> = rows.into_iter().collect();
    format!("{head}\n|{rule}\n{}", rows.join("\n"))
}

fn drive_table(drive: &ProbeDocument) -> String {
    let rows = both(drive).map(|(mix, n, Point { all, .. })| {
        let his = |what, unit, ours: f64| {
            let Some(his) = published(mix, n, what) else { return String::new() };
            assert!((ours / his - 1.0).abs() <= 0.06, "{mix}, {n}, {what}: {ours}, {his}");
            format!("{}{unit}", brief(his))
        };
        let iops = his("total/iops", "", all.iops);
        let latency = his("total/device_latency_ms", " ms", all.mean_ms);
        let (ours, mean) = (brief(all.iops), time(all.mean_ms));
        format!("| {} | {n} | {ours} | {iops} | {mean} | {latency} |", kind(mix))
    });
    table("| | at a time | IOPS | Elling | mean latency | Elling |", rows)
}

fn spread_table(drive: &ProbeDocument) -> String {
    let ends = both(drive).filter(|(_, n, _)| [1, 10].contains(n));
    let rows = ends.map(|(mix, n, Point { all, .. })| {
        let times = [all.mean_ms, all.stddev_ms, all.p50_ms, all.p99_ms, all.max_ms].map(time);
        format!("| {} | {n} | {} |", kind(mix), times.join(" | "))
    });
    let head = "| | at a time | mean | standard deviation | half within | 99 % within | slowest |";
    table(head, rows)
}

/// The slowest of the drive's reads, ten at a time, when one looks for a minute, ten, an hour.
fn slowest_table() -> String {
    let iops = published(READS, 10, "total/iops").unwrap();
    let slowest = [60.0, 600.0, 3600.0]
        .map(|seconds| truth::run(Preset::Drive7200, 10, 1000, (seconds * iops) as u64, 1).max_ms);
    let his = published(READS, 10, "host/drive/device_latency_ms/max").unwrap();
    assert!((slowest[2] / his - 1.0).abs() < 0.2, "{slowest:?}, {his}");
    let row = format!("| slowest read, 10 at a time | {} |", slowest.map(time).join(" | "));
    table("| | in a minute | in ten | in an hour |", [row])
}

fn devices_table(devices: &[(&str, &ProbeDocument)]) -> String {
    let row = |(words, experiment, n): (&str, &ProbeDocument, u32)| {
        let cells =
            both(experiment).filter(|(_, at, _)| *at == n).map(|(_, _, Point { all, .. })| {
                format!(" {} | {} | {} |", brief(all.iops), time(all.mean_ms), time(all.max_ms))
            });
        format!("| {words} | {n} |{}", cells.collect::<String>())
    };
    let rows = devices.iter().flat_map(|(words, of)| [(*words, *of, 1), (*words, *of, 10)]);
    let head = "| | at a time | reads: IOPS | mean | slowest | writes: IOPS | mean | slowest |";
    table(head, rows.map(row))
}

fn knees_table(sweeps: &[(&str, &ProbeDocument)]) -> String {
    let rows = sweeps.iter().map(|(words, sweep)| {
        let curve = &sweep.findings.curves[0];
        let (knee, alone) = (curve.knee.unwrap(), time(curve.service_ms.unwrap().value));
        let (outstanding, latency) = (brief(knee.outstanding.value), time(knee.latency_ms.value));
        let deepest = &points(sweep, READS).last().unwrap().all;
        let (iops, most, longest) = (brief(knee.iops), brief(deepest.iops), time(deepest.mean_ms));
        format!("| {words} | {alone} | {outstanding} | {latency} | {iops} | {most} | {longest} |")
    });
    table("| | alone | knee: at a time | latency | IOPS | 256 at a time: IOPS | latency |", rows)
}

#[test]
fn ellings_numbers_come_out_and_the_manual_shows_them() {
    let devices = [
        ("drive-7200", "one 7,200 rpm drive"),
        ("flash-sata", "eight SATA flash drives"),
        ("flash-nvme", "eight NVMe flash drives"),
    ];
    let experiments = devices.map(|(name, words)| (words, probe(name, &[READS], true)));
    let sweeps = devices.map(|(name, words)| (words, probe(name, &[READS], false)));
    let [experiments, sweeps] =
        [&experiments, &sweeps].map(|all| all.each_ref().map(|(words, of)| (*words, of)));
    let drive = experiments[0].1;
    for point in &drive.points {
        assert!(point.settled && point.little_error.abs() < 0.01, "{point:?}");
    }
    let mut page = std::fs::read_to_string(docs("elling.md")).unwrap();
    for (name, table) in [
        ("drive", drive_table(drive)),
        ("spread", spread_table(drive)),
        ("slowest", slowest_table()),
        ("devices", devices_table(&experiments)),
        ("knees", knees_table(&sweeps)),
    ] {
        let (before, rest) = page.split_once(&format!("<!-- {name} -->\n")).unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        page = format!("{before}<!-- {name} -->\n\n{table}\n\n<!-- end -->{after}");
    }
    is_shown("elling.md", &page);
    let pictures = [("answer", "elling/drive.svg"), ("load", "elling/waiting.svg")];
    are_shown("elling.md", drive, &pictures);
    are_shown("elling.md", experiments[1].1, &[("answer", "elling/flash-sata.svg")]);
    are_shown("elling.md", experiments[2].1, &[("answer", "elling/flash-nvme.svg")]);
    are_shown("elling.md", sweeps[0].1, &[("load", "elling/knees.svg")]);
}
