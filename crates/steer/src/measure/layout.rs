//! Layout of the maps that the eBPF programs and this crate share. The structures of `bpf/block.bpf.c` under
//! the same names, field by field.

#![allow(unsafe_code)]

use super::Histogram;
use super::flow::Flow;

/// Classes of sizes: powers of two of bytes.
pub(super) const SIZES: usize = 32;
/// Most devices that are watched at once.
pub(super) const DEVICES: usize = 64;

/// `struct watched`: the devices that the programs look at.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceList {
    /// Number of entries of `devices` in use.
    pub(super) count: u64,
    /// Time at which counting began, in ns.
    pub(super) since: u64,
    /// 1 while there may be IOs that came before `since`.
    pub(super) beginning: u64,
    /// Each a device number and, in the lower half, its roles.
    pub(super) devices: [u64; DEVICES],
}

impl Default for DeviceList {
    fn default() -> DeviceList {
        DeviceList { count: 0, since: 0, beginning: 0, devices: [0; DEVICES] }
    }
}

/// Counters of one CPU as the programs change them, with numbers that say whether a copy is consistent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Versioned<T> {
    /// Number of changes that were ended.
    pub(super) ended: u64,
    pub(super) counters: T,
    /// Number of changes that were begun.
    pub(super) begun: u64,
}

/// `struct totals`, without its version: what one CPU counts of all watched devices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Requests that were issued to the array.
    pub(super) issued: Flow,
    /// Requests that the array completed.
    pub(super) done: Flow,
    /// Requests that came back undone.
    pub(super) requeues: u64,
}

/// `struct group`, without its version: what one CPU counts of a cgroup.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupTotals {
    /// Sectors that the cgroup submitted.
    pub(super) queued: Flow,
    /// Sectors that were completed.
    pub(super) done: Flow,
    /// IOs that were completed.
    pub(super) ios: u64,
    /// Bytes that they moved.
    pub(super) bytes: u64,
}

/// `struct class`: IOs of one direction and class of sizes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassSums {
    /// Number of completed IOs.
    pub(super) ios: u64,
    /// Bytes that they moved.
    pub(super) bytes: u64,
    /// Sum of their device latencies, in ns.
    pub(super) ns: u64,
}

/// `struct sums`: classes and device latencies, each of reads and then of writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) classes: [[ClassSums; SIZES]; 2],
    pub(super) latency: [[u64; Histogram::LEN]; 2],
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { classes: [[ClassSums::default(); SIZES]; 2], latency: [[0; Histogram::LEN]; 2] }
    }
}

// SAFETY: `repr(C)`, `u64` in every field, so no padding and every bit pattern is a value.
unsafe impl aya::Pod for DeviceList {}
// SAFETY: `repr(C)`, `u64` or `Flow` (two `u64`) in every field: no padding, every bit pattern a value.
unsafe impl aya::Pod for Versioned<Totals> {}
// SAFETY: as with `Totals`.
unsafe impl aya::Pod for Versioned<GroupTotals> {}
// SAFETY: `repr(C)`, arrays of `u64` and of `ClassSums` (three `u64`): no padding, every bit pattern a value.
unsafe impl aya::Pod for Sums {}

impl Totals {
    /// Sum over all CPUs, modulo 2^64.
    pub(super) fn sum(cpus: &[Totals]) -> Totals {
        cpus.iter().fold(Totals::default(), |sum, cpu| Totals {
            issued: sum.issued.plus(cpu.issued),
            done: sum.done.plus(cpu.done),
            requeues: sum.requeues.wrapping_add(cpu.requeues),
        })
    }
}

impl GroupTotals {
    /// Sum over all CPUs, modulo 2^64.
    pub(super) fn sum(cpus: &[GroupTotals]) -> GroupTotals {
        cpus.iter().fold(GroupTotals::default(), |sum, cpu| GroupTotals {
            queued: sum.queued.plus(cpu.queued),
            done: sum.done.plus(cpu.done),
            ios: sum.ios.wrapping_add(cpu.ios),
            bytes: sum.bytes.wrapping_add(cpu.bytes),
        })
    }
}

impl Sums {
    /// Each counter of `self` and of `other` by `op`.
    pub(super) fn combine(&mut self, other: &Sums, op: fn(u64, u64) -> u64) {
        let classes = self.classes.as_flattened_mut().iter_mut();
        for (one, other) in classes.zip(other.classes.as_flattened()) {
            one.ios = op(one.ios, other.ios);
            one.bytes = op(one.bytes, other.bytes);
            one.ns = op(one.ns, other.ns);
        }
        let latency = self.latency.as_flattened_mut().iter_mut();
        for (one, other) in latency.zip(other.latency.as_flattened()) {
            *one = op(*one, *other);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_have_the_layout_of_the_programs() {
        // As in bpf/block.bpf.c; the loader itself refuses a value of another size.
        assert_eq!(size_of::<DeviceList>(), 8 * (3 + DEVICES));
        type CgroupIos = Versioned<GroupTotals>;
        assert_eq!((size_of::<Versioned<Totals>>(), size_of::<CgroupIos>()), (7 * 8, 8 * 8));
        assert_eq!(size_of::<Sums>(), 8 * (2 * SIZES * 3 + 2 * Histogram::LEN));
        assert_eq!((offset_of!(CgroupIos, counters), offset_of!(CgroupIos, begun)), (8, 56));
        assert_eq!(offset_of!(Versioned<Totals>, begun), 48);
        assert_eq!((offset_of!(Totals, issued), offset_of!(Totals, requeues)), (0, 32));
        assert_eq!((offset_of!(GroupTotals, ios), offset_of!(GroupTotals, bytes)), (32, 40));
        assert_eq!((offset_of!(Flow, n), offset_of!(Flow, at)), (0, 8));
    }
}
