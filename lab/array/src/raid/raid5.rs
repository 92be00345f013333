//! Left-symmetric RAID-5 (Chen et al., *RAID: High-performance, reliable secondary storage*, 1994,
//! §4.1). Parity moves one drive to the left with each stripe, and data begins right after it.
//!
//! A write of part of a stripe first reads what the new parity depends on. Read-modify-write reads
//! the old data and the old parity: four drive requests for a small write. Reconstruct-write reads
//! all data that the write leaves. The writer takes the one with fewer requests. A write of a whole
//! stripe needs no reads.

use alloc::vec::Vec;
use core::ops;

use super::{Missing, Part};
use crate::io::IoKind;
use crate::layout::{Range, split};
use crate::units::Bytes;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid5 {
    pub(super) drives: u32,
    pub(super) element: Bytes,
}

impl Raid5 {
    pub(super) fn read(&self, range: Range, missing: Option<Missing>, parts: &mut Vec<Part>) {
        for piece in split(range, self.stripe()) {
            let run = Range { start: piece.within, len: piece.len };
            for part in self.data(piece.unit, run, IoKind::Read) {
                if missing.is_some_and(|m| m.covers(part.drive, piece.unit)) {
                    let others = (0..self.drives).filter(|drive| *drive != part.drive);
                    parts.extend(others.map(|drive| Part { drive, ..part }));
                } else {
                    parts.push(part);
                }
            }
        }
    }

    pub(super) fn read_before_write(
        &self,
        stripe: u64,
        runs: &[Range],
        missing: Option<Missing>,
        parts: &mut Vec<Part>,
    ) {
        let lost = missing
            .map(|m| m.drive)
            .filter(|drive| missing.is_some_and(|m| m.covers(*drive, stripe)));
        if lost == Some(self.parity_drive(stripe)) {
            return;
        }
        let within = self.within_element(runs);
        let unwritten = |element: &u64| !self.is_written(*element, &within, runs);
        let elements = 0..u64::from(self.drives - 1);
        let others = elements.filter(unwritten).map(|e| self.drive(stripe, e));
        let old = || runs.iter().flat_map(|run| self.data(stripe, *run, IoKind::Read));
        let read = |drive| self.part(stripe, drive, &within, IoKind::Read);
        let parity = read(self.parity_drive(stripe));
        let writes_to_lost = lost.is_some_and(|lost| old().any(|part| part.drive == lost));
        if writes_to_lost {
            // Parity is the only place for the new data, so it is computed anew. The lost drive's
            // data beside the written range follows only from the old parity.
            let before = parts.len();
            parts.extend(others.map(read));
            let all = parts.len();
            parts.retain(|part| Some(part.drive) != lost);
            if parts.len() < all {
                let written = (0..self.drives).map(read).filter(|part| Some(part.drive) != lost);
                parts.truncate(before);
                parts.extend(written);
            }
        } else if lost.is_none() && others.clone().count() <= old().count() {
            parts.extend(others.map(read));
        } else {
            parts.extend(old());
            parts.push(parity);
        }
    }

    pub(super) fn write(
        &self,
        stripe: u64,
        runs: &[Range],
        missing: Option<Missing>,
        parts: &mut Vec<Part>,
    ) {
        let within = self.within_element(runs);
        let data = runs.iter().flat_map(|run| self.data(stripe, *run, IoKind::Write));
        let parity = self.part(stripe, self.parity_drive(stripe), &within, IoKind::Write);
        let all = data.chain([parity]);
        parts.extend(all.filter(|part| !missing.is_some_and(|m| m.covers(part.drive, stripe))));
    }

    /// Data of one stripe.
    pub(super) fn stripe(&self) -> Bytes {
        Bytes(self.element.0 * u64::from(self.drives - 1))
    }

    /// Drive with the parity of a stripe.
    fn parity_drive(&self, stripe: u64) -> u32 {
        self.drives - 1 - (stripe % u64::from(self.drives)) as u32
    }

    /// Drive with an element of a stripe.
    fn drive(&self, stripe: u64, element: u64) -> u32 {
        (self.parity_drive(stripe) + 1 + element as u32) % self.drives
    }

    fn data(&self, stripe: u64, run: Range, kind: IoKind) -> impl Iterator<Item = Part> {
        let raid = *self;
        split(run, self.element).map(move |piece| Part {
            drive: raid.drive(stripe, piece.unit),
            kind,
            offset: Bytes(stripe * raid.element.0 + piece.within.0),
            len: piece.len,
        })
    }

    fn part(&self, stripe: u64, drive: u32, within: &ops::Range<u64>, kind: IoKind) -> Part {
        Part {
            drive,
            kind,
            offset: Bytes(stripe * self.element.0 + within.start),
            len: Bytes(within.end - within.start),
        }
    }

    /// Part of an element, and so of the parity, from the first to the last byte that runs write of
    /// any element.
    fn within_element(&self, runs: &[Range]) -> ops::Range<u64> {
        let pieces = runs.iter().flat_map(|run| split(*run, self.element));
        pieces.fold(self.element.0..0, |hull, piece| {
            let start = piece.within.0;
            hull.start.min(start)..hull.end.max(start + piece.len.0)
        })
    }

    /// Whether `runs` write all of this part of an element.
    fn is_written(&self, element: u64, within: &ops::Range<u64>, runs: &[Range]) -> bool {
        let start = element * self.element.0;
        let last = runs.partition_point(|run| run.start.0 <= start + within.start);
        let run = last.checked_sub(1).map(|i| runs[i]);
        run.is_some_and(|run| run.start.0 + run.len.0 >= start + within.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    const E: u64 = 1_024;

    fn collect(fill: impl FnOnce(&mut Vec<Part>)) -> Vec<Part> {
        let mut parts = Vec::new();
        fill(&mut parts);
        parts
    }

    /// Drive requests of a write of a range: reads first, then writes.
    fn write(raid: &Raid5, range: Range, missing: Option<Missing>) -> (Vec<Part>, Vec<Part>) {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for piece in split(range, raid.stripe()) {
            let run = [Range { start: piece.within, len: piece.len }];
            raid.read_before_write(piece.unit, &run, missing, &mut old);
            raid.write(piece.unit, &run, missing, &mut new);
        }
        (old, new)
    }

    fn range(start: u64, len: u64) -> Range {
        Range { start: Bytes(start), len: Bytes(len) }
    }

    /// Table of the paper: five drives, parity from the right to the left, data after it.
    #[test]
    fn is_left_symmetric() {
        let raid = Raid5 { drives: 5, element: Bytes(E) };
        let drive_of = |block: u64| collect(|p| raid.read(range(block * E, E), None, p))[0].drive;
        let drives: Vec<u32> = (0..20).map(drive_of).collect();
        assert_eq!(drives, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        let parity: Vec<u32> = (0..6).map(|stripe| raid.parity_drive(stripe)).collect();
        assert_eq!(parity, [4, 3, 2, 1, 0, 4]);
    }

    #[test]
    fn a_small_write_is_four_requests_on_two_drives() {
        let raid = Raid5 { drives: 5, element: Bytes(E) };
        let small = range(4 * E + 100, 50);
        let (old, new) = write(&raid, small, None);
        let places = |parts: &[Part]| -> Vec<_> {
            parts.iter().map(|p| (p.drive, p.offset.0, p.len.0)).collect()
        };
        assert_eq!(places(&old), [(4, E + 100, 50), (3, E + 100, 50)]);
        assert_eq!(places(&new), places(&old));
        assert!(old.iter().all(|p| p.kind == IoKind::Read));
        assert!(new.iter().all(|p| p.kind == IoKind::Write));
    }

    #[test]
    fn a_whole_stripe_is_written_without_reading() {
        let raid = Raid5 { drives: 5, element: Bytes(E) };
        let whole = range(8 * E, 4 * E);
        let (old, new) = write(&raid, whole, None);
        assert!(old.is_empty());
        assert_eq!(new.iter().map(|p| p.drive).collect::<BTreeSet<u32>>().len(), 5);
        let (old, new) = write(&raid, range(8 * E, 4 * E + 1), None);
        assert_eq!((old.len(), new.len()), (2, 7));
    }

    #[test]
    fn most_of_a_stripe_is_written_after_reading_the_rest() {
        let raid = Raid5 { drives: 5, element: Bytes(E) };
        let (old, new) = write(&raid, range(8 * E, 3 * E), None);
        assert_eq!((old.len(), new.len()), (1, 4));
        assert_eq!(old[0].drive, raid.drive(2, 3));
        // Two runs of one stripe share the parity.
        let runs = [range(0, 100), range(E, 100)];
        assert_eq!(collect(|p| raid.read_before_write(0, &runs, None, p)).len(), 2);
        assert_eq!(collect(|p| raid.write(0, &runs, None, p)).len(), 3);
    }

    /// Five drives. A read of a lost element reads the four others; a write to it changes parity
    /// only. Lost parity is not maintained; rebuilt stripes behave as without a loss.
    #[test]
    fn one_drive_may_be_missing() {
        let raid = Raid5 { drives: 5, element: Bytes(E) };
        let count = |lost: u32, from: u64, len: u64| {
            let missing = Some(Missing { drive: lost, from });
            let read = collect(|p| raid.read(range(0, len), missing, p)).len();
            let (old, new) = write(&raid, range(0, len), missing);
            let touched = old.iter().chain(&new).any(|part| part.drive == lost);
            assert!(!touched || from > 0);
            (read, old.len(), new.len())
        };
        assert_eq!(count(0, 0, 100), (4, 3, 1), "the data");
        assert_eq!(count(1, 0, 100), (1, 2, 2), "a neighbour");
        assert_eq!(count(4, 0, 100), (1, 0, 1), "the parity");
        assert_eq!(count(0, 1, 100), (1, 2, 2), "rebuilt");
        assert_eq!(count(0, 0, E + 100), (5, 3, 2), "all of it is written");
        assert_eq!(count(1, 0, E + 100), (5, 4, 2), "only some of it is");
    }

    proptest! {
        /// Data and parity of whole turns of the parity fill every element of every drive once.
        #[test]
        fn every_block_has_one_place(drives in 3_u32..12, turns in 1_u64..4) {
            let raid = Raid5 { drives, element: Bytes(E) };
            let stripes = turns * u64::from(drives);
            let mut places = BTreeSet::new();
            for block in 0..stripes * u64::from(drives - 1) {
                let parts = collect(|p| raid.read(range(block * E, E), None, p));
                prop_assert_eq!(parts.len(), 1);
                prop_assert!(places.insert((parts[0].drive, parts[0].offset.0)));
            }
            for stripe in 0..stripes {
                let start = stripe * raid.stripe().0;
                let parity = write(&raid, range(start, 1), None).1[1];
                prop_assert!(places.insert((parity.drive, parity.offset.0 / E * E)));
            }
            prop_assert_eq!(places.len() as u64, stripes * u64::from(drives));
            prop_assert!(places.iter().all(|p| p.0 < drives && p.1 < stripes * E));
        }

        /// Any range reads exactly its length, with no place of a drive read twice. Its writes add
        /// only parity.
        #[test]
        fn ranges_are_covered(drives in 3_u32..12, start in 0_u64..50_000, len in 1_u64..50_000) {
            let raid = Raid5 { drives, element: Bytes(E) };
            let sum = |parts: &[Part]| parts.iter().map(|p| p.len.0).sum::<u64>();
            let read = collect(|p| raid.read(range(start, len), None, p));
            prop_assert_eq!(sum(&read), len);
            let mut sorted: Vec<_> = read.iter().map(|p| (p.drive, p.offset.0, p.len.0)).collect();
            sorted.sort_unstable();
            let apart = |w: &[(u32, u64, u64)]| w[0].0 != w[1].0 || w[0].1 + w[0].2 <= w[1].1;
            prop_assert!(sorted.windows(2).all(apart));
            let stripes = split(range(start, len), raid.stripe()).count() as u64;
            let written = write(&raid, range(start, len), None).1;
            prop_assert!(sum(&written) > len && sum(&written) <= len + stripes * E);
            prop_assert_eq!(written.len() as u64, read.len() as u64 + stripes);
        }
    }
}
