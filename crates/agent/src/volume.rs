//! One volume of a running agent: its law with its enforcer, its control thread, and its status.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_block::DrainedVolume;
use parda_exchange::Identity;

use crate::config::{self, Work};
use crate::control::{Control, Order};
use crate::last_tick::LastTick;
use crate::law::Law;
use crate::locked::locked;
use crate::served::Shared;
use crate::start_error::{StartError, no_thread};
use crate::status::{Detail, VolumeStatus};

/// Reason why a volume takes over a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The file was read again. The files and addresses that it names are used as they are now, also those of the exchange and
    /// certificates.
    Reloaded,
    /// A setting was changed live.
    Changed,
}

/// A volume that runs.
pub(crate) struct Volume {
    me: Identity,
    /// The volume as the status thread sees it.
    pub(crate) view: VolumeView,
    law: Arc<Law>,
    orders: Sender<Order>,
    control: JoinHandle<()>,
}

/// Interval of looks whether other threads still hold a volume that stops.
const LOOK: Duration = Duration::from_millis(1);

impl Volume {
    /// `settled` is called when all that it is to serve was tried once.
    pub(crate) fn start(
        me: &Identity,
        config: config::Volume,
        shared: &Shared,
        settled: impl FnOnce() + Send + 'static,
    ) -> Result<Volume, StartError> {
        let law = Arc::new(Law::start(&config, shared, settled)?);
        let last = Arc::default();
        let (orders, control) = start_control(me, &config, &law, &last)?;
        let config = Arc::new(Mutex::new(Arc::new(config)));
        let view = VolumeView { config, law: Arc::downgrade(&law), last };
        Ok(Volume { me: me.clone(), view, law, orders, control })
    }

    /// Whether a change needs the volume to be stopped and started.
    pub(crate) fn is_another(&self, new: &config::Volume) -> bool {
        match (&self.view.config().work, &new.work) {
            (Work::Serve(_), Work::Serve(_)) => false,
            // Its VMs may change while it runs.
            (Work::Steer(old), Work::Steer(new)) => {
                config::Steer { vms: new.vms.clone(), ..old.clone() } != *new
            }
            (Work::Qemu(old), Work::Qemu(new)) => {
                config::Qemu { vms: new.vms.clone(), ..old.clone() } != *new
            }
            (Work::Serve(_) | Work::Steer(_) | Work::Qemu(_), _) => true,
        }
    }

    /// Takes over the new configuration. Each change is logged as it is made.
    pub(crate) fn reload(&mut self, new: &config::Volume, why: Why) {
        let before = self.view.config();
        if why == Why::Changed && *before == *new {
            return;
        }
        self.law.reload(&before, new);
        let mut in_force = new.clone();
        if before.exchange.is_some()
            && before.exchange != in_force.exchange
            && let Some(Err(fault)) = in_force.exchange.as_ref().map(crate::exchange::read_secrets)
        {
            tracing::error!(
                volume = in_force.name,
                "exchange not changed: {fault}; the one from before stays in force. Mend the file, then reload again"
            );
            in_force.exchange.clone_from(&before.exchange);
            in_force.pool.clone_from(&before.pool);
        }
        *locked(&self.view.config) = Arc::new(in_force.clone());
        if before.exchange != in_force.exchange
            || before.pool != in_force.pool
            || before.idle_probe != in_force.idle_probe
        {
            match start_control(&self.me, &in_force, &self.law, &self.view.last) {
                Ok((orders, control)) => {
                    // The old control thread sends its goodbye to the old exchange, for as long as that takes.
                    let _ = self.orders.send(Order::Stop);
                    (self.orders, self.control) = (orders, control);
                    let place = in_force.exchange.as_ref().map(|e| e.to_string());
                    tracing::info!(
                        volume = in_force.name,
                        exchange = place,
                        event = "exchange_changed",
                        "exchange changed"
                    );
                }
                Err(error) => {
                    tracing::error!(volume = in_force.name, "exchange not changed: {error}");
                }
            }
        } else if before.law != in_force.law {
            // A control thread that is gone has panicked, which the log has.
            let _ = self.orders.send(Order::Law(Box::new(in_force.law.clone())));
        }
        if before.tenants != in_force.tenants {
            let names = in_force.tenants.iter().map(|tenant| tenant.name).collect();
            let _ = self.orders.send(Order::Tenants(names));
        }
        if before.control.ignore != in_force.control.ignore {
            let _ = self.orders.send(Order::Ignore(in_force.ignored()));
        }
        if why == Why::Reloaded {
            let _ = self.orders.send(Order::Reloaded);
        }
    }

    pub(crate) fn name(&self) -> String {
        self.view.config().name.clone()
    }

    /// Sends a goodbye to the other hosts and answers the IOs in flight.
    pub(crate) fn stop(self, within: Duration) -> Option<DrainedVolume> {
        // Without the control thread no goodbye can be sent.
        let _ = self.orders.send(Order::Stop);
        let _ = self.control.join();
        let mut law = self.law;
        loop {
            match Arc::try_unwrap(law) {
                Ok(law) => return law.stop(within),
                // The status is just being asked for.
                Err(used) => law = used,
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn start_control(
    me: &Identity,
    config: &config::Volume,
    law: &Arc<Law>,
    last: &Arc<Mutex<LastTick>>,
) -> Result<(Sender<Order>, JoinHandle<()>), StartError> {
    let (orders, received) = channel();
    let control = Control::new(me, config, Arc::clone(law), received, Arc::clone(last));
    let thread = std::thread::Builder::new()
        .name(format!("control-{}", config.name))
        .spawn(move || control.run())
        .map_err(no_thread)?;
    Ok((orders, thread))
}

/// A volume as the status thread sees it. The view does not keep the volume alive.
#[derive(Clone)]
pub(crate) struct VolumeView {
    /// Configuration in force, live changes included.
    config: Arc<Mutex<Arc<config::Volume>>>,
    law: Weak<Law>,
    last: Arc<Mutex<LastTick>>,
}

impl VolumeView {
    /// Configuration of the volume that is in force now.
    pub(crate) fn config(&self) -> Arc<config::Volume> {
        Arc::clone(&locked(&self.config))
    }

    /// The volume's state; `None` once it has ended.
    pub(crate) fn status(&self, detail: Detail) -> Option<VolumeStatus> {
        let last = locked(&self.last).clone();
        let config = self.config();
        Some(self.law.upgrade()?.status(&config, last, detail))
    }
}
