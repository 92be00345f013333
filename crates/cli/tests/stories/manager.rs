//! The agent under a service manager: what it is told, and what its watchdog judges. The manager is a socket of the test, as systemd's is.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use parda_testkit::{Client, read};
use rustix::process::Signal;

use crate::fuse::{FuseFile, Halted};
use crate::stage::{Agent, Stage, config, until, uri};
use parda_testkit::disk::{AttachedDisk, end};

/// What the agent may be without a sign of life, in the environment's spelling.
const WATCHDOG: &str = "WATCHDOG_USEC=400000";

/// How long silence is silence: several times that.
const SILENCE: Duration = Duration::from_secs(2);

/// The service manager's end.
struct Manager(UnixDatagram);

impl Manager {
    fn new(stage: &Stage) -> Manager {
        let socket = UnixDatagram::bind(stage.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Manager(socket)
    }

    /// Starts an agent with the configuration that is there.
    fn start(&self, stage: &Stage, host: &str) -> Agent {
        stage.restart(&["env", "NOTIFY_SOCKET=notify", WATCHDOG], host)
    }

    /// The next message, if one comes soon.
    fn next(&self) -> Option<String> {
        let mut message = [0; 4096];
        match self.0.recv(&mut message) {
            Ok(length) => Some(String::from_utf8(message[..length].to_vec()).unwrap()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(e) => panic!("{e}"),
        }
    }

    /// Waits for a message that has this in it. Signs of life are passed over, any other message is a failure.
    fn hears(&self, what: &str) -> String {
        let mut heard = String::new();
        until(&format!("the manager is told {what:?}"), || {
            let Some(message) = self.next() else { return false };
            if message == "WATCHDOG=1\n" {
                return false;
            }
            assert!(message.contains(what), "{message:?} before {what:?}");
            heard = message;
            true
        });
        heard
    }

    /// Waits for so many signs of life from now on.
    fn lives(&self, times: u32) {
        self.0.set_nonblocking(true).unwrap();
        while self.next().is_some() {}
        self.0.set_nonblocking(false).unwrap();
        let mut seen = 0;
        until("the agent gives signs of life", || {
            seen += u32::from(self.next().as_deref() == Some("WATCHDOG=1\n"));
            seen >= times
        });
    }

    /// Waits until there is no sign of life any more.
    fn falls_silent(&self) {
        let mut since = Instant::now();
        until("no sign of life comes any more", || {
            if self.next().is_some() {
                since = Instant::now();
            }
            since.elapsed() > SILENCE
        });
    }
}

#[test]
fn a_service_manager_is_told_when_the_agent_serves_reloads_and_ends() {
    let stage = Stage::new();
    let manager = Manager::new(&stage);
    stage.sparse("data", 1 << 20);
    let text = config("host", "mode = \"off\"", &[("vm1", "data")]);
    stage.write("host.toml", &text);
    let mut agent = manager.start(&stage, "host");
    let ready = manager.hears("READY=1");
    assert!(ready.contains("STATUS=volumes: 1; disks: 1; steered devices: 0\n"), "{ready}");
    stage.ok(&["nbdinfo", &uri("host", "vm1")]);

    agent.process.signal(Signal::HUP);
    let reloading = manager.hears("RELOADING=1");
    let since = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let since: u64 = since.unwrap().parse().unwrap();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    assert!((uptime - since as f64 / 1e6).abs() < 120.0, "{since} µs, up for {uptime} s");
    manager.hears("READY=1");

    // An error quotes what is in the file: it is no message of its own to the manager.
    let wrong = text.replace("mode = \"off\"", "mode = \"\"\"a\nWATCHDOG=trigger\nb\"\"\"");
    stage.write("host.toml", wrong);
    agent.process.signal(Signal::HUP);
    manager.hears("RELOADING=1");
    let answer = manager.hears("READY=1");
    assert!(answer.contains("STATUS=configuration not changed: host.toml:"), "{answer:?}");
    assert_eq!(answer.lines().count(), 2, "{answer:?}");

    agent.process.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    assert!(agent.process.wait().success());
}

/// A thread that is stopped, and goes on when this is dropped. To be dropped on the thread that made it.
struct Stopped(libc::pid_t);

impl Stopped {
    fn new(thread: u32) -> Stopped {
        let thread = libc::pid_t::try_from(thread).unwrap();
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: neither request reads or writes memory of this process, and the status is ours.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, thread, none, none), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none), 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(thread, &raw mut status, libc::__WALL), thread);
            assert!(libc::WIFSTOPPED(status), "{status}");
        }
        Stopped(thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the request reads and writes no memory.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

#[test]
fn an_agent_whose_main_thread_hangs_gives_no_sign_of_life() {
    let stage = Stage::new();
    let manager = Manager::new(&stage);
    stage.sparse("data", 1 << 20);
    stage.write("host.toml", config("host", "mode = \"off\"", &[("vm1", "data")]));
    let agent = manager.start(&stage, "host");
    manager.lives(3);
    let stopped = Stopped::new(agent.process.pid());
    manager.falls_silent();
    // It alone hangs: that is for the manager to end.
    let mut client = Client::connect(&stage.path("host"), "vm1");
    client.call(read(0, 4096), &[]).unwrap();
    drop(stopped);
    manager.lives(3);
    agent.stop();
}

#[test]
fn an_agent_whose_disk_hangs_is_alive() {
    let stage = Stage::new();
    let manager = Manager::new(&stage);
    stage.sparse("good", 1 << 20);
    let hanging = FuseFile::new(&stage, "bad", &["memory", "1M"]);
    let text = config("host", "mode = \"off\"", &[("good", "good"), ("bad", "bad")]);
    stage.write("host.toml", &text);
    let agent = manager.start(&stage, "host");
    let mut stuck = Client::connect(&stage.path("host"), "bad");
    stuck.call(read(0, 4096), &[]).unwrap();
    let halted = Halted::new(hanging.server());
    stuck.send(read(0, 4096), &[]);
    manager.lives(10);
    // To take it out waits for its IO, another to be put in its place for its file system.
    stage.write("host.toml", text.replace("name = \"bad\"", "name = \"again\""));
    agent.process.signal(Signal::HUP);
    agent.says("in force");
    manager.lives(10);
    let mut client = Client::connect(&stage.path("host"), "good");
    client.call(read(0, 4096), &[]).unwrap();
    drop(halted);
    assert!(stuck.receive().is_some(), "it is answered late");
    agent.stop();
}

/// What changes the queue of a device waits for the IOs that it has.
#[test]
fn an_agent_whose_steered_device_hangs_is_alive() {
    let stage = Stage::new();
    let server = ["nbdkit", "-f", "-U", "nbd", "memory", "64M"];
    let server = stage.start("nbdkit", &server);
    until("nbdkit listens", || stage.path("nbd").exists());
    let socket = stage.path("nbd");
    let Some(disk) = AttachedDisk::of_nbd(&format!("nbd+unix:///?socket={}", socket.display()))
    else {
        return;
    };
    let manager = Manager::new(&stage);
    let steered = |depth: u32| {
        format!(
            "host = \"host\"\nstatus = \"unix:host.status\"\n[[volume]]\nname = \"array\"\n[volume.control]\n\
             mode = \"static\"\nwindow_max = {depth}\nperiod = \"100ms\"\n\
             [volume.steer]\ndevice = \"{}\"\n",
            disk.device.display()
        )
    };
    stage.write("host.toml", steered(16));
    let agent = manager.start(&stage, "host");
    let halted = Halted::new(&server);
    let mut load = disk.fio(&["--rw=randread", "--bs=4k", "--runtime=3600", "--time_based"]);
    let stat = std::path::Path::new("/sys/block").join(disk.device.file_name().unwrap());
    until("an IO hangs", || {
        let inflight = std::fs::read_to_string(stat.join("inflight")).unwrap();
        inflight.split_whitespace().next() != Some("0")
    });
    stage.write("host.toml", steered(8));
    agent.process.signal(Signal::HUP);
    // The first reload changes the depth, which waits; the second waits for the first.
    manager.lives(3);
    stage.write("host.toml", steered(12));
    agent.process.signal(Signal::HUP);
    manager.lives(20);
    drop(halted);
    agent.says("in force");
    end(&mut load);
    agent.stop();
}
