//! Checks a parsed file: gives a [`Scenario`], or an error with file, line and value.

mod guest;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytesize::ByteSize;
use humantime::format_duration;
use parda_array::ArrayParams;
use parda_config::{ControlSettings, Document, Error, VmSettings, wrong_tenants};
use parda_control::{Bytes, Costs, ModeName};
use parda_workload::{LoadReader, Traces};

use crate::array::Group;
use crate::exchange::{ExchangeSettings, Hearing, MeetingTransport};
use crate::expectation::{Bound, Expectation};
use crate::file::{self, File};
use crate::guest::GuestSettings;
use crate::many;
use crate::metric::Metric;
use crate::moves::Moves;
use crate::run::RunPhase;
use crate::scenario::{
    Action, ClusterState, EXCHANGE, Host, HostIndex, MAX_HOSTS, MAX_SLOTS, Phase, Scenario,
    TimelineEvent, USUAL_SLOTS, Vm, VmIndex, array_luns,
};

/// Longest name of a host, in bytes: the room for it in a slot of the exchange.
const MAX_NAME: usize = 63;

/// The scenario that a file describes, without its variants and expectations.
pub(crate) fn check(
    document: &Document,
    file: &File,
    present: Option<&BTreeSet<String>>,
    traces: &Traces,
) -> Result<Scenario, Error> {
    Checker {
        document,
        loads: LoadReader::new(document, traces),
        duration: file.duration,
        present,
        hosts: BTreeMap::new(),
        vms: BTreeMap::new(),
        disks: BTreeMap::new(),
        moves: Moves::default(),
        transport: file.exchange.transport.unwrap_or_default(),
    }
    .scenario(file)
}

/// Refuses a name that is not safe in paths of metrics, sockets and files. The error is a message.
pub(crate) fn plain_name(name: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain)
    {
        true => Ok(()),
        false => Err("must be 1 to 63 letters, digits, `-`, `_` or `.`, and not begin with `.`"),
    }
}

pub(crate) struct Checker<'a> {
    pub(crate) document: &'a Document,
    loads: LoadReader<'a>,
    duration: Duration,
    /// Names of the hosts that are present; `None` for all.
    present: Option<&'a BTreeSet<String>>,
    pub(crate) hosts: BTreeMap<String, HostIndex>,
    pub(crate) vms: BTreeMap<String, VmIndex>,
    /// LUN and size of the disk of each VM that has one of its own, by the VM's name.
    disks: BTreeMap<String, (u32, Bytes)>,
    pub(crate) moves: Moves,
    pub(crate) transport: MeetingTransport,
}

/// An event, and the path of the entry that describes it.
type Placed = (TimelineEvent, String);

impl Checker<'_> {
    fn scenario(mut self, file: &File) -> Result<Scenario, Error> {
        self.name("name", &file.name)?;
        self.ensure(!file.duration.is_zero(), "duration", "must be above zero")?;
        self.control("control", &file.control, &file.control)?;
        self.exchange("exchange", &file.exchange)?;
        self.ensure(!file.host.is_empty(), "host", "there must be at least one [[host]]")?;
        for (i, host) in file.host.iter().enumerate() {
            let path = format!("host.{i}.count");
            self.ensure(host.count != Some(0), &path, "must be at least 1")?;
        }
        let most = if self.transport == MeetingTransport::File { MAX_SLOTS } else { MAX_HOSTS };
        if let Some((at, key, fault)) = wrong_tenants(&file.tenant) {
            return Err(self.error(&format!("tenant.{at}.{key}"), fault));
        }
        let mut starts = Vec::new();
        let mut hosts = Vec::new();
        for (place, host) in many::each(&file.host) {
            if hosts.len() == most {
                let key = host.count.map_or("name", |_| "count");
                let message = format!("is too many: there are at most {most} hosts");
                return Err(self.error(&format!("host.{place}.{key}"), message));
            }
            let id = HostIndex(hosts.len());
            hosts.push(self.host(place, id, &host, file, &mut starts)?);
        }
        self.moves = self.moves(&mut hosts, &file.event)?;
        for (event, _) in &mut starts {
            if let Action::StopVm(vm) = &mut event.action {
                *vm = self.moves.place(*vm, event.at);
            }
        }
        let exchange_slots = self.exchange_slots(file.exchange.slots, hosts.len())?;
        let disks = array_luns(&hosts, exchange_slots);
        let array = file.array.params(disks).map_err(|fault| {
            let path = format!("array.{}", fault.path);
            self.error(path.trim_end_matches('.'), fault.to_string())
        })?;
        let timeline = self.timeline(&hosts, array, starts, &file.event)?;
        let phases = self.phases(&file.phase)?;
        Ok(Scenario {
            title: file.title.clone().unwrap_or_else(|| file.name.clone()),
            name: file.name.clone(),
            description: file.description.clone().unwrap_or_default(),
            seed: file.seed,
            duration: file.duration,
            array: file.array.clone(),
            exchange_slots,
            transport: self.transport,
            etcd_members: file.exchange.members.unwrap_or(1),
            tenants: file.tenant.clone(),
            hosts,
            timeline,
            phases,
            expectations: Vec::new(),
        })
    }

    pub(crate) fn error(&self, path: &str, message: impl Into<String>) -> Error {
        self.document.error(path, message)
    }

    pub(crate) fn ensure(&self, ok: bool, path: &str, message: &str) -> Result<(), Error> {
        if ok { Ok(()) } else { Err(self.error(path, message)) }
    }

    fn name(&self, path: &str, name: &str) -> Result<(), Error> {
        plain_name(name).map_err(|says| self.error(path, says))
    }

    fn control(
        &self,
        path: &str,
        written: &ControlSettings,
        effective: &ControlSettings,
    ) -> Result<(), Error> {
        effective.resolve().map(drop).map_err(|e| {
            let own = ControlSettings::resolve(written).is_err_and(|w| w.parameter == e.parameter);
            let path = if own { format!("{path}.{}", e.parameter) } else { path.to_owned() };
            self.error(&path, e.to_string())
        })
    }

    /// Refuses `fairness` of bytes or costs for guests, as the agent does for volumes that it steers.
    fn counts_ios(
        &self,
        path: &str,
        guest: Option<GuestSettings>,
        effective: &ControlSettings,
    ) -> Result<(), Error> {
        let costs = effective.fairness.and_then(|fairness| fairness.costs());
        let by_cost = guest.is_some() && costs.is_some_and(|costs| costs != Costs::IOPS);
        let message = "fairness of bytes or costs is not for guests: the kernel's queue counts IOs";
        self.ensure(!by_cost, path, message)
    }

    pub(crate) fn exchange(&self, path: &str, settings: &ExchangeSettings) -> Result<(), Error> {
        let fixed = [
            ("slots", settings.slots.is_some()),
            ("transport", settings.transport.is_some()),
            ("members", settings.members.is_some()),
        ];
        for (key, there) in fixed {
            let ok = path == "exchange" || !there;
            self.ensure(
                ok,
                &format!("{path}.{key}"),
                "is for all hosts and cannot change during a run: [exchange] has it",
            )?;
        }
        let Some((key, message)) = settings.fault(self.transport) else { return Ok(()) };
        Err(self.error(&format!("{path}.{key}"), message))
    }

    /// State of the host's access to the exchange at the beginning.
    fn hearing(&self, path: &str, host: &file::Host, file: &File) -> Result<Hearing, Error> {
        let all = Hearing::default().changed(&file.exchange);
        let Some(own) = &host.exchange else { return Ok(all) };
        let path = format!("{path}.exchange");
        let message = "means nothing for a host that is outside control";
        self.ensure(!host.outside, &path, message)?;
        self.exchange(&path, own)?;
        Ok(all.changed(own))
    }

    fn exchange_slots(&self, slots: Option<u32>, hosts: usize) -> Result<u32, Error> {
        if self.transport != MeetingTransport::File {
            // No slots are used here, and the file's `slots` is refused.
            return Ok(USUAL_SLOTS as u32);
        }
        // `hosts` is at most MAX_SLOTS.
        let slots = slots.unwrap_or(hosts.max(USUAL_SLOTS) as u32);
        let ok = (hosts..=MAX_SLOTS).contains(&(slots as usize));
        let must = format!("must be from {hosts}, a slot for each host, to {MAX_SLOTS}");
        self.ensure(ok, "exchange.slots", &must)?;
        Ok(slots)
    }

    fn host(
        &mut self,
        place: usize,
        id: HostIndex,
        host: &file::Host,
        file: &File,
        starts: &mut Vec<Placed>,
    ) -> Result<Host, Error> {
        let path = format!("host.{place}");
        self.name(&format!("{path}.name"), &host.name)?;
        if self.hosts.insert(host.name.clone(), id).is_some() {
            return Err(self.error(&format!("{path}.name"), "there is another host of this name"));
        }
        let guest = guest::guest(host)
            .map_err(|(key, message)| self.error(&format!("{path}.{key}"), message))?;
        let control = if host.outside {
            let own = host.control.is_some();
            let message = "means nothing for a host that is outside control";
            self.ensure(!own, &format!("{path}.control"), message)?;
            ControlSettings { mode: Some(ModeName::Off), ..ControlSettings::default() }
        } else {
            let own = host.control.clone().unwrap_or_default();
            let control = file.control.overlaid(&own);
            let at = format!("{path}.control");
            self.control(&at, &own, &control)?;
            self.counts_ios(&at, guest, &control)?;
            control
        };
        let hearing = self.hearing(&path, host, file)?;
        self.ensure(
            !host.vm.is_empty(),
            &format!("{path}.name"),
            "must have at least one [[host.vm]]",
        )?;
        let mut vms = Vec::new();
        for (v, vm) in host.vm.iter().enumerate() {
            let path = format!("{path}.vm.{v}");
            vms.push(self.vm(&path, VmIndex { host: id, index: v }, vm, host.outside, starts)?);
            if let Some(tenant) = &vm.tenant
                && !file.tenant.iter().any(|known| known.name == *tenant)
            {
                return Err(
                    self.error(&format!("{path}.tenant"), "must be the name of a [[tenant]]")
                );
            }
        }
        let present = self.present.is_none_or(|names| names.contains(&host.name));
        let (name, outside) = (host.name.clone(), host.outside);
        Ok(Host { name, path, present, guest, outside, control, hearing, vms })
    }

    fn vm(
        &mut self,
        path: &str,
        id: VmIndex,
        vm: &file::Vm,
        outside: bool,
        starts: &mut Vec<Placed>,
    ) -> Result<Vm, Error> {
        let at = |key: &str| format!("{path}.{key}");
        self.name(&at("name"), &vm.name)?;
        self.ensure(vm.name != EXCHANGE, &at("name"), "is the name of the exchange's LUN")?;
        if self.vms.insert(vm.name.clone(), id).is_some() {
            let message = "there is another VM of this name, on this host or another";
            return Err(self.error(&at("name"), message));
        }
        let mut settings = vm.settings().or_defaults();
        if let Some((key, message)) =
            settings.fault().filter(|(key, _)| !outside || *key != "shares")
        {
            return Err(self.error(&at(key), &message));
        }
        if outside {
            // A host outside control has no shares, whatever the scenario's settings are.
            settings.shares = Some(0);
        }
        let (load, own) = self.loads.load(&at("workload"), &vm.workload)?;
        let (lun, disk) = self.disk(path, vm, own)?;
        let keys = [("disk", vm.disk.is_some()), ("same_disk_as", vm.same_disk_as.is_some())];
        let key = keys.iter().find(|(_, is)| *is).map_or("workload", |(key, _)| key);
        load.fits(disk).map_err(|message| self.error(&at(key), message))?;
        let start = vm.start.unwrap_or(Duration::ZERO);
        let event = |at, action| TimelineEvent { at, action, path: path.to_owned() };
        starts.push((event(start, Action::StartVm(id)), at("start")));
        if let Some(stop) = vm.stop {
            self.ensure(stop > start, &at("stop"), "must be after start")?;
            starts.push((event(stop, Action::StopVm(id)), at("stop")));
        }
        Ok(Vm { name: vm.name.clone(), settings, disk, lun, load })
    }

    /// LUN and size of a VM's disk. The size follows from the workload if the file gives none.
    fn disk(
        &mut self,
        path: &str,
        vm: &file::Vm,
        own: Option<Bytes>,
    ) -> Result<(u32, Bytes), Error> {
        let own = own.map(|own| ByteSize(own.0)).filter(|_| vm.same_disk_as.is_none());
        match (vm.disk.or(own), &vm.same_disk_as) {
            (Some(size), None) => {
                let disk = (self.disks.len() as u32, Bytes(size.as_u64()));
                self.disks.insert(vm.name.clone(), disk);
                Ok(disk)
            }
            (None, Some(name)) => self.disks.get(name).copied().ok_or_else(|| {
                let says = "must be the name of a VM further up that has a disk of its own";
                self.error(&format!("{path}.same_disk_as"), says)
            }),
            _ => {
                let says = "must have either `disk` or `same_disk_as`";
                Err(self.error(&format!("{path}.name"), says))
            }
        }
    }

    /// All events in time order, applied once to check them.
    fn timeline(
        &self,
        hosts: &[Host],
        array: ArrayParams,
        mut placed: Vec<Placed>,
        events: &[file::EventEntry],
    ) -> Result<Vec<TimelineEvent>, Error> {
        for (i, event) in events.iter().enumerate() {
            let path = format!("event.{i}");
            let actions = self.actions_of(i, event, hosts)?;
            placed.extend(actions.into_iter().map(|event| (event, format!("{path}.at"))));
        }
        // The sort is stable: events of one time keep the order of the file.
        placed.sort_by_key(|(event, _)| event.at);
        // Events of absent hosts are left out.
        placed.retain(|(event, _)| event.action.host().is_none_or(|host| hosts[host.0].present));
        let mut state = ClusterState::new(hosts);
        let mut group = Group::new(array);
        let mut timeline = Vec::new();
        for (mut event, path) in placed {
            if event.at >= self.duration {
                let end = format_duration(self.duration);
                return Err(self.error(&path, format!("is not before the end of the run, {end}")));
            }
            match &mut event.action {
                Action::SetControl(host, settings) => {
                    let effective = state.host(*host).control.overlaid(settings);
                    let path = path.replace(".at", ".control");
                    self.control(&path, settings, &effective)?;
                    self.counts_ios(&path, hosts[host.0].guest, &effective)?;
                    **settings = effective;
                }
                Action::SetVm(vm, settings) => {
                    let more = VmSettings { shares: None, ..**settings } != VmSettings::default();
                    let fixed = more && hosts[vm.host.0].guest.is_some();
                    let only = "is of a guest: of its VMs' settings only `shares` change";
                    self.ensure(!fixed, &path.replace(".at", ".vm"), only)?;
                    let effective = settings.or(state.vm(*vm).settings);
                    if let Some((key, message)) = effective.fault() {
                        return Err(self.error(&path.replace(".at", &format!(".{key}")), &message));
                    }
                    **settings = effective;
                }
                Action::Array(happens) => group.apply(*happens).map_err(|e| {
                    self.error(&path.replace(".at", ".array"), format!("makes no sense then: {e}"))
                })?,
                _ => {}
            }
            state
                .apply(&event.action)
                .map_err(|e| self.error(&path, format!("makes no sense then: {e}")))?;
            timeline.push(event);
        }
        Ok(timeline)
    }

    fn phases(&self, phases: &[Phase]) -> Result<Vec<Phase>, Error> {
        for (i, phase) in phases.iter().enumerate() {
            let at = |key: &str| format!("phase.{i}.{key}");
            self.name(&at("name"), &phase.name)?;
            let extreme =
                ["largest", "smallest"].contains(&phase.name.split('.').next().unwrap_or(""));
            self.ensure(
                !extreme,
                &at("name"),
                "is what stands for an extreme in paths of metrics",
            )?;
            let other = phases[..i].iter().any(|p| p.name == phase.name);
            self.ensure(!other, &at("name"), "there is another phase of this name")?;
            self.ensure(phase.from < phase.to, &at("to"), "must be after from")?;
            if phase.to > self.duration {
                let end = format_duration(self.duration);
                return Err(self.error(&at("to"), format!("is after the end of the run, {end}")));
            }
        }
        self.ensure(!phases.is_empty(), "phase", "there must be at least one [[phase]]")?;
        Ok(phases.to_vec())
    }
}

/// The expectations, on these phases.
pub(crate) fn expectations(
    document: &Document,
    expect: &[file::Expect],
    known: &[RunPhase<'_>],
) -> Result<Vec<Expectation>, Error> {
    let one = |(i, expect)| expectation(document, i, expect, known);
    expect.iter().enumerate().map(one).collect()
}

fn expectation(
    document: &Document,
    index: usize,
    expect: &file::Expect,
    known: &[RunPhase<'_>],
) -> Result<Expectation, Error> {
    let error = |key: &str, says: &str| document.error(&format!("expect.{index}.{key}"), says);
    let metric =
        |key: &str, text: &str| Metric::parse(text, known).map_err(|e| error(key, &e.to_string()));
    let bound = match (expect.expected, expect.tolerance, expect.at_least, expect.at_most) {
        (Some(expected), Some(tolerance), None, None) => {
            if tolerance.value() < 0.0 {
                return Err(error("tolerance", "must not be negative"));
            }
            Bound::Near { expected: expected.value(), tolerance }
        }
        (None, None, Some(least), None) => Bound::AtLeast(least.value()),
        (None, None, None, Some(most)) => Bound::AtMost(most.value()),
        _ => {
            let says = "must have either `expected` and `tolerance`, or `at_least`, or `at_most`";
            return Err(error("what", says));
        }
    };
    if expect.exempt.as_ref().is_some_and(String::is_empty) {
        return Err(error("exempt", "must say why it is not judged"));
    }
    Ok(Expectation {
        what: metric("what", &expect.what)?,
        of: expect.of.as_deref().map(|of| metric("of", of)).transpose()?,
        source: expect.source.clone(),
        bound,
        exempt: expect.exempt.clone(),
    })
}
