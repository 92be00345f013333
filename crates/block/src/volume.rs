//! Starting a volume, and speaking to it while it runs.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_control::{Bytes, Config, ConfigError, Host, Instant, Report, Totals, VmConfig};
use parda_nbd::Export;
use parda_nbd::uri::Address;

use crate::backend::map::Place;
use crate::backend::{BackendConfig, Geometry, OpenError, Region, connect, file, memory};
use crate::config::{DiskConfig, SpawnError, VolumeConfig};
use crate::conn::Offer;
use crate::engine::{Engine, Parts};
use crate::listen::{self, Bound, ListenerConfig};
use crate::mailbox::{Command, Mailer, mailbox};
use crate::stats::Stats;

/// A backend that is open, on its way to the volume's thread.
pub(crate) enum Opened {
    File(file::Opened),
    Memory(memory::Memory),
    Nbd(Box<connect::Opened>),
}

/// A disk on its way to the volume's thread.
pub(crate) struct OpenDisk {
    pub(crate) config: DiskConfig,
    pub(crate) opened: Opened,
    pub(crate) base: Bytes,
}

impl OpenDisk {
    /// Where holes can be looked for.
    pub(crate) fn place(&self) -> io::Result<Option<Place>> {
        match &self.opened {
            Opened::File(opened) => {
                Place::new(&opened.fd, self.base.0, opened.geometry.blocks.min()).map(Some)
            }
            Opened::Memory(memory) => {
                Place::new(memory.fd(), self.base.0, memory.geometry().blocks.min()).map(Some)
            }
            Opened::Nbd(..) => Ok(None),
        }
    }
}

/// Starts volumes.
#[derive(Debug)]
pub struct Volume;

impl Volume {
    /// Opens the backends, binds the listeners and starts the thread. When it returns, clients can
    /// connect.
    ///
    /// # Errors
    /// The first thing that is not possible; nothing is left behind then.
    pub fn spawn(config: VolumeConfig) -> Result<Handle, SpawnError> {
        let VolumeConfig { name, control, disks, listeners, model, limits } = config;
        let mut host = Host::new(Instant(0), control)
            .map_err(|error| SpawnError::Control { volume: name.clone(), error })?;
        let mut exports = Vec::new();
        let mut open_disks = Vec::new();
        for config in disks {
            host.add_vm(Instant(0), config.vm);
            let (disk, export) = open(config)?;
            exports.push(export);
            open_disks.push(disk);
        }
        let listeners = bind_all(&open_disks, &exports, listeners)?;
        let addresses = listeners.iter().map(|(bound, _)| bound.address.clone()).collect();

        let system = |source| SpawnError::System { volume: name.clone(), source };
        let (mailer, mailbox) = mailbox().map_err(system)?;
        let (ready, is_ready) = sync_channel(1);
        let parts = Parts {
            name: name.clone(),
            host,
            disks: open_disks,
            listeners,
            model,
            limits,
            mailbox,
            mailer: mailer.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("parda-{name}"))
            .spawn(move || match Engine::new(parts) {
                Ok(engine) => {
                    // Whoever started us waits for this; if not, there is nobody to serve.
                    let _ = ready.send(Ok(()));
                    engine.run()
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    Drained { unanswered: 0 }
                }
            })
            .map_err(system)?;
        let gone = || io::Error::other("the volume's thread ended at once");
        is_ready.recv().unwrap_or_else(|_| Err(gone())).map_err(system)?;
        Ok(Handle { mailer, thread: Some(thread), addresses })
    }
}

fn open(config: DiskConfig) -> Result<(OpenDisk, Export), SpawnError> {
    let fail = |source: OpenError| SpawnError::Backend { disk: config.export.to_string(), source };
    let (opened, whole) = match &config.backend {
        BackendConfig::File { path, direct } => {
            let opened = file::open(path, *direct, config.read_only).map_err(fail)?;
            let geometry = opened.geometry;
            (Opened::File(opened), geometry)
        }
        BackendConfig::Memory { size } => {
            let memory = memory::open(*size).map_err(fail)?;
            let geometry = memory.geometry();
            (Opened::Memory(memory), geometry)
        }
        BackendConfig::Nbd { uri, options } => {
            let opened = connect::open(uri, *options, config.read_only).map_err(fail)?;
            let geometry = opened.geometry;
            (Opened::Nbd(Box::new(opened)), geometry)
        }
    };
    let region = config.region.unwrap_or(Region { offset: Bytes(0), len: Bytes(whole.size) });
    whole.check(region).map_err(fail)?;
    let export = export(&config, Geometry { size: region.len.0, ..whole });
    Ok((OpenDisk { base: region.offset, config, opened }, export))
}

fn export(config: &DiskConfig, geometry: Geometry) -> Export {
    Export {
        name: config.export.clone(),
        description: config.description.clone(),
        size: geometry.size,
        blocks: geometry.blocks,
        read_only: config.read_only,
        trim: geometry.trim,
        write_zeroes: geometry.write_zeroes,
        fast_zero: geometry.fast_zero,
        cache: geometry.cache,
        // All connections go through the one backend of the disk, and none has a cache.
        multi_conn: true,
    }
}

fn bind_all(
    disks: &[OpenDisk],
    exports: &[Export],
    mut listeners: Vec<ListenerConfig>,
) -> Result<Vec<(Bound, Offer)>, SpawnError> {
    let mut offers: Vec<(&Address, Offer)> = Vec::new();
    for (index, (disk, export)) in disks.iter().zip(exports).enumerate() {
        for address in &disk.config.listen {
            let at = offers.iter().position(|(a, _)| *a == address).unwrap_or_else(|| {
                offers.push((address, Offer { exports: Vec::new(), disks: Vec::new() }));
                offers.len() - 1
            });
            offers[at].1.exports.push(export.clone());
            offers[at].1.disks.push(index);
        }
    }
    let mut bound = Vec::new();
    for (address, offer) in offers {
        let mut names = HashSet::new();
        if let Some(twice) = offer.exports.iter().find(|e| !names.insert(&e.name)) {
            let (export, address) = (twice.name.to_string(), address.clone());
            return Err(SpawnError::DuplicateExport { export, address });
        }
        let config = match listeners.iter().position(|l| l.address == *address) {
            Some(at) => listeners.swap_remove(at),
            None => ListenerConfig::new(address.clone()),
        };
        bound.push((listen::bind(config)?, offer));
    }
    Ok(bound)
}

/// The volume's thread has ended and cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the volume is not running any more")]
pub struct Stopped;

/// How a volume ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Requests that could not be answered in time.
    pub unanswered: usize,
}

/// A running volume. All calls may come from any thread, and none of them delays an IO: the
/// volume looks at its mail between IOs. Dropping it without [`Handle::shutdown`] ends the volume
/// as well, but does not wait for that.
#[derive(Debug)]
pub struct Handle {
    mailer: Mailer,
    /// Taken by a shutdown.
    thread: Option<JoinHandle<Drained>>,
    addresses: Vec<Address>,
}

impl Handle {
    /// Where clients can connect, in the order in which the disks name them.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Ends a period of the law; `peers` is what the exchange shows of the other hosts, `None` if
    /// it is silent. Returns what to publish.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn tick(&self, peers: Option<Totals>) -> Result<Report, Stopped> {
        self.ask(|answer| Command::Tick { peers, answer })
    }

    /// What was counted since the volume started.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn stats(&self) -> Result<Stats, Stopped> {
        self.ask(|answer| Command::Stats { answer })
    }

    /// Changes the part of a disk, by its place in the configuration. Returns what is in force
    /// then, `None` if there is no such disk.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn set_vm(&self, disk: usize, vm: VmConfig) -> Result<Option<VmConfig>, Stopped> {
        self.ask(|answer| Command::SetVm { disk, vm, answer })
    }

    /// Changes the law's parameters. Returns those in force then, or why nothing was changed.
    ///
    /// # Errors
    /// If the volume has ended.
    pub fn set_control(&self, config: Config) -> Result<Result<Config, ConfigError>, Stopped> {
        self.ask(|answer| Command::SetControl { config, answer })
    }

    /// Takes no more requests, answers those in flight for up to `within`, and ends. The files of
    /// its unix sockets are gone then.
    ///
    /// # Errors
    /// If the volume had ended before.
    pub fn shutdown(mut self, within: Duration) -> Result<Drained, Stopped> {
        self.mailer.send(Command::Shutdown { within });
        self.thread.take().ok_or(Stopped)?.join().map_err(|_| Stopped)
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, Stopped> {
        let (answer, answered) = sync_channel(1);
        self.mailer.send(command(answer));
        answered.recv().map_err(|_| Stopped)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.mailer.send(Command::Shutdown { within: Duration::ZERO });
        }
    }
}
