//! RAID-10: elements dealt out to mirrored pairs in turn: drives 0 and 1, 2 and 3, and so on.

use alloc::vec::Vec;

use super::{Missing, Part};
use crate::io::IoKind;
use crate::layout::{Range, split};
use crate::units::Bytes;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid10 {
    pub(super) pairs: u32,
    pub(super) element: Bytes,
}

impl Raid10 {
    /// Reads of a range. The mirrors of a pair serve alternate stripes, so that each has half of
    /// them.
    pub(super) fn read(&self, range: Range, missing: Option<Missing>, parts: &mut Vec<Part>) {
        parts.extend(self.places(range).map(|(pair, stripe, place)| {
            let drive = 2 * pair + (stripe % 2) as u32;
            let lost = missing.is_some_and(|missing| missing.covers(drive, stripe));
            Part { drive: drive ^ u32::from(lost), kind: IoKind::Read, ..place }
        }));
    }

    pub(super) fn write(&self, range: Range, missing: Option<Missing>, parts: &mut Vec<Part>) {
        for (pair, stripe, place) in self.places(range) {
            let drives = [2 * pair, 2 * pair + 1].into_iter();
            let there = drives.filter(|drive| !missing.is_some_and(|m| m.covers(*drive, stripe)));
            parts.extend(there.map(|drive| Part { drive, ..place }));
        }
    }

    /// Places of a range: the pair, the stripe, and a write to the pair's first drive.
    fn places(&self, range: Range) -> impl Iterator<Item = (u32, u64, Part)> {
        let (pairs, element) = (u64::from(self.pairs), self.element);
        split(range, element).map(move |piece| {
            let (pair, stripe) = ((piece.unit % pairs) as u32, piece.unit / pairs);
            let offset = Bytes(stripe * element.0 + piece.within.0);
            (pair, stripe, Part { drive: 2 * pair, kind: IoKind::Write, offset, len: piece.len })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_both_mirrors_and_reads_one() {
        let raid = Raid10 { pairs: 2, element: Bytes(100) };
        let range = Range { start: Bytes(350), len: Bytes(100) };
        let place = |parts: &[Part]| -> Vec<_> {
            parts.iter().map(|p| (p.drive, p.offset.0, p.len.0)).collect()
        };
        let mut parts = Vec::new();
        raid.write(range, None, &mut parts);
        assert_eq!(place(&parts), [(2, 150, 50), (3, 150, 50), (0, 200, 50), (1, 200, 50)]);
        parts.clear();
        raid.read(range, None, &mut parts);
        assert_eq!(place(&parts), [(3, 150, 50), (0, 200, 50)]);
    }

    #[test]
    fn a_missing_mirror_is_neither_read_nor_written_until_it_is_rebuilt() {
        let raid = Raid10 { pairs: 2, element: Bytes(100) };
        let drives = |from, write: bool| -> Vec<u32> {
            let (missing, mut parts) = (Some(Missing { drive: 3, from }), Vec::new());
            let range = Range { start: Bytes(350), len: Bytes(1) };
            if write {
                raid.write(range, missing, &mut parts);
            } else {
                raid.read(range, missing, &mut parts);
            }
            parts.iter().map(|part| part.drive).collect()
        };
        assert_eq!((drives(1, false), drives(1, true)), (alloc::vec![2], alloc::vec![2]));
        assert_eq!((drives(2, false), drives(2, true)), (alloc::vec![3], alloc::vec![2, 3]));
    }
}
