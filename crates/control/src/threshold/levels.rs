//! What was seen at each threshold since the last drift.

use alloc::vec::Vec;

use super::Observation;
use super::block::Block;

/// For how many periods what was seen at a threshold is kept.
const KEPT: u64 = 1200;

/// What was seen, by threshold.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    all: Vec<Level>,
    /// Periods counted.
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    threshold: f64,
    block: Block,
    /// In which period it was seen last.
    last: u64,
}

impl Level {
    fn is(&self, threshold: f64) -> bool {
        (self.threshold / threshold - 1.0).abs() < 1e-3
    }
}

impl Levels {
    /// Another period.
    pub(super) fn tick(&mut self) {
        self.clock += 1;
    }

    /// What is known of a threshold.
    pub(super) fn at(&self, threshold: f64) -> Option<Block> {
        self.all.iter().find(|level| level.is(threshold)).map(|level| level.block)
    }

    /// Takes in what was seen at a threshold, and forgets what was seen long ago elsewhere.
    pub(super) fn add(&mut self, threshold: f64, seen: &Observation) -> Block {
        let clock = self.clock;
        self.all.retain(|level| clock - level.last <= KEPT);
        let place = self.all.iter().position(|level| level.is(threshold));
        let place = place.unwrap_or_else(|| {
            self.all.push(Level { threshold, block: Block::default(), last: clock });
            self.all.len() - 1
        });
        let level = &mut self.all[place];
        level.block.add(seen);
        level.last = clock;
        level.block
    }

    /// Forgets what was seen at a threshold.
    pub(super) fn drop(&mut self, threshold: f64) {
        self.all.retain(|level| !level.is(threshold));
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}
