//! One volume of a running agent: its gate, its control thread, and what it says of itself.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_block::{AgentMemory, Drained, SpawnError};
use parda_exchange::Identity;

use crate::activation::Passed;
use crate::config;
use crate::control::{Control, ExchangeError, Order, Shown};
use crate::gate::Gate;
use crate::status::VolumeStatus;
use crate::steered::SteerError;

/// A volume that runs.
pub(crate) struct Volume {
    config: config::Volume,
    gate: Arc<Gate>,
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
    /// Its device, or the way to steer it.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// Its exchange.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// A socket that was passed to the agent.
    #[error("cannot take over a socket that was passed: {0}")]
    Passed(std::io::Error),
    /// Its control thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl Volume {
    pub(crate) fn start(
        me: &Identity,
        config: config::Volume,
        (memory, passed): (&AgentMemory, &Passed),
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<Volume, StartError> {
        let gate = Arc::new(Gate::start(&config, memory, passed)?);
        let (orders, received) = channel();
        let control = Control::new(me, &config, Arc::clone(&gate), received)?;
        let shown = control.shown();
        let control = std::thread::Builder::new()
            .name(format!("control-{}", config.name))
            .spawn(move || {
                if !control.run() {
                    gone();
                }
            })
            .map_err(StartError::Thread)?;
        Ok(Volume { config, gate, orders, control, shown })
    }

    /// Takes over what may change while it runs, and says what is in force then. Returns whether
    /// there was anything that may not.
    pub(crate) fn reload(&mut self, new: &config::Volume) -> bool {
        let mut in_force = self.config.clone();
        self.gate.reload(&mut in_force, new);
        if in_force.law != self.config.law {
            // A control thread that is gone has told the main thread already.
            let _ = self.orders.send(Order::Law(in_force.law.clone()));
        }
        let _ = self.orders.send(Order::Reloaded);
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
        Arc::into_inner(self.gate)?.stop(within)
    }

    /// What the status thread needs to speak of this volume.
    pub(crate) fn view(&self) -> VolumeView {
        VolumeView { gate: Arc::downgrade(&self.gate), shown: Arc::clone(&self.shown) }
    }

    pub(crate) fn config(&self) -> &config::Volume {
        &self.config
    }
}

/// A volume as the status thread sees it. It does not keep the volume alive.
#[derive(Clone)]
pub(crate) struct VolumeView {
    gate: Weak<Gate>,
    shown: Arc<Mutex<Shown>>,
}

impl VolumeView {
    /// The volume's state; `None` once it has ended.
    pub(crate) fn status(&self, config: &config::Volume) -> Option<VolumeStatus> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.gate.upgrade()?.status(config, shown)
    }
}
