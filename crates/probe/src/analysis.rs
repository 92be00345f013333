//! From points to what they say together.
//!
//! Pure functions: the same points give the same findings, to the digit, with their confidence
//! (which is drawn from resampled slices, with a seed that never changes).
//!
//! The knee is where throughput reaches [`WORTH`] of its peak: what lies beyond it buys the last
//! twentieth of the throughput, and pays for it with all the latency there is.

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

/// What the points say together.
#[must_use]
pub fn findings(points: &[Point], target: &TargetInfo) -> Findings {
    let noise = noise::noise(points);
    let between = noise::between(points);
    let swept: Vec<knee::Swept> =
        mixes(points).into_iter().map(|mix| knee::swept(points, mix, between)).collect();
    let size_line = size::size_line(points);
    let asymmetry = asymmetry::asymmetry(points);
    let suspicions = suspicion::suspicions(points, &swept);
    // A threshold of memory or of holes says nothing on the array.
    let memory = suspicions.iter().any(|suspicion| suspicion.what == Suspect::Memory);
    let advice = advice::advice(&swept).filter(|_| !memory);
    let unknown = unknown::unknown(points, target, &swept, size_line.as_ref());
    let curves = swept.into_iter().map(|swept| swept.curve).collect();
    Findings { curves, size_line, asymmetry, noise, suspicions, advice, unknown }
}

/// The depth at which one more point of the mix would make its knee surer; `None` once the knee lies
/// between two depths that are near enough, or if more depth, and not a denser sweep, is wanted.
#[must_use]
pub fn sharper(points: &[Point], mix: Mix) -> Option<u32> {
    knee::sharper(points, mix)
}

/// How much more runs of the same load differ than their own slices tell: a standard deviation,
/// relative; 0 if nothing was run twice.
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
