//! Listeners of a volume as they are opened and closed while it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parda_block::{AddListenerError, DiskId};
use parda_nbd::uri::Address;

use super::member::{Member, State};
use super::{Keeper, Order, Owner, apart};
use crate::config::{Disk, Listener};

/// How often it is looked whether another volume has let go of an address.
const LOOK: Duration = Duration::from_millis(20);

impl Keeper {
    /// Brings listeners in and out so that they are those that are wanted.
    pub(super) fn reconcile_listeners(&mut self) {
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
                self.addresses.release(owner);
                self.listeners.remove(at);
            }
        }
    }

    /// Listeners come after the disks that they offer, if these can be opened at all.
    pub(super) fn may_listen(&self, listener: &Member<Listener, ()>) -> bool {
        let here = |d: &&Member<Disk, DiskId>| d.config.listen == listener.config.address;
        self.disks.iter().filter(here).all(Member::is_settled)
    }

    /// Begins to bind what is due.
    pub(super) fn bind_listeners(&mut self, now: Instant) {
        let Some(ring) = self.ring.clone() else { return };
        let (volume, addresses) = (self.wanted.name.clone(), self.addresses.clone());
        for at in 0..self.listeners.len() {
            let member = &self.listeners[at];
            if member.due().is_none_or(|at| now < at) || !self.may_listen(member) {
                continue;
            }
            let member = &mut self.listeners[at];
            let owner = member.owner;
            if let Err(other) = addresses.take(owner, &volume, &member.config.address) {
                member.fault = Some(format!("volume {other} is still closing it"));
                member.state = State::Waiting(now + LOOK);
                continue;
            }
            let config = match crate::served::listener(&member.config, &self.passed) {
                Ok(config) => config,
                Err(error) => {
                    addresses.release(owner);
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
                addresses.release(owner);
                member.failed("there is no thread to bind it".to_owned());
            }
        }
    }

    pub(super) fn bound(&mut self, owner: Owner, bound: Result<Address, AddListenerError>) {
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
                self.addresses.release(owner);
                let error = error.to_string();
                if member.failed(error.clone()) {
                    tracing::error!(
                        volume,
                        event = "listener_down",
                        "{error}; it is tried again until it can be"
                    );
                }
            }
        }
    }
}
