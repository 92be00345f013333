//! A sysfs of files: what the kernel would show of devices that this machine does not have.

#![allow(unreachable_pub, clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use parda_steer::{Device, Journal, SteerRefusal};
use tempfile::TempDir;

pub struct Tree {
    dir: TempDir,
}

impl Tree {
    pub fn new() -> Tree {
        Tree { dir: tempfile::tempdir().unwrap() }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    pub fn journal(&self) -> Journal {
        Journal::at(self.dir.path().join("run/parda/steer"))
    }

    /// A file, with the folders above it.
    pub fn file(&self, path: &str, value: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{value}\n")).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.path().join(path)).unwrap().trim().to_owned()
    }

    pub fn folder(&self, path: &str) {
        fs::create_dir_all(self.dir.path().join(path)).unwrap();
    }

    pub fn remove(&self, path: &str) {
        let path = self.dir.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// A block device's directory, with its number.
    pub fn block(&self, dir: &str, number: &str) {
        self.file(&format!("{dir}/dev"), number);
        self.file(&format!("{dir}/size"), "2048");
        self.folder(&format!("{dir}/holders"));
        self.folder("sys/dev/block");
        symlink(self.dir.path().join(dir), self.dir.path().join("sys/dev/block").join(number))
            .unwrap();
    }

    /// A disk with `queues` hardware queues.
    pub fn disk(&self, dir: &str, number: &str, queues: u32) {
        self.block(dir, number);
        self.file(&format!("{dir}/removable"), "0");
        self.file(&format!("{dir}/diskseq"), "7");
        self.file(&format!("{dir}/queue/nr_requests"), "256");
        self.file(&format!("{dir}/queue/scheduler"), "[none] mq-deadline bfq");
        for queue in 0..queues {
            self.folder(&format!("{dir}/mq/{queue}"));
        }
    }

    /// A LUN on adapter 0: `sys/devices/host0/LUN/block/NAME`.
    pub fn scsi(&self, name: &str, lun: &str, number: &str) -> String {
        let device = format!("sys/devices/host0/{lun}");
        let dir = format!("{device}/block/{name}");
        self.disk(&dir, number, 1);
        self.file(&format!("{device}/queue_depth"), "32");
        self.file(&format!("{device}/state"), "running");
        symlink(self.dir.path().join(&device), self.dir.path().join(&dir).join("device")).unwrap();
        self.file("sys/devices/host0/scsi_host/host0/can_queue", "100");
        self.file("sys/devices/host0/scsi_host/host0/cmd_per_lun", "32");
        self.file("sys/devices/host0/scsi_host/host0/proc_name", "lpfc");
        dir
    }

    /// A device-mapper device over others.
    pub fn mapped(&self, minor: u32, name: &str, uuid: &str, below: &[&str]) -> String {
        let dir = format!("sys/devices/virtual/block/dm-{minor}");
        self.block(&dir, &format!("253:{minor}"));
        self.file(&format!("{dir}/dm/name"), name);
        self.file(&format!("{dir}/dm/uuid"), uuid);
        for other in below {
            self.put_above(&dir, other);
        }
        dir
    }

    /// Lays one device upon another.
    pub fn put_above(&self, above: &str, below: &str) {
        let name = |dir: &str| dir.rsplit('/').next().unwrap().to_owned();
        let link = |to: &str, at: String| {
            let at = self.dir.path().join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(self.dir.path().join(to), at).unwrap();
        };
        link(below, format!("{above}/slaves/{}", name(below)));
        link(above, format!("{below}/holders/{}", name(above)));
    }

    pub fn resolve(&self, dir: &str) -> Result<Device, SteerRefusal> {
        Device::resolve(self.dir.path(), &self.dir.path().join(dir))
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}
