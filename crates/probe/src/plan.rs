//! The plan of a probe: its loads and their order. Each load is chosen by the measurements so far.
//!
//! A slow drift of the target must not look like an effect of the load. So a sweep goes up in steps of a factor of four, and back down
//! over the depths between. Then sizes, mixes and repeats follow in random order.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::analysis;
use crate::load::{LoadMix, ProbeLoad, Purpose};
use crate::point::Point;
use crate::reasons::LeftOut;

/// Thoroughness of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A rough knee alone.
    Quick,
    /// The knee, sizes, noise, and the ends of mixes.
    Usual,
}

/// The user's wishes for a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// Mixes to sweep over outstanding IOs. Advice rests on the first.
    pub mixes: Vec<LoadMix>,
    /// Smallest and largest number of outstanding IOs.
    pub outstanding: RangeInclusive<u32>,
    /// Whether sweeps go to the largest number even after throughput has stopped growing.
    pub all: bool,
    /// Questions to answer. Repeats need loads of another purpose to repeat.
    pub purposes: Vec<Purpose>,
    /// Thoroughness of the probe.
    pub effort: Effort,
    /// Elling's experiment in place of all these questions. Random IOs of 4 KiB with 1 to 10 outstanding, first reads, then writes.
    /// Source: Richard Elling, *IOPS and latency are not related*, 2012.
    pub elling: bool,
    /// Whether there may be writes.
    pub writes: bool,
    /// Largest size of an IO, in bytes.
    pub largest: u64,
}

/// The sizes of the size model.
const SIZES_KIB: [u64; 8] = [4, 8, 16, 32, 64, 128, 256, 512];
const FEW_SIZES_KIB: [u64; 3] = [4, 64, 512];

/// The number of outstanding IOs of the mixes.
const MIX_OUTSTANDING: u32 = 8;

/// Numbers of outstanding IOs of Elling's experiment.
const ELLING: [u32; 6] = [1, 2, 4, 6, 8, 10];

/// Growth of throughput over two doublings below which a sweep goes no deeper.
const FLAT: f64 = 1.03;

/// A plan of loads.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    wishes: Wishes,
    /// Number of additional depths near the knee.
    around: usize,
    /// Whether sweeps have only every other power of two.
    coarse: bool,
    sizes: Vec<u64>,
    mixes: bool,
    repeats: bool,
    tried: HashSet<ProbeLoad>,
    /// The loads after the sweeps, the next one last. `None` until the sweeps are done.
    rest: Option<Vec<(ProbeLoad, Purpose)>>,
    random: fastrand::Rng,
}

impl ProbePlan {
    /// The plan for these wishes. The seed determines the order of the loads after the sweeps.
    #[must_use]
    pub fn new(mut wishes: Wishes, seed: u64) -> ProbePlan {
        // The experiment has an order of its own. The last of `rest` is run next.
        let rest = wishes.elling.then(|| {
            wishes.purposes.clear();
            let kinds: &[u32] = if wishes.writes { &[0, 100] } else { &[100] };
            let load = |read_percent, outstanding| {
                let mix = LoadMix { size: 4096, read_percent, random_percent: 100 };
                (ProbeLoad { mix, outstanding }, Purpose::Depth)
            };
            let loads = |reads: &u32| ELLING.map(|outstanding| load(*reads, outstanding));
            kinds.iter().flat_map(|reads| loads(reads).into_iter().rev()).collect()
        });
        let asked = |purpose| wishes.purposes.contains(&purpose);
        let (around, sizes) = match wishes.effort {
            Effort::Quick => (1, FEW_SIZES_KIB.as_slice()),
            Effort::Usual => (3, SIZES_KIB.as_slice()),
        };
        let fits = |kib: &u64| (kib << 10 <= wishes.largest).then_some(kib << 10);
        let sizes = if asked(Purpose::Size) { sizes } else { &[] };
        ProbePlan {
            around: if asked(Purpose::Depth) { around } else { 0 },
            coarse: false,
            sizes: sizes.iter().filter_map(fits).collect(),
            mixes: asked(Purpose::Mix) && wishes.effort == Effort::Usual,
            repeats: asked(Purpose::Repeat),
            tried: HashSet::new(),
            rest,
            random: fastrand::Rng::with_seed(seed),
            wishes,
        }
    }

    /// Whether a knee is looked for.
    pub(crate) fn sweeps(&self) -> bool {
        self.wishes.purposes.contains(&Purpose::Depth)
    }

    /// Leaves out the least important parts until there are at most `most` loads. Returns these parts.
    pub fn shrink(&mut self, most: usize) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        type LeaveOut = fn(&mut ProbePlan);
        let steps: [(LeftOut, LeaveOut); 7] = [
            (LeftOut::LoadsNearKnee, |plan| plan.around = plan.around.min(1)),
            (LeftOut::Mixes, |plan| plan.mixes = false),
            (LeftOut::InnerSizes, |plan| {
                plan.sizes.retain(|size| FEW_SIZES_KIB.contains(&(size >> 10)));
            }),
            (LeftOut::OtherSweeps, |plan| plan.wishes.mixes.truncate(1)),
            (LeftOut::Sizes, |plan| plan.sizes.clear()),
            (LeftOut::Repeats, |plan| plan.repeats = false),
            (LeftOut::Depths, |plan| (plan.coarse, plan.around) = (true, 0)),
        ];
        for (what, leave_out) in steps {
            let before = self.left(&[]);
            if before <= most {
                break;
            }
            leave_out(self);
            if self.left(&[]) < before {
                left_out.push(what);
            }
        }
        left_out
    }

    /// The load to run next, and its purpose. `None` at the end.
    pub fn next(&mut self, points: &[Point]) -> Option<(ProbeLoad, Purpose)> {
        if let Some(load) = self.next_of_sweeps(points) {
            self.tried.insert(load);
            return Some((load, Purpose::Depth));
        }
        if self.rest.is_none() {
            let mut rest = self.rest_after(points);
            self.random.shuffle(&mut rest);
            self.rest = Some(rest);
        }
        self.rest.as_mut()?.pop()
    }

    /// Largest number of loads still to run, the next one included.
    #[must_use]
    pub fn left(&self, points: &[Point]) -> usize {
        if let Some(rest) = &self.rest {
            return rest.len();
        }
        let sweeps = if self.sweeps() {
            let of = |mix: &LoadMix| {
                let deepest = if self.up(*mix, points).is_some() {
                    *self.wishes.outstanding.end()
                } else {
                    self.deepest(*mix, points)
                };
                let powers = self.powers().into_iter().filter(|n| *n <= deepest);
                let all = if self.coarse { self.ladder().len() } else { powers.count() };
                let tried = self.tried.iter().filter(|load| load.mix == *mix).count();
                (all + self.around).saturating_sub(tried)
            };
            self.wishes.mixes.iter().map(of).sum()
        } else {
            0
        };
        // The loads to repeat are known only after the sweep.
        let going_up = self.wishes.mixes.first().is_some_and(|mix| self.up(*mix, points).is_some());
        sweeps + self.rest_after(if going_up { &[] } else { points }).len()
    }

    fn next_of_sweeps(&self, points: &[Point]) -> Option<ProbeLoad> {
        if !self.sweeps() {
            return None;
        }
        let first = |of: &dyn Fn(LoadMix) -> Option<u32>| {
            let load = |mix: &LoadMix| Some(ProbeLoad { mix: *mix, outstanding: of(*mix)? });
            self.wishes.mixes.iter().find_map(load)
        };
        first(&|mix| self.up(mix, points))
            .or_else(|| first(&|mix| self.down(mix, points)))
            .or_else(|| first(&|mix| self.around(mix, points)))
    }

    fn is_new(&self, mix: LoadMix, outstanding: u32) -> bool {
        !self.tried.contains(&ProbeLoad { mix, outstanding })
    }

    /// All depths of a sweep: powers of two, and both ends of the range.
    fn powers(&self) -> Vec<u32> {
        let (low, high) = (*self.wishes.outstanding.start(), *self.wishes.outstanding.end());
        let between = (0..32).map(|power| 1 << power).filter(|n| *n > low && *n < high);
        let mut all: Vec<u32> = [low].into_iter().chain(between).chain([high]).collect();
        all.dedup();
        all
    }

    /// The rungs of the way up: every other depth, and both ends of the range.
    fn ladder(&self) -> Vec<u32> {
        let powers = self.powers();
        let last = powers.len() - 1;
        let rung = |(i, n): (usize, &u32)| (i % 2 == 0 || i == last).then_some(*n);
        powers.iter().enumerate().filter_map(rung).collect()
    }

    /// The next rung. `None` once throughput has stopped growing.
    fn up(&self, mix: LoadMix, points: &[Point]) -> Option<u32> {
        let ladder = self.ladder();
        let next = ladder.iter().position(|n| self.is_new(mix, *n))?;
        let flat = next >= 2 && {
            let [before, last] = [ladder[next - 2], ladder[next - 1]];
            let [before, last] = [before, last].map(|n| iops(points, mix, n));
            // A load without a completed IO ends the way up as well.
            last.zip(before).is_none_or(|(last, before)| last < FLAT * before)
        };
        let failed = next == 1 && iops(points, mix, ladder[0]).is_none();
        (!failed && (!flat || self.wishes.all)).then(|| ladder[next])
    }

    /// The next depth between the rungs, from above.
    fn down(&self, mix: LoadMix, points: &[Point]) -> Option<u32> {
        let deepest = self.deepest(mix, points);
        let powers = if self.coarse { self.ladder() } else { self.powers() };
        powers.into_iter().rev().find(|n| *n <= deepest && self.is_new(mix, *n))
    }

    fn deepest(&self, mix: LoadMix, points: &[Point]) -> u32 {
        let powers = self.powers();
        let measured = powers.iter().filter(|n| iops(points, mix, **n).is_some());
        measured.max().copied().unwrap_or(0)
    }

    /// The next additional depth near the knee.
    fn around(&self, mix: LoadMix, points: &[Point]) -> Option<u32> {
        // Without a point there is no knee.
        self.near_peak(mix, points)?;
        let powers = self.powers();
        let extra = |load: &&ProbeLoad| load.mix == mix && !powers.contains(&load.outstanding);
        if self.tried.iter().filter(extra).count() >= self.around {
            return None;
        }
        analysis::sharper(points, mix).filter(|n| self.is_new(mix, *n))
    }

    /// The smallest depth of the sweep whose throughput is near the peak.
    fn near_peak(&self, mix: LoadMix, points: &[Point]) -> Option<u32> {
        let powers = self.powers();
        let swept = || powers.iter().filter_map(|n| Some((*n, iops(points, mix, *n)?)));
        let peak = swept().map(|(_, iops)| iops).fold(0.0, f64::max);
        swept().find(|(_, iops)| *iops >= analysis::WORTH * peak).map(|(n, _)| n)
    }

    fn rest_after(&self, points: &[Point]) -> Vec<(ProbeLoad, Purpose)> {
        let size = |size: &u64| {
            let mix = LoadMix { size: *size, read_percent: 100, random_percent: 100 };
            (ProbeLoad { mix, outstanding: 1 }, Purpose::Size)
        };
        let mut rest: Vec<(ProbeLoad, Purpose)> = self.sizes.iter().map(size).collect();
        rest.extend(self.ends_of_mixes().into_iter().map(|mix| {
            let most = *self.wishes.outstanding.end();
            (ProbeLoad { mix, outstanding: MIX_OUTSTANDING.min(most) }, Purpose::Mix)
        }));
        if self.repeats {
            rest.extend(self.repeated(points).into_iter().map(|load| (load, Purpose::Repeat)));
        }
        rest
    }

    /// Reads and, if there may be any, writes of the first mix's size, in order and anywhere.
    fn ends_of_mixes(&self) -> Vec<LoadMix> {
        let size = self.wishes.mixes.first().map_or(4096, |mix| mix.size);
        let reads = if self.wishes.writes { [100, 0].as_slice() } else { &[100] };
        let of = |read_percent: &u32| {
            let read_percent = *read_percent;
            [100, 0].map(|random_percent| LoadMix { size, read_percent, random_percent })
        };
        if self.mixes { reads.iter().flat_map(of).collect() } else { Vec::new() }
    }

    /// Loads to repeat: the shallowest depth, one near the peak, and the deepest. Before the sweep is done, as many
    /// other loads stand for them.
    fn repeated(&self, points: &[Point]) -> Vec<ProbeLoad> {
        let Some(mix) = self.wishes.mixes.first().copied() else { return Vec::new() };
        if !self.sweeps() {
            return Vec::new();
        }
        let powers = self.powers();
        let near = self.near_peak(mix, points).unwrap_or(powers[powers.len() / 2]);
        let last = match self.deepest(mix, points) {
            0 => *self.wishes.outstanding.end(),
            deepest => deepest,
        };
        let mut all = vec![powers[0], near, last];
        all.sort_unstable();
        all.dedup();
        // If the peak is at an end of the sweep, another depth from its middle.
        if all.len() < 3
            && let Some(middle) = powers.iter().rev().find(|n| **n < last && !all.contains(n))
        {
            all.push(*middle);
        }
        all.into_iter().map(|outstanding| ProbeLoad { mix, outstanding }).collect()
    }
}

/// The throughput of one load of a sweep.
fn iops(points: &[Point], mix: LoadMix, outstanding: u32) -> Option<f64> {
    let load = ProbeLoad { mix, outstanding };
    let found = points.iter().find(|p| p.load == load && p.purpose == Purpose::Depth);
    found.map(|point| point.all.iops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::point as made_up;

    const READS: LoadMix = LoadMix { size: 4096, read_percent: 100, random_percent: 100 };
    const EVERY: [Purpose; 4] = [Purpose::Depth, Purpose::Size, Purpose::Mix, Purpose::Repeat];

    fn wishes(effort: Effort) -> Wishes {
        Wishes {
            mixes: vec![READS],
            outstanding: 1..=256,
            all: false,
            purposes: EVERY.to_vec(),
            effort,
            elling: false,
            writes: false,
            largest: 1 << 30,
        }
    }

    fn point(load: ProbeLoad, purpose: Purpose, iops: f64) -> Point {
        let mut random = fastrand::Rng::with_seed(1);
        let ProbeLoad { mix, outstanding } = load;
        Point { purpose, slices: Vec::new(), ..made_up(mix, outstanding, iops, 0.0, &mut random) }
    }

    /// Runs a plan on a target whose throughput is linear up to some depth. Returns the points, and the number of loads left before
    /// each, as the plan reports it.
    fn run(plan: &mut ProbePlan, knee: u32) -> (Vec<Point>, Vec<usize>) {
        let (mut points, mut left) = (Vec::new(), Vec::new());
        loop {
            left.push(plan.left(&points));
            let Some((load, purpose)) = plan.next(&points) else { break };
            points.push(point(load, purpose, 100.0 * f64::from(load.outstanding.min(knee))));
        }
        (points, left)
    }

    fn depths(points: &[Point]) -> Vec<u32> {
        let depth = points.iter().filter(|p| p.purpose == Purpose::Depth);
        depth.map(|p| p.load.outstanding).collect()
    }

    #[test]
    fn a_sweep_goes_up_until_throughput_is_flat_and_back_down_and_looks_closely() {
        let (points, left) = run(&mut ProbePlan::new(wishes(Effort::Usual), 1), 12);
        assert_eq!(depths(&points), [1, 4, 16, 64, 32, 8, 2, 11, 13, 12]);
        assert!(left.windows(2).all(|pair| pair[1] <= pair[0]), "{left:?}");
        assert_eq!(left.last(), Some(&0));
        let sizes = points.iter().filter(|p| p.purpose == Purpose::Size);
        assert_eq!(sizes.count(), 8);
        let again: Vec<u32> = points
            .iter()
            .filter(|p| p.purpose == Purpose::Repeat)
            .map(|p| p.load.outstanding)
            .collect();
        assert!(again.len() == 3 && [1, 16, 64].iter().all(|n| again.contains(n)), "{again:?}");
        assert!(points.iter().all(|p| p.load.mix.read_percent == 100), "no writes");
    }

    #[test]
    fn all_means_to_the_end_and_a_range_its_ends() {
        let all = Wishes { all: true, ..wishes(Effort::Quick) };
        assert_eq!(*depths(&run(&mut ProbePlan::new(all, 1), 1).0).iter().max().unwrap(), 256);
        let some = Wishes { outstanding: 3..=20, ..wishes(Effort::Quick) };
        let (points, _) = run(&mut ProbePlan::new(some, 1), 256);
        assert_eq!(depths(&points)[..5], [3, 8, 20, 16, 4]);
        let one = Wishes { outstanding: 5..=5, ..wishes(Effort::Usual) };
        let (points, left) = run(&mut ProbePlan::new(one, 1), 256);
        assert_eq!((depths(&points), left.last()), (vec![5], Some(&0)));
    }

    #[test]
    fn too_little_time_leaves_out_what_matters_least_and_says_so() {
        let mut plan = ProbePlan::new(wishes(Effort::Usual), 1);
        let all = plan.left(&[]);
        assert!(plan.shrink(all).is_empty());
        assert_eq!(plan.shrink(20), [LeftOut::LoadsNearKnee, LeftOut::Mixes, LeftOut::InnerSizes]);
        assert!(plan.left(&[]) <= 20);
        let mut plan = ProbePlan::new(wishes(Effort::Usual), 1);
        assert_eq!(plan.shrink(0).last(), Some(&LeftOut::Depths));
        assert_eq!(depths(&run(&mut plan, 256).0), [1, 4, 16, 64, 256]);
    }

    #[test]
    fn a_load_of_which_nothing_came_back_is_not_tried_for_ever() {
        let mut plan = ProbePlan::new(wishes(Effort::Usual), 1);
        let mut tries = 0;
        while plan.next(&[]).is_some() {
            tries += 1;
            assert!(tries < 100);
        }
    }

    #[test]
    fn mixes_have_writes_only_if_there_may_be_any() {
        let count = |writes| {
            let wishes = Wishes { purposes: vec![Purpose::Mix], writes, ..wishes(Effort::Usual) };
            run(&mut ProbePlan::new(wishes, 1), 8).0.len()
        };
        assert_eq!((count(false), count(true)), (2, 4));
    }

    #[test]
    fn ellings_experiment_is_run_as_it_is_in_place_of_all_questions() {
        for (writes, kinds) in [(false, &[100][..]), (true, &[100, 0])] {
            let wishes = Wishes { elling: true, writes, ..wishes(Effort::Usual) };
            let mut plan = ProbePlan::new(wishes, 7);
            assert_eq!(plan.left(&[]), kinds.len() * ELLING.len());
            let run = std::iter::from_fn(|| plan.next(&[]));
            let run: Vec<_> =
                run.map(|(load, _)| (load.mix.read_percent, load.outstanding)).collect();
            let right =
                kinds.iter().flat_map(|reads| ELLING.map(|outstanding| (*reads, outstanding)));
            assert_eq!(run, right.collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_of_the_rest_follows_from_the_seed() {
        let of = |seed| {
            let (points, _) = run(&mut ProbePlan::new(wishes(Effort::Usual), seed), 12);
            points.iter().map(|p| p.load).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
