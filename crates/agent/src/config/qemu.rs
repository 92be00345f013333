//! A volume whose disks QEMU opens itself, checked.

use std::fmt;
use std::path::PathBuf;

use parda_address::Place;
use parda_config::{Error, TablePart, VmSettings};
use parda_control::law::Mode;
use parda_steer::cgroup::glob;

use super::names::are_names;
use super::place::place;
use crate::file;

/// A volume whose disks QEMU opens itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Qemu {
    /// QMP sockets of the VMs: a path whose last name may contain `*` and `?`.
    pub sockets: PathBuf,
    /// Patterns of the disks that are on the volume.
    pub disks: Vec<String>,
    /// Place on the array that is read to measure it.
    pub probe: Option<Place>,
    /// Shares and tenants of the VMs.
    pub vms: Rules,
}

/// Shares and tenants by the names of VMs: patterns, of which the first that matches counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(pub(super) Vec<(String, VmSettings)>);

impl Rules {
    /// Shares and tenant of a VM that has these names. The usual shares where no pattern matches.
    #[must_use]
    pub fn of(&self, names: &[&str]) -> VmSettings {
        let rule = self.0.iter().find(|(pattern, _)| names.iter().any(|name| glob(pattern, name)));
        rule.map_or_else(|| VmSettings::default().with_shares(), |(_, settings)| *settings)
    }
}

impl Rules {
    /// Patterns that match no name of these VMs.
    pub(crate) fn unused<'a>(&'a self, vms: &[[String; 2]]) -> impl Iterator<Item = &'a str> {
        let has_vm = |pattern: &str| vms.iter().flatten().any(|name| glob(pattern, name));
        self.0.iter().map(|(pattern, _)| pattern.as_str()).filter(move |pattern| !has_vm(pattern))
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, settings) in &self.0 {
            let of = settings.tenant.map(|tenant| format!(" of {tenant}"));
            write!(f, "{name}: {}{}, ", settings.shares().0, of.unwrap_or_default())?;
        }
        write!(f, "others: {}", parda_config::DEFAULT_SHARES)
    }
}

pub(super) fn check(at: &TablePart<'_>, qemu: &file::QemuTable, mode: Mode) -> Result<Qemu, Error> {
    let dir = qemu.sockets.parent().unwrap_or(&qemu.sockets).to_string_lossy();
    at.refuse_if(!qemu.sockets.is_absolute(), "sockets", "must be an absolute path")?;
    let message = "has a pattern in its directory: only its last name may be one";
    at.refuse_if(dir.contains(['*', '?']), "sockets", message)?;
    let message = "must name the disks that are on this array, such as [\"rbd:*\"]; [\"*\"] is all of each VM";
    let none = qemu.disks.is_empty() || qemu.disks.iter().any(String::is_empty);
    at.refuse_if(none, "disks", message)?;
    let probe = at.read("probe", qemu.probe.as_deref().map(place).transpose())?;
    let message = "is missing: QEMU counts the wait for its own throttle as latency, so the array has to be measured \
                   beside it. Name a file, a device or an NBD URI on the array, or set mode = \"observe\"";
    let acts = !matches!(mode, Mode::Observe | Mode::Off);
    at.refuse_if(probe.is_none() && acts, "probe", message)?;
    let names = qemu.vm.iter().map(|vm| vm.name.as_str());
    are_names(at, "vm", &names.collect::<Vec<_>>())?;
    let mut rules: Vec<(String, VmSettings)> = Vec::new();
    for (i, vm) in qemu.vm.iter().enumerate() {
        let file::QemuVm { shares, tenant, .. } = *vm;
        let settings = VmSettings { shares, tenant, ..VmSettings::default() }.with_shares();
        if let Some((key, fault)) = settings.fault() {
            return Err(at.error(&format!("vm.{i}.{key}"), fault));
        }
        rules.push((vm.name.clone(), settings));
    }
    let (sockets, disks) = (qemu.sockets.clone(), qemu.disks.clone());
    Ok(Qemu { sockets, disks, probe, vms: Rules(rules) })
}
