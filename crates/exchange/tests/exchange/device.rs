//! Slots on a real block device. Needs root, to make one of a file.
use crate::common;

use std::path::{Path, PathBuf};

use common::{exchange, make, publication};
use parda_control::{Bytes, Instant};
use parda_exchange::region::{Block, FileRegion};
use parda_exchange::{Exchange as _, Region, RegionFault, SlotCount, SlotIndex};
use parda_testkit::LoopDevice;

fn region(device: &LoopDevice, offset: u64, slots: u32) -> FileRegion {
    let slots = SlotCount::new(slots).unwrap();
    FileRegion::new(device.path(), Some(Bytes::kib(offset)), slots).unwrap()
}

#[test]
fn hosts_hear_each_other_in_a_region_of_a_device_and_leave_the_rest_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    let mut disk = vec![0x11; 17 * 4096];
    disk[8 * 4096..].fill(0);
    std::fs::write(&file, disk).unwrap();
    let Some(device) = LoopDevice::new(&file, &[]) else { return };
    make(device.path(), Some(Bytes::kib(32)), 8);
    let mut a = exchange(region(&device, 32, 8), "a", 0);
    let mut b = exchange(region(&device, 32, 8), "b", 7);
    for now in 0..2 {
        for host in [&mut a, &mut b] {
            host.collect(Instant(now)).unwrap();
            host.publish(&publication(1.0)).unwrap();
        }
    }
    assert_eq!(a.collect(Instant(2)).unwrap().messages.len(), 1);
    let fault = region(&device, 32, 9).read().unwrap_err();
    assert!(matches!(fault, RegionFault::TooSmall { .. }), "{fault}");
    drop((a, b, device));
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes[..8 * 4096].iter().all(|byte| *byte == 0x11));

    let device = LoopDevice::new(&file, &["--read-only"]).unwrap();
    let mut region = region(&device, 32, 8);
    assert!(region.read().is_ok());
    let fault = region.write(SlotIndex(0), &Block::ZERO).unwrap_err();
    assert!(matches!(fault, RegionFault::ReadOnly), "{fault}");
}

/// Names of devices below /dev are links.
#[test]
fn a_device_is_found_through_a_link_below_dev_only() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::new(&file, &[]) else { return };
    let elsewhere = dir.path().join("link");
    std::os::unix::fs::symlink(device.path(), &elsewhere).unwrap();
    let read = |path: &Path| {
        let mut region = FileRegion::new(path, None, SlotCount::new(8).unwrap()).unwrap();
        region.read().map(drop)
    };
    assert!(matches!(read(&elsewhere), Err(RegionFault::Link(_))));
    let below = PathBuf::from(format!("/dev/parda-test-{}", std::process::id()));
    if std::os::unix::fs::symlink(device.path(), &below).is_ok() {
        let outcome = read(&below);
        std::fs::remove_file(&below).unwrap();
        outcome.unwrap();
    }
}
