//! An example of a probe, for tests: a disk of eight spindles whose latencies follow from a closed queueing network.

use parda_probe::{
    Bucket, End, FORMAT, Findings, Kind, Load, Measured, Mix, Point, ProbeDocument, Purpose, Slice,
    TargetInfo, analysis,
};

/// Number of servers that work in parallel.
const SERVERS: f64 = 8.0;

/// Service time of a mix, in milliseconds.
fn service_ms(mix: &Mix) -> f64 {
    let seek = 0.2 + 6.0 * f64::from(mix.random_percent) / 100.0;
    let kind = 0.4 + 0.6 * f64::from(mix.read_percent) / 100.0;
    (seek + mix.size as f64 / 1024.0 * 0.012) * kind
}

/// The mean latency of a load: an asymptotic bound, smoothed.
fn mean_ms(load: &Load) -> f64 {
    let (service, n) = (service_ms(&load.mix), f64::from(load.outstanding));
    service * (1.0 + (n / SERVERS).powi(4)).powf(0.25) * (1.0 + 0.04 * n.min(16.0) / 16.0)
}

pub(crate) fn point(load: Load, purpose: Purpose, scale: f64) -> Point {
    let mean = mean_ms(&load) * scale;
    let iops = f64::from(load.outstanding) / mean * 1e3;
    let ios = (iops * 4.0) as u64;
    // Latencies spread by powers of 1.15, more to the right than to the left.
    let weights: Vec<(f64, f64)> = (-12..28)
        .map(|i| {
            let wide = if i < 0 { 5.0 } else { 8.0 };
            (mean * 1.15f64.powi(i), (-(f64::from(i) / wide).powi(2)).exp())
        })
        .collect();
    let sum: f64 = weights.iter().map(|w| w.1).sum();
    let histogram: Vec<Bucket> = weights
        .iter()
        .map(|(up_to_ms, w)| Bucket { up_to_ms: *up_to_ms, ios: (w / sum * ios as f64) as u64 })
        .filter(|b| b.ios > 0)
        .collect();
    let all = Measured {
        ios,
        iops,
        bytes_per_s: iops * load.mix.size as f64,
        mean_ms: mean,
        stddev_ms: mean * 0.6,
        p50_ms: mean * 0.9,
        p90_ms: mean * 2.0,
        p99_ms: mean * 4.1,
        p99_9_ms: mean * 7.0,
        max_ms: mean * 11.0,
        histogram,
    };
    let part = |percent: u32| {
        (percent > 0).then(|| Measured { iops: iops * f64::from(percent) / 100.0, ..all.clone() })
    };
    let slices = (0..10).map(|i| {
        let off = 1.0 + 0.02 * f64::from([3, -1, 2, -3, 0, 1, -2, 3, -1, -2][i]) / 3.0;
        Slice { seconds: 0.4, iops: iops * off, mean_ms: Some(mean / off) }
    });
    Point {
        load,
        purpose,
        warmup_s: 1.0,
        measured_s: 4.0,
        settled: load.outstanding != 64,
        outstanding_measured: f64::from(load.outstanding),
        little_error: 0.0,
        reads: part(load.mix.read_percent),
        writes: part(100 - load.mix.read_percent),
        all,
        slices: slices.collect(),
    }
}

/// A probe that has every part a probe can have. `scale` multiplies its latencies.
pub(crate) fn slower(scale: f64) -> ProbeDocument {
    let mix = |size, read_percent, random_percent| Mix { size, read_percent, random_percent };
    let swept = [mix(4096, 100, 100), mix(4096, 0, 100), mix(65536, 100, 0)];
    let mut points = Vec::new();
    let mut add = |mix: Mix, outstanding: u32, purpose: Purpose| {
        points.push(point(Load { mix, outstanding }, purpose, scale));
    };
    for mix in swept {
        for power in 0..9 {
            add(mix, 1 << power, Purpose::Depth);
        }
    }
    for power in 12..20 {
        add(mix(1 << power, 100, 100), 1, Purpose::Size);
    }
    for size in [4096, 16384, 65536, 262_144] {
        for reads in [0, 50, 100] {
            for random in [0, 50, 100] {
                add(mix(size, reads, random), 8, Purpose::Mix);
            }
        }
    }
    add(swept[0], 8, Purpose::Repeat);
    let target = TargetInfo {
        name: "model:example".to_owned(),
        kind: Kind::Model,
        bytes: 1_800_000_000_000,
        writes: true,
        about: vec!["eight spindles".to_owned()],
    };
    ProbeDocument {
        format: FORMAT,
        begun: "2026-01-31T12:00:00Z".to_owned(),
        took_s: 200.0,
        findings: analysis::findings(&points, &target),
        target,
        seed: 1,
        end: End::Complete,
        points,
    }
}

pub(crate) fn document() -> ProbeDocument {
    slower(1.0)
}

/// A probe that was stopped before anything was measured.
pub(crate) fn empty() -> ProbeDocument {
    ProbeDocument {
        points: Vec::new(),
        findings: Findings::default(),
        end: End::Aborted,
        ..document()
    }
}
