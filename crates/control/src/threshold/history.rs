//! What was seen at each threshold since the last drift, by who wanted more.

use alloc::vec::Vec;

use libm::{exp, log};

use super::block::{Block, FEW, FEW_IOS};
use super::observation::Observation;
use super::step::Threshold;

/// For how many periods what was seen at a threshold is kept.
const KEPT: u64 = 1200;

/// For so many pairs of a threshold and a class, the latest.
const MOST: usize = 96;

/// Hosts that want no more count if they have this part of what is outstanding.
const LIGHT: f64 = 0.02;

/// Which periods are alike: in these the same hosts want more, for the same part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    who: u64,
    used: u8,
}

impl Class {
    /// Nobody wants more.
    const CONTENT: Class = Class { who: 0, used: 0 };

    pub(super) fn of(seen: &Observation) -> Class {
        Class { who: seen.who, used: seen.used }
    }
}

/// What was seen, by threshold and class.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    all: Vec<Level>,
    /// Periods counted.
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    threshold: Threshold,
    class: Class,
    /// Fraction of the outstanding IOs that belongs to hosts that are not backlogged, as first seen in
    /// this class. All levels of a class have the same, so that their rates compare.
    light: f64,
    block: Block,
    /// In which period it was seen last.
    last: u64,
}

impl Level {
    fn is(&self, threshold: Threshold) -> bool {
        (self.threshold.over(threshold) - 1.0).abs() < 1e-3
    }
}

/// What was seen of one class at two thresholds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) class: Class,
    /// Where a try began, and perhaps one step to the other side of it.
    pub(super) base: Block,
    /// Only where it began.
    pub(super) from: Block,
    /// Number of periods at the threshold that is tried.
    pub(super) block: Block,
    /// At one of the two all have what they want, so that what is outstanding may move by less than the
    /// threshold.
    pub(super) content: bool,
}

impl History {
    /// Another period.
    pub(super) fn tick(&mut self) {
        self.clock += 1;
    }

    /// What is known of a threshold in a class.
    pub(super) fn at(&self, threshold: Threshold, class: Class) -> Option<Block> {
        let mut of = self.all.iter().filter(|level| level.class == class);
        of.find(|level| level.is(threshold)).map(|level| level.block)
    }

    /// The throughput of a period, as blocks have it: of those who want more, and of all others by
    /// their part of what is outstanding. Moving a threshold at the others' cost so brings nothing.
    pub(super) fn rate(&self, seen: &Observation) -> f64 {
        let known = self.all.iter().find(|level| level.class == Class::of(seen));
        mixed_rate(seen, known.map_or_else(|| light(seen), |level| level.light))
    }

    /// Takes in what was seen at a threshold, and forgets what was seen long ago elsewhere.
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

    /// Whether so much is known of a threshold that a try can be compared with it.
    pub(super) fn enough(&self, threshold: Threshold) -> bool {
        let of = self.all.iter().filter(|level| level.is(threshold) && level.block.periods >= 2.0);
        let (periods, ios) = of.fold((0.0, 0.0), |(periods, ios), level| {
            (periods + level.block.periods, ios + level.block.ios)
        });
        periods >= FEW && ios >= FEW_IOS
    }

    /// What is to be compared of `threshold` and `from`, and of `beyond`, on the other side of `from`: all
    /// classes that were seen at both.
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

    /// What is to be compared if at one of two thresholds all have what they want: what all have
    /// together.
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

    /// By what part `rate` at a threshold is below the best that was seen of the same classes at any.
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

    /// Forgets what was seen at a threshold.
    pub(super) fn drop(&mut self, threshold: Threshold) {
        self.all.retain(|level| !level.is(threshold));
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

fn light(seen: &Observation) -> f64 {
    if seen.light < LIGHT || seen.light_rate <= 0.0 { 0.0 } else { seen.light }
}

fn mixed_rate(seen: &Observation, light: f64) -> f64 {
    if light <= 0.0 || seen.rate <= 0.0 {
        return seen.rate;
    }
    exp((1.0 - light) * log(seen.rate) + light * log(seen.light_rate.max(1e-3)))
}
