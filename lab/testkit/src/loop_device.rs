//! Files as block devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// A loop device, detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    detached: AtomicBool,
}

impl LoopDevice {
    /// Attaches a file, with more options of losetup(8). `None`, with a line that says so, where the system makes no
    /// loop devices: that needs root.
    #[must_use]
    pub fn new(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show"]).args(options).arg(file).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            eprintln!("SKIPPED: cannot make a loop device here (not root?)");
            return None;
        };
        let path = String::from_utf8(made.stdout).unwrap().trim().into();
        Some(LoopDevice { path, detached: AtomicBool::new(false) })
    }

    /// Path of the loop device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches the file. Linux keeps the device until nobody has it open.
    pub fn detach(&self) {
        // Once only: its number may be another test's by now.
        if !self.detached.swap(true, Ordering::Relaxed) {
            let _ = Command::new("losetup").arg("--detach").arg(&self.path).output();
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.detach();
    }
}
