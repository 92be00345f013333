//! Comparison of two probes: the loads that both ran, and which differences are significant.
//!
//! A difference is significant if it is larger than the combined 95 % confidence interval, from the slices of each run and from the
//! differences between runs of one load within each probe, and larger than two percent, below which nobody would act.

use serde::{Deserialize, Serialize};

use parda_probe::sample::half_width;
use parda_probe::{
    Advice, Curve, End, FORMAT, Load, Mix, Point, ProbeDocument, Purpose, TargetInfo, analysis,
};

/// Relative difference up to which two values count as the same, however precise both are.
pub const SMALL: f64 = 0.02;
/// Half the width of the 95 % interval of a normal distribution, in standard deviations.
const SIGMAS_95: f64 = 1.96;

/// Comparison of two probes, as `parda probe compare --json` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Version of the document, [`FORMAT`].
    pub format: u32,
    /// The probe that the other one is compared with.
    pub a: Side,
    /// The probe that is compared with the baseline.
    pub b: Side,
    /// The loads that both ran, in the order of A.
    pub loads: Vec<Pair>,
    /// Number of loads that only A ran.
    pub only_a: usize,
    /// Number of loads that only B ran.
    pub only_b: usize,
    /// The mixes that were swept by one or both, in the order of A.
    pub curves: Vec<Curves>,
}

/// One of the two probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // As in the document.
pub struct Side {
    pub begun: String,
    pub took_s: f64,
    pub target: TargetInfo,
    pub end: End,
    pub advice: Option<Advice>,
}

/// One load, run by both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Load that both measured.
    #[serde(flatten)]
    pub load: Load,
    /// The question that the load answers in A.
    pub purpose: Purpose,
    /// Throughput and latencies of the first probe, A.
    pub a: Run,
    /// Throughput and latencies of the second probe, B.
    pub b: Run,
    /// B's throughput over A's.
    pub iops_ratio: f64,
    /// 95 % confidence interval of `iops_ratio`. `None` if there were too few slices.
    pub iops_ratio_95: Option<[f64; 2]>,
    /// B's mean latency over A's: near the reciprocal of `iops_ratio`, as the loop is closed.
    pub latency_ratio: f64,
    /// B's 99th percentile of latency over A's. It has no confidence interval, as slices have no percentiles.
    pub p99_ratio: f64,
    /// Verdict on the ratios.
    pub verdict: Change,
}

/// Measurement of a load in one probe: the mean if the probe ran it more than once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // As in a point.
pub struct Run {
    pub iops: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
    pub settled: bool,
}

/// Verdict on a ratio of throughputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// B has significantly more throughput.
    Better,
    /// The difference is not significant.
    Same,
    /// B has significantly less throughput.
    Worse,
    /// Not known: one of the two was not steady, or had too few slices.
    Unsure,
}

/// A mix that was swept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Curves {
    pub mix: Mix,
    pub a: Option<Curve>,
    pub b: Option<Curve>,
}

impl Comparison {
    /// Compares B with A.
    #[must_use]
    pub fn new(a: &ProbeDocument, b: &ProbeDocument) -> Comparison {
        let between = analysis::between(&a.points).hypot(analysis::between(&b.points));
        let (of_a, of_b) = (runs(&a.points), runs(&b.points));
        let of_load = |runs: &[Runs], load: Load| runs.iter().position(|(l, _)| *l == load);
        let pair = |(load, points): &Runs| {
            let others = &of_b.get(of_load(&of_b, *load)?)?.1;
            Some(pair(*load, points, others, between))
        };
        let loads: Vec<Pair> = of_a.iter().filter_map(pair).collect();
        Comparison {
            format: FORMAT,
            a: side(a),
            b: side(b),
            only_a: of_a.len() - loads.len(),
            only_b: of_b.len() - loads.len(),
            loads,
            curves: curves(a, b),
        }
    }

    /// Number of loads with a verdict.
    #[must_use]
    pub fn count(&self, verdict: Change) -> usize {
        self.loads.iter().filter(|pair| pair.verdict == verdict).count()
    }

    /// The smallest, the median and the largest ratio of throughput, over loads that were steady in both.
    #[must_use]
    pub fn ratios(&self) -> Option<[f64; 3]> {
        let sure = self.loads.iter().filter(|pair| pair.verdict != Change::Unsure);
        let mut all: Vec<f64> = sure.map(|pair| pair.iops_ratio).collect();
        all.sort_by(f64::total_cmp);
        Some([*all.first()?, *all.get(all.len() / 2)?, *all.last()?])
    }
}

fn side(of: &ProbeDocument) -> Side {
    Side {
        begun: of.begun.clone(),
        took_s: of.took_s,
        target: of.target.clone(),
        end: of.end,
        advice: of.findings.advice.clone(),
    }
}

/// A load, and all its runs.
type Runs<'a> = (Load, Vec<&'a Point>);

fn runs(points: &[Point]) -> Vec<Runs<'_>> {
    let mut runs: Vec<Runs> = Vec::new();
    for point in points.iter().filter(|p| p.all.ios > 0 && p.all.iops > 0.0 && p.all.mean_ms > 0.0)
    {
        match runs.iter_mut().find(|(load, _)| *load == point.load) {
            Some((_, points)) => points.push(point),
            None => runs.push((point.load, vec![point])),
        }
    }
    runs
}

fn run(points: &[&Point]) -> Run {
    let mean = |of: fn(&Point) -> f64| {
        points.iter().map(|p| of(p)).sum::<f64>() / points.len().max(1) as f64
    };
    Run {
        iops: mean(|p| p.all.iops),
        mean_ms: mean(|p| p.all.mean_ms),
        p99_ms: mean(|p| p.all.p99_ms),
        settled: points.iter().all(|p| p.settled),
    }
}

fn pair(load: Load, a: &[&Point], b: &[&Point], between: f64) -> Pair {
    let purpose = a.first().map_or(Purpose::Repeat, |point| point.purpose);
    let uncertain = |points: &[&Point], run: &Run| {
        let slices: Vec<f64> = points.iter().flat_map(|p| &p.slices).map(|s| s.iops).collect();
        half_width(&slices).map(|half| half / run.iops)
    };
    let (of_a, of_b) = (run(a), run(b));
    let ratio = of_b.iops / of_a.iops;
    // Intervals are computed from logarithms, so that A over B is as uncertain as B over A.
    let half = match (uncertain(a, &of_a), uncertain(b, &of_b)) {
        (Some(a), Some(b)) => Some(a.hypot(b).hypot(SIGMAS_95 * between)),
        _ => None,
    };
    let iops_ratio_95 = half.map(|half| [ratio * (-half).exp(), ratio * half.exp()]);
    let verdict = match half {
        Some(half) if of_a.settled && of_b.settled => {
            if ratio.ln().abs() <= half.max(SMALL.ln_1p()) {
                Change::Same
            } else if ratio > 1.0 {
                Change::Better
            } else {
                Change::Worse
            }
        }
        _ => Change::Unsure,
    };
    Pair {
        load,
        purpose,
        iops_ratio: ratio,
        iops_ratio_95,
        latency_ratio: of_b.mean_ms / of_a.mean_ms,
        p99_ratio: of_b.p99_ms / of_a.p99_ms,
        a: of_a,
        b: of_b,
        verdict,
    }
}

fn curves(a: &ProbeDocument, b: &ProbeDocument) -> Vec<Curves> {
    let find = |of: &ProbeDocument, mix| of.findings.curves.iter().find(|c| c.mix == mix).cloned();
    let mut mixes: Vec<Mix> = Vec::new();
    for curve in a.findings.curves.iter().chain(&b.findings.curves) {
        if !mixes.contains(&curve.mix) {
            mixes.push(curve.mix);
        }
    }
    mixes.into_iter().map(|mix| Curves { mix, a: find(a, mix), b: find(b, mix) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::{document, slower};

    #[test]
    fn a_probe_is_the_same_as_itself() {
        let same = Comparison::new(&document(), &document());
        assert!(same.loads.len() > 60);
        assert_eq!((same.only_a, same.only_b), (0, 0));
        assert_eq!(same.count(Change::Same) + same.count(Change::Unsure), same.loads.len());
        assert_eq!(same.count(Change::Unsure), 3, "what did not settle");
        assert_eq!(same.ratios(), Some([1.0; 3]));
    }

    #[test]
    fn one_that_takes_a_tenth_longer_is_worse_and_the_other_way_round_better() {
        let worse = Comparison::new(&document(), &slower(1.1));
        let better = Comparison::new(&slower(1.1), &document());
        assert_eq!(worse.count(Change::Worse), worse.loads.len() - 3);
        assert_eq!(better.count(Change::Better), better.loads.len() - 3);
        for (worse, better) in worse.loads.iter().zip(&better.loads) {
            assert!((worse.iops_ratio - 1.0 / 1.1).abs() < 0.01);
            assert!((worse.latency_ratio - 1.1).abs() < 1e-9);
            let (worse, better) = (worse.iops_ratio_95.unwrap(), better.iops_ratio_95.unwrap());
            assert!((worse[1] * better[0] - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_is_less_than_the_noise_is_no_difference() {
        let mut a = document();
        let mut b = slower(1.06);
        let worse = Comparison::new(&a, &b).count(Change::Worse);
        assert!(worse > 60, "6 % are more than its slices differ by");
        for document in [&mut a, &mut b] {
            for slice in document.points.iter_mut().flat_map(|p| p.slices.iter_mut()).step_by(2) {
                slice.iops *= 1.3;
            }
        }
        assert_eq!(Comparison::new(&a, &b).count(Change::Worse), 0);
        // Nor is what its own runs of one load differ by.
        let (mut a, b) = (document(), slower(1.03));
        assert!(Comparison::new(&a, &b).count(Change::Worse) > 60);
        let again = a.points.iter_mut().find(|p| p.purpose == Purpose::Repeat).unwrap();
        again.all.iops *= 1.2;
        assert_eq!(Comparison::new(&a, &b).count(Change::Worse), 0);
    }

    #[test]
    fn what_is_surer_than_anybody_needs_is_no_difference_either() {
        assert_eq!(Comparison::new(&document(), &slower(1.015)).count(Change::Worse), 0);
    }

    #[test]
    fn only_what_both_ran_is_compared_and_too_few_slices_say_nothing() {
        let mut b = document();
        b.points.retain(|p| p.purpose == Purpose::Depth);
        for point in &mut b.points {
            point.slices.truncate(2);
        }
        let comparison = Comparison::new(&document(), &b);
        assert_eq!(comparison.loads.len(), b.points.len());
        assert!(comparison.only_a > 0 && comparison.only_b == 0);
        assert_eq!(comparison.count(Change::Unsure), b.points.len());
        assert_eq!(comparison.ratios(), None);
    }

    #[test]
    fn a_comparison_as_json_is_read_again() {
        let comparison = Comparison::new(&document(), &slower(1.3));
        let text = serde_json::to_string(&comparison).unwrap();
        let read: Comparison = serde_json::from_str(&text).unwrap();
        assert_eq!((&read.b.target, read.b.end), (&comparison.b.target, comparison.b.end));
        let threshold = |of: &Comparison| of.b.advice.as_ref().map(|a| a.latency_threshold_ms);
        assert_eq!(threshold(&read), threshold(&comparison));
        let verdicts = |of: &Comparison| of.loads.iter().map(|p| p.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&read), verdicts(&comparison));
    }
}
