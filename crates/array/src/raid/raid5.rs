//! Left-symmetric RAID-5 (Chen et al., *RAID: High-performance, reliable secondary storage*, 1994,
//! §4.1): parity moves one drive to the left with each stripe, and data begins right after it.
//!
//! A write of a whole stripe writes all its drives. Any other reads the old data and the old parity
//! first and then writes both: four drive requests for a small write.

use alloc::vec::Vec;

use super::Part;
use crate::io::IoKind;
use crate::layout::{Piece, Range, split};
use crate::units::Bytes;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid5 {
    pub(super) drives: u32,
    pub(super) element: Bytes,
}

impl Raid5 {
    pub(super) fn read(&self, range: Range, parts: &mut Vec<Part>) {
        for stripe in self.stripes(range) {
            self.data(stripe, IoKind::Read, parts);
        }
    }

    pub(super) fn read_before_write(&self, range: Range, parts: &mut Vec<Part>) {
        for stripe in self.stripes(range).filter(|stripe| stripe.len != self.stripe()) {
            self.data(stripe, IoKind::Read, parts);
            parts.push(self.parity(stripe, IoKind::Read));
        }
    }

    pub(super) fn write(&self, range: Range, parts: &mut Vec<Part>) {
        for stripe in self.stripes(range) {
            self.data(stripe, IoKind::Write, parts);
            parts.push(self.parity(stripe, IoKind::Write));
        }
    }

    /// The data of one stripe.
    fn stripe(&self) -> Bytes {
        Bytes(self.element.0 * u64::from(self.drives - 1))
    }

    fn stripes(&self, range: Range) -> impl Iterator<Item = Piece> {
        split(range, self.stripe())
    }

    /// The drive with the parity of a stripe.
    fn parity_drive(&self, stripe: u64) -> u32 {
        self.drives - 1 - (stripe % u64::from(self.drives)) as u32
    }

    fn data(&self, piece: Piece, kind: IoKind, parts: &mut Vec<Part>) {
        let first = self.parity_drive(piece.unit) + 1;
        let within = Range { start: piece.within, len: piece.len };
        parts.extend(split(within, self.element).map(|element| Part {
            drive: (first + element.unit as u32) % self.drives,
            kind,
            offset: Bytes(piece.unit * self.element.0 + element.within.0),
            len: element.len,
        }));
    }

    /// The parity of the bytes of a stripe that `piece` covers: the same range of the element as
    /// the data while that lies in one element, all of the element when it lies in several.
    fn parity(&self, piece: Piece, kind: IoKind) -> Part {
        let within = piece.within.0 % self.element.0;
        let (within, len) = if within + piece.len.0 <= self.element.0 {
            (within, piece.len)
        } else {
            (0, self.element)
        };
        Part {
            drive: self.parity_drive(piece.unit),
            kind,
            offset: Bytes(piece.unit * self.element.0 + within),
            len,
        }
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

    fn range(start: u64, len: u64) -> Range {
        Range { start: Bytes(start), len: Bytes(len) }
    }

    /// The table of the paper: five drives, parity from the right to the left, data after it.
    #[test]
    fn is_left_symmetric() {
        let raid = Raid5 { drives: 5, element: Bytes(E) };
        let drive_of = |block: u64| collect(|p| raid.read(range(block * E, E), p))[0].drive;
        let drives: Vec<u32> = (0..20).map(drive_of).collect();
        assert_eq!(drives, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        let parity: Vec<u32> = (0..6).map(|stripe| raid.parity_drive(stripe)).collect();
        assert_eq!(parity, [4, 3, 2, 1, 0, 4]);
    }

    #[test]
    fn a_small_write_is_four_requests_on_two_drives() {
        let raid = Raid5 { drives: 5, element: Bytes(E) };
        let small = range(4 * E + 100, 50);
        let old = collect(|p| raid.read_before_write(small, p));
        let new = collect(|p| raid.write(small, p));
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
        assert!(collect(|p| raid.read_before_write(whole, p)).is_empty());
        let drives: BTreeSet<u32> =
            collect(|p| raid.write(whole, p)).iter().map(|p| p.drive).collect();
        assert_eq!(drives.len(), 5);
        let with_tail = range(8 * E, 4 * E + 1);
        assert_eq!(collect(|p| raid.read_before_write(with_tail, p)).len(), 2);
        assert_eq!(collect(|p| raid.write(with_tail, p)).len(), 7);
    }

    proptest! {
        /// Data and parity of whole turns of the parity fill every element of every drive once.
        #[test]
        fn every_block_has_one_place(drives in 3_u32..12, turns in 1_u64..4) {
            let raid = Raid5 { drives, element: Bytes(E) };
            let stripes = turns * u64::from(drives);
            let mut places = BTreeSet::new();
            for block in 0..stripes * u64::from(drives - 1) {
                let parts = collect(|p| raid.read(range(block * E, E), p));
                prop_assert_eq!(parts.len(), 1);
                prop_assert!(places.insert((parts[0].drive, parts[0].offset.0)));
            }
            for stripe in 0..stripes {
                let start = stripe * raid.stripe().0;
                let parity = collect(|p| raid.write(range(start, 1), p))[1];
                prop_assert!(places.insert((parity.drive, parity.offset.0 / E * E)));
            }
            prop_assert_eq!(places.len() as u64, stripes * u64::from(drives));
            prop_assert!(places.iter().all(|p| p.0 < drives && p.1 < stripes * E));
        }

        /// However it is cut, what is read is as long as what was asked for, on no drive twice at
        /// the same place, and what is written is that plus parity.
        #[test]
        fn ranges_are_covered(drives in 3_u32..12, start in 0_u64..50_000, len in 1_u64..50_000) {
            let raid = Raid5 { drives, element: Bytes(E) };
            let sum = |parts: &[Part]| parts.iter().map(|p| p.len.0).sum::<u64>();
            let read = collect(|p| raid.read(range(start, len), p));
            prop_assert_eq!(sum(&read), len);
            let mut sorted: Vec<_> = read.iter().map(|p| (p.drive, p.offset.0, p.len.0)).collect();
            sorted.sort_unstable();
            let apart = |w: &[(u32, u64, u64)]| w[0].0 != w[1].0 || w[0].1 + w[0].2 <= w[1].1;
            prop_assert!(sorted.windows(2).all(apart));
            let stripes = raid.stripes(range(start, len)).count() as u64;
            let written = collect(|p| raid.write(range(start, len), p));
            prop_assert!(sum(&written) > len && sum(&written) <= len + stripes * E);
            prop_assert_eq!(written.len() as u64, read.len() as u64 + stripes);
        }
    }
}
