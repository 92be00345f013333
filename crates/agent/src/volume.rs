//! One volume of a running agent: its ring, its control thread, and what it says of itself.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_block::{
    BackendConfig, DEFAULT_RECONNECT_FOR, Direct, DiskConfig, Drained, Handle, Limits, Region,
    SpawnError, VolumeConfig,
};
use parda_control::law::Mode;
use parda_control::{Bytes, Source};
use parda_exchange::Identity;

use crate::config::{self, Disk, Place};
use crate::control::{Control, ExchangeError, Order, Shown};
use crate::file;
use crate::status::{DiskStatus, VolumeStatus};

/// A volume that runs.
pub(crate) struct Volume {
    config: config::Volume,
    handle: Arc<Handle>,
    orders: Sender<Order>,
    control: JoinHandle<()>,
    shown: Arc<Mutex<Shown>>,
}

/// Why a volume does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its disks, listeners or ring.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Its exchange.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Its control thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl Volume {
    pub(crate) fn start(
        me: &Identity,
        config: config::Volume,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<Volume, StartError> {
        let handle = Arc::new(parda_block::Volume::spawn(VolumeConfig {
            name: config.name.clone(),
            control: config.law.control.clone(),
            disks: config.disks.iter().map(disk).collect(),
            model: None,
            limits: Limits::default(),
        })?);
        let (orders, received) = channel();
        let control = Control::new(me, &config, Arc::clone(&handle), received)?;
        let shown = control.shown();
        let control = std::thread::Builder::new()
            .name(format!("control-{}", config.name))
            .spawn(move || {
                if !control.run() {
                    gone();
                }
            })
            .map_err(StartError::Thread)?;
        for disk in &config.disks {
            tracing::info!(
                volume = config.name, disk = %disk.name, data = %disk.place, listen = %disk.listen,
                shares = disk.vm.shares.0, "serving"
            );
        }
        Ok(Volume { config, handle, orders, control, shown })
    }

    /// Takes over what may change while it runs, and says what is in force then. Returns whether
    /// there was anything that may not.
    pub(crate) fn reload(&mut self, new: &config::Volume) -> bool {
        let name = &self.config.name;
        let mut in_force = self.config.clone();
        if new.law != self.config.law {
            match self.handle.set_control(new.law.control.clone()) {
                Ok(Ok(control)) => {
                    tracing::info!(volume = name, ?control, period = ?new.law.period, "control changed");
                    in_force.law = new.law.clone();
                    // A control thread that is gone has told the main thread already.
                    let _ = self.orders.send(Order::Law(new.law.clone()));
                }
                Ok(Err(error)) => tracing::error!(volume = name, "control not changed: {error}"),
                Err(error) => tracing::error!(volume = name, "control not changed: {error}"),
            }
        }
        for (index, disk) in in_force.disks.iter_mut().enumerate() {
            let Some(wanted) = new.disks.iter().find(|d| d.name == disk.name) else { continue };
            if wanted.vm == disk.vm {
                continue;
            }
            match self.handle.set_vm(index, wanted.vm) {
                Ok(Some(vm)) => {
                    tracing::info!(
                        volume = name, disk = %disk.name, shares = vm.shares.0, burst = vm.burst,
                        "shares changed"
                    );
                    disk.vm = vm;
                }
                _ => tracing::error!(volume = name, disk = %disk.name, "shares not changed"),
            }
        }
        self.config = in_force;
        self.config != *new
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Says goodbye to the other hosts and answers what is in flight.
    pub(crate) fn stop(self, within: Duration) -> Option<Drained> {
        // If the control thread is gone there is nobody to say goodbye to.
        let _ = self.orders.send(Order::Stop);
        let _ = self.control.join();
        Arc::into_inner(self.handle)?.shutdown(within).ok()
    }

    /// What the status thread needs to speak of this volume.
    pub(crate) fn view(&self) -> VolumeView {
        VolumeView { handle: Arc::downgrade(&self.handle), shown: Arc::clone(&self.shown) }
    }

    pub(crate) fn config(&self) -> &config::Volume {
        &self.config
    }
}

/// A volume as the status thread sees it. It does not keep the volume alive.
#[derive(Clone)]
pub(crate) struct VolumeView {
    handle: Weak<Handle>,
    shown: Arc<Mutex<Shown>>,
}

impl VolumeView {
    /// The volume's state; `None` once it has ended.
    pub(crate) fn status(&self, config: &config::Volume) -> Option<VolumeStatus> {
        let stats = self.handle.upgrade()?.stats().ok()?;
        let Shown { ticks, report, exchange } =
            self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let law = &config.law.control.law;
        Some(VolumeStatus {
            name: config.name.clone(),
            mode: match law.mode {
                Mode::Off => "off",
                Mode::Static => "static",
                Mode::Published { .. } => "published",
                Mode::Normalised { .. } => "parda",
            }
            .to_owned(),
            latency_threshold_ms: law.threshold.secs() * 1e3,
            cluster_latency_ms: stats.latency.map(|l| l.secs() * 1e3),
            source: match report.map(|r| r.source).unwrap_or_default() {
                Source::Cluster => "cluster",
                Source::LastGood => "last-good",
                Source::Local => "local",
            }
            .to_owned(),
            window: Some(stats.window.0).filter(|w| w.is_finite()),
            beta: report.map_or(0.0, |r| r.beta),
            shares: config.disks.iter().map(|d| d.vm.shares.0).sum(),
            active_shares: report.map_or(0.0, |r| r.active),
            outstanding: report.map_or(0.0, |r| r.outstanding),
            held: stats.held as u64,
            connections: stats.connections as u64,
            ticks,
            exchange,
            disks: (config.disks.iter().zip(&stats.vms))
                .map(|(d, vm)| DiskStatus::new(d.name.to_string(), d.vm.shares.0, vm))
                .collect(),
        })
    }
}

fn disk(disk: &Disk) -> DiskConfig {
    DiskConfig {
        export: disk.name.clone(),
        description: String::new(),
        backend: match &disk.place {
            Place::Path(path) => BackendConfig::File {
                path: path.clone(),
                direct: match disk.direct {
                    file::Direct::Auto => Direct::Auto,
                    file::Direct::On => Direct::On,
                    file::Direct::Off => Direct::Off,
                },
            },
            Place::Nbd(uri) => {
                BackendConfig::Nbd { uri: uri.clone(), reconnect_for: DEFAULT_RECONNECT_FOR }
            }
        },
        region: disk
            .region
            .as_ref()
            .map(|r| Region { offset: Bytes(r.start), len: Bytes(r.end - r.start) }),
        vm: disk.vm,
        read_only: disk.read_only,
        listen: vec![disk.listen.clone()],
    }
}
