//! Families of a steered device (label `volume`), and of its VMs (labels `volume`, `vm`, `cgroup`).

use parda_api::Limit;

use super::table::{Family, by, count, counter, counts, gauge, histogram, maybe, one, times};
use crate::status::{SteerStatus, SteeredVmStatus};

pub(super) const FAMILIES: &[Family<SteerStatus>] = &[
    gauge("steer_up", "1 if the device is there and steered without a fault", |s| {
        one(s.fault.is_none() && s.steered.is_some())
    }),
    gauge("steer_depth_ios", "Queue depth that is set, over all paths", |s| maybe(s.depth)),
    gauge("steer_at_least_depth", "1 if the window is smaller than the least depth", |s| {
        one(s.cannot_go_lower)
    }),
    counter("steer_depth_drops", "Times that the kernel lowered the depth by itself", |s| {
        count(s.drops)
    }),
    gauge("steer_patterns_without_vm", "Patterns without a VM", |s| {
        one(s.patterns_without_vm.len() as u32)
    }),
    gauge("steer_vms_without_pattern", "VMs without a pattern", |s| {
        one(s.vms_without_pattern.len() as u32)
    }),
    counter("steer_requeues", "IOs that came back undone", |s| count(s.requeues)),
    counter("steer_ios", "IOs completed; op is read or write", |s| {
        counts("op", [("read", s.reads.ios), ("write", s.writes.ios)])
    }),
    counter("steer_transferred_bytes", "Bytes read and written", |s| {
        counts("op", [("read", s.reads.bytes), ("write", s.writes.bytes)])
    }),
    histogram("steer_device", "Time of IOs at the device; op is read or write", |s| {
        by("op", times, [("read", &s.read_latency), ("write", &s.write_latency)])
    }),
];

pub(super) const OF_VMS: &[Family<SteeredVmStatus>] = &[
    gauge("steer_vm_shares", "Shares of the VM", |vm| one(vm.shares)),
    counter("steer_vm_ios", "IOs completed since the VM was first seen", |vm| count(vm.ios)),
    counter("steer_vm_transferred_bytes", "Bytes that these IOs moved", |vm| count(vm.bytes)),
    gauge("steer_vm_at_limit", "1 if its limit held the VM back in the last period", |vm| {
        let own = vm.limited_by == Some(Limit::Configured) && !vm.held_by_others;
        maybe(vm.settings.limit.map(|_| own))
    }),
    gauge(
        "steer_vm_pending_ios",
        "Mean IOs submitted and not completed in the last period",
        |vm| one(vm.pending),
    ),
];
