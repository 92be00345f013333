//! Listeners of a volume as they are opened and closed while it runs.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use parda_address::Address;
use parda_awake::Instant;
use parda_block::Handle;
use parda_tls::{Acceptor, FileError};

use super::{Keeper, Order, Owner, apart};
use crate::config::Listener;
use crate::served::member::{Certificate, ListenerMember, Member, State, position};

/// Interval of looks whether another volume has released an address.
const LOOK: Duration = Duration::from_millis(20);

/// Interval of looks for shown certificates that have a fault or expire.
const CERTIFICATES: Duration = Duration::from_secs(10);

/// Fault of a listener that is not bound, as its disks are not served.
const NO_ROOM: &str = "the limit of descriptors (RLIMIT_NOFILE, LimitNOFILE= of the unit) has no room for its disks: raise it";

/// Disks that name a listener.
#[derive(Clone, Copy, Default)]
struct DisksThere {
    /// Some were not tried.
    unsettled: bool,
    /// For some there are no descriptors.
    no_room: bool,
    /// Some are open, or have another fault.
    others: bool,
}

impl Keeper {
    /// Brings listeners in and out so that they are those that are wanted.
    pub(super) fn reconcile_listeners(&mut self) {
        let listeners = self.wanted.listeners.clone();
        let wanted: HashMap<&Address, &Listener> =
            listeners.iter().map(|listener| (&listener.address, listener)).collect();
        let is_wanted = |l: &Listener| wanted.get(&l.address).is_some_and(|wanted| *wanted == l);
        for member in self.shown.listeners.iter().filter(|l| is_wanted(&l.config)) {
            self.renew(member);
        }
        let gone: Vec<Owner> = (self.shown.listeners.iter())
            .filter(|l| l.state != State::Leaving && !is_wanted(&l.config))
            .map(|l| l.owner)
            .collect();
        gone.into_iter().for_each(|owner| self.remove_listener(owner));
        let there = self.shown.listeners.iter().filter(|member| member.state != State::Leaving);
        let there: HashSet<Address> = there.map(|member| member.config.address.clone()).collect();
        let new = listeners.into_iter().filter(|listener| !there.contains(&listener.address));
        self.shown.listeners.extend(new.map(Member::new));
    }

    fn remove_listener(&mut self, owner: Owner) {
        let Some(at) = position(&self.shown.listeners, owner) else { return };
        let member = &mut self.shown.listeners[at];
        match (&member.state, &self.ring) {
            (State::Open(_) | State::Opening, Some(ring)) => {
                member.state = State::Leaving;
                let address = member.config.address.clone();
                unlisten(ring, &self.orders, owner, address);
            }
            _ => {
                self.shared.addresses.release(owner);
                self.shown.listeners.remove(at);
            }
        }
    }

    /// Begins to bind the listeners that are due. Listeners come after the disks that they offer, if these can be opened at all. A listener
    /// whose disks have no descriptors would only take descriptors from others.
    pub(super) fn bind_listeners(&mut self, now: Instant) {
        let Some(ring) = self.ring.clone() else { return };
        let waits = |l: &ListenerMember| matches!(l.state, State::Waiting(at) if now >= at);
        if !self.shown.listeners.iter().any(waits) {
            return;
        }
        let mut disks: HashMap<&Address, DisksThere> = HashMap::new();
        for disk in &self.shown.disks {
            let there = disks.entry(&disk.config.listen).or_default();
            there.unsettled |= !disk.is_settled();
            there.no_room |= disk.no_room;
            there.others |= !disk.no_room;
        }
        let (volume, addresses) = (self.wanted.name.clone(), self.shared.addresses.clone());
        for member in self.shown.listeners.iter_mut().filter(|listener| waits(listener)) {
            let there = disks.get(&member.config.address).copied().unwrap_or_default();
            member.too_early = there.unsettled;
            if there.unsettled {
                continue;
            }
            if there.no_room && !there.others {
                member.failed(format!("{}: {NO_ROOM}", member.config.address));
                continue;
            }
            let owner = member.owner;
            if let Err(other) = addresses.take(owner, &volume, &member.config.address) {
                member.fault = Some(format!("volume {other} is still closing it"));
                member.state = State::Waiting(now + LOOK);
                continue;
            }
            let passed = match self.shared.passed.at(&member.config.address) {
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
            self.binding.push(move || {
                let _ = orders.send(Order::Bound(owner, bind(&ring, &listener, passed)));
            });
        }
    }

    pub(super) fn bound(&mut self, owner: Owner, bound: Result<(Address, Certificate), String>) {
        let volume = &self.wanted.name;
        let member = position(&self.shown.listeners, owner).map(|at| &mut self.shown.listeners[at]);
        let Some(member) = member.filter(|m| m.state == State::Opening) else {
            if let (Ok((address, _)), Some(ring)) = (bound, &self.ring) {
                // The listener was removed meanwhile, perhaps before it was bound.
                unlisten(ring, &self.orders, owner, address);
            }
            return;
        };
        match bound {
            Ok((address, certificate)) => {
                member.opened(certificate);
                tracing::info!(volume, %address, "listening");
            }
            Err(error) => {
                self.shared.addresses.release(owner);
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
    fn renew(&self, member: &ListenerMember) {
        let State::Open(Some(shown)) = &member.state else { return };
        let (shown, owner, orders) = (Arc::clone(shown), member.owner, self.orders.clone());
        apart("certificate", move || {
            let read = Acceptor::new(shown.files().clone()).map(|new| shown.renew(&new));
            let _ = orders.send(Order::Renewed(owner, read));
        });
    }

    /// A certificate was read again. If it cannot be used, clients still see the certificate from before.
    pub(super) fn renewed(&mut self, owner: Owner, renewed: Result<(), FileError>) {
        let member = position(&self.shown.listeners, owner).map(|at| &mut self.shown.listeners[at]);
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
        let shown = |l: &&ListenerMember| matches!(l.state, State::Open(Some(_)));
        if !self.shown.listeners.iter().any(|listener| shown(&listener)) {
            self.certificates_due = None;
            return;
        }
        if *self.certificates_due.get_or_insert(now + CERTIFICATES) > now {
            return;
        }
        self.certificates_due = Some(now + CERTIFICATES);
        for listener in self.shown.listeners.iter().filter(shown) {
            let State::Open(Some(certificate)) = &listener.state else { continue };
            if listener.fault.is_some() || !certificate.is_in_force(CERTIFICATES) {
                self.renew(listener);
            }
        }
    }
}

/// Closes a listener, which may wait for its ring.
fn unlisten(ring: &Arc<Handle>, orders: &Sender<Order>, owner: Owner, address: Address) {
    let (ring, orders) = (Arc::clone(ring), orders.clone());
    apart("unlisten", move || {
        let _ = ring.remove_listener(&address);
        let _ = orders.send(Order::Unbound(owner));
    });
}

/// Reads the certificate of a listener, if it has one, and binds its address.
fn bind(
    ring: &Handle,
    listener: &Listener,
    passed: Option<OwnedFd>,
) -> Result<(Address, Certificate), String> {
    let address = &listener.address;
    let read = listener.tls.as_ref().map(|tls| Acceptor::new(tls.files())).transpose();
    let certificate = read.map_err(|error| format!("{address}: no TLS: {error}"))?.map(Arc::new);
    let config = crate::served::listener(listener, certificate.clone(), passed);
    let bound = ring.add_listener(config).map_err(|error| error.to_string())?;
    Ok((bound, certificate))
}
