//! Questions that the points of a probe cannot answer.

use crate::analysis::knee::Swept;
use crate::analysis::knee::WORTH;
use crate::document::{TargetInfo, TargetKind};
use crate::findings::SizeLine;
use crate::load::Purpose;
use crate::point::Point;
use crate::reasons::{Growth, OpenQuestion};

/// Relative deviation from Little's law above which the number of outstanding IOs was not the one asked for.
const LITTLE: f64 = 0.05;

/// Largest relative error of a point at which latency over size counts as a line.
const BENT: f64 = 0.1;

/// Relative half width of a knee's confidence interval above which the knee counts as not known.
const WIDE: f64 = 0.15;

/// Questions that these points cannot answer.
pub(super) fn unknown(
    points: &[Point],
    target: &TargetInfo,
    swept: &[Swept],
    size_line: Option<&SizeLine>,
) -> Vec<OpenQuestion> {
    let mut unknown = Vec::new();
    if swept.is_empty() {
        unknown.push(OpenQuestion::NoSweep);
    }
    unknown.extend(swept.iter().filter_map(knee));
    if !points.iter().any(|point| point.load.mix.read_percent < 100) {
        unknown.push(OpenQuestion::Writes);
    }
    unknown.extend(sizes(points, size_line));
    unknown.extend(unsettled(points));
    unknown.extend(other_load(points));
    if !points.iter().any(|point| point.purpose == Purpose::Repeat) && !points.is_empty() {
        unknown.push(OpenQuestion::Repeatability);
    }
    if target.kind != TargetKind::Model {
        unknown.extend([OpenQuestion::OtherHosts, OpenQuestion::OtherLoads]);
    }
    unknown
}

fn sizes(points: &[Point], line: Option<&SizeLine>) -> Option<OpenQuestion> {
    match line {
        None => (!points.is_empty()).then_some(OpenQuestion::Sizes),
        Some(line) => {
            let off = line.worst_residual;
            (off > BENT).then_some(OpenQuestion::SizesBetween { off })
        }
    }
}

/// The load whose number of outstanding IOs deviates most from the one asked for.
fn other_load(points: &[Point]) -> Option<OpenQuestion> {
    let off = |point: &&Point| point.little_error.abs() > LITTLE;
    let worst = |a: &&Point, b: &&Point| a.little_error.abs().total_cmp(&b.little_error.abs());
    let point = points.iter().filter(off).max_by(worst)?;
    Some(OpenQuestion::OtherLoad { load: point.load, outstanding: point.outstanding_measured })
}

fn knee(Swept { curve, fit }: &Swept) -> Option<OpenQuestion> {
    let deepest = fit.depths.last()?.asked;
    let mix = curve.mix;
    let Some(knee) = curve.knee else {
        let half = (fit.depths.iter().zip(&fit.iops).rev())
            .find(|(depth, _)| depth.asked * 2.0 <= deepest * 1.05);
        let growth = half.map(|(depth, iops)| Growth {
            from_outstanding: depth.asked,
            by: curve.peak_iops.value / iops - 1.0,
        });
        return Some(OpenQuestion::KneeBeyond { mix, deepest, growth });
    };
    let at = knee.latency_ms;
    let within = (at.high - at.low) / 2.0 / at.value;
    (within > WIDE).then_some(OpenQuestion::KneeUnsure { mix, part: WORTH, within })
}

fn unsettled(points: &[Point]) -> Option<OpenQuestion> {
    let mut loads = points.iter().filter(|point| !point.settled).map(|point| point.load);
    let load = loads.next()?;
    Some(OpenQuestion::Unsettled { load, more: u32::try_from(loads.count()).unwrap_or(u32::MAX) })
}
