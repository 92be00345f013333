//! A volume whose device is steered, checked.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use parda_config::{Error, TablePart, VmSettings};
use parda_control::{Shares, TenantId};

use parda_steer::cgroup::{Means, Pattern, VmPattern};
use parda_steer::knob::DepthMethod;
use parda_steer::measure::MethodChoice;

use super::names::are_names;
use crate::file;

/// A volume whose VMs open its device directly.
#[derive(Clone, Debug, PartialEq)]
pub struct Steer {
    /// The device, or anything that lies on it.
    pub device: PathBuf,
    /// Means by which its queue keeps the window; `None` chooses what suits the device.
    pub method: Option<DepthMethod>,
    /// Means by which its device latency is measured.
    pub measure: MethodChoice,
    /// Means by which its VMs are held to their shares; `None` for those that suit the device.
    pub sharing: Option<Means>,
    /// VMs whose IOs the device does.
    pub vms: Vms,
}

/// The VMs of a steered volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Vms {
    /// The whole host is one.
    Host(Shares),
    /// Each is a cgroup.
    Groups(Vec<SteeredVm>),
}

/// A VM of a steered device, or several alike.
#[derive(Clone, Debug, PartialEq)]
pub struct SteeredVm {
    /// Name of the VM. Each of several matching cgroups has its own name after this one.
    pub name: String,
    /// Cgroups that match: each is one VM.
    pub pattern: Pattern,
    /// Its shares, and its limit and its tenant, if it has these.
    pub settings: VmSettings,
}

impl SteeredVm {
    /// The VM as `crates/steer` takes it.
    pub(crate) fn pattern(&self) -> VmPattern {
        VmPattern {
            name: self.name.clone(),
            pattern: self.pattern.clone(),
            shares: self.settings.shares(),
            limit: self.settings.limit.as_ref().map_or_else(Default::default, Into::into),
            tenant: self.settings.tenant.map(|tenant| TenantId::of(&tenant)),
        }
    }
}

impl Steer {
    /// The VM of this name, or the pattern that a VM of several is of, whose name is `NAME/OWN`.
    #[must_use]
    pub fn vm(&self, name: &str) -> Option<&SteeredVm> {
        let Vms::Groups(vms) = &self.vms else { return None };
        let of = name.split_once('/').map_or(name, |(of, _)| of);
        vms.iter().find(|vm| vm.name == name).or_else(|| vms.iter().find(|vm| vm.name == of))
    }
}

impl fmt::Display for Vms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Vms::Host(shares) => write!(f, "the host: {}", shares.0),
            Vms::Groups(vms) => {
                let each = vms.iter().map(|vm| {
                    let limit = vm.settings.limit.and_then(|it| toml::Value::try_from(it).ok());
                    let limit = limit.map_or_else(String::new, |limit| format!(" limit = {limit}"));
                    let of = vm.settings.tenant.map(|tenant| format!(" of {tenant}"));
                    let (name, shares) = (&vm.name, vm.settings.shares().0);
                    format!("{name}: {shares}{}{limit}", of.unwrap_or_default())
                });
                f.write_str(&each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

pub(super) fn check(at: &TablePart<'_>, steer: &file::SteerTable) -> Result<Steer, Error> {
    at.refuse_if(!steer.device.is_absolute(), "device", "must be an absolute path")?;
    let chosen = |name: &Option<String>| name.clone().filter(|name| name != "auto");
    let method = chosen(&steer.method)
        .map(|name| named(&name, "\"auto\", \"queue_depth\" or \"nr_requests\""));
    let sharing = chosen(&steer.sharing).map(|name| named(&name, "\"auto\", \"caps\" or \"bfq\""));
    let measure =
        named(steer.measure.as_deref().unwrap_or("auto"), "\"auto\", \"ebpf\" or \"little\"");
    let vms = match (steer.shares, steer.vm.as_slice()) {
        (Some(_), [_, ..]) => {
            let message = "is for a host that is one VM: here each [[volume.steer.vm]] has its own";
            return Err(at.error("shares", message));
        }
        (shares, []) => {
            let shares = shares.unwrap_or(parda_config::DEFAULT_SHARES);
            let wrong = parda_config::wrong_shares(shares);
            Vms::Host(at.read("shares", wrong.map_or(Ok(Shares(shares)), Err))?)
        }
        (None, vms) => Vms::Groups(check_vms(at, vms)?),
    };
    Ok(Steer {
        device: steer.device.clone(),
        method: at.read("method", method.transpose())?,
        measure: at.read("measure", measure)?,
        sharing: at.read("sharing", sharing.transpose())?,
        vms,
    })
}

/// One of the names of a setting.
fn named<T: FromStr>(name: &str, names: &str) -> Result<T, String> {
    name.parse().map_err(|_| format!("must be {names}"))
}

fn check_vms(at: &TablePart<'_>, vms: &[file::SteeredVmTable]) -> Result<Vec<SteeredVm>, Error> {
    let names = vms.iter().map(|vm| vm.name.as_str());
    are_names(at, "vm", &names.collect::<Vec<_>>())?;
    let checked = vms.iter().enumerate().map(|(i, vm)| {
        let at = at.part(&format!("vm.{i}"));
        let file::SteeredVmTable { shares, limit, tenant, .. } = *vm;
        let settings = VmSettings { shares, limit, tenant, ..VmSettings::default() }.with_shares();
        if let Some((key, fault)) = settings.fault_steered() {
            return Err(at.error(key, fault));
        }
        let pattern = at.read("cgroup", vm.cgroup.parse())?;
        Ok(SteeredVm { name: vm.name.clone(), pattern, settings })
    });
    checked.collect()
}
