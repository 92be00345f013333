//! The write-back cache: pages that are not yet on the drives, and the order in which stripes leave.
//!
//! Pages are kept by stripe, so that writes scattered in time leave together. Pages of one stripe
//! share a parity update, and a whole stripe needs no reads first. Stripes leave in the order of their
//! places, round and round, which keeps the seeks short.

use alloc::vec::Vec;
use core::ops;

use hashbrown::HashTable;
use slab::Slab;

use super::sweep::Sweep;
use crate::error::{ParamError, check};
use crate::layout::{Piece, Range};
use crate::units::{Bytes, Nanos};

/// A write-back cache, mirrored and safe against a power cut: cached data counts as written.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheParams {
    /// Data that the cache can hold.
    pub capacity: Bytes,
    /// Size of a page, the unit of allocation; a multiple of 512 B that divides the element.
    pub page: Bytes,
    /// Fraction of the capacity below which no stripe is destaged.
    pub low_water: f64,
    /// Fraction of the capacity from which on `destage` stripes are written at once. Between the two
    /// fractions the number rises in proportion.
    pub high_water: f64,
    /// Most stripes that are destaged at a time, for each drive of the group. The product is rounded
    /// down, to at least one.
    pub destage: f64,
    /// Time to copy a write to the other controller.
    pub mirror: Nanos,
}

/// Limit on the allocation of the model: 2²⁶ pages of bookkeeping.
const MOST_PAGES: u64 = 1 << 26;

impl WriteCacheParams {
    pub(super) fn validate(&self, element: Bytes) -> Result<(), ParamError> {
        let Self { capacity, page, low_water, high_water, destage, mirror } = *self;
        let possible = page.0 > 0 && page.0.is_multiple_of(512) && element.0.is_multiple_of(page.0);
        let must = "be a multiple of 512 B that divides raid.element";
        check(possible, "controller.write_cache.page", page, must)?;
        let possible = (1..=MOST_PAGES).contains(&(capacity.0 / page.0));
        let must = "hold from 1 to 67108864 pages";
        check(possible, "controller.write_cache.capacity", capacity, must)?;
        let possible = high_water > 0.0 && high_water <= 1.0;
        let must = "be above 0 and at most 1";
        check(possible, "controller.write_cache.high_water", high_water, must)?;
        let possible = (0.0..=high_water).contains(&low_water);
        let must = "be from 0 to high_water";
        check(possible, "controller.write_cache.low_water", low_water, must)?;
        let possible = destage > 0.0 && destage <= 64.0;
        check(possible, "controller.write_cache.destage", destage, "be above 0 and at most 64")?;
        let possible = mirror <= Nanos::from_millis(10_000);
        check(possible, "controller.write_cache.mirror", mirror, "be at most 10s")
    }
}

/// A stripe with data in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineId(usize);

/// State of the cache, in pages.
#[derive(Clone, Debug)]
pub(crate) struct WriteCache {
    page: Bytes,
    capacity: usize,
    /// Water marks, in pages.
    low: f64,
    high: f64,
    most_destages: usize,
    /// Pages in use, including those that are being destaged.
    used: usize,
    destaging: usize,
    pub(crate) enabled: bool,
    index: HashTable<usize>,
    lines: Slab<Line>,
    /// Two bitmaps for each line: dirty pages, and pages that are being written.
    bits: Vec<u64>,
    /// Words of one bitmap.
    words: usize,
    /// Stripes with dirty pages.
    waiting: Sweep,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    stripe: u64,
    destaging: bool,
}

impl WriteCache {
    /// Makes an empty cache. `params` are valid; `stripe` is the data of one stripe.
    pub(crate) fn new(params: &WriteCacheParams, stripe: Bytes, drives: u32) -> WriteCache {
        let capacity = params.capacity.0 / params.page.0;
        WriteCache {
            page: params.page,
            capacity: capacity as usize,
            low: params.low_water * capacity as f64,
            high: params.high_water * capacity as f64,
            most_destages: ((params.destage * f64::from(drives)) as usize).max(1),
            used: 0,
            destaging: 0,
            enabled: true,
            index: HashTable::new(),
            lines: Slab::new(),
            bits: Vec::new(),
            words: stripe.0.div_ceil(params.page.0).div_ceil(64) as usize,
            waiting: Sweep::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Data that the cache holds, including data that is being destaged.
    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.used as u64 * self.page.0)
    }

    /// Whether an empty cache could hold so many pages.
    pub(crate) fn could_hold(&self, pages: usize) -> bool {
        pages <= self.capacity
    }

    /// Whether so many pages are free.
    pub(crate) fn has_room(&self, pages: usize) -> bool {
        self.used + pages <= self.capacity
    }

    /// Pages that a write of `piece` of a stripe adds: those that are not dirty already.
    pub(crate) fn needs(&self, piece: Piece) -> usize {
        let line = self.find(piece.unit);
        let words = masks(self.pages(piece)).map(|(word, mask)| {
            let held = line.map_or(0, |line| self.bits[self.dirty(line).start + word]);
            (mask & !held).count_ones() as usize
        });
        words.sum()
    }

    /// Adds the data of a write. The caller has checked for room.
    pub(crate) fn write(&mut self, piece: Piece) {
        self.used += self.needs(piece);
        let line = self.find(piece.unit).unwrap_or_else(|| self.begin(piece.unit));
        let dirty = self.dirty(line);
        self.waiting.insert(piece.unit);
        for (word, mask) in masks(self.pages(piece)) {
            self.bits[dirty.start + word] |= mask;
        }
    }

    /// Whether all of `piece` can be read from the cache.
    pub(crate) fn holds(&self, piece: Piece) -> bool {
        let Some(line) = self.find(piece.unit) else { return false };
        let (dirty, leaving) = (self.dirty(line).start, self.leaving(line).start);
        masks(self.pages(piece))
            .all(|(word, mask)| mask & !(self.bits[dirty + word] | self.bits[leaving + word]) == 0)
    }

    /// Next stripe to destage, if the water marks call for one. `pressed`: a write waits for room.
    pub(crate) fn next_destage(&mut self, pressed: bool) -> Option<LineId> {
        let used = self.used as f64;
        let pace = if pressed || !self.enabled || used >= self.high {
            1.0
        } else {
            (used - self.low) / (self.high - self.low)
        };
        if self.destaging as f64 >= pace * self.most_destages as f64 {
            return None;
        }
        // A stripe written to during its destage waits for the next round. At most as many stripes are
        // skipped as are being destaged.
        let WriteCache { waiting, index, lines, .. } = self;
        let stays = |stripe| find(index, lines, stripe).is_some_and(|line| !lines[line].destaging);
        let line = waiting.take(stays).and_then(|stripe| self.find(stripe))?;
        self.lines[line].destaging = true;
        self.destaging += 1;
        let (dirty, leaving) = (self.dirty(line), self.leaving(line));
        self.bits.copy_within(dirty.clone(), leaving.start);
        self.bits[dirty].fill(0);
        Some(LineId(line))
    }

    /// Stripe number of a line. Adds the page runs that are being destaged to `runs`, as ranges of the
    /// stripe.
    pub(crate) fn destage(&self, LineId(line): LineId, runs: &mut Vec<Range>) -> u64 {
        let words = &self.bits[self.leaving(line)];
        let is_set = |page: usize| words[page / 64] & (1 << (page % 64)) != 0;
        let mut page = 0;
        while page < words.len() * 64 {
            let first = page;
            while page < words.len() * 64 && is_set(page) {
                page += 1;
            }
            if page > first {
                let bytes = |pages: usize| Bytes(pages as u64 * self.page.0);
                runs.push(Range { start: bytes(first), len: bytes(page - first) });
            }
            page += 1;
        }
        self.lines[line].stripe
    }

    /// Frees a stripe's pages that have reached the drives.
    pub(crate) fn destaged(&mut self, LineId(line): LineId) {
        let leaving = self.leaving(line);
        let written: u32 = self.bits[leaving.clone()].iter().map(|word| word.count_ones()).sum();
        self.used -= written as usize;
        self.destaging -= 1;
        self.lines[line].destaging = false;
        self.bits[leaving].fill(0);
        if self.bits[self.dirty(line)].iter().all(|word| *word == 0) {
            let stripe = self.lines.remove(line).stripe;
            if let Ok(entry) = self.index.find_entry(hash(stripe), |found| *found == line) {
                entry.remove();
            }
        }
    }

    fn begin(&mut self, stripe: u64) -> usize {
        let line = self.lines.insert(Line { stripe, destaging: false });
        let needed = (line + 1) * 2 * self.words;
        if self.bits.len() < needed {
            self.bits.resize(needed, 0);
        }
        let lines = &self.lines;
        self.index.insert_unique(hash(stripe), line, |line| hash(lines[*line].stripe));
        line
    }

    fn find(&self, stripe: u64) -> Option<usize> {
        find(&self.index, &self.lines, stripe)
    }

    fn pages(&self, piece: Piece) -> ops::Range<usize> {
        let end = (piece.within.0 + piece.len.0).div_ceil(self.page.0);
        (piece.within.0 / self.page.0) as usize..end as usize
    }

    fn dirty(&self, line: usize) -> ops::Range<usize> {
        let start = 2 * line * self.words;
        start..start + self.words
    }

    fn leaving(&self, line: usize) -> ops::Range<usize> {
        let end = 2 * (line + 1) * self.words;
        end - self.words..end
    }
}

/// The line of a stripe.
fn find(index: &HashTable<usize>, lines: &Slab<Line>, stripe: u64) -> Option<usize> {
    index.find(hash(stripe), |line| lines[*line].stripe == stripe).copied()
}

/// Hash of a stripe number, the same in every run.
fn hash(stripe: u64) -> u64 {
    let spread = stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    spread ^ (spread >> 32)
}

/// The words of a bitmap that a range of bits touches, each with a mask of these bits.
fn masks(bits: ops::Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    (bits.start / 64..bits.end.div_ceil(64)).map(move |word| {
        let (from, to) = (bits.start.max(word * 64), bits.end.min(word * 64 + 64));
        (word, (u64::MAX >> (64 - (to - from))) << (from % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use proptest::prelude::*;

    const PAGE: u64 = 8_192;
    const STRIPE: u64 = 80 * PAGE;

    fn params(pages: u64) -> WriteCacheParams {
        WriteCacheParams {
            capacity: Bytes(pages * PAGE),
            page: Bytes(PAGE),
            low_water: 0.5,
            high_water: 0.75,
            destage: 0.5,
            mirror: Nanos::ZERO,
        }
    }

    fn cache(pages: u64) -> WriteCache {
        WriteCache::new(&params(pages), Bytes(STRIPE), 8)
    }

    fn piece(stripe: u64, page: u64, pages: u64) -> Piece {
        Piece { unit: stripe, within: Bytes(page * PAGE), len: Bytes(pages * PAGE) }
    }

    fn runs(cache: &WriteCache, line: LineId) -> (u64, Vec<(u64, u64)>) {
        let mut runs = Vec::new();
        let stripe = cache.destage(line, &mut runs);
        (stripe, runs.iter().map(|r| (r.start.0 / PAGE, r.len.0 / PAGE)).collect())
    }

    #[test]
    fn destages_in_the_order_of_places_at_a_pace_that_rises_between_the_marks() {
        let mut cache = cache(80);
        for stripe in 0..40 {
            cache.write(piece(stripe, 0, 1));
        }
        assert_eq!(cache.next_destage(false), None, "at the low mark");
        cache.write(piece(0, 60, 6));
        assert!(!cache.has_room(35) && cache.has_room(34));
        let first = cache.next_destage(false).unwrap();
        assert_eq!(runs(&cache, first), (0, vec![(0, 1), (60, 6)]));
        let second = cache.next_destage(false).unwrap();
        assert_eq!(runs(&cache, second), (1, vec![(0, 1)]), "onward");
        assert_eq!(cache.next_destage(false), None, "six pages of twenty: two stripes of four");
        assert!(cache.next_destage(true).is_some(), "a write waits");
        cache.destaged(first);
        assert!(cache.has_room(41) && !cache.has_room(42));
    }

    #[test]
    fn switched_off_it_empties_itself() {
        let mut cache = cache(80);
        cache.write(piece(7, 3, 2));
        assert_eq!(cache.next_destage(false), None);
        cache.enabled = false;
        let line = cache.next_destage(false).unwrap();
        assert!(cache.holds(piece(7, 3, 2)), "until the drives have it");
        cache.destaged(line);
        assert!(!cache.holds(piece(7, 3, 2)) && cache.has_room(80));
        assert_eq!(cache.next_destage(false), None);
    }

    #[test]
    fn a_stripe_rewritten_on_its_way_out_waits_for_its_next_turn() {
        let mut cache = cache(80);
        cache.write(piece(1, 0, 2));
        let line = cache.next_destage(true).unwrap();
        assert_eq!(cache.needs(piece(1, 0, 2)), 2);
        cache.write(piece(1, 0, 1));
        cache.write(piece(2, 0, 1));
        let other = cache.next_destage(true).unwrap();
        assert_eq!(runs(&cache, other).0, 2);
        assert_eq!(cache.next_destage(true), None);
        cache.destaged(line);
        let again = cache.next_destage(true).unwrap();
        assert_eq!(runs(&cache, again), (1, vec![(0, 1)]));
    }

    proptest! {
        /// Comparison with a plain set of pages: held pages, needed pages, and every page leaves.
        #[test]
        fn agrees_with_a_set_of_pages(
            writes in prop::collection::vec((0_u64..6, 0_u64..80, 1_u64..20), 1..80),
        ) {
            let mut cache = cache(480);
            let mut reference = BTreeSet::new();
            for (stripe, page, pages) in writes {
                let piece = piece(stripe, page, pages.min(80 - page));
                let new: Vec<_> = (page..page + piece.len.0 / PAGE)
                    .map(|page| (stripe, page))
                    .filter(|page| !reference.contains(page))
                    .collect();
                prop_assert_eq!(cache.needs(piece), new.len());
                prop_assert_eq!(cache.holds(piece), new.is_empty());
                cache.write(piece);
                reference.extend(new);
                prop_assert!(cache.has_room(480 - reference.len()));
                prop_assert!(!cache.has_room(481 - reference.len()));
            }
            let mut left = BTreeSet::new();
            while let Some(line) = cache.next_destage(true) {
                let (stripe, runs) = runs(&cache, line);
                left.extend(runs.iter().flat_map(|(start, len)| {
                    (*start..start + len).map(move |page| (stripe, page))
                }));
                cache.destaged(line);
            }
            prop_assert_eq!(left, reference);
            prop_assert_eq!((cache.used, cache.lines.len(), cache.index.len()), (0, 0, 0));
        }
    }
}
