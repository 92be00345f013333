//! Patterns that have no VM, and VMs that have no pattern.

use parda_api::{PatternWithoutVm, VmWithoutPattern, first};
use parda_steer::cgroup::CgroupVms;
use parda_steer::number::DevNum;

/// Both, as of the last look.
#[derive(Debug, Default)]
pub(super) struct Missed {
    pub(super) patterns: Vec<PatternWithoutVm>,
    pub(super) vms: Vec<VmWithoutPattern>,
    /// Whether the patterns were looked at. If a pattern loses its VM later, the log already reports the lost VM.
    looked: bool,
}

impl Missed {
    /// Looks among cgroups that may use a device.
    pub(super) fn of(vms: &CgroupVms, device: DevNum) -> Missed {
        let strangers = vms.strangers().iter().filter(|it| it.may_use(device)).cloned();
        let unused = vms.unused().iter().cloned();
        Missed {
            patterns: unused
                .map(|it| PatternWithoutVm { vm: it.vm, cgroup: it.cgroup, why: it.why.to_owned() })
                .collect(),
            vms: strangers
                .map(|it| VmWithoutPattern { cgroup: it.cgroup, name: it.name, why: it.why })
                .collect(),
            looked: true,
        }
    }

    /// Each as a text.
    pub(super) fn notes(&self) -> Vec<String> {
        [first(&self.patterns), first(&self.vms)].concat()
    }

    /// Looks again, and logs what is new.
    pub(super) fn look(&mut self, volume: &str, vms: &CgroupVms, device: DevNum) {
        let before = std::mem::replace(self, Missed::of(vms, device));
        let is_new =
            |pattern: &&PatternWithoutVm| !before.looked && !before.patterns.contains(pattern);
        for text in first(&self.patterns.iter().filter(is_new).collect::<Vec<_>>()) {
            tracing::warn!(volume, event = "pattern_without_vm", "{text}");
        }
        let is_new = |vm: &&VmWithoutPattern| !before.vms.contains(vm);
        for text in first(&self.vms.iter().filter(is_new).collect::<Vec<_>>()) {
            tracing::warn!(volume, event = "vm_without_pattern", "{text}");
        }
    }

    /// Notes that the patterns are others from now on.
    pub(super) fn change(&mut self) {
        self.looked = false;
    }
}
