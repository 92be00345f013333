//! What every story stands on: a directory, processes that end with it, bounded waiting.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use parda_agent::status::{AskError, Status, VolumeStatus};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// How long anything may take. Far more than it does, as a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a program may take that does all of its work by itself: a browser here takes a minute and more.
const PROGRAM: Duration = Duration::from_secs(900);

/// Waits until there is an answer.
pub(crate) fn wait_for<T>(what: &str, answer: impl FnMut() -> Option<T>) -> T {
    wait_for_within(PATIENCE, what, answer)
}

fn wait_for_within<T>(patience: Duration, what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(started.elapsed() < patience, "waited {patience:?} in vain: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Waits until something is true that may take longer.
pub(crate) fn until_within(patience: Duration, what: &str, true_now: impl Fn() -> bool) {
    let started = Instant::now();
    while !true_now() {
        assert!(started.elapsed() < patience, "waited {patience:?} in vain: {what}");
        sleep(Duration::from_millis(250));
    }
}

/// Waits until something is true.
pub(crate) fn until(what: &str, mut true_now: impl FnMut() -> bool) {
    wait_for(what, || true_now().then_some(()));
}

/// Stops a process, and waits until none of its threads runs any more.
pub(crate) fn stop(process: &Process) {
    process.signal(Signal::STOP);
    let tasks = format!("/proc/{}/task", process.pid());
    until("all threads are stopped", || {
        std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
            // PID (NAME) STATE …; a thread may end meanwhile.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    });
}

/// A directory in which everything of one story happens. All programs run in it, so that
/// configurations and command lines name files and sockets without a path.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
}

/// How a program ended, and what it said.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage { dir: tempfile::Builder::new().prefix("parda-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of that many bytes, all zeroes and none of them on the disk.
    pub(crate) fn sparse(&self, name: &str, size: u64) {
        File::create(self.path(name)).unwrap().set_len(size).unwrap();
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Starts a program; what it says goes to files in the stage.
    pub(crate) fn start(&self, who: &str, line: &[&str]) -> Process {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        Process::start(self.dir.path(), who, command)
    }

    /// Starts an agent with the configuration that is there, and passes it a socket as a service
    /// manager does.
    pub(crate) fn activate(&self, who: &str, host: &str, socket: &UnixListener) -> Process {
        let script = "exec env LISTEN_PID=$$ LISTEN_FDS=1 \"$0\" serve -c \"$1\" 3<&0 0</dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script, PARDA, &format!("{host}.toml")]);
        let passed = Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
        Process::start_with(self.dir.path(), who, command, passed)
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, line: &[&str]) -> Done {
        let mut process = self.start(&format!("run-{}", fastrand::u64(..)), line);
        let status = process.wait_within(PROGRAM);
        process.done(status)
    }

    /// Runs a program that must succeed. Returns what it said to standard output.
    pub(crate) fn ok(&self, line: &[&str]) -> String {
        let Done { status, out, err } = self.run(line);
        assert!(status.success(), "{}: {status}\n{out}{err}", line.join(" "));
        out
    }

    /// Runs a program that must fail. Returns what it said to standard error.
    pub(crate) fn fails(&self, line: &[&str]) -> String {
        let Done { status, out, err } = self.run(line);
        assert!(!status.success(), "{} should have failed\n{out}{err}", line.join(" "));
        err
    }

    /// Runs `parda` with these arguments.
    pub(crate) fn parda(&self, arguments: &[&str]) -> Done {
        self.run(&[&[PARDA], arguments].concat())
    }

    /// The same of the laboratory's program.
    pub(crate) fn lab(&self, arguments: &[&str]) -> Done {
        self.run(&[&[LAB], arguments].concat())
    }

    /// Makes an exchange of so many slots, for any volume.
    pub(crate) fn exchange(&self, place: &str, slots: u32) {
        self.ok(&[PARDA, "exchange", "init", place, "--slots", &slots.to_string()]);
    }

    /// Starts an agent and waits until it serves.
    pub(crate) fn agent(&self, host: &str, config: &str) -> Agent {
        self.agent_within(&[], host, config)
    }

    /// As [`Stage::agent`], started by another command.
    pub(crate) fn agent_within(&self, wrapper: &[&str], host: &str, config: &str) -> Agent {
        self.write(&format!("{host}.toml"), config);
        self.restart(wrapper, host)
    }

    /// Starts an agent with the configuration that is there.
    pub(crate) fn restart(&self, wrapper: &[&str], host: &str) -> Agent {
        let file = format!("{host}.toml");
        let line = [wrapper, &[PARDA, "serve", "-c", &file]].concat();
        let mut process = self.start(host, &line);
        let status = self.path(&format!("{host}.status"));
        until(&format!("the agent {host} answers"), || {
            if let Some(ended) = process.ended() {
                panic!("the agent {host} ended: {ended}");
            }
            UnixStream::connect(&status).is_ok()
        });
        Agent { process, status: format!("{host}.status"), dir: self.dir.path().to_owned() }
    }

    /// Starts fio on an export: time-based, until [`Load::finish`].
    pub(crate) fn load(&self, who: &str, uri: &str, options: &[&str]) -> Load {
        let (uri, output) = (format!("--uri={uri}"), format!("--output={who}.json"));
        let mut line = vec!["fio", "--name=load", "--ioengine=nbd", &uri, &output];
        line.extend(["--output-format=json", "--group_reporting", "--verify_state_save=0"]);
        // A job is a process of its own unless told otherwise, and would outlive a killed fio.
        line.push("--thread");
        // The load ends when the story says so; this is only so that it ends.
        line.extend(["--time_based", "--runtime=3600", "--verify_fatal=1"]);
        line.extend(options);
        let process = self.start(who, &line);
        Load { process, report: self.path(&format!("{who}.json")) }
    }
}

pub(crate) const PARDA: &str = env!("CARGO_BIN_EXE_parda");

/// The laboratory's program, which cargo builds with the tests of its own package, `lab/cli`.
pub(crate) const LAB: &str = concat!(env!("CARGO_BIN_EXE_parda"), "-lab");

/// The Debian package of each program that the stories use.
const PACKAGES: &[(&str, &str)] = &[
    ("curl", "curl"),
    ("fio", "fio"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-storage-daemon", "qemu-system-common"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("systemd-socket-activate", "systemd"),
    ("nbdfuse", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("ip", "iproute2"),
    ("systemd-analyze", "systemd"),
    ("systemd-nspawn", "systemd-container"),
    ("umoci", "umoci"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("prlimit", "util-linux"),
];

/// A configuration with one volume. Its disks, each a name and a path, listen on `unix:HOST`.
pub(crate) fn config(host: &str, control: &str, disks: &[(&str, &str)]) -> String {
    let mut text = format!(
        "host = \"{host}\"\nstatus = \"unix:{host}.status\"\n\
         [[volume]]\nname = \"array\"\n[volume.control]\n{control}\n"
    );
    for (name, path) in disks {
        text += &format!(
            "[[volume.disk]]\nname = \"{name}\"\npath = \"{path}\"\nlisten = \"unix:{host}\"\n"
        );
    }
    text
}

/// Where clients find an export of such a configuration.
pub(crate) fn uri(host: &str, disk: &str) -> String {
    format!("nbd+unix:///{disk}?socket={host}")
}

/// A program that runs, killed when dropped.
pub(crate) struct Process {
    who: String,
    child: Child,
    may_panic: bool,
    out: PathBuf,
    err: PathBuf,
}

impl Process {
    fn start(dir: &Path, who: &str, command: Command) -> Process {
        Process::start_with(dir, who, command, Stdio::null())
    }

    fn start_with(dir: &Path, who: &str, mut command: Command, stdin: Stdio) -> Process {
        let file = |name: String| {
            let path = dir.join(name);
            (File::options().create(true).append(true).open(&path).unwrap(), path)
        };
        let ((stdout, out), (stderr, err)) =
            (file(format!("{who}.out")), file(format!("{who}.err")));
        command.current_dir(dir).stdin(stdin).stdout(stdout).stderr(stderr);
        // SAFETY: between fork and exec one system call is made, which neither allocates nor locks.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().unwrap_or_else(|error| {
            let program = command.get_program().to_string_lossy();
            match PACKAGES.iter().find(|(name, _)| *name == program) {
                Some((_, package)) if error.kind() == ErrorKind::NotFound => {
                    panic!("{program} is missing: apt-get install {package}")
                }
                _ if program == LAB => {
                    panic!("{LAB}: {error}: cargo build --package parda-lab-cli")
                }
                _ => panic!("cannot start {program}: {error}"),
            }
        });
        Process { who: who.to_owned(), child, may_panic: false, out, err }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.wait_within(PATIENCE)
    }

    fn wait_within(&mut self, patience: Duration) -> ExitStatus {
        wait_for_within(patience, &format!("{} ends", self.who), || self.child.try_wait().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// For a program that was made to panic.
    pub(crate) fn forgive_panics(&mut self) {
        self.may_panic = true;
    }

    /// What it said to standard error.
    pub(crate) fn log(&self) -> String {
        text(&self.err)
    }

    /// What it said, and how it ended.
    pub(crate) fn done(&self, status: ExitStatus) -> Done {
        Done { status, out: text(&self.out), err: self.log() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("--- {} said:\n{log}", self.who);
        } else {
            assert!(self.may_panic || !log.contains("panicked at"), "{}: {log}", self.who);
        }
    }
}

/// An agent that runs.
pub(crate) struct Agent {
    pub(crate) process: Process,
    status: String,
    dir: PathBuf,
}

impl Agent {
    /// What `parda status` says.
    pub(crate) fn status(&self) -> Status {
        wait_for("the agent answers in time", || {
            let mut command = Command::new(PARDA);
            command.args(["status", "--socket", &self.status, "--json", "-", "--histograms"]);
            let who = format!("status-{}", fastrand::u64(..));
            let mut process = Process::start(&self.dir, &who, command);
            let status = process.wait();
            let Done { status, out, err } = process.done(status);
            // An agent that has no processor for some seconds has none for its answer.
            let silent = err.contains(&AskError::Silent.to_string());
            assert!(status.success() || silent, "parda status {}: {err}", self.status);
            status.success().then(|| serde_json::from_str(&out).unwrap())
        })
    }

    /// The only volume's part of it.
    pub(crate) fn volume(&self) -> VolumeStatus {
        self.status().volumes.swap_remove(0)
    }

    /// Waits until reads of the only volume's first disk, over those of the second one, are in this range in some second from now on. A load
    /// without a processor for a part of a second makes another ratio of it.
    pub(crate) fn until_ratio(&self, what: &str, range: Range<f64>) {
        let ios = || {
            let disks = self.volume().disks;
            [0, 1].map(|disk| disks[disk].reads.ios as f64)
        };
        until(&format!("{what}: reads of the first over the second in {range:?}"), || {
            let before = ios();
            sleep(Duration::from_secs(1));
            let after = ios();
            let ratio = (after[0] - before[0]) / (after[1] - before[1]);
            eprintln!("{what}: {ratio:.2}");
            range.contains(&ratio)
        });
    }

    /// Waits until it says something.
    pub(crate) fn says(&self, what: &str) {
        until(&format!("the log says {what:?}"), || self.process.log().contains(what));
    }

    /// Ends it with SIGTERM, which must succeed.
    pub(crate) fn stop(mut self) {
        self.process.signal(Signal::TERM);
        let status = self.process.wait();
        assert!(status.success(), "the agent ended with {status}");
    }

    /// Ids and names of its threads.
    fn tasks(&self) -> impl Iterator<Item = (String, String)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.pid())).unwrap();
        tasks.flatten().filter_map(|task| {
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            Some((task.file_name().into_string().ok()?, name.trim().to_owned()))
        })
    }

    /// Number of its threads of these names.
    pub(crate) fn threads(&self, names: &[&str]) -> usize {
        self.tasks().filter(|(_, name)| names.contains(&name.as_str())).count()
    }

    /// Id of its thread of a name.
    pub(crate) fn thread(&self, wanted: &str) -> String {
        self.tasks()
            .find(|(_, name)| name == wanted)
            .unwrap_or_else(|| panic!("no thread {wanted}"))
            .0
    }
}

/// A running fio, with its log in the stage.
pub(crate) struct Load {
    process: Process,
    report: PathBuf,
}

impl Load {
    /// Ends it. It must not have met an error, and must have done something. Returns its IOs.
    pub(crate) fn finish(mut self) -> u64 {
        if let Some(ended) = self.process.ended() {
            panic!("fio ended before it was told to: {ended}\n{}", self.report());
        }
        self.process.signal(Signal::INT);
        self.process.wait();
        let report = self.report();
        // What fio has to say of the signal comes before its report.
        let json = &report[report.find('{').unwrap_or_else(|| panic!("no report: {report}"))..];
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        let job = &json["jobs"][0];
        assert_eq!(job["error"], 0, "fio met an error:\n{}", self.process.log());
        let ios = |kind: &str| job[kind]["total_ios"].as_u64().unwrap();
        let ios = ios("read") + ios("write");
        assert!(ios > 0, "fio did nothing");
        ios
    }

    fn report(&self) -> String {
        std::fs::read_to_string(&self.report).unwrap_or_default()
    }
}

fn text(path: &Path) -> String {
    // This is also for a process that is dropped in a panic, where another would abort all tests.
    let bytes = std::fs::read(path).unwrap_or_else(|e| format!("cannot read: {e}").into_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Random bytes, the same on every run.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(2009);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}
