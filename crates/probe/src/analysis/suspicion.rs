//! What may be between us and the medium: named, with what speaks for it.

use crate::analysis::advice::{number, time};
use crate::analysis::knee::Swept;
use crate::findings::Suspicion;
use crate::load::{Load, Mix};
use crate::point::{Bucket, Point, Slice};

/// No medium that is reached through a kernel and a bus answers sooner.
const MEMORY_MS: f64 = 0.008;

/// Two kinds of answers: the slower take so many times as long on average.
const APART: f64 = 4.0;

/// Of each kind so much at least, and between them no more than so much, by IOs.
const SOME: f64 = 0.02;
const NONE: f64 = 0.005;

/// Where more than this are fast, it is the slow ones that want an explanation.
const MOST: f64 = 0.9;

/// A change within one run that is worth a word: the last third over the first.
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

fn suspicion(what: &str, evidence: String) -> Option<Suspicion> {
    Some(Suspicion { what: what.to_owned(), evidence })
}

/// Points of reads only, or writes only, random, ascending in depth.
fn random(points: &[Point], read_percent: u32) -> Vec<&Point> {
    let mut random: Vec<&Point> = points
        .iter()
        .filter(|point| {
            let Mix { read_percent: reads, random_percent, .. } = point.load.mix;
            reads == read_percent && random_percent == 100 && point.all.ios > 0
        })
        .collect();
    random.sort_by_key(|point| (point.load.outstanding, point.load.mix.size));
    random
}

/// The same load but for its mix.
fn beside<'a>(points: &'a [Point], point: &Point, mix: Mix) -> Option<&'a Point> {
    let load = Load { mix, ..point.load };
    points.iter().find(|other| other.load == load && other.all.ios > 0)
}

/// Random reads that come from no medium.
fn memory(points: &[Point]) -> Option<Suspicion> {
    let alone = random(points, 100).into_iter().find(|point| point.load.outstanding == 1)?;
    let mean = alone.all.mean_ms;
    if mean >= MEMORY_MS {
        return None;
    }
    let (mix, time) = (alone.load.mix, time(mean));
    suspicion("memory", format!("{mix} take {time} one at a time: that is memory, not a medium."))
}

/// Some random reads are answered far sooner than the others, or ever more of them are.
fn read_cache(points: &[Point]) -> Option<Suspicion> {
    for point in random(points, 100) {
        let Load { mix, outstanding } = point.load;
        if let Some(kinds) = two_kinds(&point.all.histogram) {
            let (hits, fast, slow) = (kinds.fast * 100.0, time(kinds.up_to), time(kinds.from));
            if kinds.fast > MOST {
                return suspicion(
                    "stalls",
                    format!(
                        "With {mix}, {outstanding} outstanding, {hits:.0} % of the IOs take up to {fast} and the others from {slow} on: they wait for something else, such as garbage collection, others' load, or a busy host."
                    ),
                );
            }
            return suspicion(
                "read cache",
                format!(
                    "With {mix}, {outstanding} outstanding, {hits:.0} % of the IOs take up to {fast} and the others from {slow} on: some come from a cache."
                ),
            );
        }
        if let Some((first, last)) = falls(&point.slices, |slice| slice.mean_ms) {
            let (first, last) = (time(first), time(last));
            return suspicion(
                "read cache",
                format!(
                    "With {mix}, {outstanding} outstanding, latency falls from {first} to {last} while it is measured: a cache fills."
                ),
            );
        }
    }
    None
}

/// Random writes are acknowledged sooner than reads could be, or fall off a cliff.
fn write_cache(points: &[Point]) -> Option<Suspicion> {
    let writes = random(points, 0);
    let mut evidence = Vec::new();
    for point in &writes {
        let Load { mix, outstanding } = point.load;
        if let Some(reads) = beside(points, point, Mix { read_percent: 100, ..mix })
            && point.all.mean_ms < 0.6 * reads.all.mean_ms
        {
            evidence.push(format!(
                "With {outstanding} outstanding, {mix} take {}, reads {}: they are acknowledged before they are on the medium.",
                time(point.all.mean_ms),
                time(reads.all.mean_ms)
            ));
            break;
        }
    }
    for point in &writes {
        if let Some((first, last)) = falls(&point.slices, |slice| Some(slice.iops)) {
            evidence.push(format!(
                "With {} outstanding, throughput falls from {} to {} IOPS while it is measured: a cache is full.",
                point.load.outstanding,
                number(first),
                number(last)
            ));
            break;
        }
    }
    if evidence.is_empty() { None } else { suspicion("write cache", evidence.join(" ")) }
}

/// Reads in a row are far faster than random ones, beyond what their transfer takes.
fn prefetch(points: &[Point]) -> Option<Suspicion> {
    let pair = random(points, 100).into_iter().find_map(|point| {
        let mix = Mix { random_percent: 0, ..point.load.mix };
        beside(points, point, mix).map(|rows| (point, rows))
    });
    let (scattered, rows) = pair?;
    if rows.all.mean_ms * 3.0 > scattered.all.mean_ms {
        return None;
    }
    suspicion(
        "prefetch",
        format!(
            "With {} outstanding, {} take {}, random ones {}: they are read ahead, by the device or by what is before it.",
            rows.load.outstanding,
            rows.load.mix,
            time(rows.all.mean_ms),
            time(scattered.all.mean_ms)
        ),
    )
}

/// Throughput is the same, and a round number, whatever is asked.
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
        let (iops, bytes) = (round(peak), round(peak * curve.mix.size as f64));
        let limit = match (iops, bytes) {
            (Some(iops), _) => format!("{iops:.0} IOPS"),
            (None, Some(bytes)) => format!("{} MB/s", number(bytes / 1e6)),
            (None, None) => continue,
        };
        return suspicion(
            "limit",
            format!(
                "With {}, throughput stays at {limit} from {:.0} outstanding on, a round number: a limit that somebody set, or that of a link or a front end, not of the medium.",
                curve.mix, fit.depths[from].asked
            ),
        );
    }
    None
}

/// The number of one digit, or of two that end in 5, that a rate is within a fifth of a percent of.
fn round(rate: f64) -> Option<f64> {
    let step = 5.0 * 10_f64.powf(rate.log10().floor() - 1.0);
    let near = (rate / step).round() * step;
    ((rate / near - 1.0).abs() < 0.002).then_some(near)
}

/// Two kinds of IOs: how many are fast, up to where, and from where on the others are.
struct Kinds {
    fast: f64,
    up_to: f64,
    from: f64,
}

/// Parts latencies where they are furthest apart.
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
        // What lies within a factor of 1.4 of the cut, on either side, is between them.
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
fn falls(slices: &[Slice], value: impl Fn(&Slice) -> Option<f64>) -> Option<(f64, f64)> {
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
