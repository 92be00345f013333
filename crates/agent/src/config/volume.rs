//! A checked volume: its disks, its place of meeting, its work.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parda_block::{DiskConfig, Limits};
use parda_config::{ControlSettings, TenantSettings};

use super::exchange::Exchange;
use super::listener::Listener;
use super::own::Own;
use super::pool::Pool;
use super::qemu::Qemu;
use super::steer::Steer;
use crate::threshold::Probed;

/// A volume shared with other hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Name of the volume, the same on all its hosts.
    pub name: String,
    /// Its pool, if other volumes are on the same drives.
    pub pool: Option<Pool>,
    /// The law's settings, as written.
    pub control: ControlSettings,
    /// The law's parameters, from these settings and the stored probe.
    pub law: parda_control::Config,
    /// Stored probe from which its threshold begins, if the configuration names one.
    pub probed: Option<Probed>,
    /// Whether that probe is made anew while the volume is idle.
    pub idle_probe: Option<IdleProbe>,
    /// Meeting place of the hosts. Without one, this host is alone.
    pub exchange: Option<Exchange>,
    /// Addresses at which clients of its disks connect.
    pub listeners: Vec<Listener>,
    /// Limits for the clients of the volume.
    pub limits: Limits,
    /// Tenants that its disks may belong to.
    pub tenants: Vec<TenantSettings>,
    /// Mode of this host: to serve disks, to steer a device, or to throttle QEMUs.
    pub work: Work,
    /// Files and sockets of the agent, which no disk may be.
    pub own: Arc<Own>,
}

/// Mode in which a host uses a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Serves these disks; the list is empty while a volume waits for its first.
    Serve(Vec<DiskConfig>),
    /// Steers the device that its VMs open.
    Steer(Steer),
    /// Throttles the QEMUs that open its disks.
    Qemu(Qemu),
}

impl Volume {
    /// Text of the differences between this volume's law and that of the volume `before`.
    pub(crate) fn law_changes(&self, before: &Volume) -> String {
        let changes = self.control.changes(&before.control);
        if changes.is_empty() { "by the stored probe".to_owned() } else { changes }
    }

    /// Warning if disks of this host and tenants have reserved more IO/s than the probe found for all hosts together.
    pub(crate) fn over_reserved(&self) -> Option<String> {
        let probed = self.probed.as_ref()?;
        let iops = probed.iops?;
        let disks = self.disks().iter().filter_map(|disk| disk.settings.reservation);
        let tenants = self.tenants.iter().filter_map(|tenant| tenant.reservation);
        let reserved: f64 = disks.chain(tenants).sum();
        (reserved > iops).then(|| {
            format!(
                "volume {}: {reserved:.0} IO/s are reserved here, and {} found {iops:.0} IO/s of all hosts at its threshold: not all \
                 can be met",
                self.name,
                probed.file.display()
            )
        })
    }

    /// Name under which its hosts meet: the pool's, if it has one.
    #[must_use]
    pub fn meets_as(&self) -> &str {
        self.pool.as_ref().map_or(&self.name, |pool| &pool.name)
    }

    /// Hosts whose reports are ignored.
    pub(crate) fn ignored(&self) -> Vec<parda_exchange::HostName> {
        // The names were checked.
        self.control.ignore.as_deref().and_then(|text| super::names(text).ok()).unwrap_or_default()
    }

    /// Whether its disks are served, those too that it does not have yet.
    pub(crate) fn is_served(&self) -> bool {
        matches!(&self.work, Work::Serve(_))
    }

    /// The disks that are served: none of a volume that is not served.
    #[must_use]
    pub fn disks(&self) -> &[DiskConfig] {
        match &self.work {
            Work::Serve(disks) => disks,
            Work::Steer(_) | Work::Qemu(_) => &[],
        }
    }
}

/// A file or block device, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The file or the block device.
    pub(crate) path: PathBuf,
    /// The part that is read, in bytes. `None`: all of it.
    pub(crate) region: Option<Range<u64>>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The setting `idle_probe = "daily"` of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleProbe {
    /// Disk or device from which the probe reads.
    pub(crate) target: Target,
    /// The file of the stored probe, which is replaced.
    pub(crate) probe: PathBuf,
}
