//! What these points cannot tell.

use crate::analysis::WORTH;
use crate::analysis::advice::number;
use crate::analysis::knee::Swept;
use crate::document::{Kind, TargetInfo};
use crate::findings::SizeLine;
use crate::load::Purpose;
use crate::point::Point;

/// Little's law off by more than this: what was outstanding is not what was asked for.
const LITTLE: f64 = 0.05;

/// A line that misses a point by more than this is no line.
const BENT: f64 = 0.1;

/// A knee whose confidence interval is wider than this, each way, is a guess.
const WIDE: f64 = 0.15;

/// What these points cannot tell, in sentences.
pub(super) fn unknown(
    points: &[Point],
    target: &TargetInfo,
    swept: &[Swept],
    size_line: Option<&SizeLine>,
) -> Vec<String> {
    let mut unknown = Vec::new();
    if swept.is_empty() {
        unknown.push(
            "Where the knee is: no mix was run with more than one number outstanding.".to_owned(),
        );
    }
    for swept in swept {
        unknown.extend(knee(swept));
    }
    if !points.iter().any(|point| point.load.mix.read_percent < 100) {
        unknown.push(
            "What writes do: none were allowed. On RAID they cost several drive IOs each, and a write cache hides that until it is full."
                .to_owned(),
        );
    }
    if size_line.is_none() && !points.is_empty() {
        unknown.push(
            "What size costs: fewer than three sizes were run with one outstanding.".to_owned(),
        );
    }
    if let Some(line) = size_line.filter(|line| line.worst_residual > BENT) {
        unknown.push(format!(
            "What a size costs between those that were run: latency is no straight line of it, which misses one by {:.0} %.",
            line.worst_residual * 100.0
        ));
    }
    unknown.extend(unsettled(points));
    let off = |point: &&Point| point.little_error.abs() > LITTLE;
    let worst = |a: &&Point, b: &&Point| a.little_error.abs().total_cmp(&b.little_error.abs());
    if let Some(point) = points.iter().filter(off).max_by(worst) {
        unknown.push(format!(
            "Whether the load was what was asked for: with {} asked for, {} were outstanding ({}).",
            point.load.outstanding,
            number(point.outstanding_measured),
            point.load.mix
        ));
    }
    if !points.iter().any(|point| point.purpose == Purpose::Repeat) && !points.is_empty() {
        unknown.push("How repeatable this is: nothing was run twice.".to_owned());
    }
    if target.kind != Kind::Model {
        unknown.push(
            "What several hosts reach together: this was one host, and the array's knee may lie beyond what one host can drive."
                .to_owned(),
        );
        unknown.push(
            "What others did to the array meanwhile: their load looks like a slower device."
                .to_owned(),
        );
    }
    unknown
}

fn knee(Swept { curve, fit }: &Swept) -> Option<String> {
    let deepest = fit.depths.last()?.asked;
    let Some(knee) = curve.knee else {
        let peak = curve.peak_iops.value;
        let half = fit
            .depths
            .iter()
            .zip(&fit.iops)
            .rev()
            .find(|(depth, _)| depth.asked * 2.0 <= deepest * 1.05)
            .map(|(depth, iops)| (depth.asked, (peak / iops - 1.0) * 100.0));
        let grows = half.map_or(String::new(), |(half, by)| {
            format!(": throughput still grew by {by:.1} % from {half:.0} to {deepest:.0}")
        });
        return Some(format!(
            "Where the knee of {} is: {deepest:.0} outstanding did not go far enough beyond it{grows}.",
            curve.mix
        ));
    };
    let at = knee.latency_ms;
    let wide = (at.high - at.low) / 2.0 / at.value;
    (wide > WIDE).then(|| {
        format!(
            "Where exactly the knee of {} is: {:.0} % of the peak are reached within ±{:.0} % of the latency given.",
            curve.mix,
            WORTH * 100.0,
            wide * 100.0
        )
    })
}

fn unsettled(points: &[Point]) -> Option<String> {
    let loads: Vec<String> = points
        .iter()
        .filter(|point| !point.settled)
        .map(|point| format!("{} at {}", point.load.mix, point.load.outstanding))
        .collect();
    let (first, rest) = loads.split_first()?;
    let others = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    Some(format!(
        "What some loads come to when they last: {first} outstanding{others} never settled, and are not what they would be in the long run."
    ))
}
