//! Caches and limits that may be between the probe and the medium, with the evidence for each. Also reads beside
//! writes.

use crate::analysis::knee::Swept;
use crate::findings::Asymmetry;
use crate::load::{LoadMix, ProbeLoad};
use crate::point::{Bucket, Point, TimeSlice};
use crate::reasons::{Evidence, Suspect, Suspicion};

/// Latency, in milliseconds, below which no medium behind a kernel and a bus answers.
const MEMORY_MS: f64 = 0.008;

/// Least ratio of the mean latencies of two kinds of IOs.
const APART: f64 = 4.0;

/// Least fraction of the IOs in each of two kinds, and largest fraction between them.
const SOME: f64 = 0.02;
const NONE: f64 = 0.005;

/// Fraction of fast IOs above which the slow ones are reported, and not the fast ones.
const MOST: f64 = 0.9;

/// Ratio of the last third of a run to the first, below which the change is reported.
const CHANGED: f64 = 0.8;

pub(super) fn suspicions(points: &[Point], swept: &[Swept]) -> Vec<Suspicion> {
    let found = [
        memory(points),
        read_cache(points),
        write_cache(points),
        prefetch(points),
        throttled(swept),
    ];
    found.into_iter().flatten().collect()
}

fn suspicion(what: Suspect, evidence: Evidence) -> Option<Suspicion> {
    Some(Suspicion { what, evidence: vec![evidence] })
}

/// Points of reads only, or writes only, random, ascending in depth.
fn random(points: &[Point], read_percent: u32) -> Vec<&Point> {
    let mut random: Vec<&Point> = points
        .iter()
        .filter(|point| {
            let LoadMix { read_percent: reads, random_percent, .. } = point.load.mix;
            reads == read_percent && random_percent == 100 && point.all.ios > 0
        })
        .collect();
    random.sort_by_key(|point| (point.load.outstanding, point.load.mix.size));
    random
}

/// The same load but for its mix.
fn beside<'a>(points: &'a [Point], point: &Point, mix: LoadMix) -> Option<&'a Point> {
    let load = ProbeLoad { mix, ..point.load };
    points.iter().find(|other| other.load == load && other.all.ios > 0)
}

/// Reads and writes of one size, randomness and depth. The deepest of several is taken: there a cache's first help is
/// used up.
pub(super) fn asymmetry(points: &[Point]) -> Option<Asymmetry> {
    let with = |point: &Point, read_percent| {
        beside(points, point, LoadMix { read_percent, ..point.load.mix })
    };
    let both = points.iter().filter_map(|point| Some((with(point, 100)?, with(point, 0)?)));
    let (reads, writes) = both.max_by_key(|(reads, _)| reads.load.outstanding)?;
    Some(Asymmetry {
        outstanding: reads.load.outstanding,
        latency_ratio: writes.all.mean_ms / reads.all.mean_ms,
        iops_ratio: writes.all.iops / reads.all.iops,
    })
}

/// Random reads that come from no medium.
fn memory(points: &[Point]) -> Option<Suspicion> {
    let alone = random(points, 100).into_iter().find(|point| point.load.outstanding == 1)?;
    let (mix, mean_ms) = (alone.load.mix, alone.all.mean_ms);
    if mean_ms >= MEMORY_MS {
        return None;
    }
    suspicion(Suspect::Memory, Evidence::TooFast { mix, mean_ms })
}

/// Some random reads are answered far sooner than the others, or ever more of them are.
fn read_cache(points: &[Point]) -> Option<Suspicion> {
    for point in random(points, 100) {
        let ProbeLoad { mix, outstanding } = point.load;
        if let Some(Kinds { fast, up_to: up_to_ms, from: from_ms }) =
            two_kinds(&point.all.histogram)
        {
            let what = if fast > MOST { Suspect::Stalls } else { Suspect::ReadCache };
            let evidence = Evidence::TwoKinds { mix, outstanding, fast, up_to_ms, from_ms };
            return suspicion(what, evidence);
        }
        if let Some((first_ms, last_ms)) = falls(&point.slices, |slice| slice.mean_ms) {
            let evidence = Evidence::LatencyFalls { mix, outstanding, first_ms, last_ms };
            return suspicion(Suspect::ReadCache, evidence);
        }
    }
    None
}

/// Random writes are acknowledged sooner than reads could be, or fall off a cliff.
fn write_cache(points: &[Point]) -> Option<Suspicion> {
    let writes = random(points, 0);
    let too_fast = writes.iter().find_map(|point| {
        let ProbeLoad { mix, outstanding } = point.load;
        let reads = beside(points, point, LoadMix { read_percent: 100, ..mix })?;
        let (writes_ms, reads_ms) = (point.all.mean_ms, reads.all.mean_ms);
        (writes_ms < 0.6 * reads_ms).then_some(Evidence::WritesBeforeReads {
            mix,
            outstanding,
            writes_ms,
            reads_ms,
        })
    });
    let full = writes.iter().find_map(|point| {
        let outstanding = point.load.outstanding;
        let (first_iops, last_iops) = falls(&point.slices, |slice| Some(slice.iops))?;
        Some(Evidence::ThroughputFalls { outstanding, first_iops, last_iops })
    });
    let evidence: Vec<Evidence> = too_fast.into_iter().chain(full).collect();
    (!evidence.is_empty()).then_some(Suspicion { what: Suspect::WriteCache, evidence })
}

/// Reads in a row are far faster than random ones, beyond what their transfer takes.
fn prefetch(points: &[Point]) -> Option<Suspicion> {
    let pair = random(points, 100).into_iter().find_map(|point| {
        let mix = LoadMix { random_percent: 0, ..point.load.mix };
        beside(points, point, mix).map(|rows| (point, rows))
    });
    let (scattered, rows) = pair?;
    if rows.all.mean_ms * 3.0 > scattered.all.mean_ms {
        return None;
    }
    let ProbeLoad { mix, outstanding } = rows.load;
    let (sequential_ms, random_ms) = (rows.all.mean_ms, scattered.all.mean_ms);
    suspicion(Suspect::Prefetch, Evidence::ReadAhead { mix, outstanding, sequential_ms, random_ms })
}

/// Throughput is the same for every load, and a round number.
fn throttled(swept: &[Swept]) -> Option<Suspicion> {
    for Swept { curve, fit } in swept {
        let peak = curve.peak_iops.value;
        let flat: Vec<f64> = fit
            .depths
            .iter()
            .map(|depth| depth.iops)
            .skip_while(|iops| (iops / peak - 1.0).abs() > 0.003)
            .collect();
        let even = flat.iter().all(|iops| (iops / peak - 1.0).abs() <= 0.003);
        let from = fit.depths.len() - flat.len();
        let far = fit.depths.last().is_some_and(|last| {
            fit.depths.get(from).is_some_and(|first| last.asked >= 2.0 * first.asked)
        });
        if !(even && far) {
            continue;
        }
        let (mix, from_outstanding) = (curve.mix, fit.depths[from].asked);
        let evidence = match (round(peak), round(peak * mix.size as f64)) {
            (Some(iops), _) => Evidence::RoundIops { mix, from_outstanding, iops },
            (None, Some(bytes_per_s)) => Evidence::RoundRate { mix, from_outstanding, bytes_per_s },
            (None, None) => continue,
        };
        return suspicion(Suspect::Limit, evidence);
    }
    None
}

/// The number of one digit, or of two that end in 5, that is within 0.2 % of a rate.
fn round(rate: f64) -> Option<f64> {
    let step = 5.0 * 10_f64.powf(rate.log10().floor() - 1.0);
    let near = (rate / step).round() * step;
    ((rate / near - 1.0).abs() < 0.002).then_some(near)
}

/// Two kinds of IOs: the fraction of fast ones, their largest latency, and the smallest latency of the others.
struct Kinds {
    fast: f64,
    up_to: f64,
    from: f64,
}

/// Divides latencies at the widest gap.
fn two_kinds(histogram: &[Bucket]) -> Option<Kinds> {
    let total: u64 = histogram.iter().map(|bucket| bucket.ios).sum();
    let part = |buckets: &[Bucket]| {
        let ios: u64 = buckets.iter().map(|bucket| bucket.ios).sum();
        let sum: f64 = buckets.iter().map(|b| b.up_to_ms * b.ios as f64).sum();
        (ios as f64 / total as f64, sum / ios as f64)
    };
    let mut found: Option<(f64, Kinds)> = None;
    for at in 1..histogram.len() {
        let (fast, slow) = histogram.split_at(at);
        let ((few, quick), (many, long)) = (part(fast), part(slow));
        if few < SOME || many < SOME || long < APART * quick {
            continue;
        }
        // IOs within a factor of 1.4 of the cut, on either side, are between the two kinds.
        let cut = (fast[at - 1].up_to_ms * slow[0].up_to_ms).sqrt();
        let near = |b: &&Bucket| b.up_to_ms > cut / 1.4 && b.up_to_ms < cut * 1.4;
        let between: u64 = histogram.iter().filter(near).map(|bucket| bucket.ios).sum();
        let between = between as f64 / total as f64;
        if between <= NONE.min(few / 4.0).min(many / 4.0)
            && found.as_ref().is_none_or(|(least, _)| between < *least)
        {
            let busy = |b: &&Bucket| b.ios as f64 > NONE / 4.0 * total as f64;
            let up_to = fast.iter().rev().find(busy).map_or(cut, |bucket| bucket.up_to_ms);
            let from = slow.iter().find(busy).map_or(cut, |bucket| bucket.up_to_ms);
            found = Some((between, Kinds { fast: few, up_to, from }));
        }
    }
    found.map(|(_, kinds)| kinds)
}

/// The mean of the first and of the last third of a run, if it fell beyond chance.
fn falls(slices: &[TimeSlice], value: impl Fn(&TimeSlice) -> Option<f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = slices.iter().filter_map(value).collect();
    let third = values.len() / 3;
    if third < 2 {
        return None;
    }
    let spread = |values: &[f64]| {
        let (least, most) =
            values.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
        (values.iter().sum::<f64>() / values.len() as f64, least, most)
    };
    let (first, least, _) = spread(&values[..third]);
    let (last, _, most) = spread(&values[values.len() - third..]);
    (last < first * CHANGED && most < least).then_some((first, last))
}
