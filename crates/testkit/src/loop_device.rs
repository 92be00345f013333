//! Files as block devices.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, detached when dropped.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

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
        Some(LoopDevice(String::from_utf8(made.stdout).unwrap().trim().into()))
    }

    /// Path of the loop device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Detaches the file. Linux keeps the device until nobody has it open.
    pub fn detach(&self) {
        // It may be detached already.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.detach();
    }
}
