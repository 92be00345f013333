//! Slots on a real block device. Needs root, to make one of a file.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{exchange, publication};
use parda_control::{Bytes, Instant};
use parda_exchange::region::{Block, FileRegion};
use parda_exchange::{Exchange, Region, RegionFault, SlotCount, SlotIndex};

/// A file as a block device, until dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(arguments: &[&str], file: &Path) -> Option<Loop> {
        let output =
            Command::new("losetup").args(["--find", "--show"]).args(arguments).arg(file).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(Loop(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "{} is left", self.0.display());
    }
}

fn region(device: &Loop, offset: u64, slots: u32) -> FileRegion {
    let slots = SlotCount::new(slots).unwrap();
    FileRegion::fixed(&device.0, Bytes::kib(offset), None, slots).unwrap()
}

#[test]
fn hosts_hear_each_other_in_a_region_of_a_device_and_leave_the_rest_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, vec![0x11; 16 * 4096]).unwrap();
    let zeros = FileRegion::fixed(&file, Bytes::kib(32), None, SlotCount::new(8).unwrap());
    let mut zeros = zeros.unwrap();
    for slot in 0..8 {
        zeros.write(SlotIndex(slot), &Block::ZERO).unwrap();
    }
    let Some(device) = Loop::new(&[], &file) else {
        println!("SKIPPED: cannot make a loop device here (not root?)");
        return;
    };
    let mut a = exchange(region(&device, 32, 8), "a", 0);
    let mut b = exchange(region(&device, 32, 8), "b", 7);
    for now in 0..2 {
        for host in [&mut a, &mut b] {
            host.collect(Instant(now)).unwrap();
            host.publish(&publication(1.0)).unwrap();
        }
    }
    assert_eq!(a.collect(Instant(2)).unwrap().messages.len(), 2);
    let fault = region(&device, 32, 9).read().unwrap_err().fault;
    assert!(matches!(fault, RegionFault::TooSmall { .. }), "{fault}");
    let slots = SlotCount::new(8).unwrap();
    let fault = FileRegion::growing(&device.0, slots).write(SlotIndex(0), &Block::ZERO);
    assert!(matches!(fault.unwrap_err().fault, RegionFault::NotAFile));
    drop(device);
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes[..8 * 4096].iter().all(|byte| *byte == 0x11));

    let device = Loop::new(&["--read-only"], &file).unwrap();
    assert!(region(&device, 32, 8).read().is_ok());
    let fault = region(&device, 32, 8).write(SlotIndex(0), &Block::ZERO).unwrap_err().fault;
    assert!(matches!(fault, RegionFault::ReadOnly), "{fault}");
}
