//! Curve of throughput over outstanding IOs, with the noise removed.
//!
//! The only assumption about a device: throughput does not fall up to its peak, and does not rise after it. The curve is
//! fitted by weighted least squares (pool adjacent violators). Near the peak it is concave as well.

use crate::analysis::concave::concave;

/// One depth of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Depth {
    /// Number of outstanding IOs that the load asked for.
    pub(super) asked: f64,
    /// Mean number of outstanding IOs: throughput times latency.
    pub(super) outstanding: f64,
    /// Throughput in IOs per second.
    pub(super) iops: f64,
    /// Standard error of `iops`, relative to it.
    pub(super) error: f64,
}

/// Least relative error of a run, as runs differ by more than their slices show.
const LEAST_ERROR: f64 = 0.001;

/// Fraction of the peak from which on the curve is concave.
const NEAR_PEAK: f64 = 0.6;

/// Least improvement of the fit, in squared standard errors, at which a declining curve is preferred to one without decline.
const DECLINES: f64 = 12.0;

/// A sweep, ascending in depth, and the throughput fitted to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    pub(super) depths: Vec<Depth>,
    /// Fitted IOPS, one for each depth. They do not fall up to the peak and do not rise after it.
    pub(super) iops: Vec<f64>,
    /// Index of the first depth at the peak.
    pub(super) top: usize,
}

/// A place on the fitted curve, between depths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CurvePoint {
    pub(super) outstanding: f64,
    pub(super) iops: f64,
}

impl CurvePoint {
    /// Mean latency by Little's law, in milliseconds.
    pub(super) fn latency_ms(self) -> f64 {
        self.outstanding / self.iops * 1e3
    }
}

impl Fit {
    /// Fits a curve to at least one depth.
    pub(super) fn new(depths: Vec<Depth>) -> Fit {
        let level = monotone(&depths, false);
        let (mut best, mut iops) = (distance(&depths, &level), level);
        let certain = best;
        for top in 0..depths.len().saturating_sub(1) {
            let (rising, falling) = depths.split_at(top + 1);
            let mut fit = monotone(rising, false);
            let peak = fit[top];
            fit.extend(monotone(falling, true).into_iter().map(|iops| iops.min(peak)));
            let distance = distance(&depths, &fit);
            if distance < best && distance < certain - DECLINES {
                (best, iops) = (distance, fit);
            }
        }
        bend(&depths, &mut iops);
        let peak = iops.iter().copied().fold(0.0, f64::max);
        let top = iops.iter().position(|iops| *iops >= peak).unwrap_or(0);
        Fit { depths, iops, top }
    }

    /// The highest fitted throughput, in IOPS.
    pub(super) fn peak(&self) -> f64 {
        self.iops.get(self.top).copied().unwrap_or(0.0)
    }

    /// The depths between which throughput reaches `iops`, and how far between.
    pub(super) fn reaches(&self, iops: f64) -> (usize, usize, f64) {
        let Some(after) = self.iops.iter().position(|fitted| *fitted >= iops) else {
            return (self.top, self.top, 0.0);
        };
        if after == 0 {
            return (0, 0, 0.0);
        }
        let (below, above) = (self.iops[after - 1], self.iops[after]);
        (after - 1, after, (iops - below) / (above - below))
    }

    /// Point at which throughput reaches `iops`.
    pub(super) fn place(&self, iops: f64) -> CurvePoint {
        let (before, after, way) = self.reaches(iops);
        self.between(before, after, way)
    }

    /// Point at which latency reaches `ms`; the deepest if latency stays below.
    pub(super) fn at_latency(&self, ms: f64) -> CurvePoint {
        let mut last = 0;
        for next in 1..self.depths.len() {
            let (from, to) = (self.between(last, last, 0.0), self.between(next, next, 0.0));
            if from.latency_ms() <= ms && ms < to.latency_ms() {
                // outstanding = throughput · latency, both linear in the way between.
                let slope = (to.outstanding - from.outstanding) - (to.iops - from.iops) * ms / 1e3;
                let way = (from.iops * ms / 1e3 - from.outstanding) / slope;
                return self.between(last, next, way.clamp(0.0, 1.0));
            }
            last = next;
        }
        self.between(last, last, 0.0)
    }

    fn between(&self, before: usize, after: usize, way: f64) -> CurvePoint {
        let mid = |a: f64, b: f64| a + (b - a) * way;
        let fitted = |at: usize| (self.depths[at].outstanding, self.iops[at]);
        let ((n, x), (m, y)) = (fitted(before), fitted(after));
        CurvePoint { outstanding: mid(n, m), iops: mid(x, y) }
    }
}

/// Makes the curve concave from [`NEAR_PEAK`] up to the peak, so that neighbours correct the noise of a depth.
fn bend(depths: &[Depth], iops: &mut [f64]) {
    let peak = iops.iter().copied().fold(0.0, f64::max);
    let near = iops.iter().position(|iops| *iops >= NEAR_PEAK * peak).unwrap_or(0);
    // The last depth at the peak: beyond it throughput falls.
    let Some(top) = iops.iter().rposition(|iops| *iops >= peak) else { return };
    if near >= top {
        return;
    }
    let part = &depths[near..=top];
    let x: Vec<f64> = part.iter().map(|depth| depth.asked).collect();
    let mut y: Vec<f64> = part.iter().map(|depth| depth.iops).collect();
    concave(&x, &mut y, &part.iter().map(weight).collect::<Vec<_>>());
    // Depths before and after this part stay below its ends.
    for (fitted, bent) in iops[near..=top].iter_mut().zip(&y) {
        *fitted = *bent;
    }
    let (first, last) = (iops[near], iops[top]);
    iops[..near].iter_mut().for_each(|iops| *iops = iops.min(first));
    iops[top + 1..].iter_mut().for_each(|iops| *iops = iops.min(last));
}

fn weight(depth: &Depth) -> f64 {
    (depth.iops * depth.error.max(LEAST_ERROR)).max(f64::MIN_POSITIVE).powi(-2)
}

/// Distance of a fit from the measured values, in squared standard errors.
fn distance(depths: &[Depth], fit: &[f64]) -> f64 {
    depths.iter().zip(fit).map(|(depth, fit)| weight(depth) * (depth.iops - fit).powi(2)).sum()
}

/// Monotone regression: the nearest throughputs that never fall, or never rise if `falling`.
fn monotone(depths: &[Depth], falling: bool) -> Vec<f64> {
    // Blocks of depths with one throughput: (throughput, weight, number of depths).
    let mut blocks: Vec<(f64, f64, usize)> = Vec::with_capacity(depths.len());
    for depth in depths {
        let mut block = (depth.iops, weight(depth), 1);
        while let Some(&(mean, weight, count)) = blocks.last() {
            if (mean < block.0) != falling || mean == block.0 {
                break;
            }
            let both = weight + block.1;
            block = ((mean * weight + block.0 * block.1) / both, both, count + block.2);
            blocks.pop();
        }
        blocks.push(block);
    }
    blocks.iter().flat_map(|(mean, _, count)| std::iter::repeat_n(*mean, *count)).collect()
}
