//! A disk of this machine whose IOs take 20 ms, and a load on it: a loop device on a file of
//! nbdkit's, whose own log says what it was asked for at once.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parda_steer::{Device, Journal};
use tempfile::TempDir;

/// Why these tests cannot run here, if they cannot.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    let absent = ["losetup", "nbdkit", "nbdfuse", "fio"].into_iter().find(|program| {
        let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        found.is_err()
    });
    let devices = ["/dev/loop-control", "/dev/fuse"].into_iter().find(|d| !Path::new(d).exists());
    absent.or(devices).map(|thing| format!("{thing} is not there"))
}

pub struct SlowDisk {
    pub node: PathBuf,
    pub dir: TempDir,
    nbdkit: Child,
    nbdfuse: Child,
}

impl SlowDisk {
    pub fn new() -> SlowDisk {
        let dir = tempfile::tempdir().unwrap();
        let (socket, mount) = (dir.path().join("nbd.sock"), dir.path().join("mount"));
        fs::create_dir(&mount).unwrap();
        let log = format!("logfile={}", dir.path().join("log").display());
        let nbdkit = Command::new("nbdkit")
            .args(["-f", "--exit-with-parent", "-U"])
            .arg(&socket)
            .args(["--filter=log", "--filter=delay", "memory", "64M"])
            .args(["rdelay=20ms", "wdelay=20ms", &log])
            .spawn()
            .unwrap();
        wait("nbdkit", || socket.exists());
        let file = mount.join("disk");
        let nbdfuse = Command::new("nbdfuse")
            .args(["-C", "16"])
            .arg(&file)
            .arg("--unix")
            .arg(&socket)
            .spawn()
            .unwrap();
        wait("nbdfuse", || file.exists());
        let node = run("losetup", &["-f", "--show", "--direct-io=on", file.to_str().unwrap()]);
        let disk = SlowDisk { node: node.into(), dir, nbdkit, nbdfuse };
        // As it comes, whatever the one before left.
        disk.write("queue/scheduler", "none");
        disk.write("queue/nr_requests", "127");
        disk.write("queue/nr_requests", "128");
        disk
    }

    pub fn name(&self) -> String {
        self.node.file_name().unwrap().to_str().unwrap().to_owned()
    }

    pub fn device(&self) -> Device {
        Device::resolve("/".as_ref(), &self.node).unwrap()
    }

    pub fn journal(&self) -> Journal {
        Journal::at(self.dir.path().join("state"))
    }

    pub fn file(&self, path: &str) -> PathBuf {
        Path::new("/sys/block").join(self.name()).join(path)
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap().trim().to_owned()
    }

    pub fn write(&self, path: &str, value: &str) {
        fs::write(self.file(path), value).unwrap();
    }

    pub fn detach(&self) {
        run("losetup", &["-d", self.node.to_str().unwrap()]);
    }

    /// 64 random reads at a time, until dropped.
    pub fn load(&self) -> Load {
        let fio = Command::new("fio")
            .args([
                "--name=load",
                "--rw=randread",
                "--bs=4k",
                "--direct=1",
                "--ioengine=libaio",
                "--thread",
            ])
            .args(["--iodepth=64", "--time_based", "--runtime=60", "--output=/dev/null"])
            .arg(format!("--filename={}", self.node.display()))
            .spawn()
            .unwrap();
        let load = Load(fio);
        wait("the load", || self.in_flight() > 0);
        load
    }

    fn in_flight(&self) -> u32 {
        let both = self.read("inflight");
        both.split_whitespace().map(|n| n.parse::<u32>().unwrap()).sum()
    }

    /// What the kernel had in flight, looked at about a thousand times a second.
    pub fn watch(&self, time: Duration) -> InFlight {
        let end = Instant::now() + time;
        let (mut most, mut sum, mut looks) = (0, 0, 0);
        while Instant::now() < end {
            let now = self.in_flight();
            (most, sum, looks) = (most.max(now), sum + u64::from(now), looks + 1);
            thread::sleep(Duration::from_millis(1));
        }
        InFlight { most, mean: sum as f64 / f64::from(looks) }
    }

    /// The same, beside something else.
    pub fn watch_beside<T>(&self, deed: impl FnOnce() -> T) -> (InFlight, T) {
        let done = Arc::new(AtomicBool::new(false));
        let (seen, file) = (done.clone(), self.file("inflight"));
        let watcher: JoinHandle<u32> = thread::spawn(move || {
            let mut most = 0;
            while !seen.load(Ordering::Relaxed) {
                let both = fs::read_to_string(&file).unwrap_or_default();
                let now = both.split_whitespace().map(|n| n.parse::<u32>().unwrap()).sum();
                most = most.max(now);
            }
            most
        });
        let result = deed();
        done.store(true, Ordering::Relaxed);
        (InFlight { most: watcher.join().unwrap(), mean: f64::NAN }, result)
    }

    /// The most that nbdkit was working on at once, of what it began to log from byte `from` on.
    pub fn most_at_nbdkit(&self, from: u64) -> u32 {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap();
        let (mut now, mut most) = (0_i64, 0);
        for line in log[usize::try_from(from).unwrap()..].lines() {
            if line.contains(" ...Read ") {
                now -= 1;
            } else if line.contains(" Read ") {
                now += 1;
            }
            // What had begun before ends without a beginning.
            now = now.max(0);
            most = most.max(now);
        }
        u32::try_from(most).unwrap()
    }

    pub fn log_size(&self) -> u64 {
        fs::metadata(self.dir.path().join("log")).unwrap().len()
    }
}

#[derive(Debug)]
pub struct InFlight {
    pub most: u32,
    pub mean: f64,
}

pub struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let quiet = |program: &str, args: &[&str]| {
            let _ = Command::new(program).args(args).stderr(Stdio::null()).status();
        };
        if !thread::panicking() && self.read("size") != "0" {
            self.write("queue/scheduler", "none");
        }
        quiet("losetup", &["-d", self.node.to_str().unwrap()]);
        let mount = self.dir.path().join("mount");
        for _ in 0..50 {
            quiet("umount", &[mount.to_str().unwrap()]);
            if self.nbdfuse.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = self.nbdkit.kill();
        let _ = self.nbdkit.wait();
        let _ = self.nbdfuse.kill();
        let _ = self.nbdfuse.wait();
    }
}

pub fn run(program: &str, args: &[&str]) -> String {
    let done = Command::new(program).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {error}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

pub fn wait(what: &str, mut until: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !until() {
        assert!(Instant::now() < end, "{what} does not come");
        thread::sleep(Duration::from_millis(10));
    }
}
