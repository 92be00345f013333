//! Guests: hosts with a kernel of their own, whose VMs open a block device directly.

use serde::Deserialize;

/// The `host.guest` table: settings of a guest, a kernel of its own on which all VMs open one block device. Its agent, if the host is
/// not outside control, steers that device's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSettings {
    /// Connection between the guest and the array.
    #[serde(default)]
    pub disk: GuestDisk,
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
