//! IOs in the law: their cost in slots, and their evidence of the array's latency.

use crate::latency::{Direction, Flows};
use crate::queue::Cost;
use crate::units::{Bytes, Span};

/// Operation of an IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// A read of data.
    Read,
    /// Writes the data of a request; a write of zeroes without data is a `Discard`.
    Write,
    /// Trims a range or writes zeroes to it: work for the array in proportion to the range, without data. A discard of k
    /// slots ([`discard_slots`]) enters the latency mean as one write of 1/k of its device time.
    Discard,
    /// Anything else (flush, prefetch): takes a slot and its place in the queue. Its latency is no evidence of load.
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

/// Contribution of an IO to the array's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Data: the IO counts with its own length and device time.
    Data(Direction),
    /// A write of this length and latency, which the size model does not scale.
    Discard(Bytes, Span),
}

/// Least cost of an IO, in slots: small IOs are not free for an array.
pub(crate) const LEAST: f64 = 0.125;

/// Bytes of a read that costs one slot, as in FAST '09.
const SLOT: f64 = 8192.0;

const MIB: f64 = 1048576.0;

/// Bytes of a range that cost one slot to trim or to write zeroes to. Arrays with thin volumes keep a map of
/// extents of about this size, and change one entry for each extent. The array model (`lab/array`, `trim.rs`)
/// has its own constants: it does not import the law.
const DISCARD_UNIT: u64 = 1 << 20;
/// The most slots that one trim or write-zeroes costs. Longer ranges are cheaper: maps are trees.
const DISCARD_MOST: u64 = 32;

/// Charge for IOs of one direction, by their time at the array: per IO and per MiB. In any unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Charge {
    /// For each IO, whatever its length.
    pub io: u32,
    /// For each MiB of data.
    pub mib: u32,
}

impl Charge {
    fn of(self, (ios, bytes): (f64, f64)) -> f64 {
        ios * f64::from(self.io) + bytes / MIB * f64::from(self.mib)
    }
}

/// Costs of IOs. One slot is the cost of a read of 8 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Costs {
    /// Charge for reads, in any unit.
    pub reads: Charge,
    /// Charge for writes, in the same unit.
    pub writes: Charge,
}

impl Costs {
    /// Each IO costs one slot, so that shares divide IO/s.
    pub const IOPS: Costs = Costs::alike(Charge { io: 1, mib: 0 });
    /// An IO costs its bytes, so that shares divide bytes/s.
    pub const BYTES: Costs = Costs::alike(Charge { io: 0, mib: 1 });

    const fn alike(charge: Charge) -> Costs {
        Costs { reads: charge, writes: charge }
    }

    /// Charge for a slot; 0 if reads cost nothing.
    pub(crate) fn slot(self) -> f64 {
        self.reads.of((1.0, SLOT))
    }

    /// Slots of these reads and writes, of each their number and their bytes.
    #[must_use]
    pub fn slots(self, [reads, writes]: [(f64, f64); 2]) -> f64 {
        (self.reads.of(reads) + self.writes.of(writes)) / self.slot()
    }

    /// Slots that an IO costs in the mean.
    pub(crate) fn mean(self, flows: &Flows) -> f64 {
        let slots = self.slots([flows.reads, flows.writes].map(|flow| (flow.ios, flow.bytes)));
        (slots / flows.all().ios).max(LEAST)
    }
}

/// Slots that a trim or write-zeroes of a range costs.
#[must_use]
pub fn discard_slots(range: Bytes) -> u64 {
    range.0.div_ceil(DISCARD_UNIT).clamp(1, DISCARD_MOST)
}

impl Io {
    /// Cost of the IO; without `costs`, data costs one slot.
    #[must_use]
    pub fn cost(self, costs: Option<Costs>) -> Cost {
        let charge = match (self.kind, costs) {
            (IoKind::Discard, _) => return Cost::slots(discard_slots(self.bytes) as f64),
            (IoKind::Read, Some(costs)) => costs.reads,
            (IoKind::Write, Some(costs)) => costs.writes,
            _ => return Cost::ONE,
        };
        let slot = costs.unwrap_or_default().slot();
        Cost::slots((charge.of((1.0, self.bytes.0 as f64)) / slot).max(LEAST))
    }

    /// Contribution of the IO to the array's latency; `device` is its device time. A discard counts as a write with the same
    /// cost, so that bytes and slots agree. A discard has the `usual` size if bytes cost nothing.
    pub(crate) fn heard(self, device: Span, costs: Option<Costs>, usual: Bytes) -> Option<Heard> {
        if self.kind == IoKind::Discard {
            let slots = discard_slots(self.bytes);
            let bytes = costs.filter(|costs| costs.writes.mib > 0).map_or(usual, |costs| {
                let data = slots as f64 * costs.slot() - f64::from(costs.writes.io);
                Bytes((data.max(0.0) / f64::from(costs.writes.mib) * MIB) as u64)
            });
            return Some(Heard::Discard(bytes, Span(device.0 / slots)));
        }
        self.kind.direction().map(Heard::Data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Option<Costs> = Some(Costs::BYTES);

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
            assert_eq!(discard(bytes).cost(BYTES).as_slots(), slots, "{bytes}, of bytes");
        }
    }

    #[test]
    fn an_io_costs_what_it_takes_of_the_array_beside_a_read_of_8_kib() {
        // Reads at 500 IO/s of 4 KiB and 100 MiB/s. Writes at a quarter of the former and half of the latter.
        let reads = Charge { io: 1_960_938, mib: 10_000_000 };
        let costs = Costs { reads, writes: Charge { io: 7_921_875, mib: 20_000_000 } };
        let slots = |kind, kib| Io { kind, bytes: Bytes::kib(kib) }.cost(Some(costs)).as_slots();
        for (kind, kib, expected) in [
            (IoKind::Read, 8, 1.0),
            (IoKind::Read, 4, 2.0 / 2.039),
            (IoKind::Read, 1024, 11.961 / 2.039),
            (IoKind::Write, 4, 8.0 / 2.039),
            (IoKind::Other, 4, 1.0),
        ] {
            assert!((slots(kind, kib) / expected - 1.0).abs() < 1e-3, "{kind:?} of {kib} KiB");
        }
    }

    #[test]
    fn data_costs_by_its_length_where_slots_are_bytes_and_a_flush_one() {
        let io = |kind, kib| Io { kind, bytes: Bytes::kib(kib) };
        for kind in [IoKind::Read, IoKind::Write] {
            assert_eq!(io(kind, 64).cost(None).as_slots(), 1.0);
            assert_eq!(io(kind, 64).cost(BYTES).as_slots(), 8.0);
            assert_eq!(io(kind, 4).cost(BYTES).as_slots(), 0.5);
            assert_eq!(io(kind, 0).cost(BYTES).as_slots(), 0.125);
        }
        assert_eq!(io(IoKind::Other, 1 << 20).cost(BYTES).as_slots(), 1.0);
    }

    #[test]
    fn a_discard_is_heard_as_one_write_that_took_its_part_of_the_time() {
        let (device, usual) = (Span::from_millis(64), Bytes::kib(4));
        let heard = |io: Io, costs| io.heard(device, costs, usual);
        let of = |bytes, ms| Some(Heard::Discard(bytes, Span::from_millis(ms)));
        assert_eq!(heard(discard(8 << 20), None), of(usual, 8));
        assert_eq!(heard(discard(8 << 20), BYTES), of(Bytes::kib(64), 8));
        assert_eq!(heard(discard(1 << 40), None), of(usual, 2));
        let io = |kind| Io { kind, bytes: Bytes::kib(8) };
        assert_eq!(heard(io(IoKind::Read), None), Some(Heard::Data(Direction::Read)));
        assert_eq!(heard(io(IoKind::Other), None), None);
    }
}
