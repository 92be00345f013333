//! RAID-0: elements dealt out to the drives in turn.

use alloc::vec::Vec;

use super::Part;
use crate::io::IoKind;
use crate::layout::{Range, split};
use crate::units::Bytes;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid0 {
    pub(super) drives: u32,
    pub(super) element: Bytes,
}

impl Raid0 {
    pub(super) fn parts(&self, kind: IoKind, range: Range, parts: &mut Vec<Part>) {
        let drives = u64::from(self.drives);
        split(range, self.element).for_each(|piece| {
            parts.push(Part {
                drive: (piece.unit % drives) as u32,
                kind,
                offset: Bytes(piece.unit / drives * self.element.0 + piece.within.0),
                len: piece.len,
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deals_out_elements_in_turn() {
        let raid = Raid0 { drives: 3, element: Bytes(100) };
        let mut parts = Vec::new();
        raid.parts(IoKind::Write, Range { start: Bytes(250), len: Bytes(200) }, &mut parts);
        let places: Vec<_> = parts.iter().map(|p| (p.drive, p.offset.0, p.len.0)).collect();
        assert_eq!(places, [(2, 50, 50), (0, 100, 100), (1, 100, 50)]);
        assert!(parts.iter().all(|p| p.kind == IoKind::Write));
    }
}
