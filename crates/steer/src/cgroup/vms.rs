//! VMs that exist, and the cgroups that belong to each.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parda_control::{Limit, Shares, TenantId, VmGrant};

use crate::cgroup::domain::Domains;
use crate::cgroup::pattern::Pattern;
use crate::cgroup::walk::{FoundVm, Stranger, Walk, unread};

/// Mount point of the cgroup file system, below the root.
const MOUNTED: &str = "sys/fs/cgroup";

/// Reason why VMs cannot be told apart, so that the host is one VM.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct NoVms {
    /// Path of the directory or file.
    pub path: PathBuf,
    /// Fault of the directory or file.
    pub why: String,
}

/// VMs that the configuration names.
#[derive(Clone, Debug, PartialEq)]
pub struct VmPattern {
    /// Name of the VM. If several cgroups match, each VM's own name is appended.
    pub name: String,
    /// Cgroups that match: each is one VM.
    pub pattern: Pattern,
    /// Shares of each VM.
    pub shares: Shares,
    /// The most that each VM does. Bursts are not known to `io.max`.
    pub limit: Limit,
    /// Tenant whose VMs they are.
    pub tenant: Option<TenantId>,
}

/// Key of a VM: the path of its cgroup below the cgroup root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmKey(pub String);

impl fmt::Display for VmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A VM that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupVm {
    /// Name of the VM for people.
    pub name: String,
    /// Shares of the VM.
    pub shares: Shares,
    /// The most that the VM does.
    pub limit: Limit,
    /// Tenant whose VM it is.
    pub tenant: Option<TenantId>,
    /// The VM's grant among the VMs of its host and of its tenant. Its own shares, until [`CgroupVms::grant`].
    pub grant: VmGrant,
    /// Id of the VM's cgroup. Another id under the same path means that the VM was restarted.
    pub id: u64,
    /// Ids of the cgroups below the VM's: threads of its CPUs, containers of its pod.
    pub nested: Vec<u64>,
}

impl CgroupVm {
    /// The lower of the VM's limit and of its part of the tenant's.
    #[must_use]
    pub fn limits(&self) -> Limit {
        self.limit.or_less(self.grant.limit)
    }
}

/// A change of the set of VMs since the previous look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmsChange {
    /// The VM appeared, or was restarted.
    Came(VmKey),
    /// The VM was removed.
    Went(VmKey),
}

/// A pattern that has no VM now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unused {
    /// Name that the configuration gives the VM.
    pub vm: String,
    /// The pattern as it was written.
    pub cgroup: String,
    /// Reason why it has none.
    pub why: &'static str,
}

/// VMs of a host.
#[derive(Clone, Debug)]
pub struct CgroupVms {
    mounted: PathBuf,
    patterns: Vec<VmPattern>,
    domains: Domains,
    vms: BTreeMap<VmKey, CgroupVm>,
    of: HashMap<u64, VmKey>,
    unused: Vec<Unused>,
    strangers: Vec<Stranger>,
}

impl CgroupVms {
    /// The VMs that exist now. Later ones are found by [`CgroupVms::refresh`].
    pub fn find(root: &Path, patterns: &[VmPattern]) -> Result<CgroupVms, NoVms> {
        let mounted = root.join(MOUNTED);
        let file = mounted.join("cgroup.controllers");
        let controllers = match fs::read_to_string(&file) {
            Ok(text) => text.trim().to_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let why = "no cgroup v2 is mounted here, so VMs cannot be told apart: the host is one VM \
                           (boot with systemd.unified_cgroup_hierarchy=1)";
                return Err(NoVms { path: mounted, why: why.to_owned() });
            }
            Err(error) => return Err(unread(&file, &error)),
        };
        if !controllers.split_whitespace().any(|name| name == "io") {
            let why = format!(
                "has no io controller ({controllers}): another hierarchy has it (cgroup v1's blkio), or the kernel has \
                 none; the host is one VM"
            );
            return Err(NoVms { path: file, why });
        }
        let patterns = patterns.to_vec();
        let (vms, of) = (BTreeMap::new(), HashMap::new());
        let (domains, unused, strangers) = (Domains::new(root), Vec::new(), Vec::new());
        let mut vms = CgroupVms { mounted, patterns, domains, vms, of, unused, strangers };
        vms.refresh()?;
        Ok(vms)
    }

    /// Looks for VMs that came or went.
    pub fn refresh(&mut self) -> Result<Vec<VmsChange>, NoVms> {
        let Walk { found, strangers, .. } =
            Walk::of(&self.mounted, &self.patterns, &mut self.domains)?;
        let mut vms = self.sort(found, strangers);
        for (key, vm) in &mut vms {
            let settings = |vm: &CgroupVm| (vm.id, vm.shares, vm.tenant);
            if let Some(before) = self.vms.get(key).filter(|it| settings(it) == settings(vm)) {
                vm.grant = before.grant;
            }
        }
        let mut changes = Vec::new();
        let same = |a: Option<&CgroupVm>, b: &CgroupVm| a.is_some_and(|a| a.id == b.id);
        for (key, vm) in &self.vms {
            if !same(vms.get(key), vm) {
                changes.push(VmsChange::Went(key.clone()));
            }
        }
        for (key, vm) in &vms {
            if !same(self.vms.get(key), vm) {
                changes.push(VmsChange::Came(key.clone()));
            }
        }
        let ids = |vm: &CgroupVm| std::iter::once(vm.id).chain(vm.nested.clone());
        self.of =
            vms.iter().flat_map(|(key, vm)| ids(vm).map(move |id| (id, key.clone()))).collect();
        self.vms = vms;
        Ok(changes)
    }

    /// Replaces the patterns. The VMs are known after the next [`CgroupVms::refresh`].
    pub fn set_patterns(&mut self, patterns: &[VmPattern]) {
        self.patterns = patterns.to_vec();
    }

    /// Changes the grants of the VMs, in the order of [`CgroupVms::iter`].
    pub fn grant(&mut self, grants: &[VmGrant]) {
        self.vms.values_mut().zip(grants).for_each(|(vm, grant)| vm.grant = *grant);
    }

    /// The VMs, by the paths of their cgroups.
    pub fn iter(&self) -> impl Iterator<Item = (&VmKey, &CgroupVm)> {
        self.vms.iter()
    }

    /// Patterns that have no VM.
    #[must_use]
    pub fn unused(&self) -> &[Unused] {
        &self.unused
    }

    /// Cgroups that look like VMs and fit no pattern.
    #[must_use]
    pub fn strangers(&self) -> &[Stranger] {
        &self.strangers
    }

    /// The VM with this key, if it exists.
    #[must_use]
    pub fn get(&self, key: &VmKey) -> Option<&CgroupVm> {
        self.vms.get(key)
    }

    /// The VM that a cgroup belongs to, by the id of the VM's cgroup or of one below it.
    #[must_use]
    pub fn of(&self, cgroup: u64) -> Option<&VmKey> {
        self.of.get(&cgroup)
    }

    /// Ids of all cgroups of all VMs, with their VMs.
    pub fn ids(&self) -> impl Iterator<Item = (u64, &VmKey)> {
        self.of.iter().map(|(id, key)| (*id, key))
    }

    /// Directory of a VM's cgroup.
    #[must_use]
    pub fn dir(&self, key: &VmKey) -> PathBuf {
        self.mounted.join(&key.0)
    }

    /// Mount point of the cgroup file system.
    #[must_use]
    pub fn mounted(&self) -> &Path {
        &self.mounted
    }

    /// The VMs among the cgroups that patterns match, and what no pattern has in the end.
    fn sort(
        &mut self,
        found: Vec<FoundVm>,
        mut strangers: Vec<Stranger>,
    ) -> BTreeMap<VmKey, CgroupVm> {
        let whys: Vec<_> = found.iter().map(|vm| self.unsure(vm, &found)).collect();
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for (vm, why) in found.into_iter().zip(whys) {
            match why {
                None => taken.push(vm),
                Some(why) => {
                    refused.extend(&vm.fits);
                    strangers.push(vm.refused(why));
                }
            }
        }
        let unused = (0..self.patterns.len()).filter_map(|index| {
            let one = self.patterns[index].pattern.is_one();
            let fits = taken.iter().any(|vm| vm.fits.contains(&index));
            let has = taken.iter().any(|vm| vm.fits[0] == index);
            let why = match (fits, has) {
                (false, _) if refused.contains(&index) => {
                    "matches a cgroup that may be another domain's"
                }
                (false, _) => "matches no cgroup",
                // A pattern of many, as `libvirt:*`, may have none left beside patterns of single VMs.
                (true, false) if one => "matches only what an earlier pattern has",
                _ => return None,
            };
            let VmPattern { name, pattern, .. } = &self.patterns[index];
            Some(Unused { vm: name.clone(), cgroup: pattern.as_str().to_owned(), why })
        });
        self.unused = unused.collect();
        strangers.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        self.strangers = strangers;
        self.named(taken)
    }

    /// Reason why a cgroup may belong to another domain than the one that its pattern names. Shortening by libvirt makes one
    /// name of several.
    fn unsure(&self, vm: &FoundVm, all: &[FoundVm]) -> Option<String> {
        let driver = vm.unsure?;
        let pattern = |index: usize| &self.patterns[index].pattern;
        let name = pattern(vm.fits[0]).domain()?;
        let other = |index: &&usize| pattern(**index).domain().is_some_and(|other| other != name);
        let twin = |other: &&FoundVm| {
            other.path != vm.path && other.driver == vm.driver && other.fits.contains(&vm.fits[0])
        };
        let fits = match (vm.fits.iter().find(other), all.iter().find(twin)) {
            (Some(other), _) => format!("{:?} fits it as well", pattern(*other).as_str()),
            (None, Some(twin)) => format!("that fits {} as well", twin.path.join("/")),
            (None, None) => return None,
        };
        Some(format!(
            "{:?} fits it, but {fits}: libvirt makes one machine's name of several domains' names, and neither the command line \
             of its process nor a record in /run/libvirt/{driver} can be read to tell whose it is",
            pattern(vm.fits[0]).as_str()
        ))
    }

    fn named(&self, found: Vec<FoundVm>) -> BTreeMap<VmKey, CgroupVm> {
        let mut matched = vec![0; self.patterns.len()];
        for vm in &found {
            matched[vm.fits[0]] += 1;
        }
        let vm = |FoundVm { path, fits, own, id, nested, .. }: FoundVm| {
            let VmPattern { name, shares, limit, tenant, .. } = &self.patterns[fits[0]];
            let name = if matched[fits[0]] == 1 { name.clone() } else { format!("{name}/{own}") };
            let grant = VmGrant { shares: f64::from(shares.0), limit: Limit::default() };
            let (shares, limit, tenant) = (*shares, *limit, *tenant);
            (VmKey(path.join("/")), CgroupVm { name, shares, limit, tenant, grant, id, nested })
        };
        found.into_iter().map(vm).collect()
    }
}
