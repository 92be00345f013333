//! Depths set, looked after and put back, on files in place of a kernel's.

use crate::common;

use common::Tree;
use parda_control::DepthBounds;
use parda_steer::journal::JournalError;
use parda_steer::knob::DepthMethod;
use parda_steer::multipath::PathState;
use parda_steer::steering::{SteerError, Steering, SteeringEvent};

const DEPTH: &str = "sys/devices/host0/0:0:0:1/queue_depth";
const OTHER: &str = "sys/devices/host0/0:0:1:1/queue_depth";

fn take(tree: &Tree, dir: &str) -> Steering {
    Steering::take(&tree.resolve(dir).unwrap(), None, &tree.journal()).unwrap()
}

#[test]
fn a_lun_is_held_by_its_own_depth_from_one_to_what_its_adapter_takes() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let mut lun = take(&tree, &disk);
    assert_eq!(lun.bounds(), DepthBounds { least: 1, most: 100, cheap: true });
    assert_eq!(lun.set(7).unwrap().depth, 7);
    assert_eq!(tree.read(DEPTH), "7");
    assert_eq!(lun.set(0).unwrap().depth, 1);
    assert_eq!(lun.set(5000).unwrap().depth, 100);
    lun.release().unwrap();
    assert_eq!(tree.read(DEPTH), "32");
    assert_eq!(tree.read(&format!("{disk}/queue/nr_requests")), "256", "not its business");
}

#[test]
fn a_depth_that_is_refused_leaves_what_was_set_before() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let (device, journal) = (tree.resolve(&disk).unwrap(), tree.journal());
    let take_for = |depth, method| Steering::take_for(depth, &device, method, &journal);
    let mut first = take_for(8, None).unwrap();
    first.set(8).unwrap();
    first.leave();
    for depth in [0, 101] {
        let refused = take_for(depth, None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("sda: a depth of {depth} cannot be set: 1 to 100 can")
        );
    }
    // Without an elevator this would be the whole adapter's.
    let refused = take_for(16, Some(DepthMethod::NrRequests)).unwrap_err();
    assert!(matches!(refused, SteerError::Refused(_)), "{refused}");
    assert_eq!(tree.read(DEPTH), "8", "what was set before is still set");
    take_for(9, None).unwrap().release().unwrap();
    assert_eq!(tree.read(DEPTH), "32", "and what was there before that is still known");
}

#[test]
fn a_disk_with_four_hardware_queues_counts_each_and_rounds_down() {
    let tree = Tree::new();
    tree.disk("sys/devices/virtio/vdb", "252:16", 4);
    let mut disk = take(&tree, "sys/devices/virtio/vdb");
    assert_eq!(disk.bounds(), DepthBounds { least: 16, most: 1024, cheap: false });
    assert_eq!(disk.set(31).unwrap().depth, 28);
    assert_eq!(tree.read("sys/devices/virtio/vdb/queue/nr_requests"), "7");
    assert_eq!(disk.set(3).unwrap().depth, 16, "it cannot go lower");
}

#[test]
fn a_drop_by_the_kernel_is_congestion_and_its_way_back_is_none() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let mut lun = take(&tree, &disk);
    lun.set(20).unwrap();
    assert_eq!(lun.check().unwrap().events, []);

    tree.file(DEPTH, "14");
    let found = lun.check().unwrap();
    assert!(found.dropped());
    assert_eq!(found.events, [SteeringEvent::Dropped { path: "sda".into(), from: 20, to: 14 }]);
    assert_eq!((found.in_force.depth, tree.read(DEPTH).as_str()), (14, "14"), "left as it is");

    for back in ["14", "15", "20"] {
        tree.file(DEPTH, back);
        assert_eq!(lun.check().unwrap().events, [], "{back}");
    }
    tree.file(DEPTH, "9");
    assert!(lun.check().unwrap().dropped(), "each drop counts");
    assert_eq!(lun.set(20).unwrap().depth, 20, "until it is set again");
}

#[test]
fn what_somebody_else_raises_is_set_again_and_told() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let mut lun = take(&tree, &disk);
    lun.set(8).unwrap();
    tree.file(DEPTH, "64");
    let found = lun.check().unwrap();
    assert_eq!(found.events, [SteeringEvent::Changed { path: "sda".into(), set: 8, found: 64 }]);
    assert_eq!((found.in_force.depth, tree.read(DEPTH).as_str()), (8, "8"));
    assert_eq!(lun.check().unwrap().events, []);
}

#[test]
fn the_depth_is_split_over_the_paths_that_live_and_split_again_when_one_fails() {
    let tree = Tree::new();
    let (a, b) = (tree.scsi("sda", "0:0:0:1", "8:0"), tree.scsi("sdb", "0:0:1:1", "8:16"));
    let san = tree.mapped(0, "san", "mpath-3600", &[&a, &b]);
    let mut device = take(&tree, &san);
    assert_eq!(device.bounds().least, 2);
    assert_eq!(device.set(9).unwrap().depth, 9);
    assert_eq!((tree.read(DEPTH).as_str(), tree.read(OTHER).as_str()), ("5", "4"));

    tree.file("sys/devices/host0/0:0:0:1/state", "transport-offline");
    let found = device.check().unwrap();
    let failed = SteeringEvent::State { path: "sda".into(), state: PathState::Failed };
    assert_eq!((found.events, found.in_force.depth), (vec![failed], 9));
    assert_eq!((tree.read(DEPTH).as_str(), tree.read(OTHER).as_str()), ("1", "9"));
    assert_eq!(device.bounds().least, 1);

    tree.file("sys/devices/host0/0:0:0:1/state", "running");
    assert_eq!(device.check().unwrap().in_force.depth, 9);
    assert_eq!((tree.read(DEPTH).as_str(), tree.read(OTHER).as_str()), ("5", "4"));
    device.release().unwrap();
    assert_eq!((tree.read(DEPTH).as_str(), tree.read(OTHER).as_str()), ("32", "32"));
}

#[test]
fn between_two_ticks_only_what_is_set_is_looked_at() {
    let tree = Tree::new();
    let (a, b) = (tree.scsi("sda", "0:0:0:1", "8:0"), tree.scsi("sdb", "0:0:1:1", "8:16"));
    let san = tree.mapped(0, "san", "mpath-3600", &[&a, &b]);
    let mut device = take(&tree, &san);
    device.set(8).unwrap();
    tree.file("sys/devices/host0/0:0:0:1/state", "transport-offline");
    tree.file(OTHER, "3");
    let found = device.check_knobs().unwrap();
    let full = SteeringEvent::Dropped { path: "sdb".into(), from: 4, to: 3 };
    assert_eq!((found.dropped(), found.events, found.in_force.depth), (true, vec![full], 7));
    let failed = SteeringEvent::State { path: "sda".into(), state: PathState::Failed };
    assert_eq!(device.check().unwrap().events, [failed], "left for the tick");
    device.release().unwrap();
}

#[test]
fn a_path_that_comes_or_goes_for_good_changes_the_split() {
    let tree = Tree::new();
    let (a, b) = (tree.scsi("sda", "0:0:0:1", "8:0"), tree.scsi("sdb", "0:0:1:1", "8:16"));
    let san = tree.mapped(0, "san", "mpath-3600", &[&a]);
    let mut device = take(&tree, &san);
    device.set(8).unwrap();
    tree.put_above(&san, &b);
    assert_eq!(device.check().unwrap().events, [SteeringEvent::Added { path: "sdb".into() }]);
    assert_eq!((tree.read(DEPTH).as_str(), tree.read(OTHER).as_str()), ("4", "4"));
    tree.remove(&format!("{san}/slaves/sda"));
    assert_eq!(device.check().unwrap().events, [SteeringEvent::Removed { path: "sda".into() }]);
    assert_eq!(tree.read(OTHER), "8");
    tree.remove(&format!("{san}/slaves/sdb"));
    assert!(matches!(device.check(), Err(SteerError::Gone(_))), "a device without paths");
    device.release().unwrap();
    assert_eq!((tree.read(DEPTH).as_str(), tree.read(OTHER).as_str()), ("32", "32"));
}

#[test]
fn a_device_that_is_taken_away_is_gone_and_leaves_nothing_in_the_journal() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let mut lun = take(&tree, &disk);
    lun.set(8).unwrap();
    tree.remove("sys/devices/host0/0:0:0:1");
    assert!(matches!(lun.check(), Err(SteerError::Gone(_))));
    assert!(matches!(lun.set(9), Err(SteerError::Gone(_))));
    assert_eq!(lun.release().unwrap().gone.len(), 1);
    assert_eq!(tree.journal().names().unwrap(), [""; 0]);
}

#[test]
fn another_disk_under_the_same_name_is_not_written_to() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let mut lun = take(&tree, &disk);
    lun.set(8).unwrap();
    tree.file(&format!("{disk}/diskseq"), "8");
    tree.file(DEPTH, "30");
    assert!(matches!(lun.check(), Err(SteerError::Gone(_))));
    lun.release().unwrap();
    assert_eq!(tree.read(DEPTH), "30");
}

#[test]
fn what_a_dead_process_left_is_put_back_before_it_is_taken_again() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let mut lun = take(&tree, &disk);
    lun.set(3).unwrap();
    lun.leave();
    assert_eq!(tree.read(DEPTH), "3");
    let mut again = take(&tree, &disk);
    assert_eq!(tree.read(DEPTH), "32");
    again.set(5).unwrap();
    again.leave();
    let restored = tree.journal().restore_all().unwrap();
    assert_eq!(restored.len(), 1);
    assert_eq!(restored[0].as_ref().unwrap().back[0].value, "32");
    assert_eq!(tree.read(DEPTH), "32");
    assert!(tree.journal().restore_all().unwrap().is_empty(), "once");
}

#[test]
fn a_device_that_is_held_is_neither_taken_nor_restored_by_another() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let mut lun = take(&tree, &disk);
    lun.set(3).unwrap();
    let me = std::process::id().to_string();
    let device = tree.resolve(&disk).unwrap();
    let error = Steering::take(&device, None, &tree.journal()).unwrap_err().to_string();
    assert!(error.contains(&format!("sda is being steered by process {me}")), "{error}");
    assert!(tree.journal().restore_device("sda").unwrap().is_empty());
    let results = tree.journal().restore_all().unwrap();
    assert!(matches!(&results[..], [Err(JournalError::Held { holder, .. })] if *holder == me));
    assert_eq!((tree.read(DEPTH).as_str(), tree.journal().holder("sda")), ("3", Some(me)));
    drop(lun);
    assert_eq!((tree.read(DEPTH).as_str(), tree.journal().holder("sda")), ("32", None));
}

#[test]
fn a_journal_that_is_none_is_pointed_at() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    tree.file("run/parda/steer/sda.json", "[\n  {\"file\": 7}]");
    let device = tree.resolve(&disk).unwrap();
    let error = Steering::take(&device, None, &tree.journal()).unwrap_err().to_string();
    assert!(error.contains("run/parda/steer/sda.json:2:12: is no journal"), "{error}");
}

#[test]
fn requests_of_a_lun_are_never_limited_without_an_elevator() {
    let tree = Tree::new();
    let disk = tree.scsi("sda", "0:0:0:1", "8:0");
    let device = tree.resolve(&disk).unwrap();
    let asked = Some(DepthMethod::NrRequests);
    let error = Steering::take(&device, asked, &tree.journal()).unwrap_err().to_string();
    assert!(error.contains("the whole adapter, for every LUN"), "{error}");

    tree.file(&format!("{disk}/queue/scheduler"), "none [mq-deadline]");
    let mut lun = Steering::take(&device, asked, &tree.journal()).unwrap();
    assert_eq!(lun.set(6).unwrap().depth, 6);
    tree.file(&format!("{disk}/queue/scheduler"), "[none] mq-deadline");
    tree.file(&format!("{disk}/queue/nr_requests"), "100");
    for _ in 0..2 {
        assert!(lun.check().unwrap_err().to_string().contains("the whole adapter"));
        assert_eq!(tree.read(&format!("{disk}/queue/nr_requests")), "100");
    }
    lun.release().unwrap();
    assert_eq!(tree.read(&format!("{disk}/queue/nr_requests")), "100");
}

#[test]
fn namespaces_of_one_controller_are_not_limited_without_an_elevator() {
    let tree = Tree::new();
    let nvme = "sys/devices/pci/nvme/nvme0";
    tree.disk(&format!("{nvme}/nvme0n1"), "259:0", 2);
    tree.disk(&format!("{nvme}/nvme0n2"), "259:1", 2);
    let device = tree.resolve(&format!("{nvme}/nvme0n1")).unwrap();
    let error = Steering::take(&device, None, &tree.journal()).unwrap_err().to_string();
    assert!(error.contains("the whole controller, for nvme0n2 as well"), "{error}");
    tree.remove(&format!("{nvme}/nvme0n2"));
    assert!(Steering::take(&device, None, &tree.journal()).is_ok());
}

#[test]
fn a_disk_has_no_depth_of_a_lun() {
    let tree = Tree::new();
    tree.disk("sys/devices/virtio/vdb", "252:16", 1);
    let device = tree.resolve("sys/devices/virtio/vdb").unwrap();
    let error =
        Steering::take(&device, Some(DepthMethod::QueueDepth), &tree.journal()).unwrap_err();
    assert!(error.to_string().contains("vdb: is no SCSI disk"), "{error}");
}
