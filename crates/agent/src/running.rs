//! The running agent: signals, and its volumes as they come and go.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_awake::Instant;
use parda_block::AgentMemory;
use parda_exchange::{Identity, Incarnation};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::activation::Passed;
use crate::api::Api;
use crate::config::Config;
use crate::descriptors;
use crate::events::Recorder;
use crate::history::{History, Sampler};
use crate::http::servers::HttpServers;
use crate::live::Live;
use crate::manager::Manager;
use crate::policy::Follower;
use crate::served::{Addresses, Opens, Shared};
use crate::socket::{Owner, Server, SocketWatch};
use crate::start_error::StartError;
use crate::status::{Detail, HttpPlace};
use crate::views::{View, Views};
use crate::volume::{Volume, Why};
use crate::wakeup::{Takeover, Wakeup};
use crate::{ServeError, config::Volume as VolumeConfig};

/// Time for which a stopping agent still answers the requests in flight. Longer than any IO of a sane array, and shorter than the 90 s
/// after which service managers kill.
const DRAIN: Duration = Duration::from_secs(30);

/// Longest wait after that for volumes to be gone. If a file system does not answer, the kernel cannot call the volume's IO back. The
/// volume is gone only after that answer.
const GRACE: Duration = Duration::from_secs(5);

/// Interval of looks for volumes that are gone.
const LOOK: Duration = Duration::from_millis(5);

/// Longest wait of a start for slow disks. After this time the agent logs that it has started without them.
const START: Duration = Duration::from_secs(10);

/// Longest wait of a start for a process that has the status socket and does not answer. During the first `SILENCE` of that wait, nothing
/// is logged.
const BURIAL: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(1);

/// First and longest pause before a volume that does not start is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// Interval at which clients are turned away from passed sockets that no disk listens at.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// A volume that does not start.
struct Failed {
    config: VolumeConfig,
    error: String,
    since: Instant,
    next: Instant,
    pause: Duration,
}

pub(crate) struct Agent {
    path: PathBuf,
    me: Identity,
    config: Config,
    /// Memory of all volumes, which is that of the start.
    memory: usize,
    shared: Shared,
    events: Sender<Wakeup>,
    waits: Receiver<Wakeup>,
    volumes: Vec<Volume>,
    /// Number of volumes whose parts have all been tried once.
    settled: usize,
    failed: Vec<Failed>,
    /// Volumes that are being stopped.
    leaving: Vec<JoinHandle<()>>,
    api: Api,
    /// Fills the history of `api`.
    sampler: Option<Sampler>,
    /// Follows the policy, if one is configured.
    follower: Option<Follower>,
    manager: Manager,
    status: Option<Server>,
    http: HttpServers,
    /// The configuration is being read, and another read is due after that.
    reading: Option<bool>,
    /// Numbers of sockets that were passed and that no disk listens at.
    unused: Vec<usize>,
}

impl Agent {
    pub(crate) fn new(
        path: &Path,
        live: Live,
        config: Config,
        passed: Passed,
        recorder: Recorder,
    ) -> Result<Agent, ServeError> {
        let (events, waits) = channel();
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let signalled = events.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if signalled.send(Wakeup::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
        let asks = events.clone();
        let manager = Manager::start(move || drop(asks.send(Wakeup::Asked)))?;
        let me = Identity { host: config.host.clone(), incarnation: Incarnation::starting_now() };
        let served = config.volumes.iter().filter(|volume| volume.is_served()).count();
        let memory = AgentMemory::new(config.memory, served);
        let live = Arc::new(live);
        let views = Views::new(config.host.clone(), Arc::clone(&live));
        let takeover = Takeover(events.clone());
        Ok(Agent {
            path: path.to_owned(),
            me,
            memory: config.memory,
            config,
            shared: Shared {
                passed: Arc::new(passed),
                addresses: Addresses::default(),
                opens: Opens::default(),
                memory,
            },
            events,
            waits,
            volumes: Vec::new(),
            settled: 0,
            failed: Vec::new(),
            leaving: Vec::new(),
            api: Api {
                views,
                history: Arc::new(History::new()),
                events: recorder,
                live,
                metrics: Arc::default(),
                audit: Arc::default(),
                tokens: Arc::default(),
                agent: takeover,
            },
            sampler: None,
            follower: None,
            manager,
            status: None,
            http: HttpServers::default(),
            reading: None,
            unused: Vec::new(),
        })
    }

    /// Starts everything, and runs it until a signal.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let ended = self.start().map(|go_on| {
            if go_on {
                self.serve();
            }
        });
        self.manager.stopping();
        let _outside = self.manager.pulse.outside();
        self.follower = None;
        self.status = None;
        self.http = HttpServers::default();
        self.api.audit.flush();
        self.sampler = None;
        // Also what a failed start has started: no socket is left behind.
        for volume in std::mem::take(&mut self.volumes) {
            self.leave(volume);
        }
        let until = Instant::now() + DRAIN + GRACE;
        while self.leaving.iter().any(|thread| !thread.is_finished()) {
            if Instant::now() > until {
                tracing::error!(
                    "ends while Linux still has IO of its disks: their file system does not \
                     answer, and the process is gone when it does"
                );
                break;
            }
            std::thread::sleep(LOOK);
        }
        ended
    }

    /// False if the agent was asked to end meanwhile.
    fn start(&mut self) -> Result<bool, ServeError> {
        if !self.is_alone()? {
            return Ok(false);
        }
        descriptors::raise(&self.config);
        for warning in self.config.warnings() {
            tracing::warn!("{warning}");
        }
        self.look_at_passed();
        for volume in self.config.volumes.clone() {
            self.bring_in(volume);
        }
        if let ([], [first, ..]) = (&self.volumes[..], &self.failed[..]) {
            return Err(ServeError::NoVolume(first.error.clone()));
        }
        let until = Instant::now() + START;
        while self.settled < self.volumes.len() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(wakeup) = parda_awake::recv_timeout(&self.waits, left) else { break };
            if !self.wake(wakeup) {
                return Ok(false);
            }
        }
        self.show();
        let Api { views, history, audit, .. } = self.api.clone();
        self.sampler = Some(Sampler::start(views, history, move || audit.flush())?);
        if let Some(socket) = &self.config.status {
            self.status = Some(self.serve_status(socket)?);
        }
        self.api.read_tokens(self.config.tokens.as_deref());
        self.serve_http(false);
        self.follow_policy();
        let (volumes, failed) = (self.volumes.len(), self.failed.len());
        tracing::info!(host = %self.me.host, volumes, failed, event = "agent_started", "started");
        self.manager.ready(self.state());
        Ok(true)
    }

    /// Finds the passed sockets that no disk listens at, and logs each once.
    fn look_at_passed(&mut self) {
        // Looks names of hosts up.
        let outside = self.manager.pulse.outside();
        let listeners = self.config.volumes.iter().flat_map(|volume| &volume.listeners);
        let addresses: Vec<_> = listeners.map(|listener| &listener.address).collect();
        let unused = self.shared.passed.not_at(&addresses);
        drop(outside);
        for new in unused.iter().filter(|n| !self.unused.contains(n)) {
            let place = self.shared.passed.place(*new);
            tracing::warn!(
                "{place} was passed, and no disk listens there: clients are turned away"
            );
        }
        self.unused = unused;
    }

    /// Waits until no other agent has the status socket. The wait precedes all other steps. Otherwise this agent would take the other's
    /// disks, addresses and place in the exchange once they are free. False if it was told to end meanwhile.
    fn is_alone(&mut self) -> Result<bool, ServeError> {
        let Some(socket) = self.config.status.clone() else { return Ok(true) };
        let (mut watch, began) = (SocketWatch::at(&socket), Instant::now());
        let (mut said, mut reload) = (false, false);
        loop {
            let name = || socket.display().to_string();
            match watch.owner() {
                Owner::Nobody => break,
                Owner::Answers => {
                    return Err(ServeError::AlreadyRuns(name()));
                }
                Owner::Silent if began.elapsed() > BURIAL => {
                    return Err(ServeError::Unresponsive { socket: name(), waited: BURIAL });
                }
                Owner::Silent if began.elapsed() > SILENCE && !said => {
                    said = true;
                    tracing::warn!(
                        "{}: a process has this status socket and does not answer, as an agent that was killed while Linux has IO of its \
                         disks: waits up to {BURIAL:?} for its end",
                        name()
                    );
                }
                Owner::Silent => {}
            }
            match self.waits.recv_timeout(LOOK) {
                Ok(Wakeup::Signal(SIGHUP)) => reload = true,
                Ok(wakeup) => {
                    if !self.wake(wakeup) {
                        return Ok(false);
                    }
                }
                Err(_) => {}
            }
        }
        if reload {
            self.read_again();
        }
        Ok(true)
    }

    fn serve(&mut self) {
        loop {
            self.shared.passed.turn_away(&self.unused);
            let unused = (!self.unused.is_empty()).then(|| Instant::now() + TURN_AWAY);
            let failed = self.failed.iter().map(|failed| failed.next);
            let due = failed.chain(self.http.due).chain(unused).min();
            let event = match due {
                Some(at) => self.waits.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => self.waits.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(wakeup) => {
                    if !self.wake(wakeup) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    self.retry();
                    if self.http.due.is_some_and(|due| due <= Instant::now()) {
                        self.serve_http(false);
                    }
                }
            }
            self.leaving.retain(|thread| !thread.is_finished());
        }
    }

    /// Handles a wakeup. False if the agent is to end.
    fn wake(&mut self, wakeup: Wakeup) -> bool {
        match wakeup {
            Wakeup::Signal(SIGHUP) => self.read_again(),
            Wakeup::Signal(_) => return false,
            Wakeup::Read(read, done) => {
                self.reload(read);
                // The thread that waits for the reload may have gone.
                let _ = done.send(());
            }
            Wakeup::Changed(new, done) => {
                self.take_over(*new, Why::Changed);
                let _ = done.send(());
            }
            Wakeup::Settled => self.settled += 1,
            Wakeup::Asked => self.manager.pulse.answer(),
        }
        true
    }

    fn begin(&mut self, config: &VolumeConfig) -> Result<(), StartError> {
        let _outside = self.manager.pulse.outside();
        let events = self.events.clone();
        // Once the agent stops, the receiver is gone, and this event has no use.
        let settled = move || drop(events.send(Wakeup::Settled));
        let volume = Volume::start(&self.me, config.clone(), &self.shared, settled)?;
        self.volumes.push(volume);
        Ok(())
    }

    /// Starts a volume, or tries that again later.
    fn bring_in(&mut self, config: VolumeConfig) {
        let Err(error) = self.begin(&config) else { return };
        tracing::error!(
            volume = config.name,
            event = "volume_down",
            "does not start: {error}; it is tried again"
        );
        let (since, pause, error) = (Instant::now(), FIRST_PAUSE, error.to_string());
        self.failed.push(Failed { config, error, since, next: since + pause, pause });
    }

    /// Tries those volumes again that did not start.
    fn retry(&mut self) {
        let now = Instant::now();
        let (due, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.failed).into_iter().partition(|failed| now >= failed.next);
        self.failed = wait;
        for mut failed in due {
            match self.begin(&failed.config) {
                Ok(()) => {
                    let after = failed.since.elapsed();
                    let volume = &failed.config.name;
                    tracing::info!(volume, ?after, event = "volume_up", "has started");
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != failed.error {
                        tracing::error!(volume = failed.config.name, "does not start: {error}");
                    }
                    failed.error = error;
                    failed.pause = (2 * failed.pause).min(LAST_PAUSE);
                    failed.next = now + failed.pause;
                    self.failed.push(failed);
                }
            }
        }
        self.show();
    }

    /// Stops a volume on a thread of its own: that takes as long as its slowest IO.
    fn leave(&mut self, volume: Volume) {
        let name = volume.name();
        let stop = move || match volume.stop(DRAIN) {
            Some(drained) if drained.unanswered == 0 => tracing::info!(volume = name, "stopped"),
            Some(drained) => tracing::warn!(
                volume = name,
                unanswered = drained.unanswered,
                "stopped; requests were not answered"
            ),
            None => tracing::error!(volume = name, "was not running any more"),
        };
        match std::thread::Builder::new().name("stop".to_owned()).spawn(stop) {
            Ok(thread) => self.leaving.push(thread),
            Err(error) => tracing::error!("cannot start a thread to stop a volume: {error}"),
        }
    }

    /// Reads the configuration on a thread of its own: whatever that file is, SIGTERM is heard.
    fn read_again(&mut self) {
        if let Some(again) = &mut self.reading {
            *again = true;
            return;
        }
        let (path, events, api) = (self.path.clone(), self.events.clone(), self.api.clone());
        let read = move || {
            api.live.read_again(&path, |read| {
                if let Ok(config) = &read {
                    api.read_tokens(config.tokens.as_deref());
                }
                let (done, is_done) = channel();
                // An agent that is ending takes over nothing.
                if events.send(Wakeup::Read(read.map(Box::new), done)).is_ok() {
                    let _ = is_done.recv();
                }
            });
        };
        match std::thread::Builder::new().name("read".to_owned()).spawn(read) {
            Ok(_) => {
                self.reading = Some(false);
                self.api.views.reload(|reload| reload.begun += 1);
                self.manager.reloading();
            }
            Err(error) => {
                tracing::error!("configuration not changed: no thread: {error}");
                self.api.views.reload(|reload| {
                    reload.begun += 1;
                    reload.end(Some(format!("no thread: {error}")));
                });
            }
        }
    }

    fn reload(&mut self, read: Result<Box<Config>, parda_config::Error>) {
        let again = self.reading.take();
        match read {
            Ok(new) => {
                // Looks at files.
                let outside = self.manager.pulse.outside();
                for warning in new.warnings() {
                    tracing::warn!("{warning}");
                }
                drop(outside);
                self.take_over(*new, Why::Reloaded);
                if let Some(follower) = &self.follower {
                    follower.reload();
                }
                self.api.views.reload(|reload| reload.end(None));
                self.manager.reloaded(self.state());
                let path = self.path.display();
                tracing::info!(
                    event = "reload_applied",
                    "{path}: in force; disks and listeners that are opened or closed say so"
                );
            }
            Err(error) => {
                tracing::error!(event = "reload_refused", "configuration not changed: {error}");
                self.api.views.reload(|reload| reload.end(Some(error.to_string())));
                self.manager.reloaded(self.state());
            }
        }
        if again == Some(true) {
            self.read_again();
        }
    }

    /// Brings volumes in and out. Starts and stops volumes; disks that open later log it.
    fn take_over(&mut self, new: Config, why: Why) {
        let mut not_taken = Vec::new();
        if new.host != self.me.host {
            not_taken.push(format!(
                "host is not changed to {}: the other hosts know this agent by {}; restart the agent",
                new.host, self.me.host
            ));
        }
        if self.memory != new.memory {
            not_taken.push("limits.memory is not changed: restart the agent for that".to_owned());
        }
        self.failed.retain(|failed| new.volumes.contains(&failed.config));
        let mut stay = Vec::new();
        for mut volume in std::mem::take(&mut self.volumes) {
            let name = volume.name();
            match new.volume(&name) {
                Some(wanted) if !volume.is_another(wanted) => {
                    // The kernel may be changing a steered device's queue, which waits for its IOs.
                    let outside = self.manager.pulse.outside();
                    volume.reload(wanted, why);
                    drop(outside);
                    stay.push(volume);
                }
                other => {
                    let how = match other {
                        Some(_) => "is stopped, and started as another",
                        None => "is removed",
                    };
                    tracing::info!(volume = name, event = "volume_removed", "{how}");
                    self.leave(volume);
                }
            }
        }
        self.volumes = stay;
        for wanted in &new.volumes {
            let there = self.volumes.iter().any(|volume| volume.name() == wanted.name)
                || self.failed.iter().any(|failed| failed.config.name == wanted.name);
            if there {
                continue;
            }
            tracing::info!(volume = wanted.name, event = "volume_added", "is added");
            self.bring_in(wanted.clone());
        }
        let before = std::mem::replace(&mut self.config, new).status;
        self.look_at_passed();
        self.show();
        if self.config.status != before {
            not_taken.extend(self.move_status(before));
        }
        self.api.views.reload(|reload| {
            let news = not_taken.iter().filter(|what| !reload.not_taken.contains(what));
            news.for_each(|what| tracing::warn!("{what}"));
            reload.not_taken = not_taken;
        });
        self.serve_http(why == Why::Reloaded);
        self.follow_policy();
    }

    /// Follows the policy that the configuration names.
    fn follow_policy(&mut self) {
        if self.follower.as_ref().is_some_and(|follower| follower.follows(&self.config)) {
            return;
        }
        // The follower until now publishes nothing any more.
        self.follower = None;
        self.follower =
            Follower::start(&self.config, &self.me.host, &self.api).unwrap_or_else(|error| {
                tracing::error!("cannot start a thread for the policy: {error}");
                None
            });
    }

    /// Serves the status at the socket of the configuration. Returns why it does not.
    fn move_status(&mut self, before: Option<PathBuf>) -> Option<String> {
        // The server that is there may be answering, and ask a volume's thread for that.
        let _outside = self.manager.pulse.outside();
        let Some(socket) = self.config.status.clone() else {
            self.status = None;
            tracing::info!("no status socket any more");
            return None;
        };
        match self.serve_status(&socket) {
            Ok(server) => {
                self.status = Some(server);
                tracing::info!(socket = %socket.display(), "status socket changed");
                None
            }
            Err(error) => {
                // So that the next reload tries again.
                self.config.status = before;
                Some(format!("status socket not changed: {error}"))
            }
        }
    }

    /// Serves HTTP at the addresses of the configuration, with the certificates of now.
    fn serve_http(&mut self, reloaded: bool) {
        // Waits for old servers, and for look-ups of names.
        let outside = self.manager.pulse.outside();
        self.api.views.about().pages.clone_from(&self.config.pages);
        self.http.serve(&self.config.http_places(), &self.api, reloaded);
        drop(outside);
        self.manager.state(self.state());
    }

    fn serve_status(&self, socket: &Path) -> Result<Server, ServeError> {
        let views = Arc::clone(&self.api.views);
        let server = Server::start(socket, move |mut stream| {
            let status = serde_json::to_vec(&views.status(Detail::Whole))?;
            stream.write_all(&status)
        });
        server.map_err(|source| {
            let help = parda_block::error_help(&source).unwrap_or_default().to_owned();
            ServeError::StatusSocket { socket: socket.display().to_string(), source, help }
        })
    }

    /// State of the agent for the service manager: its work and its volumes that do not start.
    fn state(&self) -> String {
        let all = &self.config.volumes;
        let disks: usize = all.iter().map(|volume| volume.disks().len()).sum();
        let devices = all.iter().filter(|volume| !volume.is_served()).count();
        let volumes = all.len();
        let mut state = format!("volumes: {volumes}; disks: {disks}; steered devices: {devices}");
        if let Some(refused) =
            self.api.views.about().reload.as_ref().and_then(|it| it.refused.as_ref())
        {
            state = format!("configuration not changed: {refused}; {state}");
        }
        for Failed { config, error, .. } in &self.failed {
            state += &format!("; {} does not start: {error}", config.name);
        }
        for HttpPlace { address, fault, .. } in &self.api.views.about().http {
            if let Some(fault) = fault {
                state += &format!("; HTTP at {address}: {fault}");
            }
        }
        state
    }

    /// Has the status show the volumes that there are.
    fn show(&mut self) {
        self.manager.state(self.state());
        let running = self.volumes.iter().map(|volume| View::Running(volume.view.clone()));
        let failed = self.failed.iter();
        let failed = failed.map(|f| View::Failed(Box::new(f.config.clone()), f.error.clone()));
        self.api.views.show(running.chain(failed).collect());
    }
}
