//! From what a user names to the queues to steer, and what is refused.

use crate::common;

use common::Tree;
use parda_steer::DevNum;

#[test]
fn a_partition_leads_to_its_disk() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let part = format!("{disk}/sda2");
    tree.block(&part, "8:2");
    tree.file(&format!("{part}/partition"), "2");
    let device = tree.resolve(&part).unwrap();
    assert_eq!((device.name.as_str(), device.through), ("sda", vec!["sda2".to_owned()]));
    assert_eq!(device.queues[0].describe(), "SCSI (lpfc)");
}

#[test]
fn an_encrypted_logical_volume_leads_through_its_partition_to_the_disk() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let part = format!("{disk}/sda2");
    tree.block(&part, "8:2");
    tree.file(&format!("{part}/partition"), "2");
    let volume = tree.mapped(0, "vg-data", "LVM-abc", &[&part]);
    let crypt = tree.mapped(1, "secret", "CRYPT-LUKS2-abc", &[&volume]);
    let device = tree.resolve(&crypt).unwrap();
    assert_eq!(device.name, "sda");
    assert_eq!(device.through, ["secret", "vg-data", "sda2"]);
    let sda = DevNum { major: 8, minor: 0 };
    assert_eq!((device.watched().fronts, device.watched().leaves), (vec![sda], vec![sda]));
}

#[test]
fn a_thin_volume_whose_pool_has_two_parts_on_one_disk_leads_to_that_disk() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let meta = tree.mapped(0, "vg-pool_tmeta", "LVM-a", &[&disk]);
    let data = tree.mapped(1, "vg-pool_tdata", "LVM-b", &[&disk]);
    let pool = tree.mapped(2, "vg-pool-tpool", "LVM-c", &[&meta, &data]);
    let thin = tree.mapped(3, "vg-thin", "LVM-d", &[&pool]);
    assert_eq!(tree.resolve(&thin).unwrap().name, "sda");
}

#[test]
fn a_volume_on_a_multipath_device_leads_to_all_its_paths() {
    let tree = Tree::new();
    let (a, b) = (tree.scsi("sda", "0:0:0:1", "8:0"), tree.scsi("sdb", "0:0:1:1", "8:16"));
    let san = tree.mapped(0, "san", "mpath-3600", &[&a, &b]);
    let part = tree.mapped(1, "san1", "part1-mpath-3600", &[&san]);
    let volume = tree.mapped(2, "vg-data", "LVM-abc", &[&part]);
    let device = tree.resolve(&volume).unwrap();
    assert_eq!((device.name.as_str(), device.multipath.as_deref()), ("dm-0", Some("san")));
    assert_eq!(device.through, ["vg-data", "san1"]);
    let names: Vec<&str> = device.queues.iter().map(|q| q.name.as_str()).collect();
    assert_eq!(names, ["sda", "sdb"]);
    assert_eq!(device.watched().fronts, [DevNum { major: 253, minor: 0 }]);
    assert_eq!(device.watched().leaves.len(), 2);
}

#[test]
fn what_cannot_be_steered_is_refused_by_name_and_reason() {
    let tree = Tree::new();
    let refused = |dir: &str, words: &[&str]| {
        let error = tree.resolve(dir).unwrap_err().to_string();
        assert!(error.starts_with(tree.path().join(dir).to_str().unwrap()), "{error}");
        for word in words {
            assert!(error.contains(word), "{error}: no {word:?}");
        }
    };
    let virtual_block = "sys/devices/virtual/block";
    for (name, number, word) in [
        ("zram0", "251:0", "memory"),
        ("md127", "9:127", "software RAID"),
        ("bcache0", "252:0", "cache"),
        ("drbd0", "147:0", "replicates"),
        ("zd16", "230:16", "ZFS"),
    ] {
        let dir = format!("{virtual_block}/{name}");
        tree.disk(&dir, number, 1);
        refused(&dir, &[name, word]);
    }

    let stick = tree.scsi("sdc", "0:0:0:3", "8:32");
    tree.file(&format!("{stick}/removable"), "1");
    refused(&stick, &["sdc is removable"]);

    let empty = format!("{virtual_block}/loop3");
    tree.disk(&empty, "7:3", 1);
    tree.file(&format!("{empty}/size"), "0");
    refused(&empty, &["loop3 has no size"]);

    let direct = format!("{virtual_block}/pile0");
    tree.disk(&direct, "240:0", 0);
    refused(&direct, &["pile0", "no queue of its own"]);

    let native = "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1";
    tree.block(native, "259:0");
    refused(native, &["nvme0n1", "nvme_core.multipath=N"]);

    let nothing = tree.mapped(9, "zero", "", &[]);
    refused(&nothing, &["zero lies on no disk"]);

    tree.file("etc/motd", "hello");
    refused("etc/motd", &["is no block device"]);
    refused("etc", &["is no block device"]);
    refused("dev/sdz", &["cannot be looked at: No such file"]);
}

#[test]
fn a_volume_over_two_disks_is_refused_with_their_names() {
    let tree = Tree::new();
    let (a, b) = (tree.scsi("sda", "0:0:0:1", "8:0"), tree.scsi("sdb", "0:0:0:2", "8:16"));
    let striped = tree.mapped(0, "vg-striped", "LVM-abc", &[&a, &b]);
    let error = tree.resolve(&striped).unwrap_err().to_string();
    assert!(error.contains("vg-striped lies on several disks (sda, sdb)"), "{error}");
}

#[test]
fn a_path_is_refused_with_the_multipath_device_above_it() {
    let tree = Tree::new();
    let (a, b) = (tree.scsi("sda", "0:0:0:1", "8:0"), tree.scsi("sdb", "0:0:1:1", "8:16"));
    tree.mapped(0, "san", "mpath-3600", &[&a, &b]);
    let error = tree.resolve(&b).unwrap_err().to_string();
    assert!(error.contains("sdb is a path of the multipath device dm-0"), "{error}");
}
