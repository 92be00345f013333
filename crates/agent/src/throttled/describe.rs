//! Status of a volume that QEMUs open themselves.

use parda_api::Limit;

use super::Throttled;
use super::seat::Held;
use crate::status::{MeasuredBy, QemuStatus, SettingsFrom, SteerStatus, SteeredVmStatus};

impl Throttled {
    /// Status of the QEMUs.
    pub(super) fn throttles_status(&self) -> SteerStatus {
        let latency = self.latency.unwrap_or(0.0);
        let known = || self.seats.iter().filter_map(|(socket, seat)| Some((socket, seat.vm()?)));
        let pending = known().map(|(_, vm)| vm.pending(latency)).sum::<f64>();
        let disks = || known().flat_map(|(_, vm)| vm.disks.values());
        let silent = || self.seats.values().filter_map(|seat| seat.fault());
        let probe = self.probe.as_ref().and_then(|probe| probe.fault());
        let fault = probe.or(self.fault.clone()).or_else(|| silent().next().map(str::to_owned));
        let qemu = QemuStatus {
            silent: silent().count(),
            disks: disks().count(),
            held: disks().filter(|disk| disk.is_limited()).count(),
        };
        let vm = |(socket, vm): (&std::path::PathBuf, &super::seat::Vm)| SteeredVmStatus {
            name: vm.name.clone(),
            cgroup: socket.display().to_string(),
            settings_from: SettingsFrom::new(),
            settings: vm.settings,
            shares: vm.settings.shares().0,
            limited_by: match vm.is_at_most(latency) {
                true => Some(Limit::Configured),
                false => (vm.by_shares.is_some() && vm.disks.values().any(Held::is_limited))
                    .then_some(Limit::Slice),
            },
            ios: vm.ios,
            bytes: vm.bytes,
            pending: vm.pending(latency),
        };
        SteerStatus {
            device: self.qemu.sockets.display().to_string(),
            steered: Some("QEMU".to_owned()),
            fault,
            measured_by: Some(MeasuredBy::Qemu),
            cannot_go_lower: disks().any(|disk| disk.is_at_least()),
            pending,
            reads: self.done.reads,
            writes: self.done.writes,
            read_latency: self.done.read_latency.clone(),
            write_latency: self.done.write_latency.clone(),
            vms: known().map(vm).collect(),
            qemu: Some(qemu),
            ..SteerStatus::default()
        }
    }
}
