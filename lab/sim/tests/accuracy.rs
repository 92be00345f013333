//! What a probe says of a model against what is true of it: where the knee is, from every depth
//! swept at length without any of the probe's code; m and C, from the model's own parameters.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod truth;

use parda_array::{ArrayParams, DriveModel, DriveParams, Preset};
use parda_config::Document;
use parda_probe::{Effort, Findings, LoadMix, ProbeDocument, Purpose, Wishes};
use parda_scenario::Study;
use parda_sim::{KeptRuns, run_all};
use truth::Truth;

const READS: LoadMix = LoadMix { size: 4096, read_percent: 100, random_percent: 100 };

/// From a million reads with each number outstanding from 1 to 256. The first test checks it with fewer.
struct Known {
    preset: Preset,
    /// The highest throughput with 1 to 256 outstanding.
    peak_iops: f64,
    /// The least latency at which throughput is 95 % of that, and what is outstanding there.
    knee_ms: f64,
    outstanding: f64,
}

const fn known(preset: Preset, peak_iops: f64, knee_ms: f64, outstanding: f64) -> Known {
    Known { preset, peak_iops, knee_ms, outstanding }
}

const KNOWN: [Known; 4] = [
    known(Preset::Drive7200, 142.6, 68.54, 9.28),
    known(Preset::Cx340Raid5Vms, 2115.0, 32.21, 64.72),
    known(Preset::FlashSata, 200_000.8, 0.1431, 27.19),
    known(Preset::FlashNvme, 1_000_009.7, 0.0891, 84.63),
];

fn probe(preset: Preset, purpose: Purpose, seed: u64) -> ProbeDocument {
    probe_of(preset, purpose, vec![READS], seed)
}

fn probe_of(preset: Preset, purpose: Purpose, mixes: Vec<LoadMix>, seed: u64) -> ProbeDocument {
    let writes = mixes.iter().any(|mix| mix.read_percent < 100);
    let mut target = parda_sim::probe::target(preset.name()).unwrap();
    let wishes = Wishes {
        mixes,
        outstanding: 1..=256,
        all: false,
        purposes: vec![purpose],
        effort: Effort::Usual,
        elling: false,
        writes,
        largest: 1 << 20,
    };
    target.probe(wishes, None, seed, &mut ())
}

fn truth(preset: Preset, outstanding: u32) -> Truth {
    truth::run(preset, outstanding, 10_000 + 100 * u64::from(outstanding), 100_000, 3)
}

/// Throughput and latency of a closed loop are the truth about a threshold: a law that holds the
/// latency there parts its time between the depths below and above.
#[test]
fn what_is_known_of_the_models_is_still_true() {
    for known in KNOWN {
        let Known { preset, peak_iops, knee_ms, outstanding } = known;
        let [below, above] =
            [outstanding.floor(), outstanding.ceil()].map(|n| truth(preset, n as u32));
        let peak = truth(preset, 256).iops;
        assert!((peak / peak_iops - 1.0).abs() < 0.006, "{preset}: {peak}, {peak_iops}");
        let knee = 0.95 * peak_iops;
        assert!(below.iops < knee * 1.006 && above.iops > knee * 0.994, "{below:?} {above:?}");
        let around = below.mean_ms * 0.994..above.mean_ms * 1.006;
        assert!(around.contains(&knee_ms), "{preset}: {around:?}, {knee_ms}");
    }
}

/// `PARDA_PROBE_SEEDS=10` and `--nocapture` give the table of docs/performance.md.
#[test]
fn the_threshold_is_at_the_knee_of_the_models_whatever_the_seed() {
    let seeds = std::env::var("PARDA_PROBE_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for Known { preset, peak_iops, knee_ms, .. } in KNOWN {
        let found: Vec<Findings> =
            (1..=seeds).map(|seed| probe(preset, Purpose::Depth, seed).findings).collect();
        for findings in &found {
            let (curve, advice) = (&findings.curves[0], findings.advice.as_ref().unwrap());
            let over = advice.latency_threshold_ms / knee_ms;
            let peak = curve.peak_iops.value / peak_iops;
            assert!((1.0..=1.1).contains(&over), "{preset}: {over}: {advice:#?}");
            assert!((peak - 1.0).abs() < 0.01, "{preset}: {peak}");
        }
        let agree = |what: &str, truth: f64, of: &dyn Fn(&Findings) -> f64| {
            let parts: Vec<f64> = found.iter().map(|findings| of(findings) / truth).collect();
            let least = parts.iter().copied().fold(f64::INFINITY, f64::min);
            let most = parts.iter().copied().fold(0.0, f64::max);
            println!("{preset}, {what}: {least:.4} to {most:.4} of {truth}");
            for pair in parts.windows(2) {
                assert!((pair[0] / pair[1] - 1.0).abs() < 0.05, "{preset}, {what}: {parts:?}");
            }
        };
        agree("threshold", knee_ms, &|f| f.advice.as_ref().unwrap().latency_threshold_ms);
        agree("knee", knee_ms, &|f| f.curves[0].knee.unwrap().latency_ms.value);
        agree("peak", peak_iops, &|f| f.curves[0].peak_iops.value);
    }
}

#[test]
fn the_size_line_of_the_models_is_that_of_their_parameters() {
    for preset in [Preset::Drive7200, Preset::FlashNvme] {
        let (m, c) = closed_form(&preset.params());
        for seed in [1, 2] {
            let line = probe(preset, Purpose::Size, seed).findings.size_line.unwrap();
            let [slope, fixed] = [line.ms_per_kib.value / m, line.fixed_ms.value / c];
            println!("{preset}: m {slope:.4}, C {fixed:.4} of the truth {m} {c} {line:?}");
            assert!((slope - 1.0).abs() < 0.05, "{preset}: m {slope} of {m}: {line:?}");
            assert!((fixed - 1.0).abs() < 0.05, "{preset}: C {fixed} of {c}: {line:?}");
            assert!(line.r_squared > 0.9 && line.worst_residual < 0.05, "{preset}: {line:?}");
        }
    }
}

/// Four hosts of equal shares, each with one kind of IO, and each of them alone.
fn study(preset: Preset, findings: &Findings) -> Study {
    let cost = findings.cost.unwrap();
    let mut text = format!(
        "name = \"cost\"\nduration = \"180s\"\n[array]\npreset = \"{preset}\"\n[control]\nlatency_threshold = \"{}ms\"\n",
        findings.advice.as_ref().unwrap().latency_threshold_ms
    );
    let kinds =
        [("small", 4, 100), ("large", 256, 100), ("writes", 4, 0), ("large-writes", 256, 0)];
    for (name, kib, read) in kinds {
        text += &format!(
            "[[host]]\nname = \"{name}\"\n[[host.vm]]\nname = \"{name}\"\nshares = 1000\ndisk = \"8GiB\"\n\
             workload = {{ size = \"{kib}KiB\", read = {read}, random = 100, outstanding = 64 }}\n\
             [[variant]]\nname = \"alone-{name}\"\nhosts = [\"{name}\"]\n\
             [[expect]]\nwhat = \"cost.steady/vm/{name}/iops\"\nof = \"alone-{name}.steady/vm/{name}/iops\"\n\
             expected = 0.115\ntolerance = \"20%\"\nsource = \"equal parts of the array's time\"\n"
        );
    }
    let mib = f64::from(1 << 20);
    text += &format!(
        "[[variant]]\nname = \"cost\"\nset = {{ \"control.fairness\" = {{ iops_reads = {:.0}, bandwidth_reads = \"{:.1}MiB\", \
         iops_writes = {:.0}, bandwidth_writes = \"{:.1}MiB\" }} }}\n\
         [[phase]]\nname = \"steady\"\nfrom = \"60s\"\nto = \"180s\"\n",
        cost.iops_reads,
        cost.bandwidth_reads / mib,
        cost.iops_writes,
        cost.bandwidth_writes / mib,
    );
    Study::parse(&Document::new("cost", text)).unwrap_or_else(|error| panic!("{error}"))
}

/// Measured: 0.111, 0.130, 0.115 and 0.098. By outstanding IOs they differ many times as much: `scenarios/studies/cost.toml`.
#[test]
fn by_the_cost_that_a_probe_finds_each_kind_of_io_has_the_same_part_of_what_it_does_alone() {
    let preset = Preset::Cx340Raid5Vms;
    let mix = |kib: u64, read_percent| LoadMix { size: kib << 10, read_percent, ..READS };
    let mixes = vec![READS, mix(256, 100), mix(4, 0), mix(256, 0)];
    let found = probe_of(preset, Purpose::Depth, mixes, 1).findings;
    let answer = run_all(&study(preset, &found), KeptRuns::Nothing, 1, |_, _| ()).unwrap().answer;
    let parts: Vec<_> =
        answer.expectations.iter().map(|part| (&part.what, part.measured)).collect();
    println!("{parts:?}, by {:?}", found.cost);
    assert!(
        answer.expectations.len() == 4 && answer.expectations.iter().all(|part| part.ok),
        "{parts:?}"
    );
}

/// m in ms per KiB and C in ms, of reads anywhere on the first LUN, one at a time.
fn closed_form(params: &ArrayParams) -> (f64, f64) {
    let link = 1024.0 / params.controller.link.0 as f64 * 1e3;
    let front = params.controller.io_cost.secs() * 1e3;
    match &params.drive {
        DriveModel::Disk(drive) => {
            let (per_kib, seek) = disk(drive, params.layout.luns[0].0 as f64);
            let turn = 60e3 / f64::from(drive.rpm);
            let overhead = drive.command_overhead.secs() * 1e3;
            (per_kib + link, front + overhead + seek + turn / 2.0)
        }
        // Pages lie on units, and elements on drives, side by side: all are read at once.
        DriveModel::Flash(drive) => {
            let times = [drive.command_time, drive.command_overhead, drive.read];
            (link, front + times.map(|time| time.secs() * 1e3).iter().sum::<f64>())
        }
    }
}

/// The mean transfer of a KiB and the mean seek between two bytes of the LUN, in ms.
///
/// Turns shorten linearly inward, by k from the outermost to the innermost. With x the fraction of
/// all turns before a byte, and u the fraction of the capacity: x − k·x²/2 = (1 − k/2)·u.
fn disk(drive: &DriveParams, lun: f64) -> (f64, f64) {
    let k = 1.0 - drive.inner_to_outer;
    let part = lun / drive.capacity.0 as f64;
    let turns = |u: f64| (1.0 - (1.0 - k * (2.0 - k) * u).sqrt()) / k;
    let mean_rate = drive.outer_rate.0 as f64 * (1.0 - k / 2.0);
    let per_kib = 1024.0 / mean_rate * turns(part) / part * 1e3;
    let steps = 1000;
    let at: Vec<f64> =
        (0..steps).map(|i| turns((f64::from(i) + 0.5) / f64::from(steps) * part)).collect();
    let ms = |time: parda_array::Nanos| time.secs() * 1e3;
    let seek =
        |d: f64| ms(drive.seek.base) + ms(drive.seek.root) * d.sqrt() + ms(drive.seek.linear) * d;
    let all: f64 = at.iter().flat_map(|a| at.iter().map(move |b| seek((a - b).abs()))).sum();
    (per_kib, all / f64::from(steps).powi(2))
}
