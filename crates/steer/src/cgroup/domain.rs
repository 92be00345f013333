//! Names of libvirt's domains, of which the names of their cgroups have a part only.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::platform::Domain;

/// Domains whose names are known, by the ids of their cgroups.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    root: PathBuf,
    names: HashMap<u64, String>,
}

impl Domains {
    pub(crate) fn new(root: &Path) -> Domains {
        Domains { root: root.to_owned(), names: HashMap::new() }
    }

    /// The whole name of the domain with this cgroup, from its process or libvirt's record. `None` if neither can be read.
    pub(crate) fn name(&mut self, cgroup: u64, dir: &Path, domain: &Domain) -> Option<String> {
        if let Some(name) = self.names.get(&cgroup) {
            return Some(name.clone());
        }
        let name = self.of_process(dir, domain).or_else(|| self.of_record(domain))?;
        self.names.insert(cgroup, name.clone());
        Some(name)
    }

    /// Forgets the names of removed cgroups, as their ids may be given anew.
    pub(crate) fn retain(&mut self, there: &HashSet<u64>) {
        self.names.retain(|cgroup, _| there.contains(cgroup));
    }

    /// The name that libvirt gave its QEMU. Other drivers have processes of the guest in the same cgroup, which have what command line they
    /// like.
    fn of_process(&self, dir: &Path, domain: &Domain) -> Option<String> {
        if domain.driver != "qemu" {
            return None;
        }
        // A cgroup of threads has no list of processes.
        let processes = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        let of = |pid: &str| {
            fs::read(self.root.join("proc").join(pid).join("cmdline"))
                .ok()
                .and_then(|line| guest(&line))
        };
        processes.lines().find_map(of).or_else(|| {
            let below = fs::read_dir(dir).ok()?.filter_map(Result::ok);
            let mut below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            below.find_map(|entry| self.of_process(&entry.path(), domain))
        })
    }

    /// The name of the record, `/run/libvirt/DRIVER/NAME.xml`, that has the domain's id.
    fn of_record(&self, domain: &Domain) -> Option<String> {
        let records = fs::read_dir(self.root.join("run/libvirt").join(domain.driver)).ok()?;
        let mut records = records.filter_map(|entry| Some(entry.ok()?.path()));
        records.find_map(|path| {
            let is_record = path.extension().is_some_and(|kind| kind == "xml") && path.is_file();
            let id = if is_record { id(&fs::read_to_string(&path).ok()?)? } else { return None };
            (id == domain.id).then(|| path.file_stem()?.to_str().map(str::to_owned))?
        })
    }
}

/// The name in a command line of QEMU: `-name guest=NAME,debug-threads=on`, with commas doubled.
fn guest(line: &[u8]) -> Option<String> {
    let mut words = line.split(|byte| *byte == 0);
    words.find(|word| *word == b"-name")?;
    let mut rest = str::from_utf8(words.next()?).ok()?.strip_prefix("guest=")?.chars().peekable();
    let mut name = String::new();
    while let Some(c) = rest.next() {
        if c == ',' && rest.next_if_eq(&',').is_none() {
            break;
        }
        name.push(c);
    }
    Some(name)
}

/// The id of a record's domain: `<domain type='kvm' id='7'>`.
fn id(record: &str) -> Option<String> {
    let (_, domain) = record.split_once("<domain ")?;
    let (attributes, _) = domain.split_once('>')?;
    let (_, id) = attributes.split_once(" id='")?;
    Some(id.split_once('\'')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_from_a_command_line_and_an_id_from_a_record() {
        let line = b"/usr/bin/qemu\0-name\0guest=a,,b (x),debug-threads=on\0-S\0";
        assert_eq!(guest(line).as_deref(), Some("a,b (x)"));
        assert_eq!(guest(b"sleep\0-name"), None);
        let record =
            "<domstatus state='running' pid='9'>\n  <qemuCaps/>\n  <domain type='kvm' id='12'>\n";
        assert_eq!(id(record).as_deref(), Some("12"));
        assert_eq!(id("<domain type='kvm'>"), None);
    }
}
