//! Block devices whose latency is known: loop devices, on a file whose every read and write takes a
//! set time (nbdkit's delay filter, as a file by nbdfuse), or on a file in memory; and fio on them.

#![allow(clippy::print_stdout, reason = "what is skipped is said")]

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A loop device, detached when dropped.
#[derive(Debug)]
pub struct AttachedDisk {
    /// Path of the loop device.
    pub device: PathBuf,
    /// What was in its files before, to be put back: the kernel keeps loop devices.
    before: Vec<(PathBuf, String)>,
    mounted: Option<PathBuf>,
    servers: Vec<Child>,
    /// Whether it is taken away: its number may be another test's by then.
    away: bool,
    _dir: TempDir,
}

/// Lets one test of a program run at a time: those that measure time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints why a test cannot run here, so that nobody takes it for one that ran.
pub fn skipped(why: &str) {
    println!("SKIPPED: {why}");
}

fn possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        skipped("loop devices need root");
        return false;
    }
    for need in ["/dev/loop-control", "/dev/fuse"] {
        if !Path::new(need).exists() {
            skipped(&format!("no {need}"));
            return false;
        }
    }
    true
}

fn attach(file: &Path, options: &[&str]) -> PathBuf {
    let out = Command::new("losetup").args(["-f", "--show"]).args(options).arg(file).output();
    let out = out.unwrap();
    assert!(out.status.success(), "losetup: {}", String::from_utf8_lossy(&out.stderr));
    let device = PathBuf::from(String::from_utf8(out.stdout).unwrap().trim());
    // The kernel keeps loop devices: whoever had it before may have left it with fewer places.
    let queue = Path::new("/sys/block").join(device.file_name().unwrap()).join("queue");
    for (file, value) in [("scheduler", "none"), ("nr_requests", "127"), ("nr_requests", "128")] {
        std::fs::write(queue.join(file), value).unwrap();
    }
    device
}

fn attach_as(device: &Path, file: &Path) {
    let status = Command::new("losetup").arg(device).arg(file).status().unwrap();
    assert!(status.success(), "losetup {}", device.display());
}

impl AttachedDisk {
    /// A disk whose reads and writes take these times. `None`, with a line that says so, where the system makes no loop devices.
    #[must_use]
    pub fn slow(read: Duration, write: Duration) -> Option<AttachedDisk> {
        if !possible() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd");
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["-f", "--exit-with-parent", "--threads=64", "-U"]).arg(&socket);
        nbdkit.args(["--filter=delay", "memory", "256M"]);
        nbdkit.arg(format!("rdelay={}ms", read.as_millis()));
        nbdkit.arg(format!("wdelay={}ms", write.as_millis()));
        let servers = vec![child(&mut nbdkit)];
        until("nbdkit listens", || listens(&socket));
        Some(AttachedDisk::on_nbd(
            dir,
            servers,
            &format!("nbd+unix:///?socket={}", socket.display()),
        ))
    }

    /// A disk on an export of an NBD server, which gets some ten IOs at a time at most.
    #[must_use]
    pub fn of_nbd(uri: &str) -> Option<AttachedDisk> {
        possible().then(|| AttachedDisk::on_nbd(tempfile::tempdir().unwrap(), Vec::new(), uri))
    }

    fn on_nbd(dir: TempDir, mut servers: Vec<Child>, uri: &str) -> AttachedDisk {
        let mounted = dir.path().join("at");
        std::fs::create_dir(&mounted).unwrap();
        let file = mounted.join("disk");
        let mut nbdfuse = Command::new("nbdfuse");
        servers.push(child(nbdfuse.args(["-C", "16"]).arg(&file).arg(uri)));
        until("nbdfuse has the file", || file.exists());
        let device = attach(&file, &["--direct-io=on"]);
        AttachedDisk {
            device,
            before: Vec::new(),
            mounted: Some(mounted),
            servers,
            away: false,
            _dir: dir,
        }
    }

    /// A disk in memory.
    #[must_use]
    pub fn fast() -> Option<AttachedDisk> {
        possible().then(|| AttachedDisk::in_memory(None))
    }

    fn in_memory(device: Option<PathBuf>) -> AttachedDisk {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = dir.path().join("disk");
        std::fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
        let device = device.map_or_else(
            || attach(&file, &[]),
            |device| {
                attach_as(&device, &file);
                device
            },
        );
        AttachedDisk {
            device,
            before: Vec::new(),
            mounted: None,
            servers: Vec::new(),
            away: false,
            _dir: dir,
        }
    }

    fn dir(&self) -> PathBuf {
        Path::new("/sys/block").join(self.device.file_name().unwrap())
    }

    /// Number of completed IOs, by the kernel's own count.
    #[must_use]
    pub fn completed(&self) -> u64 {
        let fields = self.counts("stat");
        fields[0] + fields[4]
    }

    /// Number of IOs at the device, by the kernel's own count.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.counts("inflight").iter().sum()
    }

    fn counts(&self, file: &str) -> Vec<u64> {
        let text = std::fs::read_to_string(self.dir().join(file)).unwrap();
        text.split_whitespace().map(|n| n.parse().unwrap()).collect()
    }

    /// A disk in memory under this number, `/dev/loopN`, which nobody else is given while the disk is away.
    #[must_use]
    pub fn numbered(number: u32) -> Option<AttachedDisk> {
        possible()
            .then(|| AttachedDisk::in_memory(Some(PathBuf::from(format!("/dev/loop{number}")))))
    }

    /// Takes the device away; whoever has it open keeps it. Returns the file that was behind it.
    pub fn take_away(&mut self) -> PathBuf {
        let status = Command::new("losetup").arg("-d").arg(&self.device).status().unwrap();
        assert!(status.success(), "losetup -d");
        let gone = || std::fs::read_to_string(self.dir().join("size")).unwrap().trim() == "0";
        until("the device is gone", gone);
        self.away = true;
        self._dir.path().join("disk")
    }

    /// Puts a file behind the device again.
    pub fn bring_back(&mut self, file: &Path) {
        attach_as(&self.device, file);
        self.away = false;
    }

    /// Writes to a file of its queue, in sysfs. What was there is put back when the disk is dropped.
    pub fn set(&mut self, file: &str, value: &str) {
        let path = self.dir().join("queue").join(file);
        self.before.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
        std::fs::write(&path, value).unwrap();
    }

    /// A load that goes on until [`end`]; it has begun when this returns.
    #[must_use]
    pub fn load(&self, options: &[&str]) -> Child {
        let before = self.completed();
        let fio = self.fio(&[options, &["--runtime=600", "--time_based"]].concat());
        until("fio has begun", || self.completed() > before + 20);
        fio
    }

    /// fio on the disk, until it has done what `options` tell it to.
    #[must_use]
    pub fn fio(&self, options: &[&str]) -> Child {
        child(
            Command::new("fio")
                .args(["--name=load", "--direct=1", "--ioengine=libaio"])
                .arg(format!("--filename={}", self.device.display()))
                // One process, so that ending it ends all of its jobs.
                .args(["--thread", "--output-format=json"])
                .args(options),
        )
    }
}

impl Drop for AttachedDisk {
    fn drop(&mut self) {
        let run = |program: &str, args: &[&str]| {
            let _ = Command::new(program).args(args).stderr(Stdio::null()).status();
        };
        for (path, value) in self.before.iter().rev() {
            if path.ends_with("nr_requests") {
                // One that is shown already would not be set, whatever the driver has.
                let _ = std::fs::write(path, "16");
            }
            let chosen = value.split(['[', ']']).nth(1).unwrap_or(value.trim());
            let _ = std::fs::write(path, chosen);
        }
        if !self.away {
            run("losetup", &["-d", &self.device.display().to_string()]);
        }
        // The loop device lets go of its file a moment later.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Some(mounted) = &self.mounted
            && is_mounted(mounted)
            && Instant::now() < deadline
        {
            run("umount", &[&mounted.display().to_string()]);
            std::thread::sleep(Duration::from_millis(50));
        }
        for server in self.servers.iter_mut().rev() {
            let _ = server.kill();
            let _ = server.wait();
        }
        if let Some(mounted) = self.mounted.as_deref().filter(|mounted| is_mounted(mounted)) {
            run("umount", &["--lazy", &mounted.display().to_string()]);
        }
    }
}

/// Whether a server listens at a socket, which is there a moment before. One that serves a single client must not be asked.
#[must_use]
pub fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// A mount whose server has died is one, too.
fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

fn child(command: &mut Command) -> Child {
    let program = command.get_program().to_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()))
}

/// Waits until something is so, for two minutes at most.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is() {
        assert!(Instant::now() < deadline, "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends a load of [`AttachedDisk::load`].
pub fn end(fio: &mut Child) {
    let _ = fio.kill();
    let _ = fio.wait();
}
