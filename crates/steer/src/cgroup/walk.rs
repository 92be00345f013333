//! A look at all cgroups of a host: those that are VMs, and those that should be and are not.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cgroup::domain::Domains;
use crate::cgroup::platform::{Made, unescaped};
use crate::cgroup::vms::{NoVms, VmPattern};
use crate::number::{DevNum, line};

/// A cgroup that is no VM of any pattern, though it looks like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Path below the cgroup root. Bytes that are no UTF-8 are `\xNN`.
    pub cgroup: String,
    /// Name of the VM, where its platform tells it.
    pub name: Option<String>,
    /// Reason why it has none of the patterns that are there, if it is not that none fits.
    pub why: Option<String>,
    dir: PathBuf,
}

impl Stranger {
    /// Whether the cgroup may have begun IOs to the device. `true` if its `io.stat` cannot be read.
    #[must_use]
    pub fn may_use(&self, device: DevNum) -> bool {
        fs::read_to_string(self.dir.join("io.stat"))
            .map_or(true, |text| line(&text, device).is_some())
    }
}

/// A cgroup that patterns match.
pub(super) struct FoundVm {
    /// Names of the directories from the root of cgroups.
    pub(super) path: Vec<String>,
    /// Indices of the patterns that match, in their order.
    pub(super) fits: Vec<usize>,
    /// Name of the VM, as its platform calls it.
    pub(super) own: String,
    /// Driver of libvirt, where it is a domain's.
    pub(super) driver: Option<&'static str>,
    /// The same where the whole name of the domain is not known.
    pub(super) unsure: Option<&'static str>,
    dir: PathBuf,
    /// Id of the cgroup.
    pub(super) id: u64,
    /// Ids of the cgroups below it.
    pub(super) nested: Vec<u64>,
}

impl FoundVm {
    /// The same as no VM.
    pub(super) fn refused(self, why: String) -> Stranger {
        let FoundVm { path, own, dir, .. } = self;
        Stranger { cgroup: path.join("/"), name: Some(own), why: Some(why), dir }
    }
}

/// A walk down to the VMs' cgroups. Cgroups below a VM's belong to it.
pub(super) struct Walk<'a> {
    patterns: &'a [VmPattern],
    domains: &'a mut Domains,
    pub(super) found: Vec<FoundVm>,
    pub(super) strangers: Vec<Stranger>,
    /// Ids of the cgroups of libvirt's domains.
    seen: HashSet<u64>,
}

impl<'a> Walk<'a> {
    /// Walks through all cgroups below a directory.
    pub(super) fn of(
        dir: &Path,
        patterns: &'a [VmPattern],
        domains: &'a mut Domains,
    ) -> Result<Walk<'a>, NoVms> {
        let (found, strangers, seen) = (Vec::new(), Vec::new(), HashSet::new());
        let mut walk = Walk { patterns, domains, found, strangers, seen };
        walk.down(dir, &mut Vec::new())?;
        walk.domains.retain(&walk.seen);
        Ok(walk)
    }

    fn down(&mut self, dir: &Path, path: &mut Vec<String>) -> Result<(), NoVms> {
        let made = Made::of(path);
        let (domain, driver) = match &made {
            Some(Made::Domain(domain)) => {
                let Some(id) = id(dir)? else { return Ok(()) };
                self.seen.insert(id);
                (self.domains.name(id, dir, domain), Some(domain.driver))
            }
            _ => (None, None),
        };
        let unsure = driver.filter(|_| domain.is_none());
        let fits = self.patterns.iter().enumerate();
        let fits = fits.filter(|(_, p)| p.pattern.matches(path, made.as_ref(), domain.as_deref()));
        let fits: Vec<usize> = fits.map(|(index, _)| index).collect();
        let name = domain.or_else(|| made.as_ref().map(Made::name));
        if !fits.is_empty() {
            let mut ids = Vec::new();
            below(dir, &mut ids)?;
            if let Some((id, nested)) = ids.split_first() {
                let own =
                    name.unwrap_or_else(|| path.last().map_or_else(String::new, |dir| bare(dir)));
                let (path, id, nested) = (path.clone(), *id, nested.to_vec());
                let dir = dir.to_owned();
                self.found.push(FoundVm { path, fits, own, driver, unsure, dir, id, nested });
            }
            return Ok(());
        }
        let before = self.found.len();
        for child in children(dir)? {
            let next = dir.join(&child);
            match child.to_str() {
                Some(child) => {
                    path.push(child.to_owned());
                    self.down(&next, path)?;
                    path.pop();
                }
                None => self.unnamed(next, path, &child),
            }
        }
        // A cgroup with VMs below it is no VM itself.
        if made.is_some() && self.found.len() == before {
            let (cgroup, dir) = (path.join("/"), dir.to_owned());
            self.strangers.push(Stranger { cgroup, name, why: None, dir });
        }
        Ok(())
    }

    /// Notes a cgroup that no pattern can name.
    fn unnamed(&mut self, dir: PathBuf, path: &[String], name: &OsStr) {
        let name = printable(name);
        let cgroup = path.iter().chain([&name]).map(String::as_str).collect::<Vec<_>>().join("/");
        let why = Some("its name is not UTF-8, so no pattern can match it: rename it".to_owned());
        self.strangers.push(Stranger { cgroup, name: None, why, dir });
    }
}

/// A name without what systemd's units end with.
fn bare(dir: &str) -> String {
    let plain = unescaped(dir);
    let kinds = [".scope", ".service", ".slice"];
    kinds.iter().find_map(|kind| plain.strip_suffix(kind)).unwrap_or(&plain).to_owned()
}

/// A name with `\xNN` for each byte that is no UTF-8.
fn printable(name: &OsStr) -> String {
    let chunks = name.as_bytes().utf8_chunks();
    chunks.map(|chunk| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii())).collect()
}

pub(super) fn unread(path: &Path, error: &io::Error) -> NoVms {
    NoVms { path: path.to_owned(), why: format!("cannot be read: {error}") }
}

/// Id of a cgroup. `None` if it went away.
fn id(dir: &Path) -> Result<Option<u64>, NoVms> {
    match fs::metadata(dir) {
        Ok(meta) => Ok(Some(meta.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unread(dir, &error)),
    }
}

/// Collects the id of a cgroup and of all cgroups below it. Empty if the cgroup went away.
fn below(dir: &Path, ids: &mut Vec<u64>) -> Result<(), NoVms> {
    let Some(id) = id(dir)? else { return Ok(()) };
    ids.push(id);
    for name in children(dir)? {
        below(&dir.join(name), ids)?;
    }
    Ok(())
}

/// Names of the child cgroups; empty if the cgroup went away.
fn children(dir: &Path) -> Result<Vec<OsString>, NoVms> {
    let gone = |e: &io::Error| {
        e.kind() == io::ErrorKind::NotFound
            || e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
    };
    // A directory's links are its own two and one of each directory in it. Most cgroups have none, and some sixty files.
    if fs::metadata(dir).is_ok_and(|about| about.nlink() == 2) {
        return Ok(Vec::new());
    }
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
            names.push(entry.file_name());
        }
    }
    names.sort();
    Ok(names)
}
