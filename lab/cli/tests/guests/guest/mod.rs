//! A guest: a machine with a kernel of its own, under software emulation, that runs shell scripts on request.
//!
//! | module | subject |
//! | --- | --- |
//! | [`kit`] | kernel, initramfs and disks that guests boot from |
//! | [`machine`] | hardware of a guest |
//! | [`export_file`] | exports of the array as files, for a guest's disks |
//! | [`iscsi`] | an export as an iSCSI target, for a guest's own initiator |
//! | [`port`] | the port over which a guest receives scripts |

mod error;
mod export_file;
mod iscsi;
mod kit;
mod machine;
mod names;
mod port;
mod wait;

use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

pub(crate) use error::GuestError;
pub(crate) use export_file::ExportFile;
pub(crate) use iscsi::IscsiTarget;
use kit::Kit;
pub(crate) use machine::{Bus, GuestConfig, Server, Source};
use parda_lab::process::Process;
use parda_testkit::Monitor;
pub(crate) use port::Output;
use port::{Id, Port, READY, Waited};
use wait::look_until;

/// Time for a guest to boot. It takes about 3 s, or 1 s from a saved state, and longer on a busy
/// machine.
const BOOT_WITHIN: Duration = Duration::from_secs(90);

/// Time for what a guest does at once, on a busy machine.
const BRIEF: Duration = Duration::from_secs(60);

/// A running guest. It is killed when this is dropped, or when the thread ends that booted it.
#[derive(Debug)]
pub(crate) struct Guest {
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

/// A command that runs in a guest. It runs on when this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Job {
    id: Id,
    command: String,
}

/// Reason why no guests can run here, for tests that then print it and end.
///
/// Always `None` if [`kit::VARIABLE`] is set: whoever sets it wants guests, so that a missing kit
/// is an error.
#[must_use]
pub(crate) fn unavailable() -> Option<String> {
    if std::env::var_os(kit::VARIABLE).is_some() {
        return None;
    }
    Kit::find().and_then(|_| qemu_is_there()).err().map(|error| error.to_string())
}

fn qemu_is_there() -> Result<(), GuestError> {
    Command::new(names::QEMU).arg("-version").output().map(drop).map_err(GuestError::NoQemu)
}

impl Guest {
    /// Boots a guest, and waits until it executes commands and has its disks.
    ///
    /// # Errors
    /// The kit or the emulator is missing, or the guest does not come up.
    pub(crate) fn boot(config: GuestConfig) -> Result<Guest, GuestError> {
        let [guest] = Guest::boot_all([config])?;
        Ok(guest)
    }

    /// Boots guests at the same time.
    ///
    /// # Errors
    /// As for [`Guest::boot`], the first one. All guests are ended then.
    pub(crate) fn boot_all<const N: usize>(
        configs: [GuestConfig; N],
    ) -> Result<[Guest; N], GuestError> {
        let guests = Guest::boot_each(configs)?;
        // There are as many guests as configurations.
        guests.try_into().map_err(|_| GuestError::NoKit { at: None })
    }

    /// As [`Guest::boot_all`], for any number of guests.
    ///
    /// # Errors
    /// As for [`Guest::boot_all`].
    pub(crate) fn boot_each(
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

    /// Starts from the saved state of a booted machine.
    fn start_up(&self) -> Result<Starting, GuestError> {
        let state = self.kit.state(self.config.base(), |to| self.boot_to(to))?;
        self.power_on(Some(&state))
    }

    /// Boots a machine of the same base and saves its state.
    fn boot_to(&self, state: &Path) -> Result<(), GuestError> {
        let GuestConfig { name, memory, cpus, shared, .. } = &self.config;
        let config =
            GuestConfig { memory: *memory, cpus: *cpus, shared: *shared, ..GuestConfig::new(name) };
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
            // Left by an earlier run. An error means that there is none.
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

    /// Name of the guest.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Path of the console's log, from the first boot on.
    #[must_use]
    pub(crate) fn console(&self) -> PathBuf {
        self.dir.path().join("console")
    }

    /// Runs a shell script in the guest and waits for its end.
    ///
    /// # Errors
    /// The script takes longer than `at_most`, and is killed; or the guest is gone. A failed script is
    /// no error: see its status.
    pub(crate) fn run(&self, command: &str, at_most: Duration) -> Result<Output, GuestError> {
        let job = self.begin(command)?;
        match self.look(&job, at_most)? {
            Some(output) => Ok(output),
            None => {
                self.end(&job)?;
                Err(self.late(&job, at_most))
            }
        }
    }

    /// Runs a shell script that must succeed. Returns its output as trimmed text.
    ///
    /// # Errors
    /// As for [`Guest::run`]; or the script fails.
    pub(crate) fn ok(&self, command: &str, at_most: Duration) -> Result<String, GuestError> {
        self.run(command, at_most).and_then(|output| self.succeeded(command, output))
    }

    /// Starts a shell script in the guest, which runs beside others.
    ///
    /// # Errors
    /// The guest is gone.
    pub(crate) fn begin(&self, command: &str) -> Result<Job, GuestError> {
        let Some(running) = &self.running else { return Err(self.is_off()) };
        match running.port.send(command.as_bytes()) {
            Ok(id) => Ok(Job { id, command: command.to_owned() }),
            Err(_) => Err(self.gone(&running.process, "is gone".to_owned())),
        }
    }

    /// Waits for the end of a job. Returns its output, or `None` if it runs on.
    ///
    /// # Errors
    /// The guest is gone.
    pub(crate) fn look(&self, job: &Job, at_most: Duration) -> Result<Option<Output>, GuestError> {
        let Some(running) = &self.running else { return Err(self.is_off()) };
        match running.port.wait(job.id, at_most) {
            Waited::Done(output) => Ok(Some(output)),
            Waited::Late => Ok(None),
            Waited::Gone => Err(self.gone(&running.process, "is gone".to_owned())),
        }
    }

    /// Sends a signal, by name or number, to all processes of a job. A job that has ended is left
    /// alone.
    ///
    /// # Errors
    /// The guest is gone.
    pub(crate) fn signal(&self, job: &Job, signal: impl Display) -> Result<(), GuestError> {
        let pid = format!("pid=$(cat /run/lab/{}.pid) && kill -{signal} -$pid || true", job.id);
        self.ok(&pid, BRIEF).map(drop)
    }

    /// Kills a job and waits for its end. Returns its output until then.
    ///
    /// # Errors
    /// The guest is gone, or the job cannot be killed.
    pub(crate) fn end(&self, job: &Job) -> Result<Output, GuestError> {
        self.signal(job, Signal::KILL.as_raw())?;
        self.look(job, BRIEF)?.ok_or_else(|| self.late(job, BRIEF))
    }

    /// Device of a configured disk, such as `/dev/sda`.
    ///
    /// # Errors
    /// The guest has no such disk, or is gone.
    pub(crate) fn device(&self, disk: &str) -> Result<String, GuestError> {
        self.ok(&format!("[ -b /dev/lab/{disk} ] && readlink -f /dev/lab/{disk}"), BRIEF)
    }

    /// Writes a file in the guest.
    ///
    /// # Errors
    /// The file cannot be written, or the guest is gone.
    pub(crate) fn put(&self, path: &str, contents: &[u8]) -> Result<(), GuestError> {
        let octal: String = contents.iter().map(|byte| format!("\\0{byte:03o}")).collect();
        self.ok(&format!("printf %b '{octal}' >'{path}'"), BRIEF).map(drop)
    }

    /// Reads a file in the guest.
    ///
    /// # Errors
    /// The file cannot be read, or the guest is gone.
    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>, GuestError> {
        let command = format!("cat '{path}'");
        let output = self.run(&command, BRIEF)?;
        let bytes = output.stdout.clone();
        self.succeeded(&command, output).map(|_| bytes)
    }

    /// Has QEMU's monitor execute a command without arguments, such as `stop` or `cont`.
    ///
    /// # Errors
    /// QEMU refuses the command, or the guest is off.
    pub(crate) fn monitor(&mut self, command: &str) -> Result<(), GuestError> {
        let Some(running) = &mut self.running else { return Err(self.is_off()) };
        let done = running.monitor.ask(command, serde_json::json!({}));
        done.map(drop).map_err(|error| self.io(error))
    }

    /// Whether the guest's emulator is running.
    pub(crate) fn runs(&mut self) -> bool {
        let runs = |r: &mut Running| !r.port.is_closed() && r.process.ended().is_none();
        self.running.as_mut().is_some_and(runs)
    }

    /// Time that the guest ran, and time that it was ready to run but waited for a processor. Zero
    /// while it is off.
    #[must_use]
    pub(crate) fn ran_and_waited(&self) -> (Duration, Duration) {
        self.running.as_ref().map_or_else(Default::default, |r| r.process.ran_and_waited())
    }

    /// Kills the guest as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// Boots the guest again with the same hardware, after killing it if it runs.
    ///
    /// # Errors
    /// As for [`Guest::boot`].
    pub(crate) fn restart(&mut self) -> Result<(), GuestError> {
        self.kill();
        let mut starting = self.start_up()?;
        self.come_up(&mut starting)
    }

    /// The error for a guest that ended unexpectedly.
    pub(crate) fn is_gone(&self) -> GuestError {
        match &self.running {
            Some(running) => self.gone(&running.process, "is gone".to_owned()),
            None => self.is_off(),
        }
    }

    /// The error for a job that ended unexpectedly.
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
        GuestError::Gone { name, what, last: parda_lab::process::last_lines(&self.console()) }
    }

    fn gone(&self, process: &Process, what: String) -> GuestError {
        GuestError::Gone { name: self.name().to_owned(), what, last: process.last_words() }
    }
}

/// A guest between its start and its first message.
#[derive(Debug)]
struct Starting {
    port: UnixListener,
    monitor: UnixListener,
    process: Option<Process>,
    deadline: Instant,
}
