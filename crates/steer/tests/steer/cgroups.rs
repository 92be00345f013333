//! VMs as cgroups, and their shares, on files in place of a kernel's.

use crate::common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::Tree;
use parda_control::{Limit, Rates, Shares, Span, VmGrant, Window};
use parda_steer::Device;
use parda_steer::cgroup::{
    CapReason, CgroupVms, Demands, HostAllowance, IoDemand, Means, Sharing, VmKey, VmPattern,
    VmsChange,
};
use parda_steer::measure::CgroupIos;

pub(crate) const CGROUPS: &str = "sys/fs/cgroup";
const WHOLE: IoDemand = IoDemand { ios: 0, bytes: 0, pending: 0.0 };
const MS5: Span = Span::from_millis(5);
const SECOND: Span = Span::from_millis(1000);

pub(crate) fn host() -> Tree {
    let tree = Tree::new();
    tree.file(&format!("{CGROUPS}/cgroup.controllers"), "cpuset cpu io memory");
    tree.file(&format!("{CGROUPS}/cgroup.subtree_control"), "cpu");
    tree
}

/// A cgroup as the kernel makes it where `io` is handed down.
pub(crate) fn cgroup(tree: &Tree, path: &str) {
    let dir = format!("{CGROUPS}/{path}");
    tree.file(&format!("{dir}/cgroup.subtree_control"), "cpu");
    for file in ["io.max", "io.stat"] {
        tree.file(&format!("{dir}/{file}"), "");
    }
    tree.file(&format!("{dir}/io.bfq.weight"), "default 100");
}

pub(crate) fn id(tree: &Tree, path: &str) -> u64 {
    fs::metadata(tree.root().join(CGROUPS).join(path)).unwrap().ino()
}

pub(crate) fn pattern(name: &str, pattern: &str, shares: u32) -> VmPattern {
    let pattern = pattern.parse().unwrap();
    let (name, shares, limit) = (name.to_owned(), Shares(shares), Limit::default());
    VmPattern { name, pattern, shares, limit, tenant: None }
}

fn key(path: &str) -> VmKey {
    VmKey(path.to_owned())
}

/// Two VMs of 2000 and 1000 shares in one slice.
fn two(tree: &Tree) -> CgroupVms {
    for path in ["m", "m/a", "m/b"] {
        cgroup(tree, path);
    }
    let patterns = [pattern("a", "m/a", 2000), pattern("b", "m/b", 1000)];
    CgroupVms::find(&tree.root(), &patterns).unwrap()
}

fn virtio(tree: &Tree) -> Device {
    tree.disk("sys/devices/virtio/vdb", "252:16", 1);
    tree.resolve("sys/devices/virtio/vdb").unwrap()
}

/// What eBPF would have counted: IOs, and how many were pending.
fn group(cgroup: u64, ios: u64, pending: f64) -> CgroupIos {
    CgroupIos { cgroup, ios, bytes: 4096 * ios, pending }
}

fn window(window: f64) -> HostAllowance {
    HostAllowance { window: Window(window), latency: MS5, least: 1 }
}

/// A tick with what VMs of `two` did and had pending.
fn tick(
    tree: &Tree,
    sharing: &mut Sharing,
    vms: &CgroupVms,
    of: [(u64, f64); 2],
    allow: HostAllowance,
) -> usize {
    sharing.look(vms, SECOND).unwrap();
    let groups = ["m/a", "m/b"].map(|path| id(tree, path));
    let groups = [group(groups[0], of[0].0, of[0].1), group(groups[1], of[1].0, of[1].1)];
    let demands = sharing.demands(vms, Some(&groups), WHOLE, allow.latency);
    sharing.set(vms, &demands, allow).unwrap().len()
}

fn cap(tree: &Tree, vm: &str) -> Option<u64> {
    let text = tree.read(&format!("{CGROUPS}/{vm}/io.max"));
    text.split(' ').find_map(|word| word.strip_prefix("riops="))?.parse().ok()
}

#[test]
fn vms_are_found_where_a_pattern_says_with_all_that_is_below_them() {
    let tree = host();
    let db = r"machine.slice/machine-qemu\x2d1\x2ddb.scope";
    let web = r"machine.slice/machine-qemu\x2d2\x2dweb.scope";
    for path in ["machine.slice", db, web, "system.slice", "system.slice/ssh.service"] {
        cgroup(&tree, path);
    }
    let vcpu = format!("{db}/libvirt/vcpu0");
    cgroup(&tree, &format!("{db}/libvirt"));
    cgroup(&tree, &vcpu);
    let patterns = [pattern("db", "libvirt:db", 2000), pattern("vm", "libvirt:*", 500)];
    let vms = CgroupVms::find(&tree.root(), &patterns).unwrap();
    let found: Vec<_> =
        vms.iter().map(|(key, vm)| (key.0.as_str(), vm.name.as_str(), vm.shares.0)).collect();
    assert_eq!(found, [(db, "db", 2000), (web, "vm", 500)], "the first that matches counts");
    assert_eq!(vms.of(id(&tree, &vcpu)), Some(&key(db)));
    assert_eq!(vms.of(id(&tree, web)), Some(&key(web)));
    assert_eq!(vms.of(id(&tree, "system.slice/ssh.service")), None);
}

#[test]
fn several_vms_of_one_pattern_keep_their_own_names() {
    let tree = host();
    for path in ["qemu.slice", "qemu.slice/100.scope", "qemu.slice/101.scope"] {
        cgroup(&tree, path);
    }
    let vms = CgroupVms::find(&tree.root(), &[pattern("guest", "proxmox:*", 1000)]).unwrap();
    let names: Vec<_> = vms.iter().map(|(_, vm)| vm.name.as_str()).collect();
    assert_eq!(names, ["guest/100", "guest/101"]);
}

#[test]
fn vms_come_and_go_and_one_started_anew_is_another() {
    let tree = host();
    let mut vms = two(&tree);
    assert_eq!(vms.refresh().unwrap(), []);
    tree.folder(&format!("{CGROUPS}/m/elsewhere"));
    fs::rename(tree.root().join(CGROUPS).join("m/a"), tree.root().join("kept")).unwrap();
    assert_eq!(vms.refresh().unwrap(), [VmsChange::Went(key("m/a"))]);
    cgroup(&tree, "m/a");
    assert_eq!(vms.refresh().unwrap(), [VmsChange::Came(key("m/a"))]);
    fs::rename(tree.root().join(CGROUPS).join("m/a"), tree.root().join("kept2")).unwrap();
    cgroup(&tree, "m/a");
    let anew = [VmsChange::Went(key("m/a")), VmsChange::Came(key("m/a"))];
    assert_eq!(vms.refresh().unwrap(), anew);
}

#[test]
fn a_host_without_cgroup_v2_is_one_vm_and_says_why() {
    let tree = Tree::new();
    let error = CgroupVms::find(&tree.root(), &[]).unwrap_err();
    assert!(error.why.contains("no cgroup v2 is mounted"), "{error}");
    assert!(error.to_string().contains("the host is one VM"), "{error}");
    tree.file(&format!("{CGROUPS}/cgroup.controllers"), "cpu memory");
    let error = CgroupVms::find(&tree.root(), &[]).unwrap_err();
    assert!(error.to_string().contains("no io controller (cpu memory)"), "{error}");
}

#[test]
fn what_no_vm_did_is_the_hosts_own() {
    let tree = host();
    let vms = two(&tree);
    let groups = [group(id(&tree, "m/a"), 10, 2.0), group(id(&tree, "m"), 5, 1.0)];
    let demands = Demands::of_groups(&vms, &groups);
    assert_eq!(demands.vms[&key("m/a")].ios, 10);
    assert_eq!(demands.vms[&key("m/b")].pending, 0.0);
    assert_eq!((demands.rest.ios, demands.rest.pending), (5, 1.0));
}

#[test]
fn without_ebpf_what_is_pending_is_theirs_who_do_it() {
    let tree = host();
    let vms = two(&tree);
    let device = virtio(&tree);
    let mut sharing = Sharing::take(&device, &vms, None, &tree.journal()).unwrap();
    let stat = |vm: &str, reads: u64| {
        let line = format!("252:16 rbytes={} wbytes=0 rios={reads} wios=0", 4096 * reads);
        tree.file(&format!("{CGROUPS}/{vm}/io.stat"), &line);
    };
    stat("m/a", 700);
    stat("m/b", 100);
    sharing.look(&vms, SECOND).unwrap();
    let whole = IoDemand { ios: 800, bytes: 0, pending: 20.0 };
    let demands = sharing.demands(&vms, None, whole, MS5);
    assert_eq!(demands.vms[&key("m/a")].pending, 17.5);
    assert_eq!(demands.vms[&key("m/b")].pending, 2.5);
    assert_eq!(demands.rest.ios, 0);
}

#[test]
fn vms_that_want_more_are_capped_by_their_shares() {
    let tree = host();
    let vms = two(&tree);
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    assert_eq!(sharing.means(), Means::Caps);
    // A window of 6 at 5 ms is 1200 IOPS.
    tick(&tree, &mut sharing, &vms, [(600, 32.0), (600, 32.0)], window(6.0));
    assert_eq!((cap(&tree, "m/a"), cap(&tree, "m/b")), (Some(800), Some(400)));
    // b leaves half of its share: it goes to a; and b may have it back at once.
    tick(&tree, &mut sharing, &vms, [(1000, 32.0), (200, 1.0)], window(6.0));
    assert_eq!((cap(&tree, "m/a"), cap(&tree, "m/b")), (Some(1000), Some(500)));
    // None wants what it may have.
    tick(&tree, &mut sharing, &vms, [(400, 2.0), (200, 1.0)], window(6.0));
    assert_eq!((cap(&tree, "m/a"), cap(&tree, "m/b")), (None, None));
}

#[test]
fn caps_rise_until_the_window_is_used_and_fall_while_ios_wait() {
    let tree = host();
    let vms = two(&tree);
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    let sum = |sharing: &Sharing| sharing.caps().filter_map(|(_, cap)| cap.ios.reads).sum::<u64>();
    let mut period = |ios: u64, pending: f64| {
        sharing.look(&vms, SECOND).unwrap();
        let groups = ["m/a", "m/b"].map(|path| group(id(&tree, path), ios / 2, 32.0));
        let whole = IoDemand { ios, bytes: 0, pending };
        let demands = sharing.demands(&vms, Some(&groups), whole, MS5);
        sharing.set(&vms, &demands, window(6.0)).unwrap();
        sum(&sharing)
    };
    // 6 outstanding at 5 ms are 1200 IOPS; io.max lets through 900 of them.
    assert_eq!(period(1200, 66.0), 1200);
    let raised = period(900, 4.5);
    assert!((1300..1400).contains(&raised), "{raised}");
    let most = (0..20).map(|_| period(900, 4.5)).last().unwrap();
    assert!((1900..=1920).contains(&most), "{most}");
    // All used, and many wait.
    let least = (0..60).map(|_| period(1200, 66.0)).last().unwrap();
    assert!((1070..1110).contains(&least), "{least}");
}

/// The two VMs, the second with a limit.
fn limited(tree: &Tree, limit: Limit) -> CgroupVms {
    let mut vms = two(tree);
    limit_second(&mut vms, limit);
    vms
}

fn limit_second(vms: &mut CgroupVms, limit: Limit) {
    let b = VmPattern { limit, ..pattern("b", "m/b", 1000) };
    vms.set_patterns(&[pattern("a", "m/a", 2000), b]);
    vms.refresh().unwrap();
}

fn iops(total: f64) -> Limit {
    Limit { iops: Rates { total: Some(total.into()), ..Rates::default() }, ..Limit::default() }
}

#[test]
fn a_limit_is_in_force_whether_or_not_shares_hold_anybody() {
    let tree = host();
    let vms = limited(&tree, iops(110.0));
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    let stat = |reads: u64| format!("252:16 rbytes={} rios={reads} wios=0", 4096 * reads);
    let done = |reads: u64| tree.file(&format!("{CGROUPS}/m/b/io.stat"), &stat(reads));
    // Before anything is known of its IOs: half each way.
    tick(&tree, &mut sharing, &vms, [(0, 0.0), (0, 0.0)], window(6.0));
    assert_eq!((cap(&tree, "m/a"), cap(&tree, "m/b")), (None, Some(55)));
    done(55);
    tick(&tree, &mut sharing, &vms, [(0, 0.0), (55, 0.3)], window(6.0));
    let found = tree.read(&format!("{CGROUPS}/m/b/io.max"));
    assert_eq!(found, "252:16 riops=100 wiops=10");
    assert_eq!(sharing.held_by(&key("m/b")), Some(CapReason::Limit));
    // What the limit holds back is no demand: the other VM has the rest of 1200 IOPS, not two thirds of them.
    done(155);
    tick(&tree, &mut sharing, &vms, [(1100, 32.0), (100, 32.0)], window(6.0));
    assert_eq!((cap(&tree, "m/a"), cap(&tree, "m/b")), (Some(1090), Some(100)));
    // The array has slowed down: shares give it less than its limit.
    let slow = HostAllowance { latency: Span::from_millis(50), ..window(6.0) };
    done(255);
    tick(&tree, &mut sharing, &vms, [(1100, 32.0), (100, 32.0)], slow);
    assert!(cap(&tree, "m/b") < Some(100), "{:?}", cap(&tree, "m/b"));
    // The limit ends: what was there before is there again, and nothing of ours.
    let vms = two(&tree);
    tick(&tree, &mut sharing, &vms, [(0, 0.0), (0, 0.0)], window(6.0));
    let unbounded = "252:16 rbps=max wbps=max riops=max wiops=max";
    assert_eq!(tree.read(&format!("{CGROUPS}/m/b/io.max")), unbounded);
}

#[test]
fn a_vm_has_the_lower_of_its_limit_and_of_its_part_of_the_tenants() {
    let tree = host();
    let mut vms = limited(&tree, iops(110.0));
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    let stat = |reads: u64| format!("252:16 rbytes={} rios={reads} wios=0", 4096 * reads);
    let mut all = 0;
    let grant = |shares, total| VmGrant { shares, limit: iops(total) };
    for (part, most, by) in [(55.0, 50, CapReason::Tenant), (220.0, 100, CapReason::Limit)] {
        vms.grant(&[grant(2000.0, 1e6), grant(1000.0, part)]);
        vms.refresh().unwrap();
        for did in [1, most] {
            all += did;
            tree.file(&format!("{CGROUPS}/m/b/io.stat"), &stat(all));
            tick(&tree, &mut sharing, &vms, [(200, 32.0), (did, 32.0)], window(6.0));
        }
        assert_eq!((cap(&tree, "m/b"), sharing.held_by(&key("m/b"))), (Some(most), Some(by)));
    }
    // It counts with less than its own shares.
    vms.grant(&[grant(2000.0, 1e6), grant(250.0, 220.0)]);
    tick(&tree, &mut sharing, &vms, [(200, 32.0), (100, 32.0)], window(1.5));
    let [a, b] = ["m/a", "m/b"].map(|vm| cap(&tree, vm).unwrap() as f64);
    assert!((a / b - 8.0).abs() < 0.2, "{a} and {b}");
}

#[test]
fn a_limit_leaves_another_programs_bounds_of_what_it_does_not_limit() {
    let tree = host();
    let bandwidth = Rates { reads: Some(4e6.into()), ..Rates::default() };
    let mut vms = limited(&tree, Limit { bandwidth, ..Limit::default() });
    let file = format!("{CGROUPS}/m/b/io.max");
    tree.file(&file, "252:16 rbps=max wbps=max riops=max wiops=77");
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    tick(&tree, &mut sharing, &vms, [(0, 0.0), (0, 0.0)], window(6.0));
    assert_eq!(tree.read(&file), "252:16 rbps=4000000", "the kernel keeps the rest");
    // What it limits no more is as it was.
    limit_second(&mut vms, iops(110.0));
    tick(&tree, &mut sharing, &vms, [(0, 0.0), (0, 0.0)], window(6.0));
    assert_eq!(tree.read(&file), "252:16 riops=55 wiops=55");
    let iops = Rates { reads: Some(50.0.into()), ..Rates::default() };
    limit_second(&mut vms, Limit { iops, ..Limit::default() });
    tick(&tree, &mut sharing, &vms, [(0, 0.0), (0, 0.0)], window(6.0));
    assert_eq!(tree.read(&file), "252:16 riops=50");
    drop(sharing);
    assert_eq!(tree.read(&file), "252:16 rbps=max wbps=max riops=max wiops=77");
}

#[test]
fn what_a_cap_holds_back_still_counts_as_wanted() {
    let tree = host();
    let vms = two(&tree);
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    tick(&tree, &mut sharing, &vms, [(600, 32.0), (600, 32.0)], window(6.0));
    // Both do what they may, and so few of their IOs can be seen waiting.
    for (vm, reads) in [("m/a", 800), ("m/b", 400)] {
        tree.file(&format!("{CGROUPS}/{vm}/io.stat"), &format!("252:16 rios={reads} wios=0"));
    }
    tick(&tree, &mut sharing, &vms, [(800, 4.0), (400, 2.0)], window(6.0));
    assert_eq!((cap(&tree, "m/a"), cap(&tree, "m/b")), (Some(800), Some(400)));
    let demands = sharing.demands(&vms, Some(&[group(id(&tree, "m/a"), 800, 4.0)]), WHOLE, MS5);
    assert!((demands.vms[&key("m/a")].pending - 2.0 * 800.0 * 0.005).abs() < 1e-9);
}

#[test]
fn a_window_below_the_knobs_floor_is_held_by_a_cap_even_for_one_vm() {
    let tree = host();
    let vms = two(&tree);
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    let allow = HostAllowance { least: 4, ..window(2.0) };
    tick(&tree, &mut sharing, &vms, [(800, 32.0), (0, 0.0)], allow);
    // 2 outstanding at 5 ms are 400 IOPS, though 4 can be in flight.
    assert_eq!(cap(&tree, "m/a"), Some(400));
}

#[test]
fn a_cap_that_somebody_changes_holds_where_it_is_lower_and_is_told_once() {
    let tree = host();
    let vms = two(&tree);
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    let file = format!("{CGROUPS}/m/a/io.max");
    let mut ticks = |theirs: &str| {
        tree.file(&file, theirs);
        let mut tick = || tick(&tree, &mut sharing, &vms, [(600, 32.0), (600, 32.0)], window(6.0));
        (tick(), cap(&tree, "m/a"), tick())
    };
    assert_eq!(ticks(""), (0, Some(800), 0));
    assert_eq!(ticks("252:16 rbps=max wbps=max riops=5 wiops=5"), (1, Some(5), 0));
    assert_eq!(ticks("252:16 rbps=max wbps=max riops=9000 wiops=5"), (1, Some(800), 0));
    assert_eq!(ticks("252:16 rbps=7 wbps=max riops=800 wiops=800"), (1, Some(800), 0));
    assert_eq!(ticks("8:0 riops=1"), (1, Some(800), 0), "all bounds were taken away");
    assert_eq!(ticks("252:16 rbps=max wbps=max riops=4 wiops=max"), (1, Some(4), 0));
    drop(sharing);
    assert_eq!(tree.read(&file), "252:16 rbps=max wbps=max riops=4 wiops=max");
}

#[test]
fn of_a_limit_and_another_programs_bounds_the_lower_one_holds_in_each_direction() {
    let tree = host();
    let file = format!("{CGROUPS}/m/b/io.max");
    let vms = limited(&tree, iops(1000.0));
    tree.file(&file, "252:16 rbps=max wbps=max riops=100 wiops=max");
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    let both = [(0, 0.0), (0, 0.0)];
    let mut read = (0, 0);
    let mut did = |reads: u64, writes: u64, sharing: &mut Sharing| {
        read = (read.0 + reads, read.1 + writes);
        let stat = format!("252:16 rbytes=9 rios={} wios={}", read.0, read.1);
        tree.file(&format!("{CGROUPS}/m/b/io.stat"), &stat);
        tick(&tree, sharing, &vms, both, window(6.0));
        sharing.held_by(&key("m/b"))
    };
    assert_eq!(did(50, 50, &mut sharing), None);
    assert_eq!(tree.read(&file), "252:16 riops=100 wiops=500");
    assert_eq!(sharing.theirs(&key("m/b")).as_deref(), Some("riops=100"));
    assert_eq!(did(100, 100, &mut sharing), Some(CapReason::Theirs));
    assert_eq!(did(50, 490, &mut sharing), Some(CapReason::Limit));
    // Set meanwhile, also a bound of what the limit does not bound.
    tree.file(&file, "252:16 rbps=4096 wbps=max riops=100 wiops=50");
    did(50, 20, &mut sharing);
    assert_eq!(tree.read(&file), "252:16 riops=100 wiops=50");
    assert_eq!(did(10, 50, &mut sharing), Some(CapReason::Theirs));
    assert_eq!(sharing.theirs(&key("m/b")).as_deref(), Some("rbps=4096 riops=100 wiops=50"));
    // One that is above ours is not to blame, and one of the last moment is not lost.
    tree.file(&file, "252:16 rbps=max wbps=max riops=520 wiops=520");
    did(250, 250, &mut sharing);
    assert_eq!(did(495, 5, &mut sharing), Some(CapReason::Limit));
    tree.file(&file, "252:16 rbps=max wbps=max riops=7 wiops=520");
    sharing.release().unwrap();
    assert_eq!(tree.read(&file), "252:16 rbps=max wbps=max riops=7 wiops=520");
}

#[test]
fn bounds_of_another_program_are_named_where_nothing_of_ours_is_set() {
    let tree = host();
    let vms = two(&tree);
    tree.file(&format!("{CGROUPS}/m/a/io.max"), "252:16 rbps=max wbps=max riops=100 wiops=max");
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    for (reads, told) in [(1, 1), (101, 0)] {
        tree.file(&format!("{CGROUPS}/m/a/io.stat"), &format!("252:16 rios={reads} wios=0"));
        assert_eq!(tick(&tree, &mut sharing, &vms, [(0, 0.0), (0, 0.0)], window(6.0)), told);
    }
    assert_eq!(sharing.held_by(&key("m/a")), Some(CapReason::Theirs));
    assert_eq!(sharing.theirs(&key("m/b")), None);
}

#[test]
fn what_was_there_before_comes_back_on_exit_and_after_a_crash() {
    let tree = host();
    let vms = two(&tree);
    let device = virtio(&tree);
    // Somebody else's bound on this device, and one on another.
    let theirs =
        "8:0 rbps=max wbps=max riops=7 wiops=7\n252:16 rbps=1000 wbps=max riops=9 wiops=max";
    tree.file(&format!("{CGROUPS}/m/a/io.max"), theirs);
    for crash in [false, true] {
        let mut sharing = Sharing::take(&device, &vms, None, &tree.journal()).unwrap();
        tick(&tree, &mut sharing, &vms, [(600, 32.0), (600, 32.0)], window(6.0));
        assert_eq!(cap(&tree, "m/a"), Some(9), "the lower one");
        if crash {
            sharing.leave();
            tree.journal().restore_device(&device.name).unwrap();
        } else {
            drop(sharing);
        }
        let back = tree.read(&format!("{CGROUPS}/m/a/io.max"));
        assert_eq!(back, "252:16 rbps=1000 wbps=max riops=9 wiops=max");
        let unbounded = "252:16 rbps=max wbps=max riops=max wiops=max";
        assert_eq!(tree.read(&format!("{CGROUPS}/m/b/io.max")), unbounded);
    }
}

#[test]
fn what_was_there_before_a_vm_was_started_anew_is_not_put_into_its_new_cgroup() {
    for (seen, crash) in [(true, false), (true, true), (false, true)] {
        let tree = host();
        let mut vms = two(&tree);
        let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
        let all = [(600, 32.0), (600, 32.0)];
        tick(&tree, &mut sharing, &vms, all, window(6.0));
        // Made while the old one is still there, so that no file system gives it the old inode.
        let at = |path: &str| tree.root().join(CGROUPS).join(path);
        fs::rename(at("m/a"), tree.root().join("old")).unwrap();
        cgroup(&tree, "m/a");
        let theirs = "252:16 rbps=max wbps=max riops=9 wiops=max";
        tree.file(&format!("{CGROUPS}/m/a/io.max"), theirs);
        vms.refresh().unwrap();
        if seen {
            tick(&tree, &mut sharing, &vms, all, window(6.0));
            assert_eq!(cap(&tree, "m/a"), Some(9), "the lower one");
        }
        if crash {
            sharing.leave();
            tree.journal().restore_all().unwrap();
        } else {
            drop(sharing);
        }
        let back = tree.read(&format!("{CGROUPS}/m/a/io.max"));
        assert_eq!(back, theirs, "seen: {seen}, crash: {crash}");
        assert_eq!(tree.journal().names().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn the_io_controller_is_handed_down_to_vms_and_taken_back() {
    let tree = host();
    let vms = two(&tree);
    tree.remove(&format!("{CGROUPS}/m/a/io.max"));
    let sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    assert_eq!(tree.read(&format!("{CGROUPS}/cgroup.subtree_control")), "+io");
    assert_eq!(tree.read(&format!("{CGROUPS}/m/cgroup.subtree_control")), "+io");
    drop(sharing);
    assert_eq!(tree.read(&format!("{CGROUPS}/cgroup.subtree_control")), "-io");
}

#[test]
fn the_io_controller_stays_with_vms_that_another_program_has_bounded_meanwhile() {
    let tree = host();
    let vms = two(&tree);
    tree.remove(&format!("{CGROUPS}/m/a/io.max"));
    let mut sharing = Sharing::take(&virtio(&tree), &vms, None, &tree.journal()).unwrap();
    tree.file(&format!("{CGROUPS}/m/a/io.max"), "");
    tick(&tree, &mut sharing, &vms, [(600, 32.0), (600, 32.0)], window(6.0));
    let theirs = "252:16 rbps=max wbps=max riops=9 wiops=max";
    tree.file(&format!("{CGROUPS}/m/a/io.max"), theirs);
    sharing.release().unwrap();
    assert_eq!(tree.read(&format!("{CGROUPS}/m/a/io.max")), theirs);
    assert_eq!(tree.read(&format!("{CGROUPS}/m/cgroup.subtree_control")), "+io");
}

#[test]
fn a_lun_has_bfq_with_weights_of_its_own_at_each_level() {
    let tree = host();
    let lun = tree.scsi("sda", "0:0:0:1", "8:0");
    let device = tree.resolve(&lun).unwrap();
    for file in ["slice_idle", "low_latency", "max_budget", "timeout_sync"] {
        tree.file(&format!("{lun}/queue/iosched/{file}"), "8");
    }
    for path in ["m", "m/a", "m/b", "s", "s/c"] {
        cgroup(&tree, path);
    }
    let patterns =
        [pattern("a", "m/a", 2000), pattern("b", "m/b", 1000), pattern("c", "s/c", 1000)];
    let vms = CgroupVms::find(&tree.root(), &patterns).unwrap();
    let mut sharing = Sharing::take(&device, &vms, None, &tree.journal()).unwrap();
    assert_eq!(sharing.means(), Means::Bfq);
    assert_eq!(tree.read(&format!("{lun}/queue/scheduler")), "bfq");
    assert_eq!(tree.read(&format!("{lun}/queue/iosched/slice_idle")), "0");
    let all = [(1, 9.0), (1, 9.0)];
    assert_eq!(tick(&tree, &mut sharing, &vms, all, window(6.0)), 0);
    for (path, weight) in [("m", 1000), ("m/a", 1000), ("m/b", 500), ("s", 333), ("s/c", 1000)] {
        let file = format!("{CGROUPS}/{path}/io.bfq.weight");
        assert_eq!(tree.read(&file), format!("8:0 {weight}"), "{path}");
    }
    tree.file(&format!("{lun}/queue/scheduler"), "none [mq-deadline] bfq");
    assert_eq!(tick(&tree, &mut sharing, &vms, all, window(6.0)), 1);
    assert_eq!(tree.read(&format!("{lun}/queue/scheduler")), "bfq");
    drop(sharing);
    assert_eq!(tree.read(&format!("{lun}/queue/scheduler")), "mq-deadline");
    assert_eq!(tree.read(&format!("{CGROUPS}/m/a/io.bfq.weight")), "8:0 default");
}
