//! A guest: a real kernel of its own, under software emulation, that does what it is told.
//!
//! ```no_run
//! # use parda_lab::guest::{Bus, Guest, GuestConfig, Source};
//! # use std::time::Duration;
//! # fn main() -> Result<(), parda_lab::guest::GuestError> {
//! let disk = Source::Null { size: 1 << 30, latency: 5_000_000 };
//! let guest = Guest::boot(GuestConfig::new("a").disk("array", Bus::Scsi(0), disk))?;
//! let depth = guest.ok("cat /sys/block/sda/device/queue_depth", Duration::from_secs(5))?;
//! # drop(depth); Ok(()) }
//! ```
//!
//! | module | subject |
//! | --- | --- |
//! | [`kit`] | what guests are made of |
//! | [`machine`] | what hardware a guest has |
//! | [`export_file`] | the array's exports as files, for its disks |
//! | [`iscsi`] | such a file as an iSCSI target, for its own initiator |
//! | [`port`] | how it is told what to do |
//! | `monitor` | how its emulator is |

pub mod export_file;
pub mod iscsi;
pub mod kit;
pub mod machine;
mod monitor;
pub mod port;

use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::Process;
pub use export_file::ExportFile;
pub use iscsi::IscsiTarget;
use kit::Kit;
pub use machine::{Bus, Disk, GuestConfig, HOST, Remote, Server, Source};
use monitor::Monitor;
pub use port::Output;
use port::{Id, Port, READY, Waited};

/// A guest boots in some 3 s, or is up in one from a state that was saved; a machine with much else to do takes longer.
const BOOT_WITHIN: Duration = Duration::from_secs(90);

/// What takes a guest no time may take this long all the same.
const BRIEF: Duration = Duration::from_secs(20);

/// Why a guest is none, or does not do what it is told.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// What guests are made of is not there.
    #[error(
        "there is nothing to make guests of{}: `make guest` makes it, and {} says where it is",
        .at.as_ref().map_or(String::new(), |at| format!(" in {}", at.display())), kit::VARIABLE
    )]
    NoKit {
        /// Where it should have been.
        at: Option<PathBuf>,
    },
    /// The emulator is missing.
    #[error("guests need {qemu} (Debian, Ubuntu: apt install qemu-system-x86): {0}", qemu = machine::QEMU)]
    NoQemu(io::Error),
    /// The program under test cannot be brought into a guest.
    #[error("cannot put {program} on a disk for guests: {source}", program = program.display())]
    Disk {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The array does not say on which port a guest finds it.
    #[error("the array's port for guests is not known: {0}")]
    NoPort(String),
    /// What is between a guest and the array is missing, or does not do what it should.
    #[error("{program} (Debian, Ubuntu: apt install {package}): {what}")]
    Way {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The state of a machine that has booted cannot be kept.
    #[error("cannot keep guests' states in {dir}: {source}", dir = dir.display())]
    State {
        /// Where.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its files or its port cannot be made.
    #[error("guest {name}: {source}")]
    Io {
        /// The guest.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// It was not ready in time, or it ended.
    #[error("guest {name} {what}. Its console last said:\n{last}")]
    Gone {
        /// The guest.
        name: String,
        /// What became of it.
        what: String,
        /// The end of its console.
        last: String,
    },
    /// A command took too long, and was killed.
    #[error("guest {name} was not done within {waited:?} with: {command}")]
    Late {
        /// The guest.
        name: String,
        /// The command.
        command: String,
        /// How long it was given.
        waited: Duration,
    },
    /// A command failed.
    #[error("guest {name}: {command}: {output:?}")]
    Failed {
        /// The guest.
        name: String,
        /// The command.
        command: String,
        /// What it said.
        output: Output,
    },
}

/// A running guest. It is killed when this is dropped, or when the thread ends that booted it.
#[derive(Debug)]
pub struct Guest {
    config: GuestConfig,
    kit: Kit,
    running: Option<Running>,
    dir: TempDir,
}

#[derive(Debug)]
struct Running {
    port: Port,
    monitor: Monitor,
    process: Process,
}

/// A command that runs in a guest. When this is dropped it runs on.
#[derive(Debug)]
#[must_use]
pub struct Job {
    id: Id,
    command: String,
}

/// Why there can be no guests here: for tests that then say so and do nothing.
///
/// Whoever says where guests' things are ([`kit::VARIABLE`]) wants guests: there it is never a reason.
#[must_use]
pub fn unavailable() -> Option<String> {
    if std::env::var_os(kit::VARIABLE).is_some() {
        return None;
    }
    Kit::find().and_then(|_| qemu_is_there()).err().map(|error| error.to_string())
}

fn qemu_is_there() -> Result<(), GuestError> {
    Command::new(machine::QEMU).arg("-version").output().map(drop).map_err(GuestError::NoQemu)
}

impl Guest {
    /// Boots a guest; when this returns, it does what it is told and its disks are there.
    ///
    /// # Errors
    /// There is nothing to boot, or it does not come up.
    pub fn boot(config: GuestConfig) -> Result<Guest, GuestError> {
        let [guest] = Guest::boot_all([config])?;
        Ok(guest)
    }

    /// Boots guests at the same time.
    ///
    /// # Errors
    /// As of [`Guest::boot`], with the first that has one. None of them is left then.
    pub fn boot_all<const N: usize>(configs: [GuestConfig; N]) -> Result<[Guest; N], GuestError> {
        let guests = Guest::boot_each(configs)?;
        // As many as there were configurations.
        guests.try_into().map_err(|_| GuestError::NoKit { at: None })
    }

    /// As [`Guest::boot_all`], of any number.
    ///
    /// # Errors
    /// As of [`Guest::boot_all`].
    pub fn boot_each(
        configs: impl IntoIterator<Item = GuestConfig>,
    ) -> Result<Vec<Guest>, GuestError> {
        let kit = Kit::find()?;
        let started: Result<Vec<_>, _> =
            configs.into_iter().map(|config| Guest::start(config, &kit)).collect();
        let mut guests = started?;
        guests.iter_mut().try_for_each(|(guest, listener)| guest.come_up(listener))?;
        Ok(guests.into_iter().map(|(guest, _)| guest).collect())
    }

    fn start(config: GuestConfig, kit: &Kit) -> Result<(Guest, Starting), GuestError> {
        let guest = Guest::new(config, kit)?;
        let starting = guest.start_up()?;
        Ok((guest, starting))
    }

    fn new(config: GuestConfig, kit: &Kit) -> Result<Guest, GuestError> {
        let failed = |source| GuestError::Io { name: config.name.clone(), source };
        let dir = tempfile::Builder::new().prefix("parda-guest-").tempdir().map_err(failed)?;
        Ok(Guest { config, kit: kit.clone(), running: None, dir })
    }

    /// Begins with the state of a machine that has booted.
    fn start_up(&self) -> Result<Starting, GuestError> {
        let state = self.kit.state(self.config.base(), |to| self.boot_to(to))?;
        self.power_on(Some(&state))
    }

    /// Boots a machine of the same kind that has nothing, and saves the state it is in then.
    fn boot_to(&self, state: &Path) -> Result<(), GuestError> {
        let GuestConfig { name, memory, cpus, .. } = &self.config;
        let config = GuestConfig { memory: *memory, cpus: *cpus, ..GuestConfig::new(name) };
        let guest = Guest::new(config, &self.kit)?;
        let mut starting = guest.power_on(None)?;
        let mut running = guest.meet(&mut starting)?;
        let left = starting.deadline.saturating_duration_since(Instant::now());
        match running.port.wait(READY, left) {
            Waited::Done(_) => running.monitor.save(state).map_err(|e| guest.io(e)),
            Waited::Late => {
                Err(guest.gone(&running.process, format!("was not up in {BOOT_WITHIN:?}")))
            }
            Waited::Gone => Err(guest.gone(&running.process, "died while it booted".to_owned())),
        }
    }

    fn power_on(&self, state: Option<&Path>) -> Result<Starting, GuestError> {
        let listener = |name| -> io::Result<(PathBuf, UnixListener)> {
            let socket = self.dir.path().join(name);
            // From the run before; an error would mean that there was none.
            let _ = std::fs::remove_file(&socket);
            let listener = UnixListener::bind(&socket)?;
            listener.set_nonblocking(true)?;
            Ok((socket, listener))
        };
        let (port_socket, port) = listener("port").map_err(|e| self.io(e))?;
        let (monitor_socket, monitor) = listener("monitor").map_err(|e| self.io(e))?;
        let sockets = (port_socket.as_path(), monitor_socket.as_path());
        let command = self.config.base().command(&self.kit, sockets, state);
        let who = format!("guest {}", self.config.name);
        let process =
            Process::start(who, self.console(), command).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => GuestError::NoQemu(error),
                _ => self.io(error),
            })?;
        let deadline = Instant::now() + BOOT_WITHIN;
        Ok(Starting { port, monitor, process: Some(process), deadline })
    }

    fn meet(&self, starting: &mut Starting) -> Result<Running, GuestError> {
        let Some(mut process) = starting.process.take() else { return Err(self.is_off()) };
        let mut accepted = |listener: &UnixListener| {
            let accepted = || match listener.accept() {
                Ok((stream, _)) => Some(Ok(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => Some(Err(error)),
            };
            match look_until(starting.deadline, &mut process, accepted) {
                Ok(stream) => {
                    let stream = stream.and_then(|s| s.set_nonblocking(false).map(|()| s));
                    stream.map_err(|e| self.io(e))
                }
                Err(what) => Err(self.gone(&process, what)),
            }
        };
        let (port, monitor) = (accepted(&starting.port)?, accepted(&starting.monitor)?);
        let port = Port::new(port).map_err(|e| self.io(e))?;
        let monitor = Monitor::new(monitor).map_err(|e| self.io(e))?;
        Ok(Running { port, monitor, process })
    }

    fn come_up(&mut self, starting: &mut Starting) -> Result<(), GuestError> {
        let program = self.config.program.as_deref();
        let program = program.map(|program| self.kit.disk_with(program)).transpose()?;
        let mut running = self.meet(starting)?;
        let mut add = || -> io::Result<()> {
            running.monitor.wait_until_loaded()?;
            for (command, arguments) in self.config.additions(program.as_deref()) {
                running.monitor.ask(command, arguments)?;
            }
            running.monitor.ask("cont", serde_json::json!({})).map(drop)
        };
        if let Err(error) = add() {
            return Err(self.gone(&running.process, format!("did not come up: {error}")));
        }
        self.running = Some(running);
        self.ok(&self.config.setup(program.is_some()), BRIEF).map(drop)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What its kernel says, from its first boot on.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.dir.path().join("console")
    }

    /// Runs a shell script in it, and waits for its end.
    ///
    /// # Errors
    /// It takes longer, and is killed; or the guest is gone. That it fails is in its status.
    pub fn run(&self, command: &str, at_most: Duration) -> Result<Output, GuestError> {
        let job = self.begin(command)?;
        match self.look(&job, at_most)? {
            Some(output) => Ok(output),
            None => {
                self.end(&job)?;
                Err(self.late(&job, at_most))
            }
        }
    }

    /// Runs a shell script that must not fail: its output, as text without space around it.
    ///
    /// # Errors
    /// As of [`Guest::run`], and if it fails.
    pub fn ok(&self, command: &str, at_most: Duration) -> Result<String, GuestError> {
        self.run(command, at_most).and_then(|output| self.succeeded(command, output))
    }

    /// Begins a shell script in it, beside others.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn begin(&self, command: &str) -> Result<Job, GuestError> {
        let Some(running) = &self.running else { return Err(self.is_off()) };
        match running.port.send(command.as_bytes()) {
            Ok(id) => Ok(Job { id, command: command.to_owned() }),
            Err(_) => Err(self.gone(&running.process, "is gone".to_owned())),
        }
    }

    /// Waits for the end of what was begun: what it said, or `None` if it runs on.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn look(&self, job: &Job, at_most: Duration) -> Result<Option<Output>, GuestError> {
        let Some(running) = &self.running else { return Err(self.is_off()) };
        match running.port.wait(job.id, at_most) {
            Waited::Done(output) => Ok(Some(output)),
            Waited::Late => Ok(None),
            Waited::Gone => Err(self.gone(&running.process, "is gone".to_owned())),
        }
    }

    /// Sends a signal, by its name or number, to all processes of what was begun. What has ended gets none.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn signal(&self, job: &Job, signal: impl Display) -> Result<(), GuestError> {
        let pid = format!("pid=$(cat /run/lab/{}.pid) && kill -{signal} -$pid || true", job.id);
        self.ok(&pid, BRIEF).map(drop)
    }

    /// Kills what was begun, and waits until it is gone: what it said until then.
    ///
    /// # Errors
    /// The guest is gone, or it cannot be killed.
    pub fn end(&self, job: &Job) -> Result<Output, GuestError> {
        self.signal(job, Signal::KILL.as_raw())?;
        self.look(job, BRIEF)?.ok_or_else(|| self.late(job, BRIEF))
    }

    /// The device that a disk of its configuration is: `/dev/sda`.
    ///
    /// # Errors
    /// It has no such disk, or is gone.
    pub fn device(&self, disk: &str) -> Result<String, GuestError> {
        self.ok(&format!("[ -b /dev/lab/{disk} ] && readlink -f /dev/lab/{disk}"), BRIEF)
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// It cannot be written, or the guest is gone.
    pub fn put(&self, path: &str, contents: &[u8]) -> Result<(), GuestError> {
        let octal: String = contents.iter().map(|byte| format!("\\0{byte:03o}")).collect();
        self.ok(&format!("printf %b '{octal}' >'{path}'"), BRIEF).map(drop)
    }

    /// Reads a file in it.
    ///
    /// # Errors
    /// It cannot be read, or the guest is gone.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, GuestError> {
        let command = format!("cat '{path}'");
        let output = self.run(&command, BRIEF)?;
        let bytes = output.stdout.clone();
        self.succeeded(&command, output).map(|_| bytes)
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        let runs = |r: &mut Running| !r.port.is_closed() && r.process.ended().is_none();
        self.running.as_mut().is_some_and(runs)
    }

    /// How long it ran, and how long it could have but waited for a processor. Zero while it is off.
    #[must_use]
    pub fn ran_and_waited(&self) -> (Duration, Duration) {
        self.running.as_ref().map_or_else(Default::default, |r| r.process.ran_and_waited())
    }

    /// Pulls the plug.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Boots it again with the same hardware, after pulling the plug if it runs.
    ///
    /// # Errors
    /// As of [`Guest::boot`].
    pub fn restart(&mut self) -> Result<(), GuestError> {
        self.kill();
        let mut starting = self.start_up()?;
        self.come_up(&mut starting)
    }

    /// That it is gone, which it should not be.
    pub(crate) fn is_gone(&self) -> GuestError {
        match &self.running {
            Some(running) => self.gone(&running.process, "is gone".to_owned()),
            None => self.is_off(),
        }
    }

    /// That what was begun has ended, which it should not have.
    pub(crate) fn failed(&self, job: &Job, output: Output) -> GuestError {
        let (name, command) = (self.name().to_owned(), job.command.clone());
        GuestError::Failed { name, command, output }
    }

    fn succeeded(&self, command: &str, output: Output) -> Result<String, GuestError> {
        if output.success() {
            return Ok(output.text());
        }
        Err(GuestError::Failed {
            name: self.name().to_owned(),
            command: command.to_owned(),
            output,
        })
    }

    fn io(&self, source: io::Error) -> GuestError {
        GuestError::Io { name: self.name().to_owned(), source }
    }

    fn late(&self, job: &Job, waited: Duration) -> GuestError {
        let (name, command) = (self.name().to_owned(), job.command.clone());
        GuestError::Late { name, command, waited }
    }

    fn is_off(&self) -> GuestError {
        let (name, what) = (self.name().to_owned(), "is off".to_owned());
        GuestError::Gone { name, what, last: crate::process::last_lines(&self.console()) }
    }

    fn gone(&self, process: &Process, what: String) -> GuestError {
        GuestError::Gone { name: self.name().to_owned(), what, last: process.last_words() }
    }
}

/// Waits until something is there that a process makes; if it does not, why.
fn look_until<T>(
    deadline: Instant,
    process: &mut Process,
    mut there: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    loop {
        if let Some(it) = there() {
            return Ok(it);
        }
        if let Some(status) = process.ended() {
            return Err(format!("did not start, {status}"));
        }
        if Instant::now() > deadline {
            return Err("did not start".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A guest between its power switch and its first word.
#[derive(Debug)]
struct Starting {
    port: UnixListener,
    monitor: UnixListener,
    process: Option<Process>,
    deadline: Instant,
}
