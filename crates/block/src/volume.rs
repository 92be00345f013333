//! Starting a volume, and speaking to it while it runs.

use std::io;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_address::Address;
use parda_control::{Decision, Host, Instant, Measurement};

use crate::config::DiskConfig;
use crate::config::{SpawnError, VolumeConfig};
use crate::descriptors::error_help;
use crate::disk_id::DiskId;
use crate::ended::{DrainedVolume, Ended};
use crate::engine::{Engine, Order, Parts};
use crate::front::{Budget, FrontParts};
use crate::listen::{self, Bound, ListenError, ListenerConfig};
use crate::mailbox::{Mailer, mailbox};
use crate::open_disk::OpenDisk;
use crate::stats::Stats;

/// Spawner of volumes: the loop itself is `engine::Engine`.
#[derive(Debug)]
pub struct Volume;

impl Volume {
    /// Opens the backends, binds the listeners and starts the thread. When it returns, clients can
    /// connect.
    ///
    /// # Errors
    /// The first thing that is not possible; nothing is left behind then.
    pub fn spawn(config: VolumeConfig) -> Result<Handle, SpawnError> {
        Volume::spawn_watched(config, |_| {})
    }

    /// As [`Volume::spawn`]. `ended` is called on the volume's thread when that ends, however it
    /// does: nothing of the volume is left then, unless [`Ended::Broken`] says so, or a file system does not answer to a close.
    ///
    /// # Errors
    /// The first thing that is not possible; nothing is left behind then.
    pub fn spawn_watched(
        config: VolumeConfig,
        ended: impl FnOnce(&Ended) + Send + 'static,
    ) -> Result<Handle, SpawnError> {
        let VolumeConfig { name, decision, disks, listeners, model, limits, memory } = config;
        let refused = |why: String| SpawnError::Refused(format!("volume {name}: {why}"));
        let host = Host::new(Instant(0), &decision);
        let budget = Budget::new(&memory, limits.memory, limits.connections)
            .map_err(|error| refused(error.to_string()))?;
        let disks: Vec<OpenDisk> =
            disks.into_iter().map(OpenDisk::open).collect::<Result<_, _>>()?;
        let listeners = bind_all(&disks, listeners)?;

        let system = |source: io::Error| {
            let forbidden = ". Is io_uring forbidden (sysctl kernel.io_uring_disabled, or a container's seccomp profile)?";
            let help = error_help(&source).unwrap_or(forbidden);
            refused(format!("cannot set up its thread and io_uring: {source}{help}"))
        };
        let (mailer, mailbox) = mailbox().map_err(system)?;
        let (orders, ordered) = channel();
        let (ready, is_ready) = sync_channel(1);
        let parts = Parts {
            name: name.clone(),
            host,
            model,
            memory: budget.capacity(),
            front: FrontParts { limits, budget, memory, mailer: mailer.clone() },
            orders: ordered,
            mailbox,
            mailer: mailer.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("parda-{name}"))
            .spawn(move || match Engine::new(parts) {
                Ok(engine) => {
                    // Whoever started us waits for this; if not, there is nobody to serve.
                    let _ = ready.send(Ok(()));
                    let how = engine.run();
                    ended(&how);
                    how
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    Ended::Drained(DrainedVolume { unanswered: 0 })
                }
            })
            .map_err(system)?;
        let gone = || io::Error::other("the volume's thread ended at once");
        is_ready.recv().unwrap_or_else(|_| Err(gone())).map_err(system)?;
        let addresses = listeners.iter().map(|(_, bound)| bound.address.clone()).collect();
        let handle = Handle { orders, mailer, thread: Mutex::new(Some(thread)), addresses };
        // A listener comes after what it offers.
        let stopped = |Stopped| system(gone());
        for disk in disks {
            handle.add_disk(disk).map_err(stopped)?;
        }
        for (address, bound) in listeners {
            let add = |engine: &mut Engine, _| engine.add_listener(address, bound);
            handle.ask(add).map_err(stopped)?.map_err(system)?;
        }
        Ok(handle)
    }
}

/// Binds the addresses of the disks, each once.
fn bind_all(
    disks: &[OpenDisk],
    mut listeners: Vec<ListenerConfig>,
) -> Result<Vec<(Address, Bound)>, SpawnError> {
    let mut bound: Vec<(Address, Bound)> = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        for address in disk.config.addresses() {
            let same = |other: &OpenDisk| {
                let mut at = other.config.addresses();
                other.config.name == disk.config.name && at.any(|other| other == address)
            };
            if disks[..index].iter().any(same) {
                let export = disk.config.name.as_str();
                return Err(SpawnError::Refused(format!(
                    "two disks are named {export:?} on {address}: give one of them another name"
                )));
            }
            if !bound.iter().any(|(a, _)| a == address) {
                let config = match listeners.iter().position(|l| l.address == *address) {
                    Some(at) => listeners.swap_remove(at),
                    None => ListenerConfig::new(address.clone()),
                };
                bound.push((address.clone(), listen::bind(config)?));
            }
        }
    }
    Ok(bound)
}

/// The volume's thread has ended and cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the volume is not running any more")]
pub struct Stopped;

/// Reason why nobody can connect at an address of a running volume.
#[derive(Debug, thiserror::Error)]
pub enum AddListenerError {
    /// The address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no volume any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A running volume. All calls may come from any thread, and none of them delays an IO: the
/// volume looks at its mail between IOs. Dropping it without [`Handle::shutdown`] ends the volume
/// as well, but does not wait for that.
#[derive(Debug)]
pub struct Handle {
    orders: Sender<Order>,
    mailer: Mailer,
    /// Taken by a shutdown.
    thread: Mutex<Option<JoinHandle<Ended>>>,
    addresses: Vec<Address>,
}

impl Handle {
    /// Where clients could connect at the start, in the order in which the disks name them.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Ends a period, and returns what was measured for the law, in the memory of an earlier measurement.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn measure(&self, mut into: Measurement) -> Result<Measurement, Stopped> {
        self.ask(|engine, now| {
            engine.measure(now, &mut into);
            into
        })
    }

    /// Has the volume work by another decision of the law. Does not wait until it does.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn apply(&self, decision: Decision) -> Result<(), Stopped> {
        self.order(move |engine, now| engine.apply(now, &decision))
    }

    /// Counters since the volume started.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn stats(&self) -> Result<Stats, Stopped> {
        self.ask(|engine, now| engine.stats(now))
    }

    /// Changes the settings of a disk that stays open for them ([`DiskConfig::stays_open_for`]). Its connections stay. `false` if there
    /// is no such disk.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn set_disk(&self, disk: DiskId, config: DiskConfig) -> Result<bool, Stopped> {
        self.ask(move |engine, now| engine.set_disk(now, disk, &config))
    }

    /// Serves one more disk, at those of its addresses at which there is a listener.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn add_disk(&self, disk: OpenDisk) -> Result<DiskId, Stopped> {
        self.ask(|engine, now| engine.add_disk(now, disk))
    }

    /// Takes no more requests of a disk, answers those in flight for up to `within`, closes its
    /// connections and then its backend. Returns when that is done, which may be later: what the
    /// kernel has of its file is waited for, and a file system that does not answer to the close. `false` if there is no such disk.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn remove_disk(&self, disk: DiskId, within: Duration) -> Result<bool, Stopped> {
        let (gone, is_gone) = sync_channel(1);
        self.order(move |engine, now| engine.remove_disk(now, disk, within, gone))?;
        Ok(is_gone.recv().is_ok())
    }

    /// Accepts connections at one more address, for the disks that name it. Returns where that is:
    /// with the port that was given to port 0. May block for seconds, while the socket of a server
    /// that was killed is being closed.
    ///
    /// # Errors
    /// The address cannot be used, or the volume has ended.
    pub fn add_listener(&self, config: ListenerConfig) -> Result<Address, AddListenerError> {
        let address = config.address.clone();
        let bound = listen::bind(config)?;
        let at = bound.address.clone();
        let added = {
            let address = address.clone();
            self.ask(|engine, _| engine.add_listener(address, bound))?
        };
        added.map_err(|error| ListenError::system(&address, &error))?;
        Ok(at)
    }

    /// Closes a listener, given as it was added. Its connections stay, but for those that are still
    /// in their handshake. `false` if there is no such listener.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn remove_listener(&self, address: &Address) -> Result<bool, Stopped> {
        let address = address.clone();
        self.ask(move |engine, _| engine.remove_listener(&address))
    }

    /// Takes no more requests, answers those in flight for up to `within`, and ends. The files of
    /// its unix sockets are gone then.
    ///
    /// # Errors
    /// If the volume had ended before.
    pub fn shutdown(self, within: Duration) -> Result<DrainedVolume, Stopped> {
        self.stop(within)
    }

    /// As [`Handle::shutdown`], for a handle that others have as well.
    ///
    /// # Errors
    /// If the volume had ended before.
    pub fn stop(&self, within: Duration) -> Result<DrainedVolume, Stopped> {
        // A volume that has ended is joined all the same.
        let _ = self.order(move |engine, now| engine.stop(now, within));
        match self.take_thread().ok_or(Stopped)?.join() {
            Ok(Ended::Drained(drained)) => Ok(drained),
            Ok(Ended::Crashed(_) | Ended::Broken(_)) | Err(_) => Err(Stopped),
        }
    }

    fn take_thread(&self) -> Option<JoinHandle<Ended>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has the volume's thread do something between two IOs.
    fn order(
        &self,
        order: impl FnOnce(&mut Engine, Instant) + Send + 'static,
    ) -> Result<(), Stopped> {
        let sent = self.orders.send(Box::new(order)).is_ok() && self.mailer.ring();
        sent.then_some(()).ok_or(Stopped)
    }

    /// The same, and waits for the answer.
    fn ask<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Engine, Instant) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, answered) = sync_channel(1);
        self.order(move |engine, now| {
            // An answer that nobody waits for any more is no error.
            let _ = answer.send(order(engine, now));
        })?;
        answered.recv().map_err(|_| Stopped)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.take_thread().is_some() {
            let _ = self.order(|engine, now| engine.stop(now, Duration::ZERO));
        }
    }
}
