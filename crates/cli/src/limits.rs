//! Limits of VMs in words: of several rates the one that a VM is nearest to.

use bytesize::ByteSize;
use parda_agent::status::{DiskStatus, SteeredVmStatus, VolumeStatus};
use parda_api::Limit as LimitedBy;
use parda_config::{LimitSetting, VmSettings};
use parda_control::{Limit, Rate, Rates};

use crate::status::recent::Recent;

/// IOs and bytes of a VM, a second: in all, reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Did {
    pub(crate) ios: [f64; 3],
    bytes: [f64; 3],
}

impl Did {
    /// What a disk did in an interval.
    pub(crate) fn of(recent: &Recent, disk: &DiskStatus) -> Did {
        let rates = |reads: u64, writes: u64| {
            [reads + writes, reads, writes].map(|count| recent.rate(count))
        };
        Did {
            ios: rates(disk.reads.ios, disk.writes.ios),
            bytes: rates(disk.reads.bytes, disk.writes.bytes),
        }
    }

    /// Rates of a VM of a steered device. Reads and writes are not counted apart there: each has the sum of both
    /// as its bound.
    fn of_steered(recent: &Recent, vm: &SteeredVmStatus) -> Did {
        Did { ios: [recent.rate(vm.ios); 3], bytes: [recent.rate(vm.bytes); 3] }
    }
}

/// Part of a rate from which on a VM is taken to have its burst.
const IN_BURST: f64 = 1.1;

/// Rate of the limit that a VM is nearest to, in words such as `500 IO/s`, and its used fraction.
pub(crate) fn nearest(limit: &LimitSetting, did: &Did) -> Option<(String, f64)> {
    let Limit { iops, bandwidth, io_size } = limit.into();
    let each = |of: Rates| [of.total, of.reads, of.writes];
    let units =
        |at: usize| io_size.map_or(did.ios[at], |size| did.ios[at].max(did.bytes[at] / size));
    let size = io_size.map(|size| format!(" of {}", ByteSize(size as u64).display().iec()));
    let size = size.unwrap_or_default();
    let ios = each(iops).into_iter().zip(["IO/s", "reads/s", "writes/s"]).enumerate();
    let ios = ios.filter_map(|(at, (rate, unit))| {
        let (most, of) = in_force(rate?, units(at));
        Some((format!("{most:.0} {unit}{size}{of}"), units(at) / most))
    });
    let bytes = each(bandwidth).into_iter().zip(["", " of reads", " of writes"]).zip(did.bytes);
    let bytes = bytes.filter_map(|((rate, way), did)| {
        let (most, of) = in_force(rate?, did);
        Some((format!("{}/s{way}{of}", ByteSize(most as u64).display().iec()), did / most))
    });
    ios.chain(bytes).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Rate in force for a VM that does `did`, with words that mark a burst rate.
fn in_force(rate: Rate, did: f64) -> (f64, &'static str) {
    match rate.burst {
        Some(burst) if did > IN_BURST * rate.mean => (burst.most, " in a burst"),
        _ => (rate.mean, ""),
    }
}

/// Fraction of a VM's own limit from which that limit, and not the tenant's, is taken to hold the VM.
const NEAR: f64 = 0.8;

/// Lines on the VMs of a volume that their limits hold.
pub(crate) fn lines(recent: &Recent, volume: &VolumeStatus) -> String {
    let disks = volume.disks.iter().filter(|disk| volume.limit_of(disk) == LimitedBy::Configured);
    let disks = disks.map(|disk| ("disk", &disk.name, of_disk(recent, volume, disk)));
    let vms = volume.steer.iter().flat_map(|steer| &steer.vms);
    let vms = vms.filter(|vm| vm.limited_by == Some(LimitedBy::Configured)).map(|vm| {
        let own = || holds(volume, &vm.settings, &Did::of_steered(recent, vm));
        ("VM", &vm.name, of_others(vm).or_else(own))
    });
    let said = disks.chain(vms).filter_map(|(kind, name, what)| Some((kind, name, what?)));
    said.map(|(kind, name, what)| format!("  {kind} {name}: limited by {what}\n")).collect()
}

/// Bounds of another program, if they hold a VM of a steered device.
pub(crate) fn of_others(vm: &SteeredVmStatus) -> Option<String> {
    let bounds = vm.bounds_of_others.as_ref().filter(|_| vm.held_by_others)?;
    Some(format!("io.max of its cgroup, which another program has set: {bounds}"))
}

/// The limit that holds a disk: `its limit of 500 IO/s`, or its tenant's.
pub(crate) fn of_disk(recent: &Recent, volume: &VolumeStatus, disk: &DiskStatus) -> Option<String> {
    holds(volume, &disk.settings, &Did::of(recent, disk))
}

fn holds(volume: &VolumeStatus, settings: &VmSettings, did: &Did) -> Option<String> {
    let nearest = settings.limit.and_then(|limit| nearest(&limit, did));
    let tenant = settings.tenant.and_then(|name| {
        let mut all = volume.tenants.iter();
        all.find(|tenant| *tenant.name == *name && tenant.settings.contains_key("limit"))
    });
    match (nearest, tenant) {
        (Some((words, part)), tenant) if tenant.is_none() || part >= NEAR => {
            Some(format!("its limit of {words}"))
        }
        (_, Some(tenant)) => Some(format!("the limit of its tenant {}", tenant.name)),
        (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_rates_the_nearest_is_named() {
        let limit: LimitSetting =
            toml::from_str("iops = 500\nbandwidth = \"40MiB\"\niops_writes = 100").unwrap();
        let did = |reads: f64, writes: f64, size: f64| {
            let ios = [reads + writes, reads, writes];
            Did { ios, bytes: [ios[0] * size, 0.0, 0.0] }
        };
        let words = |did: Did| nearest(&limit, &did).unwrap().0;
        assert_eq!(words(did(495.0, 0.0, 4096.0)), "500 IO/s");
        assert_eq!(words(did(200.0, 99.0, 4096.0)), "100 writes/s");
        assert_eq!(words(did(39.0, 0.0, 1048576.0)), "40.0 MiB/s");
        assert!((nearest(&limit, &did(250.0, 0.0, 512.0)).unwrap().1 - 0.5).abs() < 1e-9);
        let words = |limit: &str, did| nearest(&toml::from_str(limit).unwrap(), &did).unwrap();
        let burst = "iops = 100\niops_max = 400\niops_max_length = 30";
        assert_eq!(words(burst, did(390.0, 0.0, 4096.0)).0, "400 IO/s in a burst");
        assert_eq!(words(burst, did(99.0, 0.0, 4096.0)).0, "100 IO/s");
        let sized = words("iops = 100\niops_size = \"8KiB\"", did(25.0, 0.0, 32768.0));
        assert_eq!(sized, ("100 IO/s of 8.0 KiB".to_owned(), 1.0));
    }
}
