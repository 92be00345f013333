//! VMs that move between hosts (`do = "move"`).
//!
//! Each host that a VM moves to has a VM of its own for it, `VM.HOST`, with the same disk, shares and load. A move stops the client
//! on the one host and starts it on the other.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_config::Error;

use crate::check::Checker;
use crate::file::{EventEntry, Verb};
use crate::scenario::{Host, HostId, Vm, VmId};

/// The moves of a file, and where they take each VM.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// From where to where, by the index of the event.
    by_event: BTreeMap<usize, (VmId, VmId)>,
    /// Places of each VM that moves, in time order, by its place at the beginning.
    by_vm: BTreeMap<VmId, Vec<(Duration, VmId)>>,
}

impl Moves {
    /// From where to where an event takes its VM.
    pub(crate) fn of(&self, event: usize) -> Option<(VmId, VmId)> {
        self.by_event.get(&event).copied()
    }

    /// Place of a VM at a time.
    pub(crate) fn place(&self, vm: VmId, at: Duration) -> VmId {
        let moved = self.by_vm.get(&vm).into_iter().flatten();
        moved.take_while(|(since, _)| *since <= at).last().map_or(vm, |(_, place)| *place)
    }

    /// Whether a VM is one that moved, under the name that it has there.
    pub(crate) fn is_arrival(&self, vm: VmId) -> bool {
        !self.by_vm.contains_key(&vm)
            && self.by_vm.values().flatten().any(|(_, place)| *place == vm)
    }

    /// All places of a VM, each once.
    pub(crate) fn places(&self, vm: VmId) -> Vec<VmId> {
        let moved = self.by_vm.get(&vm).into_iter().flatten().map(|(_, place)| *place);
        let mut places: Vec<VmId> = std::iter::once(vm).chain(moved).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

impl Checker<'_> {
    /// Reads the moves, and gives each host the VMs that move to it.
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
            self.is_home(&path, &moves, vm)?;
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

    /// The VM that an entry moves, and the host that it moves to.
    fn vm_and_host(&self, path: &str, event: &EventEntry) -> Result<(VmId, HostId), Error> {
        let at = |key: &str| format!("{path}.{key}");
        let vm = self.known(&at("vm"), "VM", event.vm.as_ref(), &self.vms)?;
        let to = self.known(&at("to"), "host", event.to.as_ref(), &self.hosts)?;
        let missing = || {
            self.error(&at("do"), "must be with `vm` and, for the host that the VM moves to, `to`")
        };
        vm.zip(to).ok_or_else(missing)
    }

    /// Refuses the name that a VM has on a host that it moves to.
    pub(crate) fn is_home(&self, path: &str, moves: &Moves, vm: VmId) -> Result<(), Error> {
        let message = "is the name of a VM on a host that it moves to: use its own name, which is for the VM wherever it is";
        self.ensure(!moves.is_arrival(vm), &format!("{path}.vm"), message)
    }

    fn may_move(&self, path: &str, from: &Host, to: &Host) -> Result<(), Error> {
        let at = format!("{path}.to");
        self.ensure(from.name != to.name, &at, "is the host that the VM is on")?;
        let guests = from.kind.guest().is_some() || to.kind.guest().is_some();
        self.ensure(!guests, &at, "must not be a guest, nor the host that the VM leaves: disks of guests are there from their start")?;
        self.ensure(from.outside == to.outside, &at, "must be under control as the host is that the VM leaves, or outside control as that is")
    }

    /// A VM on the host that another one moves to, with all that the other has.
    fn arrival(
        &mut self,
        path: &str,
        hosts: &mut [Host],
        vm: VmId,
        to: HostId,
    ) -> Result<VmId, Error> {
        let moving = &hosts[vm.host.0].vms[vm.index];
        let arrival =
            Vm { name: format!("{}.{}", moving.name, hosts[to.0].name), ..moving.clone() };
        let place = VmId { host: to, index: hosts[to.0].vms.len() };
        if self.vms.insert(arrival.name.clone(), place).is_some() {
            let message = format!(
                "there is a VM named {:?}, which is what the VM is named there",
                arrival.name
            );
            return Err(self.error(&format!("{path}.to"), message));
        }
        hosts[to.0].vms.push(arrival);
        Ok(place)
    }
}
