//! What an IO is to the law: what it costs in slots, and what it says of the array's latency.

use crate::latency::Direction;
use crate::queue::Cost;
use crate::units::{Bytes, Span};

/// What an IO does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// A read of data.
    Read,
    /// Writes the data of a request; a write of zeroes without data is a `Discard`.
    Write,
    /// Trims a range or writes zeroes to it: work for the array by the length of the range, and no data. A
    /// discard of k slots ([`discard_slots`]) enters the latency mean as one write of 1/k of its device time.
    Discard,
    /// Anything else (flush, prefetch): takes a slot and its place in the queue, but its latency says
    /// nothing about the load.
    Other,
}

impl IoKind {
    /// Direction of the data; `None` if the IO moves none.
    #[must_use]
    pub fn direction(self) -> Option<Direction> {
        match self {
            IoKind::Read => Some(Direction::Read),
            IoKind::Write => Some(Direction::Write),
            IoKind::Discard | IoKind::Other => None,
        }
    }
}

/// An IO as the law sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Read, write, discard, or another operation.
    pub kind: IoKind,
    /// Length of the data.
    pub bytes: Bytes,
}

/// What an IO says of the array's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Data: the IO counts with its own length and device time.
    Data(Direction),
    /// A write of this length and latency, which the size model does not scale.
    Discard(Bytes, Span),
}

/// The least part of a slot that an IO of few bytes costs: an array does not do small IOs at will.
pub(crate) const LEAST: f64 = 0.125;

/// Bytes of a range that cost one slot to trim or to write zeroes to. Arrays with thin volumes keep a map of
/// extents of about this size, and change one entry for each extent. The array model (`crates/array`, `trim.rs`)
/// has its own constants: it imports nothing of the law.
const DISCARD_UNIT: u64 = 1 << 20;
/// The most slots that one trim or write-zeroes costs. Longer ranges are cheaper: maps are trees.
const DISCARD_MOST: u64 = 32;

/// How many slots a trim or write-zeroes of a range costs.
#[must_use]
pub fn discard_slots(range: Bytes) -> u64 {
    range.0.div_ceil(DISCARD_UNIT).clamp(1, DISCARD_MOST)
}

impl Io {
    /// What it costs, with slots of so many bytes, or of one IO.
    #[must_use]
    pub fn cost(self, slot_size: Option<Bytes>) -> Cost {
        match (self.kind, slot_size) {
            (IoKind::Discard, _) => Cost::slots(discard_slots(self.bytes) as f64),
            (IoKind::Read | IoKind::Write, Some(Bytes(slot))) => {
                Cost::slots((self.bytes.0 as f64 / slot as f64).max(LEAST))
            }
            _ => Cost::ONE,
        }
    }

    /// What the IO says of the array's latency, `device` being its device time. A discard counts with the bytes
    /// of the slots that it costs, so that bytes and slots agree; where slots are IOs, with the `usual` size.
    pub(crate) fn heard(self, device: Span, slot: Option<Bytes>, usual: Bytes) -> Option<Heard> {
        if self.kind == IoKind::Discard {
            let slots = discard_slots(self.bytes);
            let bytes = slot.map_or(usual, |Bytes(slot)| Bytes(slot.saturating_mul(slots)));
            return Some(Heard::Discard(bytes, Span(device.0 / slots)));
        }
        self.kind.direction().map(Heard::Data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Bytes = Bytes::kib(8);

    fn discard(bytes: u64) -> Io {
        Io { kind: IoKind::Discard, bytes: Bytes(bytes) }
    }

    #[test]
    fn a_discard_costs_a_slot_for_each_mib_and_32_at_most() {
        const MIB: u64 = 1 << 20;
        for (bytes, slots) in [
            (0, 1.0),
            (4096, 1.0),
            (MIB, 1.0),
            (MIB + 1, 2.0),
            (8 * MIB, 8.0),
            (32 * MIB, 32.0),
            (33 * MIB, 32.0),
            (u64::MAX, 32.0),
        ] {
            assert_eq!(discard(bytes).cost(None).as_slots(), slots, "{bytes}");
            assert_eq!(discard(bytes).cost(Some(SLOT)).as_slots(), slots, "{bytes}, of bytes");
        }
    }

    #[test]
    fn data_costs_by_its_length_where_slots_are_bytes_and_a_flush_one() {
        let io = |kind, kib| Io { kind, bytes: Bytes::kib(kib) };
        for kind in [IoKind::Read, IoKind::Write] {
            assert_eq!(io(kind, 64).cost(None).as_slots(), 1.0);
            assert_eq!(io(kind, 64).cost(Some(SLOT)).as_slots(), 8.0);
            assert_eq!(io(kind, 4).cost(Some(SLOT)).as_slots(), 0.5);
            assert_eq!(io(kind, 0).cost(Some(SLOT)).as_slots(), 0.125);
        }
        assert_eq!(io(IoKind::Other, 1 << 20).cost(Some(SLOT)).as_slots(), 1.0);
    }

    #[test]
    fn a_discard_is_heard_as_one_write_that_took_its_part_of_the_time() {
        let (device, usual) = (Span::from_millis(64), Bytes::kib(4));
        let heard = |io: Io, slot| io.heard(device, slot, usual);
        let of = |bytes, ms| Some(Heard::Discard(bytes, Span::from_millis(ms)));
        assert_eq!(heard(discard(8 << 20), None), of(usual, 8));
        assert_eq!(heard(discard(8 << 20), Some(SLOT)), of(Bytes::kib(64), 8));
        assert_eq!(heard(discard(1 << 40), None), of(usual, 2));
        let io = |kind| Io { kind, bytes: SLOT };
        assert_eq!(heard(io(IoKind::Read), None), Some(Heard::Data(Direction::Read)));
        assert_eq!(heard(io(IoKind::Other), None), None);
    }
}
