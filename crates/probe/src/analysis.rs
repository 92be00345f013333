//! Analysis: from the points of a probe to its findings.
//!
//! All functions are pure: the same points give the same findings, to the digit. Confidence intervals included, as
//! they are computed from resampled slices with a constant seed.
//!
//! The knee is the load at which throughput reaches [`WORTH`] of its peak. More outstanding IOs buy the last
//! twentieth of the throughput, with ever more latency.

mod advice;
mod concave;
mod cost;
mod curve;
mod knee;
mod noise;
mod resample;
mod size;
mod suspicion;
mod unknown;

pub use knee::{WORTH, sharper};
pub use noise::between;

use crate::document::TargetInfo;
use crate::findings::{Curve, Findings};
use crate::load::{LoadMix, Purpose};
use crate::point::Point;
use crate::reasons::Suspect;

/// The findings of all points together.
#[must_use]
pub fn findings(points: &[Point], target: &TargetInfo) -> Findings {
    let (noise, between) = (noise::noise(points), between(points));
    let swept: Vec<knee::Swept> =
        mixes(points).into_iter().map(|mix| knee::swept(points, mix, between)).collect();
    let size_line = size::size_line(points);
    let asymmetry = suspicion::asymmetry(points);
    let suspicions = suspicion::suspicions(points, &swept);
    // A threshold measured on memory or on holes says nothing about the array.
    let memory = suspicions.iter().any(|suspicion| suspicion.what == Suspect::Memory);
    let advice = advice::advice(&swept).filter(|_| !memory);
    let unknown = unknown::unknown(points, target, &swept, size_line.as_ref());
    let curves: Vec<Curve> = swept.into_iter().map(|swept| swept.curve).collect();
    let cost = cost::cost(&curves);
    Findings { curves, size_line, cost, asymmetry, noise, suspicions, advice, unknown }
}

/// The mixes that were swept over outstanding, in the order they were run.
fn mixes(points: &[Point]) -> Vec<LoadMix> {
    let mut mixes = Vec::new();
    for point in points.iter().filter(|point| point.purpose == Purpose::Depth) {
        let mix = point.load.mix;
        let deeper = |other: &Point| {
            other.purpose == Purpose::Depth
                && other.load.mix == mix
                && other.load.outstanding != point.load.outstanding
        };
        if !mixes.contains(&mix) && points.iter().any(deeper) {
            mixes.push(mix);
        }
    }
    mixes
}

#[cfg(test)]
pub(crate) mod tests;
