//! A volume whose disks are served: its ring.

mod board;
mod keeper;
mod member;
mod shared;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_block::{DrainedVolume, ListenerConfig, ListenerTls};
use parda_control::{Decision, Measurement};
use parda_tls::Acceptor;

use crate::config::{self, Listener};
use crate::enforcer::Enforcer;
use crate::start_error::{StartError, no_thread};
use crate::status::{Detail, VolumeStatus};

use board::Board;
pub(crate) use board::tenant;
use keeper::{Keeper, Order};
pub(crate) use shared::{Addresses, Opens, Shared};

/// A volume that is served. Its keeper, a thread, opens and closes what the configuration names.
pub(crate) struct Served {
    board: Board,
    orders: Sender<Order>,
    keeper: JoinHandle<()>,
}

impl Served {
    /// Starts the ring. Disks and listeners follow; `settled` is called when each was tried once.
    pub(crate) fn start(
        config: &config::Volume,
        decision: &Decision,
        shared: &Shared,
        settled: impl FnOnce() + Send + 'static,
    ) -> Result<Served, StartError> {
        let (board, channel) = (Board::new(decision), channel());
        let orders = channel.0.clone();
        let keeper =
            Keeper::new(config.clone(), board.clone(), shared.clone(), channel, Box::new(settled))?;
        let keeper = std::thread::Builder::new()
            .name(format!("keeper-{}", config.name))
            .spawn(move || keeper.run())
            .map_err(no_thread)?;
        Ok(Served { board, orders, keeper })
    }
}

impl Enforcer for Served {
    fn measure(&mut self, into: Measurement) -> Option<Measurement> {
        self.board.ring()?.measure(into).ok()
    }

    fn apply(&mut self, decision: &Decision) {
        self.board.apply(decision);
    }

    /// The keeper logs each disk that it opens and closes.
    fn want(&mut self, wanted: &config::Volume) {
        // A keeper that is gone has stopped.
        let _ = self.orders.send(Order::Want(Box::new(wanted.clone())));
    }

    fn state(
        &mut self,
        status: &mut VolumeStatus,
        config: &config::Volume,
        detail: Detail,
    ) -> Vec<(String, u32)> {
        self.board.describe(status, config, detail)
    }

    fn served(&mut self) -> Option<u64> {
        let stats = self.board.ring()?.stats().ok()?;
        let total = stats.total();
        let done = total.reads.ios + total.writes.ios + total.others.ios + total.errors;
        Some(done + (stats.outstanding + stats.held) as u64)
    }

    fn stop(self: Box<Self>, within: Duration) -> Option<DrainedVolume> {
        let (done, is_done) = channel();
        let _ = self.orders.send(Order::Stop(within, done));
        let drained = is_done.recv().ok().flatten();
        self.keeper.join().ok().and(drained)
    }
}

/// A listener with the TLS that it shows, and the socket that was passed for it.
fn listener(
    listener: &Listener,
    acceptor: Option<Arc<Acceptor>>,
    passed: Option<OwnedFd>,
) -> ListenerConfig {
    if passed.is_some() {
        let address = &listener.address;
        tracing::info!(%address, "takes over the socket that was passed");
        if listener.access.is_some() {
            tracing::warn!(
                %address,
                "mode, owner and group are those of the socket that was passed (SocketMode= of the .socket unit), not those of its [[listener]]"
            );
        }
    }
    let required = listener.tls.as_ref().is_some_and(|tls| tls.required);
    ListenerConfig {
        address: listener.address.clone(),
        access: listener.access.unwrap_or_default(),
        tls: acceptor.map(|acceptor| ListenerTls { acceptor, required }),
        local_only: !listener.plain && !required,
        passed,
    }
}
