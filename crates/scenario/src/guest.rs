//! Hosts of the other kind: guests, whose VMs open a block device directly.

use bytesize::ByteSize;
use parda_control::Bytes;
use serde::Deserialize;

use crate::file;

/// What a host is: `kind` in a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKind {
    /// `"process"`: an agent that serves the disks of its VMs.
    #[default]
    Process,
    /// `"guest"`: a kernel of its own, on which all VMs open one block device. Its agent, if it is
    /// not outside control, steers that device's queue.
    Guest(GuestSettings),
}

impl HostKind {
    /// What is particular to it, if it is a guest.
    #[must_use]
    pub fn guest(&self) -> Option<&GuestSettings> {
        match self {
            HostKind::Process => None,
            HostKind::Guest(settings) => Some(settings),
        }
    }
}

/// `host.guest`: what is particular to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSettings {
    /// How it is connected to the array.
    pub disk: GuestDisk,
    /// How much memory it has.
    pub memory: Bytes,
    /// What its disk's queue depth is set to by hand, in IOs in flight. The kernel's own if not
    /// given; never for one with an agent, whose affair it is.
    pub queue_depth: Option<u32>,
}

/// How a guest is connected to the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestDisk {
    /// A SCSI disk, whose other side has at most 10 IOs under way at the array.
    #[default]
    Scsi,
    /// iSCSI: a SCSI disk over the guest's network. Its target has at most 10 IOs under way.
    Iscsi,
    /// The guest's own NBD client, over its network.
    Nbd,
}

/// How much memory a guest has if nothing is said.
const MEMORY: ByteSize = ByteSize::mib(256);

/// A kernel and an agent need as much.
const LEAST_MEMORY: ByteSize = ByteSize::mib(128);

/// What is wrong with a host's `kind` and `guest`, and below which key.
pub(crate) type Fault = (&'static str, &'static str);

/// The kind of a host.
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

/// The VM by which the disk goes that a guest's first VM has.
fn disk_of_first(host: &file::Host) -> &str {
    host.vm.first().map_or("", |vm| vm.same_disk_as.as_deref().unwrap_or(&vm.name))
}
