//! Keeps what a volume serves as the configuration says: opens its disks and listeners, tries again
//! what cannot be opened, brings disks and listeners in and out when the configuration changes, and
//! starts the ring again after a panic. All that can block is done on threads of its own.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use parda_block::{
    AddListenerError, AgentMemory, DiskId, Drained, Ended, Handle, OpenDisk, SpawnError,
    VolumeConfig,
};
use parda_nbd::uri::Address;

use super::Shared;
use super::board::{Board, Shown, ShownDisk, ShownListener};
use super::claims::{Claims, Owner, What};
use crate::activation::Passed;
use crate::config::{self, Disk, Listener};

/// How long a disk that is removed answers what is in flight.
const DRAIN: Duration = Duration::from_secs(30);
/// After what time it is tried again for the first time to open a disk or a listener, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How often it is looked whether another volume has let go of something.
const LOOK: Duration = Duration::from_millis(20);
/// After what time a ring that panicked is started again, and at most.
const FIRST_RESTART: Duration = Duration::from_millis(500);
const LAST_RESTART: Duration = Duration::from_secs(60);

pub(super) enum Order {
    /// Serve this from now on.
    Want(Box<config::Volume>),
    Stop(Duration, Sender<Option<Drained>>),
    Opened(Owner, Box<Result<OpenDisk, SpawnError>>),
    Removed(Owner),
    Bound(Owner, Result<Address, AddListenerError>),
    Unbound(Owner),
    Ended(u64, Ended),
}

/// Something that is to be open.
struct Member<T, O> {
    owner: Owner,
    config: T,
    state: State<O>,
    since: Instant,
    fault: Option<String>,
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq)]
enum State<O> {
    /// To be opened then.
    Waiting(Instant),
    Opening,
    Open(O),
    Leaving,
}

impl<T, O> Member<T, O> {
    fn new(config: T) -> Self {
        let now = Instant::now();
        let (owner, state) = (Owner::new(), State::Waiting(now));
        Member { owner, config, state, since: now, fault: None, pause: FIRST_PAUSE }
    }

    /// It could not be opened. True if that is news.
    fn failed(&mut self, fault: String) -> bool {
        self.state = State::Waiting(Instant::now() + self.pause);
        self.pause = (2 * self.pause).min(LAST_PAUSE);
        if self.fault.is_none() {
            self.since = Instant::now();
        }
        self.fault.replace(fault.clone()) != Some(fault)
    }

    fn opened(&mut self, what: O) {
        self.state = State::Open(what);
        self.since = Instant::now();
        self.fault = None;
        self.pause = FIRST_PAUSE;
    }

    /// It has been tried.
    fn is_settled(&self) -> bool {
        self.fault.is_some() || matches!(self.state, State::Open(_) | State::Leaving)
    }

    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(at) => Some(at),
            _ => None,
        }
    }
}

pub(super) struct Keeper {
    pub(super) wanted: config::Volume,
    pub(super) board: Board,
    pub(super) claims: Claims,
    pub(super) passed: Arc<Passed>,
    memory: AgentMemory,
    pub(super) orders: Sender<Order>,
    pub(super) received: Receiver<Order>,
    /// Called when all has been tried once.
    pub(super) settled: Option<Box<dyn FnOnce() + Send>>,
    ring: Option<Arc<Handle>>,
    /// The ring that runs, by the order of their starts.
    generation: u64,
    restart_at: Option<Instant>,
    restart_pause: Duration,
    restarts: u64,
    fault: Option<String>,
    started: Instant,
    disks: Vec<Member<Disk, DiskId>>,
    listeners: Vec<Member<Listener, ()>>,
}

/// Starts a ring that serves nothing yet.
fn spawn(
    config: &config::Volume,
    memory: &AgentMemory,
    generation: u64,
    orders: &Sender<Order>,
) -> Result<Arc<Handle>, SpawnError> {
    let orders = orders.clone();
    let volume = VolumeConfig {
        name: config.name.clone(),
        control: config.law.control.clone(),
        disks: Vec::new(),
        listeners: Vec::new(),
        model: None,
        limits: config.limits,
        memory: memory.clone(),
    };
    // Nobody listens any more if the keeper has stopped it.
    let ended = move |how: &Ended| drop(orders.send(Order::Ended(generation, how.clone())));
    parda_block::Volume::spawn_watched(volume, ended).map(Arc::new)
}

impl Keeper {
    pub(super) fn new(
        wanted: config::Volume,
        board: Board,
        shared: Shared,
        (orders, received): (Sender<Order>, Receiver<Order>),
        settled: Box<dyn FnOnce() + Send>,
    ) -> Result<Keeper, SpawnError> {
        let Shared { claims, passed, memory } = shared;
        let ring = spawn(&wanted, &memory, 0, &orders)?;
        board.set_ring(Some(Arc::clone(&ring)));
        let mut keeper = Keeper {
            wanted,
            board,
            claims,
            passed,
            memory,
            orders,
            received,
            settled: Some(settled),
            ring: Some(ring),
            generation: 0,
            restart_at: None,
            restart_pause: FIRST_RESTART,
            restarts: 0,
            fault: None,
            started: Instant::now(),
            disks: Vec::new(),
            listeners: Vec::new(),
        };
        keeper.reconcile();
        Ok(keeper)
    }

    pub(super) fn run(mut self) {
        loop {
            self.work();
            self.show();
            if self.disks.iter().all(Member::is_settled)
                && self.listeners.iter().all(Member::is_settled)
                && let Some(settled) = self.settled.take()
            {
                settled();
            }
            let now = Instant::now();
            let due = (self.disks.iter().filter_map(Member::due))
                .chain(self.listeners.iter().filter_map(|l| self.may_listen(l).then(|| l.due())?))
                .filter(|_| self.ring.is_some())
                .chain(self.restart_at)
                .min();
            let order = match due {
                Some(at) => self.received.recv_timeout(at.saturating_duration_since(now)),
                None => self.received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Stop(within, done)) => {
                    let drained = self.stop(within);
                    let _ = done.send(drained);
                    return;
                }
                Ok(order) => self.take(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.stop(Duration::ZERO);
                    return;
                }
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Want(wanted) => {
                if wanted.limits != self.wanted.limits {
                    let volume = &wanted.name;
                    tracing::warn!(volume, "limits are not changed: restart the agent for that");
                }
                let limits = self.wanted.limits;
                self.wanted = config::Volume { limits, ..*wanted };
                self.reconcile();
            }
            Order::Opened(owner, opened) => self.opened(owner, *opened),
            Order::Removed(owner) => {
                self.claims.release(owner);
                if let Some(at) = self.disks.iter().position(|disk| disk.owner == owner) {
                    let disk = self.disks.remove(at).config;
                    tracing::info!(volume = self.wanted.name, disk = %disk.name, "removed");
                }
            }
            Order::Bound(owner, bound) => self.bound(owner, bound),
            Order::Unbound(owner) => {
                self.claims.release(owner);
                if let Some(at) = self.listeners.iter().position(|l| l.owner == owner) {
                    let address = self.listeners.remove(at).config.address;
                    tracing::info!(volume = self.wanted.name, %address, "listens no more");
                }
            }
            Order::Ended(generation, how) if generation == self.generation => self.ended(how),
            Order::Ended(..) | Order::Stop(..) => {}
        }
    }

    /// Brings members in and out so that they are those that are wanted.
    fn reconcile(&mut self) {
        let wanted = self.wanted.disks().to_vec();
        let mut leave = Vec::new();
        for member in &mut self.disks {
            if member.state == State::Leaving {
                continue;
            }
            let Some(disk) = same_disk(&wanted, &member.config) else {
                leave.push((member.owner, "not in the configuration any more"));
                continue;
            };
            let moved = Disk { vm: disk.vm, listen: disk.listen.clone(), ..member.config.clone() };
            if moved != *disk {
                leave.push((member.owner, "its data is to be another: it is opened anew"));
                continue;
            }
            let (vm, listen) = (disk.vm != member.config.vm, disk.listen != member.config.listen);
            member.config = disk.clone();
            let (State::Open(id), Some(ring)) = (member.state, &self.ring) else { continue };
            let (volume, name) = (&self.wanted.name, &disk.name);
            if vm {
                match ring.set_vm(id, disk.vm) {
                    Ok(Some(vm)) => tracing::info!(
                        volume, disk = %name, shares = vm.shares.0, burst = vm.burst,
                        "shares changed"
                    ),
                    _ => tracing::error!(volume, disk = %name, "shares not changed: it has ended"),
                }
            }
            if listen {
                match ring.set_listen(id, vec![disk.listen.clone()]) {
                    Ok(true) => tracing::info!(
                        volume, disk = %name, listen = %disk.listen,
                        "offered elsewhere; its connections stay"
                    ),
                    _ => tracing::error!(volume, disk = %name, "listen not changed: it has ended"),
                }
            }
        }
        for (owner, why) in leave {
            self.remove_disk(owner, why);
        }
        for disk in wanted {
            let there = |m: &Member<Disk, DiskId>| m.state != State::Leaving && m.config == disk;
            if !self.disks.iter().any(there) {
                self.disks.push(Member::new(disk));
            }
        }
        let listeners = self.wanted.listeners.clone();
        for member in &self.listeners {
            if let Some(new) = listeners.iter().find(|new| **new == member.config) {
                member.config.renew(new);
            }
        }
        let gone: Vec<Owner> = (self.listeners.iter())
            .filter(|l| l.state != State::Leaving && !listeners.contains(&l.config))
            .map(|l| l.owner)
            .collect();
        gone.into_iter().for_each(|owner| self.remove_listener(owner));
        for listener in listeners {
            let there =
                |m: &Member<Listener, ()>| m.state != State::Leaving && m.config == listener;
            if !self.listeners.iter().any(there) {
                self.listeners.push(Member::new(listener));
            }
        }
    }

    fn remove_disk(&mut self, owner: Owner, why: &str) {
        let Some(at) = self.disks.iter().position(|disk| disk.owner == owner) else { return };
        let member = &mut self.disks[at];
        tracing::info!(volume = self.wanted.name, disk = %member.config.name, why, "is removed");
        match (member.state, &self.ring) {
            (State::Open(id), Some(ring)) => {
                member.state = State::Leaving;
                member.since = Instant::now();
                let (ring, orders) = (Arc::clone(ring), self.orders.clone());
                apart("remove", move || {
                    // A ring that has ended has nothing of it any more.
                    let _ = ring.remove_disk(id, DRAIN);
                    let _ = orders.send(Order::Removed(owner));
                });
            }
            // What is being opened is closed when it is.
            (State::Opening, _) => drop(self.disks.remove(at)),
            _ => {
                self.claims.release(owner);
                self.disks.remove(at);
            }
        }
    }

    fn remove_listener(&mut self, owner: Owner) {
        let Some(at) = self.listeners.iter().position(|l| l.owner == owner) else { return };
        let member = &mut self.listeners[at];
        match (member.state, &self.ring) {
            (State::Open(()) | State::Opening, Some(ring)) => {
                member.state = State::Leaving;
                let (ring, orders) = (Arc::clone(ring), self.orders.clone());
                let address = member.config.address.clone();
                apart("unlisten", move || {
                    let _ = ring.remove_listener(&address);
                    let _ = orders.send(Order::Unbound(owner));
                });
            }
            _ => {
                self.claims.release(owner);
                self.listeners.remove(at);
            }
        }
    }

    /// Listeners come after the disks that they offer, if these can be opened at all.
    fn may_listen(&self, listener: &Member<Listener, ()>) -> bool {
        let here = |d: &&Member<Disk, DiskId>| d.config.listen == listener.config.address;
        self.disks.iter().filter(here).all(Member::is_settled)
    }

    /// Begins what is due.
    fn work(&mut self) {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| now >= at) {
            self.restart(now);
        }
        let Some(ring) = self.ring.clone() else { return };
        let (volume, claims) = (self.wanted.name.clone(), self.claims.clone());
        for member in &mut self.disks {
            if member.due().is_none_or(|at| now < at) {
                continue;
            }
            let owner = member.owner;
            if let Err(other) = claims.take(owner, &volume, What::data(&member.config)) {
                member.fault = Some(format!("volume {other} is still closing it"));
                member.state = State::Waiting(now + LOOK);
                continue;
            }
            member.state = State::Opening;
            let (config, orders) = (super::disk(&member.config), self.orders.clone());
            let begun = apart("open", move || {
                let _ = orders.send(Order::Opened(owner, Box::new(OpenDisk::open(config))));
            });
            if !begun {
                claims.release(owner);
                member.failed("there is no thread to open it".to_owned());
            }
        }
        for at in 0..self.listeners.len() {
            let member = &self.listeners[at];
            if member.due().is_none_or(|at| now < at) || !self.may_listen(member) {
                continue;
            }
            let member = &mut self.listeners[at];
            let owner = member.owner;
            let what = What::Listener(member.config.address.clone());
            if let Err(other) = claims.take(owner, &volume, what) {
                member.fault = Some(format!("volume {other} is still closing it"));
                member.state = State::Waiting(now + LOOK);
                continue;
            }
            let config = match super::listener(&member.config, &self.passed) {
                Ok(config) => config,
                Err(error) => {
                    claims.release(owner);
                    member.failed(format!("cannot take over a socket that was passed: {error}"));
                    continue;
                }
            };
            member.state = State::Opening;
            let (ring, orders) = (Arc::clone(&ring), self.orders.clone());
            let begun = apart("listen", move || {
                let _ = orders.send(Order::Bound(owner, ring.add_listener(config)));
            });
            if !begun {
                claims.release(owner);
                member.failed("there is no thread to bind it".to_owned());
            }
        }
    }

    fn opened(&mut self, owner: Owner, opened: Result<OpenDisk, SpawnError>) {
        let volume = &self.wanted.name;
        let member = self.disks.iter_mut().find(|disk| disk.owner == owner);
        let Some(member) = member else {
            // It was removed meanwhile.
            drop(opened);
            return self.claims.release(owner);
        };
        let disk = member.config.clone();
        let added = opened.map_err(|error| error.to_string()).and_then(|open| {
            let ring = self.ring.as_ref().ok_or_else(|| "the ring is not running".to_owned())?;
            let id = ring.add_disk(open).map_err(|error| error.to_string())?;
            // What it was opened with may have changed since.
            let current = ring
                .set_vm(id, disk.vm)
                .and_then(|_| ring.set_listen(id, vec![disk.listen.clone()]));
            current.map(|_| id).map_err(|error| error.to_string())
        });
        match added {
            Ok(id) => {
                member.opened(id);
                tracing::info!(
                    volume, disk = %disk.name, data = %disk.place, listen = %disk.listen,
                    shares = disk.vm.shares.0, "serving"
                );
            }
            Err(error) => {
                self.claims.release(owner);
                if member.failed(error.clone()) {
                    tracing::error!(
                        volume, disk = %disk.name,
                        "cannot be served: {error}; it is tried again until it can"
                    );
                }
            }
        }
    }

    fn bound(&mut self, owner: Owner, bound: Result<Address, AddListenerError>) {
        let volume = &self.wanted.name;
        let member = self.listeners.iter_mut().find(|listener| listener.owner == owner);
        let Some(member) = member.filter(|m| m.state == State::Opening) else {
            if let (Ok(address), Some(ring)) = (bound, &self.ring) {
                // It was removed meanwhile, perhaps before it was there.
                let (ring, orders) = (Arc::clone(ring), self.orders.clone());
                apart("unlisten", move || {
                    let _ = ring.remove_listener(&address);
                    let _ = orders.send(Order::Unbound(owner));
                });
            }
            return;
        };
        match bound {
            Ok(address) => {
                member.opened(());
                tracing::info!(volume, %address, "listening");
            }
            Err(error) => {
                self.claims.release(owner);
                let error = error.to_string();
                if member.failed(error.clone()) {
                    tracing::error!(volume, "{error}; it is tried again until it can be");
                }
            }
        }
    }

    /// The ring has ended by itself.
    fn ended(&mut self, how: Ended) {
        self.ring = None;
        self.board.set_ring(None);
        let volume = &self.wanted.name;
        let (why, again) = match how {
            Ended::Crashed(why) => (why, true),
            Ended::Broken(why) => (why, false),
            Ended::Drained(_) => ("it was told to".to_owned(), false),
        };
        if again {
            tracing::error!(
                volume,
                pause = ?self.restart_pause,
                "ended by {why}; its connections are closed, it is started again"
            );
            self.restart_at = Some(Instant::now() + self.restart_pause);
        } else {
            tracing::error!(
                volume,
                "ended by {why}; what it had in flight may still come: restart the agent"
            );
        }
        self.fault = Some(why);
        let now = Instant::now();
        self.disks.retain(|m| {
            let leaving = m.state == State::Leaving;
            if leaving || again {
                self.claims.release(m.owner);
            }
            !leaving
        });
        self.listeners.retain(|m| {
            self.claims.release(m.owner);
            m.state != State::Leaving
        });
        for member in &mut self.disks {
            if member.state != State::Opening {
                (member.state, member.since) = (State::Waiting(now), now);
            }
        }
        for member in &mut self.listeners {
            (member.owner, member.state, member.since) = (Owner::new(), State::Waiting(now), now);
        }
    }

    fn restart(&mut self, now: Instant) {
        let long = now.saturating_duration_since(self.started) > LAST_RESTART;
        let pause = if long { FIRST_RESTART } else { self.restart_pause };
        self.restart_pause = (2 * pause).min(LAST_RESTART);
        self.generation += 1;
        match spawn(&self.wanted, &self.memory, self.generation, &self.orders) {
            Ok(ring) => {
                self.board.set_ring(Some(Arc::clone(&ring)));
                self.ring = Some(ring);
                self.restart_at = None;
                self.started = now;
                self.restarts += 1;
                tracing::warn!(volume = self.wanted.name, "started again");
            }
            Err(error) => {
                self.restart_at = Some(now + self.restart_pause);
                tracing::error!(volume = self.wanted.name, "cannot be started again: {error}");
            }
        }
    }

    fn stop(&mut self, within: Duration) -> Option<Drained> {
        self.board.set_ring(None);
        let drained = match self.ring.take() {
            Some(ring) => ring.stop(within).ok(),
            None => Some(Drained { unanswered: 0 }),
        };
        self.disks.iter().for_each(|member| self.claims.release(member.owner));
        self.listeners.iter().for_each(|member| self.claims.release(member.owner));
        drained
    }

    fn show(&self) {
        let disks = self.disks.iter().map(|member| ShownDisk {
            name: member.config.name.to_string(),
            vm: member.config.vm,
            since: member.since,
            fault: member.fault.clone(),
            id: match member.state {
                State::Open(id) => Some(id),
                _ => None,
            },
            state: match member.state {
                State::Open(_) => "serving",
                State::Leaving => "leaving",
                State::Opening if member.fault.is_none() => "opening",
                State::Waiting(_) | State::Opening => "waiting",
            },
        });
        let listeners = self.listeners.iter().map(|member| ShownListener {
            address: member.config.address.to_string(),
            since: member.since,
            fault: member.fault.clone(),
        });
        self.board.show(Shown {
            disks: disks.collect(),
            listeners: listeners.collect(),
            fault: self.fault.clone(),
            restarts: self.restarts,
        });
    }
}

/// The disk of that name, at that listener if several have the name.
fn same_disk<'a>(wanted: &'a [Disk], disk: &Disk) -> Option<&'a Disk> {
    let named: Vec<&Disk> = wanted.iter().filter(|d| d.name == disk.name).collect();
    match named[..] {
        [one] => Some(one),
        _ => named.into_iter().find(|d| d.listen == disk.listen),
    }
}

/// Does on a thread of its own what may block. False if there is no thread.
fn apart(what: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let begun = std::thread::Builder::new().name(what.to_owned()).spawn(work);
    if let Err(error) = &begun {
        tracing::error!("cannot start a thread to {what}: {error}");
    }
    begun.is_ok()
}
