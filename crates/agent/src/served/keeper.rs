//! Keeper of the disks and listeners that a volume serves. Opens them, retries those that fail, and adds and removes them when the
//! configuration changes. After a panic, the keeper starts the ring again. Calls that can block run on threads of their own. After
//! [`crate::patience::PATIENCE`] without an answer of its file system, a disk counts as tried.

mod disks;
mod listeners;
mod ring;

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use parda_address::Address;
use parda_awake::Instant;
use parda_block::{DrainedVolume, Ended, Handle, OpenDisk, SpawnError};
use parda_tls::FileError;

use super::board::{Board, Shown};
use super::member::{Certificate, Member, position};
use super::shared::{Owner, Shared, Ticket};
use crate::config;
use crate::crew::Crew;
use ring::{FIRST_RESTART, spawn};

/// Rest after a turn, in multiples of the turn's duration. During the rest, only the requests of others are served.
const REST: u32 = 10;
const MOST_REST: Duration = Duration::from_secs(1);

pub(super) enum Order {
    /// Serve this from now on.
    Want(Box<config::Volume>),
    Stop(Duration, Sender<Option<DrainedVolume>>),
    Opened(Owner, Box<Result<OpenDisk, NotOpened>>, Ticket),
    Removed(Owner),
    Bound(Owner, Result<(Address, Certificate), String>),
    Renewed(Owner, Result<(), FileError>),
    Unbound(Owner),
    Ended(u64, Ended),
}

/// Reason why a disk is not open: its data is the agent's own, or a [`SpawnError`].
type NotOpened = Box<dyn Error + Send + Sync>;

pub(super) struct Keeper {
    pub(super) wanted: config::Volume,
    pub(super) board: Board,
    shared: Shared,
    pub(super) orders: Sender<Order>,
    pub(super) received: Receiver<Order>,
    /// Called when all has been tried once.
    pub(super) settled: Option<Box<dyn FnOnce() + Send>>,
    ring: Option<Arc<Handle>>,
    /// The ring that runs, by the order of their starts.
    generation: u64,
    restart_at: Option<Instant>,
    restart_pause: Duration,
    started: Instant,
    /// State that other threads see, renewed after each turn.
    shown: Shown,
    /// Time of the next look at shown certificates.
    certificates_due: Option<Instant>,
    /// Threads that open disks, and those that bind listeners.
    opening: Crew,
    binding: Crew,
    /// When these may need more threads.
    crew_due: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(
        wanted: config::Volume,
        board: Board,
        shared: Shared,
        (orders, received): (Sender<Order>, Receiver<Order>),
        settled: Box<dyn FnOnce() + Send>,
    ) -> Result<Keeper, SpawnError> {
        let ring = spawn(&wanted, board.decision(), &shared.memory, 0, &orders)?;
        board.set_ring(Some(Arc::clone(&ring)));
        let mut keeper = Keeper {
            wanted,
            board,
            shared,
            orders,
            received,
            settled: Some(settled),
            ring: Some(ring),
            generation: 0,
            restart_at: None,
            restart_pause: FIRST_RESTART,
            started: Instant::now(),
            shown: Shown::default(),
            certificates_due: None,
            opening: Crew::new("open"),
            binding: Crew::new("listen"),
            crew_due: None,
        };
        keeper.reconcile();
        Ok(keeper)
    }

    pub(super) fn run(mut self) {
        let mut begun = Instant::now();
        loop {
            self.work();
            self.board.show(self.shown.clone());
            if self.shown.disks.iter().all(Member::is_settled)
                && self.shown.listeners.iter().all(Member::is_settled)
                && let Some(settled) = self.settled.take()
            {
                settled();
            }
            let now = Instant::now();
            let due = (self.shown.disks.iter().filter_map(Member::due))
                .chain(self.shown.listeners.iter().filter_map(Member::due))
                .filter(|_| self.ring.is_some())
                .chain(self.restart_at)
                .chain(self.certificates_due)
                .chain(self.crew_due)
                .min();
            // Thousands of disks that are tried again must not keep a processor busy.
            let rest = (REST * now.saturating_duration_since(begun)).min(MOST_REST);
            let mut order = match due {
                Some(at) => self.received.recv_timeout(at.saturating_duration_since(now).max(rest)),
                None => self.received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            begun = Instant::now();
            // All that has come is taken together: each turn looks at all disks.
            loop {
                match order {
                    Ok(Order::Stop(within, done)) => {
                        let drained = self.stop(within);
                        let _ = done.send(drained);
                        return;
                    }
                    Ok(order) => self.take(order),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        self.stop(Duration::ZERO);
                        return;
                    }
                }
                order = self.received.try_recv().map_err(|_| RecvTimeoutError::Timeout);
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
            Order::Opened(owner, opened, ticket) => self.opened(owner, *opened, ticket),
            Order::Removed(owner) => {
                if let Some(at) = position(&self.shown.disks, owner) {
                    let disk = self.shown.disks.remove(at).config;
                    tracing::info!(
                        volume = self.wanted.name, disk = %disk.name, event = "disk_removed",
                        "removed"
                    );
                }
            }
            Order::Bound(owner, bound) => self.bound(owner, bound),
            Order::Renewed(owner, renewed) => self.renewed(owner, renewed),
            Order::Unbound(owner) => {
                self.shared.addresses.release(owner);
                if let Some(at) = position(&self.shown.listeners, owner) {
                    let address = self.shown.listeners.remove(at).config.address;
                    tracing::info!(volume = self.wanted.name, %address, "listens no more");
                }
            }
            Order::Ended(generation, how) if generation == self.generation => self.ended(how),
            Order::Ended(..) | Order::Stop(..) => {}
        }
    }

    /// Brings members in and out so that they are those that are wanted.
    fn reconcile(&mut self) {
        self.reconcile_disks();
        self.reconcile_listeners();
    }

    /// Begins the work that is due.
    fn work(&mut self) {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| now >= at) {
            self.restart(now);
        }
        if self.ring.is_some() {
            self.open_disks(now);
        }
        self.watch_openings();
        self.bind_listeners(now);
        self.crew_due = [self.opening.hire(), self.binding.hire()].into_iter().flatten().min();
        self.look_at_certificates(now);
    }
}

/// Runs a call that may block on a thread of its own. False if there is no thread.
fn apart(what: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let begun = std::thread::Builder::new().name(what.to_owned()).spawn(work);
    if let Err(error) = &begun {
        tracing::error!("cannot start a thread to {what}: {error}");
    }
    begun.is_ok()
}
