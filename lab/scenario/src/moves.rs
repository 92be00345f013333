//! VMs that move between hosts (`do = "move"`).
//!
//! A moving VM has a stand-in named `VM.HOST` on each host that it moves to. All have the same disk, shares and load. A move stops the
//! client on one host and starts it on the other.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_config::Error;

use crate::check::Checker;
use crate::file::{EventEntry, Verb};
use crate::scenario::{Host, HostIndex, Vm, VmIndex};

/// The moves of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Places before and after each move, by the index of its event.
    by_event: BTreeMap<usize, (VmIndex, VmIndex)>,
    /// Places of each VM that moves, with the time of arrival, in time order. The key is its place at the beginning.
    by_vm: BTreeMap<VmIndex, Vec<(Duration, VmIndex)>>,
}

impl Moves {
    /// Places of the VM before and after an event, if it is a move.
    pub(crate) fn of(&self, event: usize) -> Option<(VmIndex, VmIndex)> {
        self.by_event.get(&event).copied()
    }

    /// Place of a VM at a time.
    pub(crate) fn place(&self, vm: VmIndex, at: Duration) -> VmIndex {
        let moved = self.by_vm.get(&vm).into_iter().flatten();
        moved.take_while(|(since, _)| *since <= at).last().map_or(vm, |(_, place)| *place)
    }

    /// Whether a VM is the stand-in of one that moves.
    pub(crate) fn is_arrival(&self, vm: VmIndex) -> bool {
        !self.by_vm.contains_key(&vm)
            && self.by_vm.values().flatten().any(|(_, place)| *place == vm)
    }

    /// All places of a VM, each once.
    pub(crate) fn places(&self, vm: VmIndex) -> Vec<VmIndex> {
        let moved = self.by_vm.get(&vm).into_iter().flatten().map(|(_, place)| *place);
        let mut places: Vec<VmIndex> = std::iter::once(vm).chain(moved).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

impl Checker<'_> {
    /// Reads the moves, and adds stand-ins to the hosts that VMs move to.
    pub(crate) fn moves(
        &mut self,
        hosts: &mut [Host],
        events: &[EventEntry],
    ) -> Result<Moves, Error> {
        let mut moves = Moves::default();
        let moving = |(_, event): &(usize, &EventEntry)| event.verb == Some(Verb::Move);
        let mut entries: Vec<_> = events.iter().enumerate().filter(moving).collect();
        entries.sort_by_key(|(_, event)| event.at);
        for (index, event) in entries {
            let path = format!("event.{index}");
            let (vm, to) = self.vm_and_host(&path, event)?;
            self.ensure_own_name(&path, &moves, vm)?;
            let from = moves.place(vm, event.at);
            self.may_move(&path, &hosts[from.host.0], &hosts[to.0])?;
            let there = moves.places(vm).into_iter().find(|place| place.host == to);
            let place = match there {
                Some(place) => place,
                None => self.arrival(&path, hosts, vm, to)?,
            };
            moves.by_event.insert(index, (from, place));
            moves.by_vm.entry(vm).or_default().push((event.at, place));
        }
        Ok(moves)
    }

    /// VM and host of an entry.
    fn vm_and_host(&self, path: &str, event: &EventEntry) -> Result<(VmIndex, HostIndex), Error> {
        let at = |key: &str| format!("{path}.{key}");
        let vm = self.known(&at("vm"), "VM", event.vm.as_ref(), &self.vms)?;
        let to = self.known(&at("to"), "host", event.to.as_ref(), &self.hosts)?;
        let missing = || {
            self.error(&at("do"), "must be with `vm`, and with `to`, the host that the VM moves to")
        };
        vm.zip(to).ok_or_else(missing)
    }

    /// Refuses an event that names a stand-in.
    pub(crate) fn ensure_own_name(
        &self,
        path: &str,
        moves: &Moves,
        vm: VmIndex,
    ) -> Result<(), Error> {
        let message = "is the name that the VM has on a host that it moves to: use its own name, which is for the VM on every host";
        self.ensure(!moves.is_arrival(vm), &format!("{path}.vm"), message)
    }

    fn may_move(&self, path: &str, from: &Host, to: &Host) -> Result<(), Error> {
        let at = format!("{path}.to");
        self.ensure(from.name != to.name, &at, "is the host that the VM is on")?;
        let guests = from.guest.is_some() || to.guest.is_some();
        self.ensure(!guests, &at, "must not be a guest, nor may the VM leave one: disks of guests are there from their start")?;
        self.ensure(from.outside == to.outside, &at, "must be under control if the host that the VM leaves is, and outside control if that is")
    }

    /// Adds a stand-in for a VM to a host.
    fn arrival(
        &mut self,
        path: &str,
        hosts: &mut [Host],
        vm: VmIndex,
        to: HostIndex,
    ) -> Result<VmIndex, Error> {
        let moving = &hosts[vm.host.0].vms[vm.index];
        let arrival =
            Vm { name: format!("{}.{}", moving.name, hosts[to.0].name), ..moving.clone() };
        let place = VmIndex { host: to, index: hosts[to.0].vms.len() };
        if self.vms.insert(arrival.name.clone(), place).is_some() {
            let message = format!(
                "there is a VM named {:?} already, which would be the name of the VM that moves there",
                arrival.name
            );
            return Err(self.error(&format!("{path}.to"), message));
        }
        hosts[to.0].vms.push(arrival);
        Ok(place)
    }
}
