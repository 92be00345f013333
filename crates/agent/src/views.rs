//! The agent's volumes as other threads see them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use parda_exchange::HostName;

use crate::config;
use crate::history::disk_keys;
use crate::last_tick::LastTick;
use crate::law;
use crate::live::{DiskName, Live, Origins, Target};
use crate::locked::locked;
use crate::status::{Detail, ReloadStatus, SettingsFrom, Status, VolumeStatus};
use crate::volume::VolumeView;

/// A volume as other threads see it.
pub(crate) enum View {
    Running(VolumeView),
    /// The volume does not start, for this reason.
    Failed(Box<config::Volume>, String),
}

/// The agent as other threads see it.
pub(crate) struct Views {
    started: Instant,
    volumes: Mutex<Arc<Vec<View>>>,
    live: Arc<Live>,
    /// The status without the parts that change by themselves: volumes and uptime.
    about: Mutex<Status>,
}

impl Views {
    pub(crate) fn new(host: HostName, live: Arc<Live>) -> Arc<Views> {
        let about = Mutex::new(Status {
            host: host.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            reload: Some(ReloadStatus::default()),
            ..Status::default()
        });
        Arc::new(Views { started: Instant::now(), volumes: Mutex::default(), live, about })
    }

    /// Policy, addresses and faults that the status shows from now on.
    pub(crate) fn about(&self) -> MutexGuard<'_, Status> {
        locked(&self.about)
    }

    /// Changes the status of reloads.
    pub(crate) fn reload(&self, change: impl FnOnce(&mut ReloadStatus)) {
        change(self.about().reload.get_or_insert_default());
    }

    /// Shows these volumes from now on.
    pub(crate) fn show(&self, volumes: Vec<View>) {
        *locked(&self.volumes) = Arc::new(volumes);
    }

    /// Configuration in force of a volume that runs.
    pub(crate) fn config(&self, volume: &str) -> Option<Arc<config::Volume>> {
        let volumes = Arc::clone(&locked(&self.volumes));
        volumes.iter().find_map(|view| match view {
            View::Running(view) => Some(view.config()).filter(|config| config.name == volume),
            View::Failed(..) => None,
        })
    }

    /// The state of the agent and of all volumes.
    pub(crate) fn status(&self, detail: Detail) -> Status {
        let mut status = self.counters(detail);
        let origins = self.live.origins();
        status.volumes.iter_mut().for_each(|volume| add_vm_origins(volume, &origins));
        status
    }

    /// The status without origins of the settings of VMs, for callers that look each second. A host may have a thousand VMs.
    pub(crate) fn counters(&self, detail: Detail) -> Status {
        // The lock is not held during the look.
        let volumes = Arc::clone(&locked(&self.volumes));
        let volumes = volumes.iter().filter_map(|view| match view {
            View::Running(view) => view.status(detail),
            View::Failed(config, error) => Some(failed(config, error)),
        });
        let origins = self.live.origins();
        let volumes = volumes.map(|mut volume| {
            volume.settings_from = origins_of(&Target::volume(&volume.name), &origins);
            volume
        });
        let uptime_s = self.started.elapsed().as_secs_f64();
        let volumes = volumes.collect();
        Status { uptime_s, volumes, ..self.about().clone() }
    }
}

/// Origins of the settings of a volume or a VM.
fn origins_of(target: &Target, origins: &Origins) -> SettingsFrom {
    let set = origins.of_target(target).iter();
    set.map(|(setting, (_, from))| (setting.clone(), *from)).collect()
}

/// Adds the origins of the settings of a volume's VMs.
fn add_vm_origins(status: &mut VolumeStatus, origins: &Origins) {
    let volume = status.name.clone();
    let keys = disk_keys(&status.disks);
    for (key, disk) in keys.into_iter().zip(&mut status.disks) {
        let listen = (key != disk.name).then(|| disk.listen.clone());
        let name = DiskName { name: disk.name.clone(), listen };
        let target = Target::vm(&volume, name);
        disk.settings_from = origins_of(&target, origins);
        disk.from = origins.of_disk(&volume, &disk.name);
    }
    for vm in status.steer.iter_mut().flat_map(|steer| &mut steer.vms) {
        // Each of several matching cgroups has its own name behind that of the configuration.
        let name = vm.name.split_once('/').map_or(vm.name.as_str(), |(name, _)| name);
        let name = DiskName::new(name);
        vm.settings_from = origins_of(&Target::vm(&volume, name), origins);
    }
    for tenant in &mut status.tenants {
        tenant.settings_from = origins_of(&Target::tenant(&volume, &tenant.name), origins);
    }
}

fn failed(config: &config::Volume, error: &str) -> VolumeStatus {
    VolumeStatus { fault: Some(error.to_owned()), ..law::base(config, LastTick::default()) }
}
