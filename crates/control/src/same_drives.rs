//! Evidence that two volumes lie on the same drives: the latency of one follows the load on the other.
//!
//! Latency of a volume follows its own load anyway, and loads of two volumes often change together. So what counts is how latency changes with
//! the load on the other volume where its own load is the same: the partial correlation, of ranks, as single large changes prove nothing. Changes from
//! one block of seconds to the next are compared, not levels, which drift together over a day by chance; and only those in which the other volume's
//! load changes at all, as the rest is noise, and in which the size of the volume's own IOs stays, as latency follows that as well.

use alloc::vec::Vec;

/// What a volume did in a second, all hosts together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Mean device latency in seconds. `None` without IO.
    pub latency: Option<f64>,
    /// Mean outstanding IOs of all hosts in the second.
    pub outstanding: f64,
    /// Mean size of an IO in bytes. `None` without IO.
    pub size: Option<f64>,
}

/// How the latency of one volume follows the load on the other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Follows {
    /// Partial rank correlation of the changes of latency with those of the other volume's outstanding IOs, from -1 to 1.
    pub correlation: f64,
    /// Number of changes that were compared.
    pub compared: u32,
    /// Fisher's transform of the correlation, in standard errors.
    pub errors: f64,
    /// Rise of latency in seconds with each IO outstanding on the other volume.
    pub rise: f64,
}

/// Seconds of a block. The law answers a change within some seconds, and hides it then.
const BLOCK: usize = 2;

/// Least change of the other volume's load, as a part of its mean.
const CHANGE: f64 = 0.1;

/// Largest change of the size of the volume's own IOs, as a part of it.
const SAME_SIZE: f64 = 0.25;

/// Least mean load of the other volume, in IOs, that changes are a part of.
const LEAST_LOAD: f64 = 0.5;

/// Least number of changes that are compared.
const LEAST_CHANGES: usize = 20;

/// Least correlation that counts as evidence.
const LEAST_CORRELATION: f64 = 0.3;

/// Least Fisher transform of the correlation, in standard errors. Of 100 pairs of volumes apart the largest was at 2.8.
const LEAST_ERRORS: f64 = 5.0;

/// Part of both that is enough for what was sure before.
const STILL: f64 = 0.6;

impl Follows {
    /// Whether chance is ruled out.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.exceeds(1.0)
    }

    /// Whether what was sure before still holds.
    #[must_use]
    pub fn still_holds(&self) -> bool {
        self.exceeds(STILL)
    }

    fn exceeds(&self, part: f64) -> bool {
        self.correlation >= part * LEAST_CORRELATION
            && self.errors >= part * LEAST_ERRORS
            && self.rise > 0.0
    }
}

/// Whether the latency of each of two volumes follows the load on the other, from looks at the same seconds. `None` while there is too little to
/// compare.
#[must_use]
pub fn compare(one: &[Look], other: &[Look]) -> [Option<Follows>; 2] {
    [follows(one, other), follows(other, one)]
}

/// Change from one block to the next.
struct Change {
    /// Difference of latency, in seconds.
    latency: f64,
    /// Difference of the logarithm of latency.
    slower: f64,
    /// Difference of the volume's own outstanding IOs.
    own: f64,
    /// Difference of the other volume's outstanding IOs.
    other: f64,
}

/// Means over some seconds.
#[derive(Clone, Copy)]
struct Block {
    latency: f64,
    own: f64,
    other: f64,
    size: f64,
}

impl Block {
    fn has_size_of(&self, other: &Block) -> bool {
        (self.size - other.size).abs() <= SAME_SIZE * self.size.min(other.size)
    }
}

fn follows(own: &[Look], other: &[Look]) -> Option<Follows> {
    let blocks = own.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK));
    let blocks: Vec<_> = blocks.map(block).collect();
    let loads: Vec<f64> = blocks.iter().flatten().map(|block| block.other).collect();
    let load = (loads.iter().sum::<f64>() / loads.len() as f64).max(LEAST_LOAD);
    let pairs = blocks.windows(2).filter_map(|pair| Some((pair[0]?, pair[1]?)));
    let alike = pairs.filter(|(before, now)| now.has_size_of(before));
    let changes = alike.map(|(before, now)| Change {
        latency: now.latency - before.latency,
        slower: libm::log(now.latency / before.latency),
        own: now.own - before.own,
        other: now.other - before.other,
    });
    let changes: Vec<_> = changes.filter(|change| change.other.abs() > CHANGE * load).collect();
    if changes.len() < LEAST_CHANGES {
        return None;
    }
    let ranks = |of: &dyn Fn(&Change) -> f64| ranks(&changes.iter().map(of).collect::<Vec<_>>());
    let [slower, own, other] = [ranks(&|c| c.slower), ranks(&|c| c.own), ranks(&|c| c.other)];
    let correlation = partial(&slower, &other, &own);
    let freedom = changes.len() as f64 - 4.0;
    Some(Follows {
        correlation,
        compared: changes.len() as u32,
        errors: libm::atanh(correlation.clamp(-0.999, 0.999)) * libm::sqrt(freedom),
        rise: rise(&changes),
    })
}

/// Means of a block; `None` if the volume had no IO in some second.
fn block((own, other): (&[Look], &[Look])) -> Option<Block> {
    let mean =
        |looks: &[Look]| looks.iter().map(|look| look.outstanding).sum::<f64>() / BLOCK as f64;
    let latencies: Option<f64> = own.iter().map(|look| look.latency.filter(|l| *l > 0.0)).sum();
    let sizes: Option<f64> = own.iter().map(|look| look.size).sum();
    Some(Block {
        latency: latencies? / BLOCK as f64,
        own: mean(own),
        other: mean(other),
        size: sizes? / BLOCK as f64,
    })
}

/// Least squares: how latency changes with the other volume's load at the same own load.
fn rise(changes: &[Change]) -> f64 {
    let sum = |of: &dyn Fn(&Change) -> f64| changes.iter().map(of).sum::<f64>();
    let (aa, bb) = (sum(&|c| c.own * c.own), sum(&|c| c.other * c.other));
    let ab = sum(&|c| c.own * c.other);
    let (al, bl) = (sum(&|c| c.own * c.latency), sum(&|c| c.other * c.latency));
    let determinant = aa * bb - ab * ab;
    if determinant > 1e-9 * aa * bb { (aa * bl - ab * al) / determinant } else { 0.0 }
}

/// Ranks, less their mean; equal values have the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = alloc::vec![0.0; values.len()];
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let mut first = 0;
    for run in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let rank = first as f64 + (run.len() as f64 - 1.0) / 2.0 - middle;
        run.iter().for_each(|at| ranks[*at] = rank);
        first += run.len();
    }
    ranks
}

/// Correlation of numbers whose mean is zero.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let of = libm::sqrt(dot(a, a) * dot(b, b));
    if of > 0.0 { dot(a, b) / of } else { 0.0 }
}

/// Correlation of two that a third one does not explain.
fn partial(a: &[f64], b: &[f64], given: &[f64]) -> f64 {
    let (ab, ag, bg) = (correlation(a, b), correlation(a, given), correlation(b, given));
    let of = libm::sqrt((1.0 - ag * ag) * (1.0 - bg * bg));
    if of > 1e-6 { (ab - ag * bg) / of } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_centred_and_ties_share_theirs() {
        assert_eq!(ranks(&[7.0, 3.0, 3.0, 9.0]), [0.5, -1.0, -1.0, 1.5]);
    }

    #[test]
    fn what_a_third_explains_is_no_correlation() {
        let given: Vec<f64> = (0..9).map(|n| f64::from(n) - 4.0).collect();
        let twice: Vec<f64> = given.iter().map(|n| 2.0 * n).collect();
        let other = [3.0, -1.0, 2.0, -2.0, 1.0, -3.0, 4.0, -4.0, 0.0];
        assert!(correlation(&given, &twice) > 0.999);
        assert!(partial(&twice, &other, &given).abs() < 1e-9);
        assert!(partial(&other, &other, &given) > 0.999);
    }

    /// Looks in which the other load alternates, and latency follows both loads.
    fn looks(seconds: usize, own: f64, other: f64) -> [Vec<Look>; 2] {
        let load = |at: usize| if (at / 8).is_multiple_of(2) { 20.0 } else { 4.0 };
        let steady = |at: usize| 10.0 + (at * 7 % 13) as f64 / 10.0;
        let latency = |at| 1e-3 * (5.0 + own * steady(at) + other * load(at));
        let one =
            |at| Look { latency: Some(latency(at)), outstanding: steady(at), size: Some(16384.0) };
        let two = |at| Look { outstanding: load(at), ..Look::default() };
        [(0..seconds).map(one).collect(), (0..seconds).map(two).collect()]
    }

    #[test]
    fn latency_follows_the_other_load_by_so_much() {
        let [one, other] = looks(400, 0.5, 0.25);
        let [follows, back] = compare(&one, &other);
        let follows = follows.unwrap();
        assert!(follows.is_sure() && (follows.rise - 0.25e-3).abs() < 1e-6, "{follows:?}");
        assert_eq!(back, None, "a volume without IO has no latency");
    }

    #[test]
    fn latency_that_follows_its_own_load_alone_is_no_evidence() {
        let [one, other] = looks(400, 0.5, 0.0);
        assert!(!compare(&one, &other)[0].unwrap().is_sure());
        let [one, other] = looks(100, 0.5, 0.25);
        assert_eq!(compare(&one, &other), [None, None], "too few changes");
    }

    #[test]
    fn latency_that_follows_the_size_of_ios_is_no_evidence() {
        let [mut one, other] = looks(400, 0.5, 0.25);
        for (own, other) in one.iter_mut().zip(&other) {
            own.size = Some(4096.0 * other.outstanding);
        }
        assert_eq!(compare(&one, &other)[0], None, "no change at the same size");
        // Sizes that vary a little, and not with the other load, hide nothing.
        for (at, own) in one.iter_mut().enumerate() {
            own.size = Some(16384.0 * (1.0 + (at * 5 % 7) as f64 / 70.0));
        }
        assert!(compare(&one, &other)[0].unwrap().is_sure());
    }
}
