//! The VMs there are, and which cgroup belongs to which.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parda_control::Shares;

use crate::cgroup::pattern::Pattern;

/// Where cgroups are mounted.
const MOUNTED: &str = "sys/fs/cgroup";

/// Why there are no VMs to tell apart: the host is one VM then.
#[derive(Debug, thiserror::Error)]
pub enum NoVms {
    /// No cgroup v2 where it should be mounted.
    #[error("{}: no cgroup v2 is mounted here, so VMs cannot be told apart: the host is one VM \
             (boot with systemd.unified_cgroup_hierarchy=1)", .0.display())]
    NotV2(PathBuf),
    /// The IO controller is not in it.
    #[error("{}: has no io controller ({controllers}): another hierarchy has it (cgroup v1's \
             blkio), or the kernel has none; the host is one VM", file.display())]
    NoIo {
        /// The file that says which controllers there are.
        file: PathBuf,
        /// What it says.
        controllers: String,
    },
    /// It cannot be looked at.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// VMs as somebody named them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmPattern {
    /// What to call it. Where several cgroups match, each has its own name after it.
    pub name: String,
    /// Which cgroups: each is one VM.
    pub pattern: Pattern,
    /// What each has.
    pub shares: Shares,
}

/// A VM of this host: the path of its cgroup below the cgroup root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmKey(pub String);

impl fmt::Display for VmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// How people call it.
    pub name: String,
    /// What it has.
    pub shares: Shares,
    /// The id of its cgroup. Another one under the same path is another VM, started anew.
    pub id: u64,
    /// Ids of the cgroups below its own: threads of its CPUs, containers of its pod.
    pub nested: Vec<u64>,
}

/// What has become of VMs since the look before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there now, or again.
    Came(VmKey),
    /// It is there no more.
    Went(VmKey),
}

/// The VMs of a host.
#[derive(Clone, Debug)]
pub struct Vms {
    mounted: PathBuf,
    patterns: Vec<VmPattern>,
    vms: BTreeMap<VmKey, Vm>,
    of: HashMap<u64, VmKey>,
}

impl Vms {
    /// The VMs that are there now. Those that come later are found by [`Vms::refresh`].
    pub fn find(root: &Path, patterns: &[VmPattern]) -> Result<Vms, NoVms> {
        let mounted = root.join(MOUNTED);
        let file = mounted.join("cgroup.controllers");
        let controllers = match fs::read_to_string(&file) {
            Ok(text) => text.trim().to_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(NoVms::NotV2(mounted)),
            Err(source) => return Err(NoVms::Read { path: file, source }),
        };
        if !controllers.split_whitespace().any(|name| name == "io") {
            return Err(NoVms::NoIo { file, controllers });
        }
        let patterns = patterns.to_vec();
        let mut vms = Vms { mounted, patterns, vms: BTreeMap::new(), of: HashMap::new() };
        vms.refresh()?;
        Ok(vms)
    }

    /// Looks again: VMs come and go.
    pub fn refresh(&mut self) -> Result<Vec<Change>, NoVms> {
        let mut found = Found::default();
        self.walk(&self.mounted, &mut Vec::new(), &mut found)?;
        let vms = self.named(found);
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

    /// Other shares, or other VMs. What they are is known after the next [`Vms::refresh`].
    pub fn set_patterns(&mut self, patterns: &[VmPattern]) {
        self.patterns = patterns.to_vec();
    }

    /// The VMs, by the paths of their cgroups.
    pub fn iter(&self) -> impl Iterator<Item = (&VmKey, &Vm)> {
        self.vms.iter()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, key: &VmKey) -> Option<&Vm> {
        self.vms.get(key)
    }

    /// The VM that a cgroup belongs to, by the cgroup's id: its own, or one below it.
    #[must_use]
    pub fn of(&self, cgroup: u64) -> Option<&VmKey> {
        self.of.get(&cgroup)
    }

    /// Ids of all cgroups of all VMs, and whose they are.
    pub fn ids(&self) -> impl Iterator<Item = (u64, &VmKey)> {
        self.of.iter().map(|(id, key)| (*id, key))
    }

    /// The directory of a VM's cgroup.
    #[must_use]
    pub fn dir(&self, key: &VmKey) -> PathBuf {
        self.mounted.join(&key.0)
    }

    /// Where cgroups are mounted.
    #[must_use]
    pub fn mounted(&self) -> &Path {
        &self.mounted
    }

    /// Goes down to where VMs can be. What is below a VM belongs to it.
    fn walk(&self, dir: &Path, path: &mut Vec<String>, found: &mut Found) -> Result<(), NoVms> {
        if let Some(index) = self.patterns.iter().position(|p| p.pattern.matches(path)) {
            let mut ids = Vec::new();
            below(dir, &mut ids)?;
            if let Some((own, nested)) = ids.split_first() {
                found.vms.push((path.clone(), index, *own, nested.to_vec()));
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

    fn named(&self, found: Found) -> BTreeMap<VmKey, Vm> {
        let mut matched = vec![0; self.patterns.len()];
        for (_, index, ..) in &found.vms {
            matched[*index] += 1;
        }
        let vm = |(path, index, id, nested): (Vec<String>, usize, u64, Vec<u64>)| {
            let VmPattern { name, pattern, shares } = &self.patterns[index];
            let own = path.last().map_or_else(String::new, |dir| pattern.name_of(dir));
            let name = if matched[index] == 1 { name.clone() } else { format!("{name}/{own}") };
            (VmKey(path.join("/")), Vm { name, shares: *shares, id, nested })
        };
        found.vms.into_iter().map(vm).collect()
    }
}

/// Path, which pattern, the cgroup's id and those below it.
#[derive(Default)]
struct Found {
    vms: Vec<(Vec<String>, usize, u64, Vec<u64>)>,
}

/// The id of a cgroup, then those of all below it. None at all: it went away meanwhile.
fn below(dir: &Path, ids: &mut Vec<u64>) -> Result<(), NoVms> {
    match fs::metadata(dir) {
        Ok(meta) => ids.push(meta.ino()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(NoVms::Read { path: dir.to_owned(), source }),
    }
    for name in children(dir)? {
        below(&dir.join(name), ids)?;
    }
    Ok(())
}

/// Names of the cgroups in one; none if it went away meanwhile.
fn children(dir: &Path) -> Result<Vec<String>, NoVms> {
    let fail = |source| NoVms::Read { path: dir.to_owned(), source };
    let gone = |e: &io::Error| {
        e.kind() == io::ErrorKind::NotFound
            || e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if gone(&e) => return Ok(Vec::new()),
        Err(e) => return Err(fail(e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) if gone(&e) => break,
            Err(e) => return Err(fail(e)),
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}
