//! Guests: hosts with a kernel of their own, whose VMs open a block device directly.

use bytesize::ByteSize;
use parda_control::Bytes;
use serde::Deserialize;

use crate::file;

/// Kind of a host: the key `kind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKind {
    /// `"process"`: an agent that serves the disks of the host's VMs.
    #[default]
    Process,
    /// `"guest"`: a kernel of its own, on which all VMs open one block device. The agent, if the host
    /// is not outside control, steers that device's queue.
    Guest(GuestSettings),
}

impl HostKind {
    /// Settings of a guest; `None` for other kinds.
    #[must_use]
    pub fn guest(&self) -> Option<&GuestSettings> {
        match self {
            HostKind::Process => None,
            HostKind::Guest(settings) => Some(settings),
        }
    }
}

/// The `host.guest` table: settings of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSettings {
    /// Connection between the guest and the array.
    pub disk: GuestDisk,
    /// Memory of the guest.
    pub memory: Bytes,
    /// Queue depth to set on the guest's disk, in IOs. If absent, the kernel's default stays. Not
    /// allowed for a host with an agent, which sets the depth itself.
    pub queue_depth: Option<u32>,
}

/// Connection between a guest and the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestDisk {
    /// A SCSI disk. At most 10 of its IOs are outstanding at the array.
    #[default]
    Scsi,
    /// iSCSI: a SCSI disk over the guest's network. At most 10 of the target's IOs are outstanding at
    /// the array.
    Iscsi,
    /// The guest's own NBD client, over the guest's network.
    Nbd,
}

/// Default memory of a guest.
const MEMORY: ByteSize = ByteSize::mib(256);

/// Least memory of a guest: a kernel and an agent fit.
const LEAST_MEMORY: ByteSize = ByteSize::mib(128);

/// An invalid key below `host`, and what is wrong with it.
pub(crate) type Fault = (&'static str, &'static str);

/// The kind of a host, checked.
pub(crate) fn kind(host: &file::Host) -> Result<HostKind, Fault> {
    let written = match (host.kind, &host.guest) {
        (file::Kind::Process, None) => return Ok(HostKind::Process),
        (file::Kind::Process, Some(_)) => {
            return Err(("guest", "means nothing for a host that is not of kind = \"guest\""));
        }
        (file::Kind::Guest, written) => written.clone().unwrap_or_default(),
    };
    let memory = written.memory.unwrap_or(MEMORY);
    if memory < LEAST_MEMORY {
        return Err(("guest.memory", "must be at least 128 MiB"));
    }
    match written.queue_depth {
        Some(0) => return Err(("guest.queue_depth", "must be at least 1")),
        Some(_) if !host.outside => {
            return Err((
                "guest.queue_depth",
                "is its agent's affair, unless it is outside control",
            ));
        }
        _ => {}
    }
    let own_disks = host.vm.iter().skip(1).find(|vm| {
        vm.same_disk_as.is_none() || vm.same_disk_as != Some(disk_of_first(host).to_owned())
    });
    if own_disks.is_some() {
        let says = "a guest has one disk: all its VMs but the first must have same_disk_as that";
        return Err(("vm", says));
    }
    if host.vm.iter().any(|vm| vm.burst != 0.0) {
        return Err(("vm", "a guest's VMs cannot have `burst`: its queue is its kernel's"));
    }
    if host.vm.iter().any(|vm| vm.latency_target.is_some()) {
        return Err((
            "vm",
            "a guest's VMs cannot have `latency_target`: how long each waits in its kernel is not known",
        ));
    }
    let queue_depth = written.queue_depth;
    Ok(HostKind::Guest(GuestSettings {
        disk: written.disk,
        memory: Bytes(memory.as_u64()),
        queue_depth,
    }))
}

/// Name of the VM whose disk the guest's first VM uses.
fn disk_of_first(host: &file::Host) -> &str {
    host.vm.first().map_or("", |vm| vm.same_disk_as.as_deref().unwrap_or(&vm.name))
}
