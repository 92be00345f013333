//! Listeners of a volume as they are opened and closed while it runs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parda_address::Address;
use parda_block::{DiskId, Handle};
use parda_tls::{Acceptor, FileError};

use super::member::{Member, State};
use super::{Certificate, Keeper, NotBound, Order, Owner, apart};
use crate::config::{Disk, Listener};

/// How often it is looked whether another volume has let go of an address.
const LOOK: Duration = Duration::from_millis(20);

/// How often it is looked whether certificates that are shown have a fault or expire.
const CERTIFICATES: Duration = Duration::from_secs(10);

impl Keeper {
    /// Brings listeners in and out so that they are those that are wanted.
    pub(super) fn reconcile_listeners(&mut self) {
        let listeners = self.wanted.listeners.clone();
        for member in self.listeners.iter().filter(|l| listeners.contains(&l.config)) {
            self.renew(member);
        }
        let gone: Vec<Owner> = (self.listeners.iter())
            .filter(|l| l.state != State::Leaving && !listeners.contains(&l.config))
            .map(|l| l.owner)
            .collect();
        gone.into_iter().for_each(|owner| self.remove_listener(owner));
        for listener in listeners {
            let there = |m: &Member<Listener, Certificate>| {
                m.state != State::Leaving && m.config == listener
            };
            if !self.listeners.iter().any(there) {
                self.listeners.push(Member::new(listener));
            }
        }
    }

    fn remove_listener(&mut self, owner: Owner) {
        let Some(at) = self.listeners.iter().position(|l| l.owner == owner) else { return };
        let member = &mut self.listeners[at];
        match (&member.state, &self.ring) {
            (State::Open(_) | State::Opening, Some(ring)) => {
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
    pub(super) fn may_listen(&self, listener: &Member<Listener, Certificate>) -> bool {
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
            let passed = match self.passed.at(&member.config.address) {
                Ok(passed) => passed,
                Err(error) => {
                    addresses.release(owner);
                    member.failed(format!("cannot take over a socket that was passed: {error}"));
                    continue;
                }
            };
            member.state = State::Opening;
            let (ring, orders) = (Arc::clone(&ring), self.orders.clone());
            let listener = member.config.clone();
            let begun = apart("listen", move || {
                let _ = orders.send(Order::Bound(owner, bind(&ring, &listener, passed)));
            });
            if !begun {
                addresses.release(owner);
                member.failed("there is no thread to bind it".to_owned());
            }
        }
    }

    pub(super) fn bound(&mut self, owner: Owner, bound: Result<(Address, Certificate), NotBound>) {
        let volume = &self.wanted.name;
        let member = self.listeners.iter_mut().find(|listener| listener.owner == owner);
        let Some(member) = member.filter(|m| m.state == State::Opening) else {
            if let (Ok((address, _)), Some(ring)) = (bound, &self.ring) {
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
            Ok((address, certificate)) => {
                member.opened(certificate);
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

    /// Begins to read a listener's certificate again, if it shows one.
    fn renew(&self, member: &Member<Listener, Certificate>) {
        let State::Open(Some(shown)) = &member.state else { return };
        let (shown, owner, orders) = (Arc::clone(shown), member.owner, self.orders.clone());
        apart("certificate", move || {
            let read = Acceptor::new(shown.files().clone()).map(|new| shown.renew(&new));
            let _ = orders.send(Order::Renewed(owner, read));
        });
    }

    /// A certificate was read again. One that cannot be used takes nothing from clients: the one from before is shown.
    pub(super) fn renewed(&mut self, owner: Owner, renewed: Result<(), FileError>) {
        let member = self.listeners.iter_mut().find(|listener| listener.owner == owner);
        let Some(member) = member.filter(|m| matches!(m.state, State::Open(_))) else { return };
        let (volume, address) = (&self.wanted.name, &member.config.address);
        let before = std::mem::replace(&mut member.fault, renewed.err().map(|e| e.to_string()));
        match &member.fault {
            Some(fault) if before.as_ref() != Some(fault) => tracing::error!(
                volume, %address, event = "listener_certificate",
                "{fault}; the certificate from before is shown, and the file is tried again"
            ),
            None if before.is_some() => {
                tracing::info!(volume, %address, "the certificate has no fault any more");
            }
            _ => {}
        }
    }

    /// Reads those certificates again that have a fault or expire before the next look. Else no file is read.
    pub(super) fn look_at_certificates(&mut self, now: Instant) {
        let shown = |l: &&Member<Listener, Certificate>| matches!(l.state, State::Open(Some(_)));
        if !self.listeners.iter().any(|listener| shown(&listener)) {
            self.certificates_due = None;
            return;
        }
        if *self.certificates_due.get_or_insert(now + CERTIFICATES) > now {
            return;
        }
        self.certificates_due = Some(now + CERTIFICATES);
        for listener in self.listeners.iter().filter(shown) {
            let State::Open(Some(certificate)) = &listener.state else { continue };
            if listener.fault.is_some() || !certificate.is_in_force(CERTIFICATES) {
                self.renew(listener);
            }
        }
    }
}

/// Reads the certificate of a listener, if it has one, and binds its address.
fn bind(
    ring: &Handle,
    listener: &Listener,
    passed: Option<OwnedFd>,
) -> Result<(Address, Certificate), NotBound> {
    let read = listener.tls.as_ref().map(|tls| Acceptor::new(tls.files.clone())).transpose();
    let certificate =
        read.map_err(|error| NotBound::Certificate(listener.address.clone(), error))?.map(Arc::new);
    let config = crate::served::listener(listener, certificate.clone(), passed);
    Ok((ring.add_listener(config)?, certificate))
}
