//! A keeper's ring: started again after a panic.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use parda_awake::Instant;
use parda_block::{AgentMemory, DrainedVolume, Ended, Handle, SpawnError, VolumeConfig};
use parda_control::Decision;

use super::{Keeper, Order, Owner};
use crate::config;
use crate::served::member::State;

/// First and longest pause before a ring that panicked is started again.
pub(super) const FIRST_RESTART: Duration = Duration::from_millis(500);
const LAST_RESTART: Duration = Duration::from_secs(60);

/// Starts a ring that serves nothing yet, under the law's last decision.
pub(super) fn spawn(
    config: &config::Volume,
    decision: Decision,
    memory: &AgentMemory,
    generation: u64,
    orders: &Sender<Order>,
) -> Result<Arc<Handle>, SpawnError> {
    let orders = orders.clone();
    let volume = VolumeConfig {
        name: config.name.clone(),
        decision,
        disks: Vec::new(),
        listeners: Vec::new(),
        model: None,
        limits: config.limits,
        memory: memory.clone(),
    };
    // The receiver is gone if the keeper has stopped the ring.
    let ended = move |how: &Ended| drop(orders.send(Order::Ended(generation, how.clone())));
    parda_block::Volume::spawn_watched(volume, ended).map(Arc::new)
}

impl Keeper {
    /// The ring has ended by itself.
    pub(super) fn ended(&mut self, how: Ended) {
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
                event = "volume_down",
                "ended by {why}; its connections are closed, it is started again"
            );
            self.restart_at = Some(Instant::now() + self.restart_pause);
        } else {
            tracing::error!(
                volume,
                event = "volume_down",
                "ended by {why}; what it had in flight may still come: restart the agent"
            );
        }
        let now = Instant::now();
        self.shown.fault = Some((why, now));
        self.shown.disks.retain(|m| m.state != State::Leaving);
        self.shown.listeners.retain(|m| {
            self.shared.addresses.release(m.owner);
            m.state != State::Leaving
        });
        for member in &mut self.shown.disks {
            if member.state != State::Opening {
                (member.state, member.since) = (State::Waiting(now), now);
            }
        }
        for member in &mut self.shown.listeners {
            (member.owner, member.state, member.since) = (Owner::new(), State::Waiting(now), now);
        }
    }

    pub(super) fn restart(&mut self, now: Instant) {
        let long = now.saturating_duration_since(self.started) > LAST_RESTART;
        let pause = if long { FIRST_RESTART } else { self.restart_pause };
        self.restart_pause = (2 * pause).min(LAST_RESTART);
        self.generation += 1;
        match spawn(
            &self.wanted,
            self.board.decision(),
            &self.shared.memory,
            self.generation,
            &self.orders,
        ) {
            Ok(ring) => {
                self.board.set_ring(Some(Arc::clone(&ring)));
                self.ring = Some(ring);
                self.restart_at = None;
                self.started = now;
                self.shown.restarts += 1;
                self.shown.last_failure = self.shown.fault.take();
                tracing::warn!(volume = self.wanted.name, event = "volume_up", "started again");
            }
            Err(error) => {
                self.restart_at = Some(now + self.restart_pause);
                tracing::error!(volume = self.wanted.name, "cannot be started again: {error}");
            }
        }
    }

    pub(super) fn stop(&mut self, within: Duration) -> Option<DrainedVolume> {
        self.board.set_ring(None);
        self.opening.dismiss();
        self.binding.dismiss();
        let drained = match self.ring.take() {
            Some(ring) => ring.stop(within).ok(),
            None => Some(DrainedVolume { unanswered: 0 }),
        };
        self.shown.listeners.iter().for_each(|member| self.shared.addresses.release(member.owner));
        drained
    }
}
