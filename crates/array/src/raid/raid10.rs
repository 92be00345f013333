//! Elements dealt out to mirrored pairs in turn: drives 0 and 1, 2 and 3, and so on.

use alloc::vec::Vec;

use super::Part;
use crate::io::IoKind;
use crate::layout::{Range, split};
use crate::units::Bytes;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid10 {
    pub(super) pairs: u32,
    pub(super) element: Bytes,
}

impl Raid10 {
    /// The mirrors of a pair serve reads of alternate stripes, so that each has half of them.
    pub(super) fn read(&self, range: Range, parts: &mut Vec<Part>) {
        parts.extend(self.places(range).map(|(pair, stripe, place)| Part {
            drive: 2 * pair + (stripe % 2) as u32,
            kind: IoKind::Read,
            ..place
        }));
    }

    pub(super) fn write(&self, range: Range, parts: &mut Vec<Part>) {
        for (pair, _, place) in self.places(range) {
            parts.extend([0, 1].map(|mirror| Part { drive: 2 * pair + mirror, ..place }));
        }
    }

    /// The pair, the stripe, and a write to the pair's first drive.
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
        raid.write(range, &mut parts);
        assert_eq!(place(&parts), [(2, 150, 50), (3, 150, 50), (0, 200, 50), (1, 200, 50)]);
        parts.clear();
        raid.read(range, &mut parts);
        assert_eq!(place(&parts), [(3, 150, 50), (0, 200, 50)]);
    }
}
