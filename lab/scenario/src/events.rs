//! Checks each `[[event]]` of a file and turns it into actions. The timeline is applied later.

use std::collections::BTreeMap;

use parda_config::{ControlSettings, Error, VmSettings};

use crate::array::ArrayEvent;
use crate::check::Checker;
use crate::exchange::{EtcdEvent, ExchangeSettings, MeetingTransport};
use crate::file::{self, ArrayChange, Verb};
use crate::scenario::{Action, Host, HostIndex, TimelineEvent, VmIndex};

/// Kind of an event: what the entry does to the VM, host or array that it names.
enum EventKind<'a> {
    Do(Verb),
    Vm(Box<VmSettings>),
    Control(&'a ControlSettings),
    Exchange(&'a ExchangeSettings),
    Array(ArrayChange),
    Etcd(EtcdEvent),
}

const ONE_THING: &str = "must say one thing: `vm` with `do = \"start\"`, `do = \"stop\"`, \
                         `do = \"move\"` and `to`, or settings of the VM, such as `shares`; `host` with `do = \"kill\"`, `\"start\"`, `\"hang\"` or \
                         `\"resume\"`; `control` or `exchange`, for all hosts or with `host`; \
                         `array`; `etcd`, with `\"hang\"`, `\"resume\"`, `\"kill\"` or `\"start\"`";

/// The kind of an event. `None` if the entry has no kind, or more than one.
fn kind_of(event: &file::EventEntry) -> Option<EventKind<'_>> {
    let all = [
        event.verb.map(EventKind::Do),
        Some(event.settings())
            .filter(|to| *to != VmSettings::default())
            .map(|to| EventKind::Vm(Box::new(to))),
        event.control.as_ref().map(EventKind::Control),
        event.exchange.as_ref().map(EventKind::Exchange),
        event.array.map(EventKind::Array),
        event.etcd.map(EventKind::Etcd),
    ];
    let mut all = all.into_iter().flatten();
    all.next().filter(|_| all.next().is_none())
}

/// The event of an array. `None` if the table has no key, more than one, or an invalid factor.
fn array_event(change: ArrayChange) -> Option<ArrayEvent> {
    let all = [
        change.fail_drive.map(ArrayEvent::FailDrive),
        change.rebuild_drive.map(ArrayEvent::RebuildDrive),
        change.write_cache.map(ArrayEvent::WriteCache),
        change.slow.map(ArrayEvent::Slow),
    ];
    let mut all = all.into_iter().flatten();
    all.next().filter(|_| all.next().is_none())
}

impl Checker<'_> {
    /// The actions of one entry. Settings are as written, and not yet merged with those in force.
    pub(crate) fn actions_of(
        &self,
        index: usize,
        event: &file::EventEntry,
        hosts: &[Host],
    ) -> Result<Vec<TimelineEvent>, Error> {
        let at = |key: &str| format!("event.{index}.{key}");
        let vm = self.known(&at("vm"), "VM", event.vm.as_ref(), &self.vms)?;
        let host = self.known(&at("host"), "host", event.host.as_ref(), &self.hosts)?;
        let outside = |host: HostIndex| hosts[host.0].outside;
        let controlled = |key: &str, host: HostIndex| {
            self.ensure(!outside(host), &at(key), "is outside control, and has no agent")
        };
        let not_one = || self.error(&at("at"), ONE_THING);
        // The named host, or all hosts with an agent.
        let each = |action: &dyn Fn(HostIndex) -> Action| -> Result<Vec<Action>, Error> {
            if let Some(host) = host {
                controlled("host", host)?;
                return Ok(vec![action(host)]);
            }
            let all = self.hosts.values().copied().filter(|&host| !outside(host));
            Ok(all.map(action).collect())
        };
        let moves = event.verb == Some(Verb::Move);
        self.ensure(moves || event.to.is_none(), &at("to"), "is for `do = \"move\"`")?;
        if let Some(vm) = vm {
            self.ensure_own_name(&format!("event.{index}"), &self.moves, vm)?;
        }
        let place = |vm: VmIndex| self.moves.place(vm, event.at);
        let actions = match (vm, host, kind_of(event).ok_or_else(not_one)?) {
            (Some(vm), None, EventKind::Do(Verb::Start)) => vec![Action::StartVm(place(vm))],
            (Some(vm), None, EventKind::Do(Verb::Stop)) => vec![Action::StopVm(place(vm))],
            (Some(_), None, EventKind::Do(Verb::Move)) => {
                let (from, to) = self.moves.of(index).ok_or_else(not_one)?;
                vec![Action::StopVm(from), Action::StartVm(to)]
            }
            (Some(vm), None, EventKind::Vm(settings)) => {
                controlled("vm", vm.host)?;
                let places = self.moves.places(vm).into_iter();
                places.map(|place| Action::SetVm(place, settings.clone())).collect()
            }
            (None, Some(host), EventKind::Do(Verb::Start)) => vec![Action::StartHost(host)],
            (None, Some(host), EventKind::Do(Verb::Kill)) => vec![Action::KillHost(host)],
            (None, _, EventKind::Control(settings)) => {
                each(&|host| Action::SetControl(host, Box::new(settings.clone())))?
            }
            (None, _, EventKind::Exchange(settings)) => {
                self.exchange(&at("exchange"), settings)?;
                each(&|host| Action::SetExchange(host, Box::new(settings.clone())))?
            }
            (None, Some(host), EventKind::Do(verb @ (Verb::Hang | Verb::Resume))) => {
                controlled("host", host)?;
                let hangs = verb == Verb::Hang;
                vec![if hangs { Action::HangHost(host) } else { Action::ResumeHost(host) }]
            }
            (None, None, EventKind::Array(change)) => {
                let one_of = || {
                    let message = "must say one thing: `fail_drive`, `rebuild_drive`, `write_cache` or \
                         `slow`, from 0.01 to 100";
                    self.error(&at("array"), message)
                };
                vec![Action::Array(array_event(change).ok_or_else(one_of)?)]
            }
            (None, None, EventKind::Etcd(change)) => {
                let is_etcd = self.transport == MeetingTransport::Etcd;
                let message = "is for [exchange] transport = \"etcd\": hosts meet without it";
                self.ensure(is_etcd, &at("etcd"), message)?;
                vec![Action::Etcd(change)]
            }
            _ => return Err(not_one()),
        };
        let path = format!("event.{index}");
        let placed = |action| TimelineEvent { at: event.at, action, path: path.clone() };
        Ok(actions.into_iter().map(placed).collect())
    }

    pub(crate) fn known<T: Copy>(
        &self,
        path: &str,
        kind: &str,
        name: Option<&String>,
        all: &BTreeMap<String, T>,
    ) -> Result<Option<T>, Error> {
        let Some(name) = name else { return Ok(None) };
        let found = all.get(name).copied();
        found.map(Some).ok_or_else(|| self.error(path, format!("there is no {kind} of this name")))
    }
}
