//! Placement of LUNs in the RAID group's address space.

use alloc::vec::Vec;

use crate::error::{ParamError, check};
use crate::io::{ArrayIo, SubmitError};
use crate::units::{Bytes, LunId};

/// The LUNs and their placement.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutParams {
    /// First byte of the first LUN; the space before it is unused.
    pub start: Bytes,
    /// Placement of the LUNs from there on.
    pub placement: Placement,
    /// The size of each LUN, in order.
    pub luns: Vec<Bytes>,
}

/// Order of LUNs in the group's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Placement {
    /// One after another, each in one piece: the arms favour the LUNs in the middle (PARDA §4).
    Contiguous {
        /// Unused space between two LUNs.
        gap: Bytes,
    },
    /// Extents dealt out round robin, as for thin-provisioned LUNs that fill up together. All LUNs
    /// have the same seek distances.
    Interleaved {
        /// Size of an extent; from 1 MiB, with at most 2²⁴ extents in all.
        extent: Bytes,
    },
}

/// Smaller extents would cut ordinary IOs in two.
const SMALLEST_EXTENT: Bytes = Bytes::mib(1);

/// Limit on the allocation of the model: the map holds every extent's place.
const MOST_EXTENTS: u64 = 1 << 24;

impl LayoutParams {
    pub(crate) fn validate(&self, group: Bytes) -> Result<(), ParamError> {
        check(!self.luns.is_empty(), "layout.luns", "[]", "name at least one LUN's size")?;
        let fits = "leave room for all LUNs on the RAID group";
        for &size in &self.luns {
            check(size > Bytes(0), "layout.luns", size, "be above 0B")?;
            check(size <= group, "layout.luns", size, fits)?;
        }
        check(self.start < group, "layout.start", self.start, fits)?;
        match self.placement {
            Placement::Contiguous { gap } => {
                check(gap <= group, "layout.placement.contiguous.gap", gap, fits)?;
            }
            Placement::Interleaved { extent } => {
                let name = "layout.placement.interleaved.extent";
                check(extent >= SMALLEST_EXTENT, name, extent, "be at least 1MiB")?;
                check(extent <= group, name, extent, fits)?;
                let extents: u64 = self.luns.iter().map(|l| l.0.div_ceil(extent.0)).sum();
                check(extents <= MOST_EXTENTS, name, extent, "make at most 16777216 extents")?;
            }
        }
        let used = self.used();
        check(used <= u128::from(group.0), "layout.luns", format_args!("{used}B in all"), fits)
    }

    /// End of the last LUN. The parameters are valid.
    pub(crate) fn end(&self) -> Bytes {
        Bytes(self.used() as u64)
    }

    /// Bytes from the start of the group to the end of the last LUN. A `u128` holds the sum of any
    /// list of sizes.
    fn used(&self) -> u128 {
        let sizes = self.luns.iter().map(|l| u128::from(l.0));
        let occupied: u128 = match self.placement {
            Placement::Contiguous { gap } => {
                sizes.sum::<u128>() + u128::from(gap.0) * (self.luns.len() as u128 - 1)
            }
            Placement::Interleaved { extent } => {
                let extent = u128::from(extent.0);
                sizes.map(|size| size.div_ceil(extent) * extent).sum()
            }
        };
        u128::from(self.start.0) + occupied
    }
}

/// A range of the group's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: Bytes,
    pub(crate) len: Bytes,
}

/// The map from LUNs to the group.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    luns: Vec<Lun>,
}

#[derive(Clone, Debug)]
struct Lun {
    size: Bytes,
    extent: Bytes,
    /// First byte of each extent.
    extents: Vec<Bytes>,
}

impl Layout {
    /// Makes the map. `params` are valid.
    pub(crate) fn new(params: &LayoutParams) -> Layout {
        let mut next = params.start;
        let mut take = |size: Bytes| {
            let start = next;
            next = Bytes(next.0 + size.0);
            start
        };
        let luns = match params.placement {
            Placement::Contiguous { gap } => params
                .luns
                .iter()
                .map(|&size| Lun {
                    size,
                    extent: size,
                    extents: [take(Bytes(size.0 + gap.0))].into(),
                })
                .collect(),
            Placement::Interleaved { extent } => {
                let empty = |&size: &Bytes| Lun { size, extent, extents: Vec::new() };
                let mut luns: Vec<Lun> = params.luns.iter().map(empty).collect();
                let rounds = luns.iter().map(Lun::extents_needed).max().unwrap_or(0);
                for round in 0..rounds {
                    for lun in luns.iter_mut().filter(|lun| round < lun.extents_needed()) {
                        lun.extents.push(take(extent));
                    }
                }
                luns
            }
        };
        Layout { luns }
    }

    pub(crate) fn size(&self, lun: LunId) -> Bytes {
        self.luns[lun.0 as usize].size
    }

    /// Refuses an IO outside the LUNs.
    pub(crate) fn check(&self, io: &ArrayIo) -> Result<(), SubmitError> {
        let ArrayIo { lun, offset, len, .. } = *io;
        let size = self
            .luns
            .get(lun.0 as usize)
            .ok_or(SubmitError::UnknownLun { lun, luns: self.luns.len() })?
            .size;
        if len == Bytes(0) {
            return Err(SubmitError::Empty);
        }
        match offset.0.checked_add(len.0) {
            Some(end) if end <= size.0 => Ok(()),
            _ => Err(SubmitError::OutOfRange { lun, offset, len, size }),
        }
    }

    /// Ranges of the group that a checked IO covers, in order.
    pub(crate) fn pieces(&self, io: &ArrayIo) -> impl Iterator<Item = Range> + use<'_> {
        let lun = &self.luns[io.lun.0 as usize];
        split(Range { start: io.offset, len: io.len }, lun.extent).map(|piece| Range {
            start: Bytes(lun.extents[piece.unit as usize].0 + piece.within.0),
            len: piece.len,
        })
    }
}

impl Lun {
    fn extents_needed(&self) -> u64 {
        self.size.0.div_ceil(self.extent.0)
    }
}

/// A part of a range that lies within one unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Number of the unit.
    pub(crate) unit: u64,
    /// Offset within the unit.
    pub(crate) within: Bytes,
    pub(crate) len: Bytes,
}

/// Splits a range at the borders of units of one size.
pub(crate) fn split(range: Range, unit: Bytes) -> impl Iterator<Item = Piece> {
    let end = range.start.0 + range.len.0;
    let mut next = range.start.0;
    core::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let within = next % unit.0;
        let len = (unit.0 - within).min(end - next);
        let piece = Piece { unit: next / unit.0, within: Bytes(within), len: Bytes(len) };
        next += len;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::IoKind;
    use alloc::vec;
    use proptest::prelude::*;

    fn pieces(params: &LayoutParams, lun: u32, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let io =
            ArrayIo { lun: LunId(lun), kind: IoKind::Read, offset: Bytes(offset), len: Bytes(len) };
        let layout = Layout::new(params);
        layout.check(&io).unwrap();
        layout.pieces(&io).map(|r| (r.start.0, r.len.0)).collect()
    }

    #[test]
    fn contiguous_luns_follow_one_another() {
        let params = LayoutParams {
            start: Bytes(1_000),
            placement: Placement::Contiguous { gap: Bytes(50) },
            luns: vec![Bytes(200), Bytes(300)],
        };
        assert_eq!(pieces(&params, 0, 0, 200), [(1_000, 200)]);
        assert_eq!(pieces(&params, 1, 299, 1), [(1_549, 1)]);
        assert_eq!(params.used(), 1_550);
    }

    #[test]
    fn interleaved_luns_take_turns_until_they_are_full() {
        const M: u64 = 1 << 20;
        let params = LayoutParams {
            start: Bytes(0),
            placement: Placement::Interleaved { extent: Bytes::mib(1) },
            luns: vec![Bytes::mib(3), Bytes(M + 1), Bytes::mib(2)],
        };
        assert_eq!(pieces(&params, 0, 0, 3 * M), [(0, M), (3 * M, M), (6 * M, M)]);
        assert_eq!(pieces(&params, 1, M, 1), [(4 * M, 1)]);
        assert_eq!(pieces(&params, 2, M - 1, 2), [(3 * M - 1, 1), (5 * M, 1)]);
        assert_eq!(params.used(), u128::from(7 * M));
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let layout = Layout::new(&LayoutParams {
            start: Bytes(0),
            placement: Placement::Contiguous { gap: Bytes(0) },
            luns: vec![Bytes(100)],
        });
        let check = |lun, offset, len| {
            let (lun, offset, len) = (LunId(lun), Bytes(offset), Bytes(len));
            layout.check(&ArrayIo { lun, kind: IoKind::Write, offset, len })
        };
        assert_eq!(check(0, 90, 10), Ok(()));
        assert_eq!(check(0, 0, 0), Err(SubmitError::Empty));
        assert_eq!(check(1, 0, 1), Err(SubmitError::UnknownLun { lun: LunId(1), luns: 1 }));
        for (offset, len) in [(90, 11), (100, 1), (u64::MAX, u64::MAX)] {
            let error = check(0, offset, len).unwrap_err();
            assert!(matches!(error, SubmitError::OutOfRange { .. }), "{error}");
        }
    }

    proptest! {
        /// No byte of the group belongs to two LUNs, none lies outside.
        #[test]
        fn luns_never_overlap(
            sizes in prop::collection::vec(1_u64..20, 1..6),
            extent in prop::option::of(1_u64..4),
            start in 0_u64..10,
        ) {
            let placement = match extent {
                Some(extent) => Placement::Interleaved { extent: Bytes::mib(extent) },
                None => Placement::Contiguous { gap: Bytes::mib(start) },
            };
            let params = LayoutParams {
                start: Bytes::mib(start),
                placement,
                luns: sizes.iter().map(|&s| Bytes(Bytes::mib(s).0 - s)).collect(),
            };
            let mut all: Vec<(u64, u64)> = (0..sizes.len())
                .flat_map(|i| pieces(&params, i as u32, 0, params.luns[i].0))
                .collect();
            all.sort_unstable();
            prop_assert!(all[0].0 >= params.start.0);
            prop_assert!(all.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
            prop_assert!(all.last().is_some_and(|l| u128::from(l.0 + l.1) <= params.used()));
            let (mapped, asked) = (all.iter().map(|p| p.1), params.luns.iter().map(|l| l.0));
            prop_assert_eq!(mapped.sum::<u64>(), asked.sum::<u64>());
        }
    }
}
