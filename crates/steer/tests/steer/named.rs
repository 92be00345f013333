//! Which cgroup a VM's name means, where names of cgroups alone do not tell.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use parda_steer::cgroup::{CgroupVms, VmPattern};

use crate::cgroups::{CGROUPS, cgroup, host, pattern};
use crate::common::Tree;

const ONE: &str = r"machine.slice/machine-qemu\x2d1\x2ddb1.scope";
const TWO: &str = r"machine.slice/machine-qemu\x2d2\x2ddb1.scope";

/// A host with two domains, of whose names libvirt leaves the same.
fn twins() -> Tree {
    let tree = host();
    cgroup(&tree, "machine.slice");
    for scope in [ONE, TWO] {
        cgroup(&tree, scope);
        cgroup(&tree, &format!("{scope}/libvirt"));
    }
    tree
}

/// Names of VMs and the cgroups that they have.
fn found(vms: &CgroupVms) -> Vec<(&str, &str)> {
    vms.iter().map(|(key, vm)| (vm.name.as_str(), key.0.as_str())).collect()
}

/// Patterns without a VM, and cgroups without a pattern.
fn missed(vms: &CgroupVms) -> (Vec<&str>, Vec<&str>) {
    let unused = vms.unused().iter().map(|unused| unused.cgroup.as_str());
    (unused.collect(), vms.strangers().iter().map(|it| it.cgroup.as_str()).collect())
}

fn find(tree: &Tree, patterns: &[VmPattern]) -> CgroupVms {
    CgroupVms::find(&tree.root(), patterns).unwrap()
}

/// A process in a cgroup, with this command line.
fn process(tree: &Tree, cgroup: &str, pid: u32, line: &str) {
    tree.file(&format!("{CGROUPS}/{cgroup}/cgroup.procs"), &pid.to_string());
    tree.file(&format!("proc/{pid}/cmdline"), &line.replace(' ', "\0"));
}

fn both() -> [VmPattern; 2] {
    [pattern("a", "libvirt:db_1", 2000), pattern("b", "libvirt:db1", 1000)]
}

#[test]
fn the_name_that_libvirt_gave_its_process_tells_domains_apart() {
    let tree = twins();
    process(&tree, &format!("{ONE}/libvirt"), 11, "qemu -name guest=db1,debug-threads=on -S");
    process(&tree, &format!("{TWO}/libvirt"), 12, "qemu -name guest=db_1,debug-threads=on -S");
    assert_eq!(found(&find(&tree, &both())), [("b", ONE), ("a", TWO)]);
    let only = find(&tree, &both()[..1]);
    assert_eq!((found(&only), missed(&only)), (vec![("a", TWO)], (vec![], vec![ONE])));
    let each = find(&tree, &[pattern("vm", "libvirt:db?1", 1), pattern("all", "libvirt:*", 1)]);
    assert_eq!(found(&each), [("all", ONE), ("vm", TWO)], "patterns are of whole names");
}

#[test]
fn the_record_of_libvirt_tells_domains_apart() {
    let tree = twins();
    for (id, name) in [("1", "db_1"), ("2", "db1")] {
        let record = format!("<domstatus state='running'>\n  <domain type='kvm' id='{id}'>");
        tree.file(&format!("run/libvirt/qemu/{name}.xml"), &record);
    }
    // A driver has ids and records of its own.
    tree.file("run/libvirt/lxc/other.xml", "<domstatus>\n  <domain type='lxc' id='1'>");
    assert_eq!(found(&find(&tree, &both())), [("a", ONE), ("b", TWO)]);
}

#[test]
fn what_may_be_another_domain_is_refused_by_name() {
    let tree = twins();
    let vms = find(&tree, &both()[..1]);
    assert_eq!((found(&vms), missed(&vms)), (vec![], (vec!["libvirt:db_1"], vec![ONE, TWO])));
    let why = vms.strangers()[0].why.clone().unwrap();
    assert!(why.contains("libvirt:db_1") && why.contains(TWO), "{why}");
    tree.remove(&format!("{CGROUPS}/{TWO}"));
    let vms = find(&tree, &both());
    assert_eq!((found(&vms), missed(&vms).1), (vec![], vec![ONE]), "of which of the patterns?");
    let why = vms.strangers()[0].why.clone().unwrap();
    assert!(why.contains("libvirt:db_1") && why.contains("libvirt:db1"), "{why}");
    // Alone on both sides, or named by path, it is the one.
    assert_eq!(found(&find(&tree, &both()[..1])), [("a", ONE)]);
    let by_path = [pattern("path", ONE, 1), pattern("a", "libvirt:db_1", 1)];
    assert_eq!(found(&find(&tree, &by_path)), [("path", ONE)]);
}

#[test]
fn a_name_that_becomes_known_counts_from_then_on() {
    let tree = twins();
    let mut vms = find(&tree, &both());
    assert!(found(&vms).is_empty());
    process(&tree, ONE, 11, "qemu -name guest=db_1 -S");
    process(&tree, TWO, 12, "qemu -name guest=db1 -S");
    assert_eq!(vms.refresh().unwrap().len(), 2);
    assert_eq!(found(&vms), [("a", ONE), ("b", TWO)]);
    assert_eq!(missed(&vms), (vec![], vec![]));
}

#[test]
fn patterns_without_a_vm_and_vms_without_a_pattern_are_seen() {
    let tree = host();
    let pod = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1b.slice";
    let web = r"machine.slice/machine-qemu\x2d2\x2dweb.scope";
    let (nspawn, plain) = ("machine.slice/machine-own.scope", "machine/qemu-1-x.libvirt-qemu");
    let all = [pod, web, nspawn, plain, "qemu.slice/100.scope", "lxc/101"];
    for path in all.iter().chain(&["system.slice/ssh.service", "lxc/other"]) {
        cgroup(&tree, path);
    }
    cgroup(&tree, &format!("{pod}/cri-1.scope"));
    let none = [pattern("db", "libvirt:db_1", 1), pattern("all", "m/*", 1)];
    let vms = find(&tree, &none);
    let mut sorted = all;
    sorted.sort_unstable();
    assert_eq!(missed(&vms), (vec!["libvirt:db_1", "m/*"], sorted.to_vec()));
    // A kind of which each has its own pattern is no fault, one VM that never counts is.
    let shadowed = [
        pattern("some", "libvirt:*", 1),
        pattern("web", "libvirt:web", 1),
        pattern("rest", "libvirt:*", 1),
        pattern("own", "machine.slice/machine-own.scope", 1),
        pattern("pods", "kubernetes:*", 1),
        pattern("below", "qemu.slice/100.scope/*", 1),
        pattern("numbers", "proxmox:*", 1),
    ];
    cgroup(&tree, "qemu.slice/100.scope/part");
    let vms = find(&tree, &shadowed);
    assert_eq!(missed(&vms), (vec!["libvirt:web", "qemu.slice/100.scope/*"], vec![]));
    let inner = find(&tree, &[shadowed[5].clone(), pattern("lxc", "lxc/101", 1)]);
    let (unused, strangers) = missed(&inner);
    assert!(unused.is_empty() && !strangers.contains(&"qemu.slice/100.scope"), "{strangers:?}");
}

#[test]
fn a_vm_that_does_no_io_to_the_device_is_no_stranger_there() {
    let tree = host();
    for (vm, stat) in [("100", "8:0 rios=1 wios=0"), ("101", "8:16 rios=1 wios=0")] {
        cgroup(&tree, &format!("qemu.slice/{vm}.scope"));
        tree.file(&format!("{CGROUPS}/qemu.slice/{vm}.scope/io.stat"), stat);
    }
    tree.folder(&format!("{CGROUPS}/qemu.slice/102.scope"));
    let vms = find(&tree, &[]);
    let seen = vms.strangers().iter().filter(|vm| vm.may_use("8:0".parse().unwrap()));
    let seen: Vec<_> = seen.map(|vm| vm.name.clone().unwrap()).collect();
    assert_eq!(seen, ["100", "102"], "of 102 nobody knows");
}

#[test]
fn a_cgroup_whose_name_is_no_text_is_named() {
    let tree = host();
    cgroup(&tree, "m/a");
    let odd = OsStr::from_bytes(b"m/b\xff\xe9");
    fs::create_dir_all(tree.root().join(CGROUPS).join(odd)).unwrap();
    let vms = find(&tree, &[pattern("vm", "m/*", 1)]);
    assert_eq!(found(&vms), [("vm", "m/a")]);
    assert_eq!(missed(&vms), (vec![], vec![r"m/b\xff\xe9"]));
    assert!(vms.strangers()[0].why.as_ref().unwrap().contains("UTF-8"));
    // Below a VM it belongs to the VM.
    let vms = find(&tree, &[pattern("vm", "m", 1)]);
    let nested = vms.iter().map(|(_, vm)| vm.nested.len()).sum::<usize>();
    assert_eq!((nested, missed(&vms)), (2, (vec![], vec![])));
}
