//! What others ask of a volume's thread, and how it ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parda_control::{Instant, Span, View, VmId};

use super::Engine;
use crate::backend::Backend;
use crate::mailbox::Command;
use crate::stats::Stats;
use crate::volume::Drained;

/// How long the kernel gets to return what it has of killed connections.
const LAST_WAIT: Span = Span::from_millis(1_000);

impl Engine {
    pub(super) fn command(&mut self, now: Instant, command: Command) {
        // An answer that nobody waits for any more is no error.
        match command {
            Command::Tick { peers, answer } => {
                let view = peers.map_or(View::Silent, View::Peers);
                let _ = answer.send(self.host.tick(now, view));
            }
            Command::Stats { answer } => {
                let _ = answer.send(self.stats(now));
            }
            Command::SetVm { disk, vm, answer } => {
                let in_force = self.disks.get_mut(disk).map(|d| {
                    self.host.set_vm(VmId(disk), vm);
                    d.vm = vm;
                    d.vm
                });
                let _ = answer.send(in_force);
            }
            Command::SetControl { config, answer } => {
                let result = self.host.set_config(now, config);
                let _ = answer.send(result.map(|()| self.host.config().clone()));
            }
            Command::Reconnected { disk, lane, fd, agreed } => {
                if let Some(disk) = self.disks.get_mut(disk)
                    && let Backend::Nbd(up) = &mut disk.backend
                {
                    up.reconnected(lane, fd, agreed);
                }
            }
            Command::Mapped { key, extents } => {
                let outcome = match (self.work.requests.get_mut(key), extents) {
                    (Some(request), Ok(extents)) => {
                        request.status = extents;
                        Ok(())
                    }
                    (_, Err(failure)) => Err(failure),
                    (None, _) => return,
                };
                self.data_done(now, key, outcome);
            }
            Command::Shutdown { within } => self.stop(now, within),
        }
    }

    pub(super) fn stats(&self, now: Instant) -> Stats {
        Stats {
            at: now,
            window: self.host.window(),
            outstanding: self.host.outstanding(),
            held: self.host.held(),
            latency: self.host.latency().map(Span::from_secs),
            outlook: self.host.outlook().cloned(),
            estimate: self.host.estimate(),
            connections: self.conns.len(),
            vms: self.disks.iter().map(|disk| disk.stats.clone()).collect(),
        }
    }

    pub(super) fn stop(&mut self, now: Instant, within: Duration) {
        self.stop_by = Some(now + Span::from(within));
        for listener in &mut self.listeners {
            listener.stop(&mut self.ring);
        }
        let keys: Vec<usize> = self.conns.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.conns[key].finish();
            self.list(key);
        }
    }

    /// Whether a shutdown is over.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        if self.conns.is_empty() {
            return true;
        }
        if now < stop_by && !self.only_silent_servers(now) {
            return false;
        }
        self.unanswered = self.work.requests.len();
        let (volume, unanswered) = (&self.name, self.unanswered);
        let why = if now < stop_by { "their NBD server is silent" } else { "the time is over" };
        tracing::warn!(volume, unanswered, "requests stay unanswered at the end: {why}");
        true
    }

    pub(super) fn end(mut self) -> Drained {
        self.alive.store(false, Ordering::Relaxed);
        self.conns.iter_mut().for_each(|(_, conn)| conn.kill(&mut self.work.pool));
        for disk in &mut self.disks {
            if let Backend::Nbd(up) = &mut disk.backend {
                up.close();
            }
        }
        // Let the kernel return what it still has, so that all descriptors are closed.
        self.mailbox.wake();
        let until = self.now() + LAST_WAIT;
        while self.ring.in_flight() > 0 && self.now() < until {
            if self.ring.wait(Some(until.since(self.now()).into())).is_err() {
                break;
            }
            while self.ring.next().is_some() {}
        }
        Drained { unanswered: self.unanswered }
    }
}
