//! A volume whose disks are served: its ring.

use std::io;
use std::sync::Arc;

use parda_block::{
    AgentMemory, BackendConfig, Direct, DiskConfig, Handle, ListenerConfig, ListenerTls, Region,
    Stats, VolumeConfig,
};
use parda_control::Bytes;

use crate::activation::Passed;
use crate::config::{self, Disk, Listener, Place, Work};
use crate::file;
use crate::outlook::OutlookStatus;
use crate::status::{DiskStatus, DroppedStatus, MemoryStatus, VolumeStatus};
use crate::threshold::ThresholdStatus;
use crate::volume::StartError;

pub(crate) fn start(
    config: &config::Volume,
    disks: &[Disk],
    memory: &AgentMemory,
    passed: &Passed,
) -> Result<Handle, StartError> {
    let listeners = config.listeners.iter().map(|l| listener(l, passed));
    let listeners = listeners.collect::<Result<_, _>>().map_err(StartError::Passed)?;
    let handle = parda_block::Volume::spawn(VolumeConfig {
        name: config.name.clone(),
        control: config.law.control.clone(),
        disks: disks.iter().map(disk).collect(),
        listeners,
        model: None,
        limits: config.limits,
        memory: memory.clone(),
    })?;
    for disk in disks {
        tracing::info!(
            volume = config.name, disk = %disk.name, data = %disk.place, listen = %disk.listen,
            shares = disk.vm.shares.0, "serving"
        );
    }
    Ok(handle)
}

pub(crate) fn reload(handle: &Handle, in_force: &mut config::Volume, new: &config::Volume) {
    let name = &in_force.name;
    for listener in &in_force.listeners {
        if let Some(new) = new.listeners.iter().find(|new| new.address == listener.address) {
            listener.renew(new);
        }
    }
    if new.law != in_force.law {
        match handle.set_control(new.law.control.clone()) {
            Ok(Ok(control)) => {
                tracing::info!(volume = name, ?control, period = ?new.law.period, "control changed");
                in_force.law = new.law.clone();
                in_force.probed = new.probed.clone();
            }
            Ok(Err(error)) => tracing::error!(volume = name, "control not changed: {error}"),
            Err(error) => tracing::error!(volume = name, "control not changed: {error}"),
        }
    }
    let Work::Serve(disks) = &mut in_force.work else { return };
    for (index, disk) in disks.iter_mut().enumerate() {
        let Some(wanted) = new.disks().iter().find(|d| d.name == disk.name) else { continue };
        if wanted.vm == disk.vm {
            continue;
        }
        let id = handle.stats().ok().and_then(|stats| stats.disks.get(index).copied());
        match id.map(|id| handle.set_vm(id, wanted.vm)) {
            Some(Ok(Some(vm))) => {
                tracing::info!(
                    volume = name, disk = %disk.name, shares = vm.shares.0, burst = vm.burst,
                    "shares changed"
                );
                disk.vm = vm;
            }
            _ => tracing::error!(volume = name, disk = %disk.name, "shares not changed"),
        }
    }
}

pub(crate) fn describe(status: &mut VolumeStatus, config: &config::Volume, stats: &Stats) {
    status.cluster_latency_ms = stats.latency.map(|l| l.secs() * 1e3);
    status.window = Some(stats.window.0).filter(|w| w.is_finite());
    let disks: Vec<_> =
        config.disks().iter().map(|d| (d.name.to_string(), d.vm.shares.0)).collect();
    status.outlook = stats.outlook.as_ref().and_then(|o| OutlookStatus::new(o, &disks));
    status.threshold = stats.estimate.map(|e| ThresholdStatus::new(&e, config.probed.as_ref()));
    status.held = stats.held as u64;
    status.connections = stats.connections as u64;
    status.memory = Some(MemoryStatus::from(stats.memory));
    status.dropped = DroppedStatus::from(stats.dropped);
    status.shares = config.disks().iter().map(|d| d.vm.shares.0).sum();
    status.disks = (config.disks().iter().zip(&stats.vms))
        .map(|(d, vm)| DiskStatus::new(d.name.to_string(), d.vm.shares.0, vm))
        .collect();
}

fn listener(listener: &Listener, passed: &Passed) -> io::Result<ListenerConfig> {
    let passed = passed.at(&listener.address)?;
    if passed.is_some() {
        tracing::info!(address = %listener.address, "takes over the socket that was passed");
    }
    Ok(ListenerConfig {
        address: listener.address.clone(),
        access: listener.access,
        tls: listener
            .tls
            .as_ref()
            .map(|tls| ListenerTls { acceptor: Arc::clone(&tls.acceptor), required: tls.required }),
        local_only: !listener.plain && !listener.tls.as_ref().is_some_and(|tls| tls.required),
        passed,
    })
}

fn disk(disk: &Disk) -> DiskConfig {
    DiskConfig {
        export: disk.name.clone(),
        description: disk.description.clone(),
        backend: match &disk.place {
            Place::Path(path) => BackendConfig::File {
                path: path.clone(),
                direct: match disk.direct {
                    file::Direct::Auto => Direct::Auto,
                    file::Direct::On => Direct::On,
                    file::Direct::Off => Direct::Off,
                },
            },
            Place::Nbd(uri) => BackendConfig::Nbd { uri: uri.clone(), options: disk.nbd },
        },
        region: disk
            .region
            .as_ref()
            .map(|r| Region { offset: Bytes(r.start), len: Bytes(r.end - r.start) }),
        vm: disk.vm,
        read_only: disk.read_only,
        listen: vec![disk.listen.clone()],
    }
}
