//! VMs that exist, and the cgroups that belong to each.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parda_control::{Limit, Shares, TenantId, VmGrant};

use crate::cgroup::pattern::Pattern;

/// Mount point of the cgroup file system, below the root.
const MOUNTED: &str = "sys/fs/cgroup";

/// Reason why VMs cannot be told apart, so that the host is one VM.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct NoVms {
    /// Path of the directory or file.
    pub path: PathBuf,
    /// What is wrong with it.
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
pub struct Vm {
    /// Name of the VM for people.
    pub name: String,
    /// Shares of the VM.
    pub shares: Shares,
    /// The most that the VM does.
    pub limit: Limit,
    /// Tenant whose VM it is.
    pub tenant: Option<TenantId>,
    /// What the VM has among those of its host and of its tenant. Its own shares, until [`Vms::grant`].
    pub grant: VmGrant,
    /// Id of the VM's cgroup. Another id under the same path means that the VM was restarted.
    pub id: u64,
    /// Ids of the cgroups below the VM's: threads of its CPUs, containers of its pod.
    pub nested: Vec<u64>,
}

impl Vm {
    /// The lower of the VM's limit and of its part of the tenant's.
    #[must_use]
    pub fn limits(&self) -> Limit {
        self.limit.or_less(self.grant.limit)
    }
}

/// A change of the set of VMs since the previous look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The VM appeared, or was restarted.
    Came(VmKey),
    /// The VM is gone.
    Went(VmKey),
}

/// VMs of a host.
#[derive(Clone, Debug)]
pub struct Vms {
    mounted: PathBuf,
    patterns: Vec<VmPattern>,
    vms: BTreeMap<VmKey, Vm>,
    of: HashMap<u64, VmKey>,
}

impl Vms {
    /// The VMs that exist now. Later ones are found by [`Vms::refresh`].
    pub fn find(root: &Path, patterns: &[VmPattern]) -> Result<Vms, NoVms> {
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
        let mut vms = Vms { mounted, patterns, vms: BTreeMap::new(), of: HashMap::new() };
        vms.refresh()?;
        Ok(vms)
    }

    /// Looks for VMs that came or went.
    pub fn refresh(&mut self) -> Result<Vec<Change>, NoVms> {
        let mut found = Vec::new();
        self.walk(&self.mounted, &mut Vec::new(), &mut found)?;
        let mut vms = self.named(found);
        for (key, vm) in &mut vms {
            let settings = |vm: &Vm| (vm.id, vm.shares, vm.tenant);
            if let Some(before) = self.vms.get(key).filter(|it| settings(it) == settings(vm)) {
                vm.grant = before.grant;
            }
        }
        let mut changes = Vec::new();
        let same = |a: Option<&Vm>, b: &Vm| a.is_some_and(|a| a.id == b.id);
        for (key, vm) in &self.vms {
            if !same(vms.get(key), vm) {
                changes.push(Change::Went(key.clone()));
            }
        }
        for (key, vm) in &vms {
            if !same(self.vms.get(key), vm) {
                changes.push(Change::Came(key.clone()));
            }
        }
        let ids = |vm: &Vm| std::iter::once(vm.id).chain(vm.nested.clone());
        self.of =
            vms.iter().flat_map(|(key, vm)| ids(vm).map(move |id| (id, key.clone()))).collect();
        self.vms = vms;
        Ok(changes)
    }

    /// Replaces the patterns. The VMs are known after the next [`Vms::refresh`].
    pub fn set_patterns(&mut self, patterns: &[VmPattern]) {
        self.patterns = patterns.to_vec();
    }

    /// Changes what the VMs have, in the order of [`Vms::iter`].
    pub fn grant(&mut self, grants: &[VmGrant]) {
        self.vms.values_mut().zip(grants).for_each(|(vm, grant)| vm.grant = *grant);
    }

    /// The VMs, by the paths of their cgroups.
    pub fn iter(&self) -> impl Iterator<Item = (&VmKey, &Vm)> {
        self.vms.iter()
    }

    /// The VM with this key, if it exists.
    #[must_use]
    pub fn get(&self, key: &VmKey) -> Option<&Vm> {
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

    /// Walks down to the VMs' cgroups. Cgroups below a VM's belong to it.
    fn walk(
        &self,
        dir: &Path,
        path: &mut Vec<String>,
        found: &mut Vec<FoundVm>,
    ) -> Result<(), NoVms> {
        if let Some(index) = self.patterns.iter().position(|p| p.pattern.matches(path)) {
            let mut ids = Vec::new();
            below(dir, &mut ids)?;
            if let Some((own, nested)) = ids.split_first() {
                let (path, nested) = (path.clone(), nested.to_vec());
                found.push(FoundVm { path, index, id: *own, nested });
            }
            return Ok(());
        }
        if !self.patterns.iter().any(|p| p.pattern.may_match_below(path)) {
            return Ok(());
        }
        for name in children(dir)? {
            let next = dir.join(&name);
            path.push(name);
            self.walk(&next, path, found)?;
            path.pop();
        }
        Ok(())
    }

    fn named(&self, found: Vec<FoundVm>) -> BTreeMap<VmKey, Vm> {
        let mut matched = vec![0; self.patterns.len()];
        for vm in &found {
            matched[vm.index] += 1;
        }
        let vm = |FoundVm { path, index, id, nested }| {
            let VmPattern { name, pattern, shares, limit, tenant } = &self.patterns[index];
            let own = path.last().map_or_else(String::new, |dir| pattern.name_of(dir));
            let name = if matched[index] == 1 { name.clone() } else { format!("{name}/{own}") };
            let grant = VmGrant { shares: f64::from(shares.0), limit: Limit::default() };
            let (shares, limit, tenant) = (*shares, *limit, *tenant);
            (VmKey(path.join("/")), Vm { name, shares, limit, tenant, grant, id, nested })
        };
        found.into_iter().map(vm).collect()
    }
}

/// A cgroup that a pattern matches.
struct FoundVm {
    /// Names of the directories from the root of cgroups.
    path: Vec<String>,
    /// Index of the pattern.
    index: usize,
    /// Id of the cgroup.
    id: u64,
    /// Ids of the cgroups below it.
    nested: Vec<u64>,
}

fn unread(path: &Path, error: &io::Error) -> NoVms {
    NoVms { path: path.to_owned(), why: format!("cannot be read: {error}") }
}

/// Collects the id of a cgroup and those of all cgroups below it. Empty if the cgroup went away.
fn below(dir: &Path, ids: &mut Vec<u64>) -> Result<(), NoVms> {
    match fs::metadata(dir) {
        Ok(meta) => ids.push(meta.ino()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unread(dir, &error)),
    }
    for name in children(dir)? {
        below(&dir.join(name), ids)?;
    }
    Ok(())
}

/// Names of the child cgroups; empty if the cgroup went away.
fn children(dir: &Path) -> Result<Vec<String>, NoVms> {
    let gone = |e: &io::Error| {
        e.kind() == io::ErrorKind::NotFound
            || e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if gone(&e) => return Ok(Vec::new()),
        Err(e) => return Err(unread(dir, &e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) if gone(&e) => break,
            Err(e) => return Err(unread(dir, &e)),
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}
