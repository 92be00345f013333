//! Analysis: from the points of a probe to its findings.
//!
//! All functions are pure: the same points give the same findings, to the digit. Confidence intervals included, as
//! they are computed from resampled slices with a constant seed.
//!
//! The knee is the load at which throughput reaches [`WORTH`] of its peak. More outstanding IOs buy the last
//! twentieth of the throughput, with ever more latency.

mod advice;
mod asymmetry;
mod concave;
mod curve;
mod knee;
mod noise;
mod resample;
mod size;
mod suspicion;
mod unknown;

pub use knee::WORTH;

use crate::document::TargetInfo;
use crate::findings::Findings;
use crate::load::{Mix, Purpose};
use crate::point::Point;
use crate::reasons::Suspect;

/// The findings of all points together.
#[must_use]
pub fn findings(points: &[Point], target: &TargetInfo) -> Findings {
    let noise = noise::noise(points);
    let between = noise::between(points);
    let swept: Vec<knee::Swept> =
        mixes(points).into_iter().map(|mix| knee::swept(points, mix, between)).collect();
    let size_line = size::size_line(points);
    let asymmetry = asymmetry::asymmetry(points);
    let suspicions = suspicion::suspicions(points, &swept);
    // A threshold measured on memory or on holes says nothing about the array.
    let memory = suspicions.iter().any(|suspicion| suspicion.what == Suspect::Memory);
    let advice = advice::advice(&swept).filter(|_| !memory);
    let unknown = unknown::unknown(points, target, &swept, size_line.as_ref());
    let curves = swept.into_iter().map(|swept| swept.curve).collect();
    Findings { curves, size_line, asymmetry, noise, suspicions, advice, unknown }
}

/// The depth at which one more point of the mix would make its knee more precise. `None` once the knee lies
/// between two depths that are near enough, or if the sweep has to go deeper.
#[must_use]
pub fn sharper(points: &[Point], mix: Mix) -> Option<u32> {
    knee::sharper(points, mix)
}

/// Excess of the difference between runs of one load over what their slices explain, as a relative standard
/// deviation. 0 if no load was run twice.
pub fn between(points: &[Point]) -> f64 {
    noise::between(points)
}

/// The mixes that were swept over outstanding, in the order they were run.
fn mixes(points: &[Point]) -> Vec<Mix> {
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
mod tests;
