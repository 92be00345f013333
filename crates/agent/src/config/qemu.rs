//! A volume whose disks QEMU opens itself, checked.

use std::fmt;
use std::path::PathBuf;

use parda_config::{Error, VmSettings};
use parda_control::law::Mode;
use parda_steer::cgroup::glob;

use super::place::{Place, place};
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
        rule.map_or_else(
            || VmSettings { shares: Some(parda_config::DEFAULT_SHARES), ..VmSettings::default() },
            |(_, settings)| *settings,
        )
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

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    qemu: &file::Qemu,
    mode: Mode,
) -> Result<Qemu, Error> {
    let dir = qemu.sockets.parent().filter(|_| qemu.sockets.is_absolute());
    match dir.map(|dir| dir.to_string_lossy()) {
        None => return Err(wrong("sockets", "must be an absolute path".into())),
        Some(dir) if dir.contains(['*', '?']) => {
            let message = "has a pattern in its directory: only its last name may be one";
            return Err(wrong("sockets", message.into()));
        }
        Some(_) => {}
    }
    if qemu.disks.is_empty() || qemu.disks.iter().any(String::is_empty) {
        let message = "must name the disks that are on this array, such as [\"rbd:*\"]; [\"*\"] is all of each VM";
        return Err(wrong("disks", message.into()));
    }
    let probe = qemu.probe.as_deref().map(place).transpose().map_err(|e| wrong("probe", e))?;
    if probe.is_none() && !matches!(mode, Mode::Observe | Mode::Off) {
        let message = "is missing: QEMU counts the wait for its own throttle as latency, so the array has to be measured \
                       beside it. Name a file, a device or an NBD URI on the array, or set mode = \"observe\"";
        return Err(wrong("probe", message.into()));
    }
    let mut rules: Vec<(String, VmSettings)> = Vec::new();
    for (i, vm) in qemu.vm.iter().enumerate() {
        let wrong = |key: &str, message: String| wrong(&format!("vm.{i}.{key}"), message);
        if vm.name.is_empty() {
            return Err(wrong("name", "must not be empty".into()));
        }
        if rules.iter().any(|(name, _)| *name == vm.name) {
            return Err(wrong("name", "is also the name of another VM: names must differ".into()));
        }
        let shares = Some(vm.shares.unwrap_or(parda_config::DEFAULT_SHARES));
        let settings = VmSettings { shares, tenant: vm.tenant, ..VmSettings::default() };
        if let Some((key, fault)) = settings.fault() {
            return Err(wrong(key, fault));
        }
        rules.push((vm.name.clone(), settings));
    }
    let (sockets, disks) = (qemu.sockets.clone(), qemu.disks.clone());
    Ok(Qemu { sockets, disks, probe, vms: Rules(rules) })
}
