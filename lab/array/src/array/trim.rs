//! Cost of a trim at the drives.
//!
//! Thin LUNs keep a map of their extents. A trim moves no data; it changes the map, which lies on the drives beside the
//! data. Each extent of 1 MiB costs one small write. Long trims change the map higher up in its tree, so there are never
//! more than 32 writes.

use crate::io::{ArrayIo, IoKind};
use crate::units::Bytes;

/// Bytes that one entry of the map stands for. The law has its own constants (`crates/control`, `io.rs`).
const EXTENT: u64 = 1 << 20;
/// The most entries that one trim changes.
const MOST: u64 = 32;
/// Bytes written to the map for one entry.
const ENTRY: u64 = 4096;

/// Writes to the drives for an IO that is no read. For a write the IO itself; for a trim its entries, spread evenly over
/// its length.
pub(super) fn writes(io: ArrayIo) -> impl Iterator<Item = ArrayIo> {
    let (count, len) = match io.kind {
        IoKind::Trim => (io.len.0.div_ceil(EXTENT).clamp(1, MOST), io.len.0.min(ENTRY)),
        IoKind::Read | IoKind::Write => (1, io.len.0),
    };
    let step = io.len.0 / count / ENTRY * ENTRY;
    (0..count).map(move |i| {
        let offset = io.offset.0 + i * step;
        let within = if io.kind == IoKind::Trim { scattered(offset, step) } else { 0 };
        ArrayIo { offset: Bytes(offset + within), len: Bytes(len), ..io }
    })
}

/// Offset of an entry in its part of the range, by a hash. Without it, all entries would lie on a few drives.
fn scattered(offset: u64, step: u64) -> u64 {
    let hash = (offset / ENTRY).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash % (step / ENTRY).max(1) * ENTRY
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::units::LunId;

    fn of(kind: IoKind, len: u64) -> Vec<(u64, u64)> {
        let io = ArrayIo { lun: LunId(0), kind, offset: Bytes(512), len: Bytes(len) };
        writes(io).map(|io| (io.offset.0, io.len.0)).collect()
    }

    #[test]
    fn a_trim_changes_an_entry_for_each_mib_within_its_range() {
        assert_eq!(of(IoKind::Trim, 512), [(512, 512)]);
        assert_eq!(of(IoKind::Trim, 1 << 20).len(), 1);
        assert_eq!(of(IoKind::Trim, 3 << 20).len(), 3);
        for len in [1 << 25, (1 << 25) + 512, 1 << 40] {
            let entries = of(IoKind::Trim, len);
            assert_eq!(entries.len(), 32);
            assert!(entries.iter().all(|(at, entry)| at + entry <= 512 + len));
            assert!(entries.windows(2).all(|two| two[0].0 < two[1].0));
        }
    }

    #[test]
    fn entries_of_the_map_lie_on_all_drives() {
        let io = |i: u64| ArrayIo {
            lun: LunId(0),
            kind: IoKind::Trim,
            offset: Bytes(i << 20),
            len: Bytes(1 << 20),
        };
        let mut drives = [0; 10];
        for i in 0..1000 {
            writes(io(i)).for_each(|io| drives[(io.offset.0 >> 16) as usize % 10] += 1);
        }
        assert!(drives.iter().all(|n| (60..140).contains(n)), "{drives:?}");
    }

    #[test]
    fn a_write_is_itself() {
        assert_eq!(of(IoKind::Write, 1 << 30), [(512, 1 << 30)]);
    }
}
