//! What a scenario is, once it is known to make sense.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_array::ArrayParams;
use parda_config::ControlSettings;
use parda_control::{Bytes, Shares};

use crate::array::{ArrayEvent, ArrayFault, ArraySettings};
use crate::exchange::{ExchangeSettings, Hearing};
use crate::expectation::Expectation;
use crate::guest::HostKind;
use crate::load::Load;

/// A cluster, what happens to it, what is measured and what is expected.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// One line for people; the name if the file gives none.
    pub title: String,
    /// What it shows and why; may be empty.
    pub description: String,
    /// All randomness of a run follows from it.
    pub seed: u64,
    /// How long a run takes.
    pub duration: Duration,
    /// The shared array.
    pub array: ArraySettings,
    /// How many slots the exchange has: one for each host at least.
    pub exchange_slots: u32,
    /// The hosts, in the order of the file.
    pub hosts: Vec<Host>,
    /// What happens, by time; at one time, in the order of the file, the `start` and `stop` of VMs
    /// first. VMs that run from the beginning are started by events at zero.
    pub timeline: Vec<Event>,
    /// What is measured.
    pub phases: Vec<Phase>,
    /// What is expected of it.
    pub expectations: Vec<Expectation>,
}

/// A host: one agent, or none.
#[derive(Clone, Debug)]
pub struct Host {
    /// Unique among hosts.
    pub name: String,
    /// Whether it takes part. One that a variant leaves out has its disks on the array, and does
    /// nothing.
    pub present: bool,
    /// Whether it serves the disks of its VMs, or is a guest.
    pub kind: HostKind,
    /// Without an agent: its VMs go to the array directly, it is not in the exchange, and its VMs
    /// have no shares.
    pub outside: bool,
    /// Its settings at the beginning: the scenario's with its own on top. `mode = "off"` outside.
    pub control: ControlSettings,
    /// How well it hears the others at the beginning.
    pub exchange: ExchangeSettings,
    /// Its VMs.
    pub vms: Vec<Vm>,
}

/// A VM: one disk and one client that uses all of it.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Unique among the VMs of all hosts.
    pub name: String,
    /// At the beginning.
    pub shares: Shares,
    /// Slots that it may gather while idle.
    pub burst: f64,
    /// What its IOs are to take at most, in the mean; none if not given.
    pub latency_target: Option<Duration>,
    /// Size of its disk.
    pub disk: Bytes,
    /// Which of the array's LUNs its disk is, counted from 0. Several VMs may have the same.
    pub lun: u32,
    /// What its client does.
    pub load: Load,
}

/// A host by its place in [`Scenario::hosts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// A VM by its host and its place in [`Host::vms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId {
    /// Its host.
    pub host: HostId,
    /// Its place there.
    pub index: usize,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, from the beginning of the run.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A VM's client starts.
    StartVm(VmId),
    /// A VM's client stops.
    StopVm(VmId),
    /// A VM's shares change.
    SetShares(VmId, Shares),
    /// A host dies without a word, and the clients of its VMs with it.
    KillHost(HostId),
    /// A host that died comes back, and its VMs with it.
    StartHost(HostId),
    /// A host's agent stops where it is; its VMs go on and wait.
    HangHost(HostId),
    /// An agent that hung goes on.
    ResumeHost(HostId),
    /// A host's settings change: these are all its settings from now on.
    SetControl(HostId, Box<ControlSettings>),
    /// How well a host hears the others changes: these are all its settings from now on.
    SetExchange(HostId, Box<ExchangeSettings>),
    /// Something happens to the array.
    Array(ArrayEvent),
}

impl Action {
    /// The host to which it happens; `None` if it happens to the array.
    #[must_use]
    pub fn host(&self) -> Option<HostId> {
        match *self {
            Action::StartVm(vm) | Action::StopVm(vm) | Action::SetShares(vm, _) => Some(vm.host),
            Action::KillHost(host)
            | Action::StartHost(host)
            | Action::HangHost(host)
            | Action::ResumeHost(host)
            | Action::SetControl(host, _)
            | Action::SetExchange(host, _) => Some(host),
            Action::Array(_) => None,
        }
    }
}

/// A stretch of time that is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Unique among phases.
    pub name: String,
    /// Its beginning, from the beginning of the run.
    pub from: Duration,
    /// Its end.
    pub to: Duration,
}

/// The name of the exchange's LUN, which therefore no VM can have.
pub const EXCHANGE: &str = "exchange";

/// The most hosts: an exchange has no more slots.
pub const MAX_HOSTS: usize = 1024;

/// How many slots the exchange has if nothing else is said and the hosts are no more.
pub(crate) const USUAL_SLOTS: usize = 64;

/// The size of a slot of the exchange.
pub const SLOT: Bytes = Bytes::kib(4);

/// The size of the slots of an exchange of the usual number.
pub const EXCHANGE_SIZE: Bytes = Bytes(SLOT.0 * USUAL_SLOTS as u64);

/// The size of the header before the slots of a real exchange. A simulated one has none.
pub const EXCHANGE_HEADER: Bytes = SLOT;

/// The sizes of the array's LUNs: the disks of all VMs, each once, then the exchange's.
pub(crate) fn array_luns(hosts: &[Host], exchange_slots: u32) -> Vec<parda_array::Bytes> {
    let disks: BTreeMap<u32, Bytes> =
        hosts.iter().flat_map(|host| &host.vms).map(|vm| (vm.lun, vm.disk)).collect();
    let exchange = Bytes(SLOT.0 * u64::from(exchange_slots));
    disks.into_values().chain([exchange]).map(|size| parda_array::Bytes(size.0)).collect()
}

impl Scenario {
    /// The array, with a LUN for each VM's disk in the order of the file (see [`Vm::lun`]) and, after
    /// them, one for the exchange: [`Scenario::exchange_slots`] of [`SLOT`] each.
    ///
    /// # Errors
    /// None for a scenario that was parsed: its array was checked.
    pub fn array_params(&self) -> Result<ArrayParams, ArrayFault> {
        self.array.params(array_luns(&self.hosts, self.exchange_slots))
    }

    /// Which LUN is the exchange's: the one after all disks.
    #[must_use]
    pub fn exchange_lun(&self) -> u32 {
        self.vm_ids().map(|(_, vm)| vm.lun + 1).max().unwrap_or(0)
    }

    /// The VM after which a disk is named: the first that has it.
    #[must_use]
    pub fn disk_owner(&self, lun: u32) -> Option<&Vm> {
        self.vm_ids().map(|(_, vm)| vm).find(|vm| vm.lun == lun)
    }

    /// Every host and its id.
    pub fn host_ids(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.hosts.iter().enumerate().map(|(i, host)| (HostId(i), host))
    }

    /// Every VM and its id, host by host.
    pub fn vm_ids(&self) -> impl Iterator<Item = (VmId, &Vm)> {
        self.host_ids().flat_map(|(id, host)| {
            host.vms.iter().enumerate().map(move |(index, vm)| (VmId { host: id, index }, vm))
        })
    }

    /// A host by its id, which must be this scenario's.
    #[must_use]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0]
    }

    /// Every host that takes part, and its id.
    pub fn present(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.host_ids().filter(|(_, host)| host.present)
    }

    /// A VM by its id, which must be this scenario's.
    #[must_use]
    pub fn vm(&self, id: VmId) -> &Vm {
        &self.hosts[id.host.0].vms[id.index]
    }

    /// How things stand after every event up to and including `at`.
    #[must_use]
    pub fn state_at(&self, at: Duration) -> State {
        let mut state = State::new(&self.hosts);
        for event in self.timeline.iter().take_while(|event| event.at <= at) {
            // The timeline was checked by applying it.
            let _ = state.apply(&event.action);
        }
        state
    }

    /// The longest time that what is read from the exchange is ever behind.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        let changes = self.timeline.iter().filter_map(|event| match &event.action {
            Action::SetExchange(_, settings) => settings.delay,
            _ => None,
        });
        let first = self.hosts.iter().filter_map(|host| host.exchange.delay);
        first.chain(changes).max().unwrap_or_default()
    }

    /// Whether a VM's client works from the beginning of a phase to its end without a break: it
    /// runs on a host that does not hang, and if it works in bursts, all of the phase lies within
    /// one of them. `at_start` is how things stand at its beginning, found once for all VMs.
    #[must_use]
    pub fn runs_throughout(&self, vm: VmId, phase: &Phase, at_start: &State) -> bool {
        let breaks = |action: &Action| match *action {
            Action::StopVm(id) => id == vm,
            Action::KillHost(id) | Action::HangHost(id) => id == vm.host,
            _ => false,
        };
        let after = self.timeline.partition_point(|event| event.at <= phase.from);
        let mut within = self.timeline[after..].iter().take_while(|event| event.at < phase.to);
        at_start.runs(vm)
            && !at_start.host(vm.host).hangs
            && !within.any(|event| breaks(&event.action))
            && self.vm(vm).load.bursts().is_none_or(|bursts| {
                // It runs, so that something has started it.
                let start = self.started(vm, after).unwrap_or_default();
                bursts.works_throughout(
                    phase.from.saturating_sub(start),
                    phase.to.saturating_sub(start),
                )
            })
    }

    /// When a VM's client was last started, by the first so many events.
    fn started(&self, vm: VmId, events: usize) -> Option<Duration> {
        let starts = |action: &Action| match *action {
            Action::StartVm(id) => id == vm,
            Action::StartHost(id) => id == vm.host,
            _ => false,
        };
        let mut back = self.timeline[..events].iter().rev();
        back.find(|event| starts(&event.action)).map(|event| event.at)
    }
}

/// How hosts and VMs stand at one moment of the timeline.
#[derive(Clone, Debug)]
pub struct State {
    hosts: Vec<HostState>,
}

/// How a host stands.
#[derive(Clone, Debug)]
pub struct HostState {
    /// Whether its agent lives.
    pub alive: bool,
    /// Whether its agent lives and does nothing.
    pub hangs: bool,
    /// Its settings.
    pub control: ControlSettings,
    /// How well it hears the others, as it was set.
    pub exchange: ExchangeSettings,
    /// What that comes to.
    pub hearing: Hearing,
    /// Its VMs.
    pub vms: Vec<VmState>,
}

/// How a VM stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmState {
    /// Whether its client was started, and not stopped since. It runs while its host lives.
    pub started: bool,
    /// Its shares.
    pub shares: Shares,
}

/// An event that makes no sense when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Senseless {
    #[error("this VM is running already")]
    RunningAlready,
    #[error("this VM is not running")]
    NotRunning,
    #[error("the host of this VM is dead")]
    HostDead,
    #[error("this host is alive already")]
    AliveAlready,
    #[error("this host is dead already")]
    DeadAlready,
    #[error("this host is dead")]
    Dead,
    #[error("this host hangs already")]
    HangsAlready,
    #[error("this host does not hang")]
    DoesNotHang,
    #[error("the host of this VM hangs")]
    HostHangs,
}

impl State {
    /// Before anything happened: hosts that are present live, no VM was started.
    #[must_use]
    pub fn new(hosts: &[Host]) -> State {
        let vm = |vm: &Vm| VmState { started: false, shares: vm.shares };
        let hosts = hosts.iter().map(|host| HostState {
            alive: host.present,
            hangs: false,
            control: host.control.clone(),
            hearing: host.exchange.hearing(),
            exchange: host.exchange.clone(),
            vms: host.vms.iter().map(vm).collect(),
        });
        State { hosts: hosts.collect() }
    }

    /// How a host stands.
    #[must_use]
    pub fn host(&self, id: HostId) -> &HostState {
        &self.hosts[id.0]
    }

    /// How a VM stands.
    #[must_use]
    pub fn vm(&self, id: VmId) -> VmState {
        self.hosts[id.host.0].vms[id.index]
    }

    /// Whether a VM's client runs.
    #[must_use]
    pub fn runs(&self, id: VmId) -> bool {
        self.host(id.host).alive && self.vm(id).started
    }

    /// Lets something happen.
    ///
    /// # Errors
    /// It makes no sense now; nothing happens then.
    pub fn apply(&mut self, action: &Action) -> Result<(), Senseless> {
        let sense = |ok: bool, otherwise| if ok { Ok(()) } else { Err(otherwise) };
        match action {
            Action::StartVm(id) => {
                sense(self.host(id.host).alive, Senseless::HostDead)?;
                sense(!self.host(id.host).hangs, Senseless::HostHangs)?;
                sense(!self.vm(*id).started, Senseless::RunningAlready)?;
                self.vm_mut(*id).started = true;
            }
            Action::StopVm(id) => {
                sense(self.vm(*id).started, Senseless::NotRunning)?;
                self.vm_mut(*id).started = false;
            }
            Action::SetShares(id, shares) => self.vm_mut(*id).shares = *shares,
            Action::KillHost(id) => {
                sense(self.host(*id).alive, Senseless::DeadAlready)?;
                (self.hosts[id.0].alive, self.hosts[id.0].hangs) = (false, false);
            }
            Action::StartHost(id) => {
                sense(!self.host(*id).alive, Senseless::AliveAlready)?;
                self.hosts[id.0].alive = true;
            }
            Action::HangHost(id) => {
                sense(self.host(*id).alive, Senseless::Dead)?;
                sense(!self.host(*id).hangs, Senseless::HangsAlready)?;
                self.hosts[id.0].hangs = true;
            }
            Action::ResumeHost(id) => {
                sense(self.host(*id).hangs, Senseless::DoesNotHang)?;
                self.hosts[id.0].hangs = false;
            }
            // What it makes sense of is for the array to say.
            Action::Array(_) => {}
            Action::SetControl(id, settings) => {
                self.hosts[id.0].control = ControlSettings::clone(settings);
            }
            Action::SetExchange(id, settings) => {
                let host = &mut self.hosts[id.0];
                host.hearing = settings.hearing();
                host.exchange = ExchangeSettings::clone(settings);
            }
        }
        Ok(())
    }

    fn vm_mut(&mut self, id: VmId) -> &mut VmState {
        &mut self.hosts[id.host.0].vms[id.index]
    }
}
