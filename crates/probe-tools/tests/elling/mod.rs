//! What docs/elling.md shows: Elling's experiment on the modelled drive beside his numbers, and on
//! two flash arrays. Shared by the test and by the example that renews the page.

use std::fmt::Write as _;

use parda_array::Preset;
use parda_plot::{Across, Figure, Panel, brief};
use parda_probe::{Effort, Experiment, Mix, Point, ProbeDocument, Purpose, Wishes};
use parda_probe_tools::{Target, Writes};

#[path = "../truth/mod.rs"]
#[expect(dead_code, reason = "what is true of other depths is for the test of accuracy")]
mod truth;

/// The scenario that has Elling's numbers; they stand nowhere else.
const PUBLISHED: &str = include_str!("../../../../scenarios/papers/elling12.toml");

const DEVICES: [(&str, &str); 3] = [
    ("drive-7200", "one 7,200 rpm drive"),
    ("flash-sata", "eight SATA flash drives"),
    ("flash-nvme", "eight NVMe flash drives"),
];

const READS: Mix = Mix { size: 4096, read_percent: 100, random_percent: 100 };
const WRITES: Mix = Mix { read_percent: 0, ..READS };

/// A device: the experiment on it, and reads from 1 to 256 at a time.
pub(crate) struct Device {
    words: &'static str,
    pub(crate) experiment: ProbeDocument,
    pub(crate) sweep: ProbeDocument,
}

/// Runs all of it.
pub(crate) fn run() -> Vec<Device> {
    DEVICES
        .into_iter()
        .map(|(name, words)| {
            let mut target =
                Target::open(&format!("model:{name}"), &Writes::No, None).expect("it is a preset");
            let wishes = |experiment| Wishes {
                mixes: vec![READS],
                outstanding: 1..=256,
                all: true,
                purposes: vec![Purpose::Depth],
                effort: Effort::Usual,
                experiment,
                writes: true,
                largest: READS.size,
            };
            Device {
                words,
                experiment: target.probe(wishes(Some(Experiment::Elling)), None, 1, &mut ()),
                sweep: target.probe(wishes(None), None, 1, &mut ()),
            }
        })
        .collect()
}

/// A number of the post, by its name in the scenario: `reads,outstanding=1.steady/total/iops`.
pub(crate) fn published(mix: Mix, outstanding: u32, what: &str) -> Option<f64> {
    let kind = if mix.read_percent == 100 { "reads" } else { "writes" };
    let name = format!("{kind},outstanding={outstanding}.steady/{what}");
    let scenario: toml::Table = PUBLISHED.parse().expect("it is TOML");
    let expected =
        scenario["expect"].as_array()?.iter().find(|e| e["what"].as_str() == Some(&name))?;
    expected["expected"].as_float().or(expected["expected"].as_integer().map(|n| n as f64))
}

/// The points of a mix, ascending in depth.
pub(crate) fn points(document: &ProbeDocument, mix: Mix) -> Vec<&Point> {
    let mut points: Vec<&Point> =
        document.points.iter().filter(|point| point.load.mix == mix).collect();
    points.sort_by_key(|point| point.load.outstanding);
    points
}

/// The page with every part between `<!-- NAME -->` and `<!-- end -->` made new. Its names, as found.
pub(crate) fn renewed(page: &str, devices: &[Device]) -> (String, Vec<&'static str>) {
    let mut page = page.to_owned();
    let mut found = Vec::new();
    for (name, text) in parts(devices) {
        let begin = format!("<!-- {name} -->\n");
        let Some(from) = page.find(&begin).map(|at| at + begin.len()) else { continue };
        let Some(to) = page[from..].find("<!-- end -->").map(|at| from + at) else { continue };
        page.replace_range(from..to, &format!("\n{}\n\n", text.trim()));
        found.push(name);
    }
    (page, found)
}

/// The parts of the page that are numbers.
pub(crate) fn parts(devices: &[Device]) -> Vec<(&'static str, String)> {
    let [drive, _, _] = devices else { panic!("three devices") };
    vec![
        ("drive", drive_table(drive)),
        ("little", little(drive)),
        ("spread", spread(drive)),
        ("slowest", slowest_table()),
        ("devices", devices_table(devices)),
        ("knees", knees(devices)),
    ]
}

const fn kind(mix: Mix) -> &'static str {
    if mix.read_percent == 100 { "reads" } else { "writes" }
}

fn drive_table(drive: &Device) -> String {
    let mut text = "| | at a time | IOPS | Elling | mean latency | Elling |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for mix in [READS, WRITES] {
        for point in points(&drive.experiment, mix) {
            let n = point.load.outstanding;
            let his = |what, unit| {
                published(mix, n, what).map_or(String::new(), |v| format!("{}{unit}", brief(v)))
            };
            let _ = writeln!(
                text,
                "| {} | {n} | {} | {} | {} | {} |",
                kind(mix),
                brief(point.all.iops),
                his("total/iops", ""),
                time(point.all.mean_ms),
                his("total/device_latency_ms", " ms"),
            );
        }
    }
    text
}

fn little(drive: &Device) -> String {
    let mut text = "| | IOPS | × | mean latency | = | at a time |\n\
                    | --- | ---: | --- | ---: | --- | ---: |\n"
        .to_owned();
    let post = |n| {
        Some((published(READS, n, "total/iops")?, published(READS, n, "total/device_latency_ms")?))
    };
    let mut row = |name: String, iops: f64, ms: f64| {
        let product = iops * ms / 1e3;
        let (iops, seconds) = (brief(iops), brief(ms / 1e3));
        let _ = writeln!(text, "| {name} | {iops} | × | {seconds} s | = | {} |", brief(product));
    };
    for n in [1, 10] {
        if let Some((iops, ms)) = post(n) {
            row(format!("Elling, reads, {n}"), iops, ms);
        }
    }
    for mix in [READS, WRITES] {
        for point in points(&drive.experiment, mix) {
            if [1, 10].contains(&point.load.outstanding) {
                let name = format!("ours, {}, {}", kind(mix), point.load.outstanding);
                row(name, point.all.iops, point.all.mean_ms);
            }
        }
    }
    text
}

fn spread(drive: &Device) -> String {
    let mut text =
        "| | at a time | mean | standard deviation | half within | 99 % within | slowest |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for mix in [READS, WRITES] {
        for point in points(&drive.experiment, mix) {
            let all = &point.all;
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                kind(mix),
                point.load.outstanding,
                time(all.mean_ms),
                time(all.stddev_ms),
                time(all.p50_ms),
                time(all.p99_ms),
                time(all.max_ms),
            );
        }
    }
    text
}

/// The slowest of the drive's reads, ten at a time, when one looks for so many seconds.
pub(crate) fn slowest(seconds: f64) -> f64 {
    let iops = published(READS, 10, "total/iops").expect("it is in the post");
    truth::run(Preset::Drive7200, 10, 1000, (seconds * iops) as u64, 1).max_ms
}

fn slowest_table() -> String {
    let [minute, ten, hour] = [60.0, 600.0, 3600.0].map(|seconds| time(slowest(seconds)));
    format!(
        "| | in a minute | in ten | in an hour |\n\
         | --- | ---: | ---: | ---: |\n\
         | slowest read, 10 at a time | {minute} | {ten} | {hour} |\n"
    )
}

fn devices_table(devices: &[Device]) -> String {
    let mut text =
        "| | at a time | reads: IOPS | mean | slowest | writes: IOPS | mean | slowest |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for device in devices {
        for n in [1, 10] {
            let _ = write!(text, "| {} | {n} |", device.words);
            for mix in [READS, WRITES] {
                for point in points(&device.experiment, mix) {
                    if point.load.outstanding == n {
                        let (mean, max) = (time(point.all.mean_ms), time(point.all.max_ms));
                        let _ = write!(text, " {} | {mean} | {max} |", brief(point.all.iops));
                    }
                }
            }
            text.push('\n');
        }
    }
    text
}

fn knees(devices: &[Device]) -> String {
    let mut text =
        "| | alone | knee: at a time | latency | IOPS | 256 at a time: IOPS | latency |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for device in devices {
        let curve = &device.sweep.findings.curves[0];
        let (Some(knee), Some(alone)) = (curve.knee, curve.service_ms) else { continue };
        let all = &points(&device.sweep, READS).last().expect("it was swept").all;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            device.words,
            time(alone.value),
            brief(knee.outstanding.value),
            time(knee.latency_ms.value),
            brief(knee.iops),
            brief(all.iops),
            time(all.mean_ms),
        );
    }
    text
}

/// Three digits, in a unit in which they are seen.
fn time(ms: f64) -> String {
    match ms {
        ms if ms >= 1000.0 => format!("{} s", brief(ms / 1e3)),
        ms if ms >= 1.0 => format!("{} ms", brief(ms)),
        ms => format!("{} µs", brief(ms * 1e3)),
    }
}

/// The pictures, by the names of their files.
pub(crate) fn pictures(devices: &[Device]) -> Vec<(&'static str, Figure)> {
    let [drive, sata, nvme] = devices else { panic!("three devices") };
    let flash = "the same experiment";
    vec![
        ("drive", both(drive, "IOPS and latency of one drive", "1, 2, 4, 6, 8 and 10 at a time")),
        ("waiting", waiting(drive)),
        ("spread", distribution(drive)),
        ("flash-sata", both(sata, "Eight SATA flash drives", flash)),
        ("flash-nvme", both(nvme, "Eight NVMe flash drives", flash)),
        ("knees", peaks(devices)),
    ]
}

/// Elling's picture: latency on x, IOPS on y, one curve a mix.
fn both(device: &Device, title: &str, subtitle: &str) -> Figure {
    let short = points(&device.experiment, READS).iter().all(|point| point.all.mean_ms < 1.0);
    let (unit, scale) = if short { ("µs", 1e3) } else { ("ms", 1.0) };
    let mut panel = Panel::new("Throughput", "IOPS");
    for mix in [READS, WRITES] {
        let points = points(&device.experiment, mix);
        let at = |point: &&Point| (point.all.mean_ms * scale, point.all.iops);
        panel = panel.line(kind(mix), points.iter().map(at).collect::<Vec<_>>());
        if device.experiment.target.name == "model:drive-7200" {
            let his = points.iter().filter_map(|point| {
                let of = |what| published(mix, point.load.outstanding, what);
                Some((of("total/device_latency_ms")?, of("total/iops")?))
            });
            panel = panel.paper(kind(mix), his.collect::<Vec<_>>());
        }
        for point in [points.first(), points.last()].into_iter().flatten() {
            panel = panel.note(at(point), format!("{}", point.load.outstanding));
        }
    }
    let zero = |figure: &mut Figure| {
        let most =
            device.experiment.points.iter().map(|p| p.all.mean_ms * scale).fold(0.0, f64::max);
        figure.room = Some((0.0, most));
    };
    panel.room = Some((0.0, 1.0));
    let across = Across::Numbers { label: format!("Mean latency, {unit}") };
    let mut figure = Figure::new(title, across).subtitle(subtitle).panel(panel);
    zero(&mut figure);
    figure.reference = "Elling".to_owned();
    figure
}

/// Latency against outstanding: mean, deviation, slowest.
fn waiting(drive: &Device) -> Figure {
    let mut mean = Panel::new("Latency: mean ± standard deviation", "ms");
    let mut worst = Panel::new("Latency: the slowest", "ms");
    for mix in [READS, WRITES] {
        let points = points(&drive.experiment, mix);
        let x = |point: &&Point| f64::from(point.load.outstanding);
        let whiskers = points.iter().map(|point| {
            let all = &point.all;
            (x(point), (all.mean_ms - all.stddev_ms).max(0.0), all.mean_ms + all.stddev_ms)
        });
        mean = mean.whiskers(kind(mix), whiskers.collect::<Vec<_>>());
        mean =
            mean.line(kind(mix), points.iter().map(|p| (x(p), p.all.mean_ms)).collect::<Vec<_>>());
        let slowest = points.iter().map(|p| (x(p), p.all.max_ms));
        worst = worst.line(kind(mix), slowest.collect::<Vec<_>>());
        let his = |point: &&Point| {
            let name = "host/drive/device_latency_ms/max";
            Some((x(point), published(mix, point.load.outstanding, name)?))
        };
        worst = worst.paper(kind(mix), points.iter().filter_map(his).collect::<Vec<_>>());
    }
    let across = Across::Numbers { label: "At a time".to_owned() };
    let mut figure = Figure::new("Who asks for more at a time waits longer", across)
        .subtitle("one drive")
        .panel(mean)
        .panel(worst);
    figure.reference = "Elling".to_owned();
    figure
}

/// How many are no slower than so much.
fn distribution(drive: &Device) -> Figure {
    let mut panel = Panel::new("Reads that take no longer", "%");
    for point in points(&drive.experiment, READS) {
        if ![1, 4, 10].contains(&point.load.outstanding) {
            continue;
        }
        let mut seen = 0;
        let line = point.all.histogram.iter().map(|bucket| {
            seen += bucket.ios;
            (bucket.up_to_ms, seen as f64 / point.all.ios as f64 * 100.0)
        });
        let name = format!("{} at a time", point.load.outstanding);
        panel = panel.line(name, line.collect::<Vec<_>>());
    }
    let across = Across::Log { label: "Latency, ms".to_owned() };
    Figure::new("The mean does not tell how long one waits", across)
        .subtitle("one drive, reads")
        .panel(panel)
}

/// What part of its peak each device reaches, and at what price.
fn peaks(devices: &[Device]) -> Figure {
    let mut throughput = Panel::new("Throughput, of the peak", "%");
    let mut latency = Panel::new("Mean latency, of that of one alone", "times").log();
    for device in devices {
        let points = points(&device.sweep, READS);
        let peak = device.sweep.findings.curves[0].peak_iops.value;
        let alone = points[0].all.mean_ms;
        let x = |point: &&Point| f64::from(point.load.outstanding);
        let part = points.iter().map(|p| (x(p), p.all.iops / peak * 100.0));
        throughput = throughput.line(device.words, part.collect::<Vec<_>>());
        let times = points.iter().map(|p| (x(p), p.all.mean_ms / alone));
        latency = latency.line(device.words, times.collect::<Vec<_>>());
    }
    throughput.levels.push(parda_plot::Level {
        name: "95 %".to_owned(),
        value: 95.0,
        within: None,
    });
    let across = Across::Log { label: "At a time".to_owned() };
    Figure::new("Every device has a knee", across)
        .subtitle("reads, 1 to 256 at a time")
        .panel(throughput)
        .panel(latency)
}
