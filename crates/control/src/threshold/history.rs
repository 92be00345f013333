//! Observations at each threshold since the last drift, by class: which hosts were backlogged.

use alloc::vec::Vec;

use libm::{exp, log};

use super::block::{Block, FEW, FEW_IOS};
use super::observation::Observation;
use super::step::Threshold;

/// Periods for which observations at a threshold are kept after the last one.
const KEPT: u64 = 1200;

/// Largest number of levels that are kept: the latest ones.
const MOST: usize = 96;

/// Part of the outstanding IOs from which hosts that are not backlogged count.
const LIGHT: f64 = 0.02;

/// Class of periods that can be compared: the same hosts are backlogged, for the same part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    who: u64,
    used: u8,
}

impl Class {
    /// No host is backlogged.
    const CONTENT: Class = Class { who: 0, used: 0 };

    pub(super) fn of(seen: &Observation) -> Class {
        Class { who: seen.who, used: seen.used }
    }
}

/// Observations by threshold and class.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    all: Vec<Level>,
    /// Periods since the start.
    clock: u64,
}

/// Observations of one class at one threshold.
#[derive(Clone, Copy, Debug)]
struct Level {
    threshold: Threshold,
    class: Class,
    /// Fraction of the outstanding IOs that belongs to hosts that are not backlogged, as first seen in
    /// this class. All levels of a class have the same, so that their rates compare.
    light: f64,
    block: Block,
    /// Period of the last observation, by `clock`.
    last: u64,
}

impl Level {
    fn is(&self, threshold: Threshold) -> bool {
        (self.threshold.over(threshold) - 1.0).abs() < 1e-3
    }
}

/// Observations of one class at two thresholds: that of a try, and the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) class: Class,
    /// The threshold where the try began, with the one on its other side if that is known.
    pub(super) base: Block,
    /// The threshold where the try began, alone.
    pub(super) from: Block,
    /// The threshold of the try.
    pub(super) block: Block,
    /// At one of the two no host is backlogged, so that the outstanding IOs may move by less than the threshold.
    pub(super) content: bool,
}

impl History {
    /// Counts a period.
    pub(super) fn tick(&mut self) {
        self.clock += 1;
    }

    /// Observations of a class at a threshold.
    pub(super) fn at(&self, threshold: Threshold, class: Class) -> Option<Block> {
        let mut of = self.all.iter().filter(|level| level.class == class);
        of.find(|level| level.is(threshold)).map(|level| level.block)
    }

    /// Throughput of a period as blocks have it, in IO/s: the geometric mean of that of the backlogged hosts and that of the others,
    /// weighted by outstanding IOs. So nothing is gained by a threshold that takes throughput from the others.
    pub(super) fn rate(&self, seen: &Observation) -> f64 {
        let known = self.all.iter().find(|level| level.class == Class::of(seen));
        mixed_rate(seen, known.map_or_else(|| light(seen), |level| level.light))
    }

    /// Adds an observation at a threshold, and forgets levels that are too old. Returns the block with the observation.
    pub(super) fn add(&mut self, threshold: Threshold, seen: &Observation) -> Block {
        let (clock, class) = (self.clock, Class::of(seen));
        self.all.retain(|level| clock - level.last <= KEPT);
        let known = self.all.iter().find(|level| level.class == class).map(|level| level.light);
        let light = known.unwrap_or_else(|| light(seen));
        let same = |level: &Level| level.is(threshold) && level.class == class;
        let place = self.all.iter().position(same).unwrap_or_else(|| {
            if self.all.len() >= MOST {
                let oldest = self.all.iter().enumerate().min_by_key(|(_, level)| level.last);
                let oldest = oldest.map_or(0, |(place, _)| place);
                self.all.swap_remove(oldest);
            }
            let block = Block::default();
            self.all.push(Level { threshold, class, light, block, last: clock });
            self.all.len() - 1
        });
        let level = &mut self.all[place];
        level.block.add(&Observation { rate: mixed_rate(seen, light), ..*seen });
        level.last = clock;
        level.block
    }

    /// Whether there are enough observations at a threshold to compare a try with.
    pub(super) fn enough(&self, threshold: Threshold) -> bool {
        let of = self.all.iter().filter(|level| level.is(threshold) && level.block.periods >= 2.0);
        let (periods, ios) = of.fold((0.0, 0.0), |(periods, ios), level| {
            (periods + level.block.periods, ios + level.block.ios)
        });
        periods >= FEW && ios >= FEW_IOS
    }

    /// Pairs of observations at `from` and `threshold`, one for each class that was seen at both. Observations at `beyond`, on the other
    /// side of `from`, are added to the base.
    pub(super) fn pairs(
        &self,
        from: Threshold,
        beyond: Threshold,
        threshold: Threshold,
    ) -> Vec<Pair> {
        let here =
            self.all.iter().filter(|level| level.is(threshold) && level.block.periods >= 2.0);
        let pair = |level: &Level| {
            let class = level.class;
            let from = self.at(from, class).filter(|block| block.periods >= 2.0)?;
            let beyond = self.at(beyond, class);
            let beyond = beyond.filter(|block| block.periods >= FEW && block.same_mix(&from));
            let base = beyond.map_or(from, |beyond| from.plus(&beyond));
            Some(Pair { class, base, from, block: level.block, content: false })
        };
        let pairs: Vec<Pair> = here.filter_map(pair).collect();
        if pairs.iter().map(|pair| pair.block.periods).sum::<f64>() >= FEW {
            return pairs;
        }
        self.beyond_all_wishes(from, threshold).map_or(pairs, |pair| alloc::vec![pair])
    }

    /// The pair to compare if no host is backlogged at one of two thresholds: throughput of all hosts together.
    fn beyond_all_wishes(&self, from: Threshold, threshold: Threshold) -> Option<Pair> {
        let longest = |threshold: Threshold| {
            let of = self.all.iter().filter(|level| level.is(threshold));
            of.max_by(|one, other| one.block.periods.total_cmp(&other.block.periods))
        };
        let (base, here) = (longest(from)?, longest(threshold)?);
        let all_content = (base.class == Class::CONTENT) != (here.class == Class::CONTENT);
        let both = base.block.periods >= 2.0 && here.block.periods >= 2.0;
        let from = base.block.in_total();
        let block = here.block.in_total();
        let pair = Pair { class: here.class, base: from, from, block, content: true };
        (all_content && both).then_some(pair)
    }

    /// Fraction by which `rate` at a threshold is below the best that was seen of the same classes at any threshold.
    pub(super) fn loss(&self, threshold: Threshold, rate: fn(&Block) -> f64) -> f64 {
        let (mut lost, mut periods) = (0.0, 0.0);
        for here in self.all.iter().filter(|level| level.is(threshold)) {
            let alike = self.all.iter().filter(|level| level.class == here.class);
            let known = alike
                .filter(|level| level.block.periods >= FEW && level.block.same_mix(&here.block));
            let best = known.map(|level| rate(&level.block)).fold(0.0, f64::max);
            let own = rate(&here.block);
            if best > own && own > 0.0 {
                lost += here.block.periods * log(best / own);
            }
            periods += here.block.periods;
        }
        if periods > 0.0 { 1.0 - exp(-lost / periods) } else { 0.0 }
    }

    /// Forgets the observations at a threshold.
    pub(super) fn drop(&mut self, threshold: Threshold) {
        self.all.retain(|level| !level.is(threshold));
    }

    /// Forgets all observations.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

/// Weight of the hosts that are not backlogged.
fn light(seen: &Observation) -> f64 {
    if seen.light < LIGHT || seen.light_rate <= 0.0 { 0.0 } else { seen.light }
}

/// Geometric mean of the throughput of backlogged hosts and of others, which have the weight `light`.
fn mixed_rate(seen: &Observation, light: f64) -> f64 {
    if light <= 0.0 || seen.rate <= 0.0 {
        return seen.rate;
    }
    exp((1.0 - light) * log(seen.rate) + light * log(seen.light_rate.max(1e-3)))
}
