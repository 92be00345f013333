//! Demand of each VM of a device, from the groups that eBPF counts or, without eBPF, from
//! `io.stat`.

use std::collections::BTreeMap;

use crate::cgroup::files::line;
use crate::cgroup::vms::{CgroupVms, VmKey};
use crate::measure::CgroupIos;
use crate::number::DevNum;
use crate::sysfs::{self, SysError};

/// IOs of a VM or of a whole device between two readings, and its demand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IoDemand {
    /// Number of IOs: completed ones with eBPF, begun ones with `io.stat`.
    pub ios: u64,
    /// Bytes that these IOs moved.
    pub bytes: u64,
    /// Mean number of IOs that were submitted and not completed, waiting or at the array.
    pub pending: f64,
}

impl IoDemand {
    fn add(&mut self, group: &CgroupIos) {
        self.ios += group.ios;
        self.bytes += group.bytes;
        self.pending += group.pending;
    }
}

/// Demand of all VMs of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demands {
    /// Demand of every VM, including idle ones.
    pub vms: BTreeMap<VmKey, IoDemand>,
    /// Demand that belongs to no VM: the host's own processes and the write-back of its page cache.
    pub rest: IoDemand,
    /// Mean number of IOs that waited above the device's queue, over all VMs. IOs that a cap holds back
    /// are not among them.
    pub queued: f64,
}

impl Demands {
    /// Demand from the counters of each cgroup. Cgroups below a VM's belong to the VM.
    #[must_use]
    pub fn of_groups(vms: &CgroupVms, groups: &[CgroupIos]) -> Demands {
        let mut demands = Demands::none(vms);
        for group in groups {
            let vm = vms.of(group.cgroup).and_then(|key| demands.vms.get_mut(key));
            vm.unwrap_or(&mut demands.rest).add(group);
        }
        demands
    }

    /// Demand from the IOs that each VM began. All VMs are taken to wait alike, as they share one
    /// queue. So each has the part of the pending IOs that it has of the begun IOs (Little's law). If
    /// an elevator makes some VMs wait longer, their demand is underestimated, and that of the others
    /// overestimated.
    #[must_use]
    pub fn of_begun(vms: &CgroupVms, begun: &BTreeMap<VmKey, Begun>, whole: IoDemand) -> Demands {
        let mut demands = Demands::none(vms);
        for (key, demand) in &mut demands.vms {
            let begun = begun.get(key).copied().unwrap_or_default();
            demand.ios = begun.ios.all();
            demand.bytes = begun.bytes.all();
        }
        let sum = |of: fn(&IoDemand) -> u64| demands.vms.values().map(of).sum::<u64>();
        demands.rest.ios = whole.ios.saturating_sub(sum(|d| d.ios));
        demands.rest.bytes = whole.bytes.saturating_sub(sum(|d| d.bytes));
        let ios = demands.rest.ios + sum(|d| d.ios);
        for demand in demands.vms.values_mut().chain([&mut demands.rest]) {
            // If no IO was served, nothing is known about who waits.
            let part = if ios == 0 { 0.0 } else { demand.ios as f64 / ios as f64 };
            demand.pending = whole.pending * part;
        }
        demands
    }

    fn none(vms: &CgroupVms) -> Demands {
        let vms = vms.iter().map(|(key, _)| (key.clone(), IoDemand::default())).collect();
        Demands { vms, ..Demands::default() }
    }
}

/// IOs that a VM began between two looks at `io.stat`. IOs that a cap holds back have not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Number of IOs begun.
    pub ios: IoCounts,
    /// Bytes that they move.
    pub bytes: IoCounts,
}

/// IOs or bytes by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// IOs or bytes of reads.
    pub reads: u64,
    /// IOs or bytes of writes.
    pub writes: u64,
}

impl IoCounts {
    pub(crate) fn all(self) -> u64 {
        self.reads + self.writes
    }

    fn since(self, earlier: IoCounts) -> IoCounts {
        IoCounts {
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
        }
    }
}

/// Reader of `io.stat`, which counts the IOs that each VM begins, not those that wait.
#[derive(Clone, Debug)]
pub struct IoStat {
    device: DevNum,
    /// The cgroup's id, and its counters at the previous reading.
    last: BTreeMap<VmKey, (u64, Begun)>,
}

impl IoStat {
    /// A reader for a device: the one to which VMs submit their IOs.
    #[must_use]
    pub fn new(device: DevNum) -> IoStat {
        IoStat { device, last: BTreeMap::new() }
    }

    /// IOs that each VM began since the previous reading. VMs that did not exist then are left out.
    pub fn read(&mut self, vms: &CgroupVms) -> Result<BTreeMap<VmKey, Begun>, SysError> {
        let (mut all, mut since) = (BTreeMap::new(), BTreeMap::new());
        for (key, vm) in vms.iter() {
            let text = match sysfs::read(&vms.dir(key).join("io.stat")) {
                Err(e) if e.gone() => continue,
                text => text?,
            };
            let now = counts(&text, self.device);
            if let Some((_, last)) = self.last.get(key).filter(|(id, _)| *id == vm.id) {
                let (ios, bytes) = (now.ios.since(last.ios), now.bytes.since(last.bytes));
                since.insert(key.clone(), Begun { ios, bytes });
            }
            all.insert(key.clone(), (vm.id, now));
        }
        self.last = all;
        Ok(since)
    }
}

/// Parses a device's line: `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`. A cgroup that
/// did no IO to the device has no line.
fn counts(text: &str, device: DevNum) -> Begun {
    let mut counts = Begun::default();
    for (key, value) in
        line(text, device).unwrap_or_default().split(' ').filter_map(|w| w.split_once('='))
    {
        let value = value.parse().unwrap_or(0);
        match key {
            "rios" => counts.ios.reads = value,
            "wios" => counts.ios.writes = value,
            "rbytes" => counts.bytes.reads = value,
            "wbytes" => counts.bytes.writes = value,
            _ => {}
        }
    }
    counts
}
