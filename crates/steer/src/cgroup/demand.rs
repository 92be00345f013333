//! What each VM wants of a device: from the groups that eBPF counts, or, where there is no eBPF,
//! from `io.stat`.

use std::collections::BTreeMap;

use crate::cgroup::vms::{VmKey, Vms};
use crate::measure::Group;
use crate::number::DevNum;
use crate::sysfs::{self, SysError};

/// What a VM did, and wanted to do, between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// IOs: those that completed (eBPF), or that were begun (`io.stat`).
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Mean of what it had submitted and not yet got back, waiting or at the array, in IOs.
    pub pending: f64,
}

impl Demand {
    fn add(&mut self, group: &Group) {
        self.ios += group.ios;
        self.bytes += group.bytes;
        self.pending += group.pending;
    }
}

/// What all VMs of a host did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demands {
    /// Every VM there is, those that did nothing too.
    pub vms: BTreeMap<VmKey, Demand>,
    /// What was none of any VM's: the host's own processes, and what writes back its page cache.
    pub rest: Demand,
    /// Mean of what waited above the device's queue, of all together, in IOs. What a cap holds back
    /// is no part of it.
    pub queued: f64,
}

impl Demands {
    /// From what was counted of each cgroup: what is below a VM is the VM's.
    #[must_use]
    pub fn of_groups(vms: &Vms, groups: &[Group]) -> Demands {
        let mut demands = Demands::none(vms);
        for group in groups {
            let vm = vms.of(group.cgroup).and_then(|key| demands.vms.get_mut(key));
            vm.unwrap_or(&mut demands.rest).add(group);
        }
        demands
    }

    /// From what each began. All wait for the same queue, so all wait alike, and of what is pending
    /// each has the part that it has of the IOs (Little's law). Where an elevator lets some wait
    /// longer than others this takes the former to want less than they do, and the latter more.
    #[must_use]
    pub fn of_begun(vms: &Vms, begun: &BTreeMap<VmKey, Begun>, whole: Whole) -> Demands {
        let mut demands = Demands::none(vms);
        for (key, demand) in &mut demands.vms {
            let begun = begun.get(key).copied().unwrap_or_default();
            demand.ios = begun.reads + begun.writes;
            demand.bytes = begun.bytes;
        }
        let sum = |of: fn(&Demand) -> u64| demands.vms.values().map(of).sum::<u64>();
        demands.rest.ios = whole.ios.saturating_sub(sum(|d| d.ios));
        demands.rest.bytes = whole.bytes.saturating_sub(sum(|d| d.bytes));
        let ios = demands.rest.ios + sum(|d| d.ios);
        for demand in demands.vms.values_mut().chain([&mut demands.rest]) {
            // Where nobody was served, nothing says who waits.
            let part = if ios == 0 { 0.0 } else { demand.ios as f64 / ios as f64 };
            demand.pending = whole.pending * part;
        }
        demands
    }

    fn none(vms: &Vms) -> Demands {
        let vms = vms.iter().map(|(key, _)| (key.clone(), Demand::default())).collect();
        Demands { vms, ..Demands::default() }
    }
}

/// What a device had to do as a whole between two readings.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// IOs that completed.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Mean of what was submitted and not completed.
    pub pending: f64,
}

/// What a VM began between two looks at `io.stat`. What a cap holds back is not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// IOs.
    pub reads: u64,
    /// IOs.
    pub writes: u64,
    /// Both ways.
    pub bytes: u64,
}

/// Reads `io.stat`. It counts what each VM begins, not what it waits for.
#[derive(Clone, Debug)]
pub struct IoStat {
    device: DevNum,
    /// The cgroup's id, and what it had counted.
    last: BTreeMap<VmKey, (u64, Begun)>,
}

impl IoStat {
    /// Of a device: the one that VMs submit their IOs to.
    #[must_use]
    pub fn new(device: DevNum) -> IoStat {
        IoStat { device, last: BTreeMap::new() }
    }

    /// What each began since the look before. A VM that was not there then is left out.
    pub fn read(&mut self, vms: &Vms) -> Result<BTreeMap<VmKey, Begun>, SysError> {
        let (mut all, mut since) = (BTreeMap::new(), BTreeMap::new());
        for (key, vm) in vms.iter() {
            let text = match sysfs::read(&vms.dir(key).join("io.stat")) {
                Err(e) if e.gone() => continue,
                text => text?,
            };
            let now = counts(&text, self.device);
            if let Some((_, last)) = self.last.get(key).filter(|(id, _)| *id == vm.id) {
                since.insert(
                    key.clone(),
                    Begun {
                        reads: now.reads.saturating_sub(last.reads),
                        writes: now.writes.saturating_sub(last.writes),
                        bytes: now.bytes.saturating_sub(last.bytes),
                    },
                );
            }
            all.insert(key.clone(), (vm.id, now));
        }
        self.last = all;
        Ok(since)
    }
}

/// A device's line: `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`. A device to which the
/// cgroup has done nothing has none.
fn counts(text: &str, device: DevNum) -> Begun {
    let number = device.to_string();
    let line = text.lines().find_map(|line| line.strip_prefix(&number)?.strip_prefix(' '));
    let mut counts = Begun::default();
    for (key, value) in line.unwrap_or_default().split(' ').filter_map(|w| w.split_once('=')) {
        let value = value.parse().unwrap_or(0);
        match key {
            "rios" => counts.reads = value,
            "wios" => counts.writes = value,
            "rbytes" | "wbytes" => counts.bytes += value,
            _ => {}
        }
    }
    counts
}
