//! A disk of this machine whose IOs take 20 ms, and a load on it. nbdkit's own log says what it was
//! asked for at once.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parda_steer::{Device, Journal};
use parda_testkit::disk::{AttachedDisk, end, until};
use tempfile::TempDir;

/// What it stands on goes last.
pub(crate) struct SlowDisk {
    disk: AttachedDisk,
    _nbdkit: Server,
    pub(crate) dir: TempDir,
}

impl SlowDisk {
    /// `None`, said aloud, where it cannot be.
    pub(crate) fn new() -> Option<SlowDisk> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd.sock");
        let log = format!("logfile={}", dir.path().join("log").display());
        let nbdkit = Command::new("nbdkit")
            .args(["-f", "--exit-with-parent", "-U"])
            .arg(&socket)
            .args(["--filter=log", "--filter=delay", "memory", "64M"])
            .args(["rdelay=20ms", "wdelay=20ms", &log])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        until("nbdkit listens", || socket.exists());
        let _nbdkit = Server(nbdkit);
        let disk = AttachedDisk::of_nbd(&format!("nbd+unix:///?socket={}", socket.display()))?;
        Some(SlowDisk { disk, _nbdkit, dir })
    }

    pub(crate) fn node(&self) -> &std::path::Path {
        &self.disk.device
    }

    pub(crate) fn name(&self) -> String {
        self.node().file_name().unwrap().to_str().unwrap().to_owned()
    }

    pub(crate) fn device(&self) -> Device {
        Device::resolve("/".as_ref(), self.node()).unwrap()
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::at(self.dir.path().join("state"))
    }

    pub(crate) fn file(&self, path: &str) -> PathBuf {
        std::path::Path::new("/sys/block").join(self.name()).join(path)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap().trim().to_owned()
    }

    pub(crate) fn write(&self, path: &str, value: &str) {
        fs::write(self.file(path), value).unwrap();
    }

    pub(crate) fn detach(&mut self) {
        self.disk.take_away();
    }

    /// 64 random reads at a time, until dropped.
    pub(crate) fn load(&self) -> Load {
        Load(self.disk.load(&["--rw=randread", "--bs=4k", "--iodepth=64"]))
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.disk.in_flight()).unwrap()
    }

    /// What the kernel had in flight, looked at about a thousand times a second.
    pub(crate) fn watch(&self, time: Duration) -> InFlight {
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
    pub(crate) fn watch_beside<T>(&self, deed: impl FnOnce() -> T) -> (InFlight, T) {
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
    pub(crate) fn most_at_nbdkit(&self, from: u64) -> u32 {
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

    pub(crate) fn log_size(&self) -> u64 {
        fs::metadata(self.dir.path().join("log")).unwrap().len()
    }
}

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) most: u32,
    pub(crate) mean: f64,
}

pub(crate) struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // The kernel keeps loop devices, and what was set on them.
        for (file, value) in [("scheduler", "none"), ("nr_requests", "127"), ("nr_requests", "128")]
        {
            let _ = fs::write(self.file("queue").join(file), value);
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}
