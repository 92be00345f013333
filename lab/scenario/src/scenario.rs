//! A checked scenario, and the state of its cluster over time.

mod phase;

use std::collections::BTreeMap;
use std::time::Duration;

use parda_array::ArrayParams;
use parda_config::{ControlSettings, TenantSettings, VmSettings};
use parda_control::Bytes;
use parda_workload::ClientLoad;

pub use self::phase::Phase;
use crate::array::{ArrayEvent, ArrayFault, ArraySettings};
use crate::exchange::{EtcdEvent, EtcdState, ExchangeSettings, Hearing, MeetingTransport};
use crate::expectation::Expectation;
use crate::guest::GuestSettings;

/// A scenario: a cluster, its events, the measured phases and the expectations.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Title, one line; the name if the file gives none.
    pub title: String,
    /// Description: what the scenario shows and why. May be empty.
    pub description: String,
    /// Seed of all randomness of a run.
    pub seed: u64,
    /// Duration of a run.
    pub duration: Duration,
    /// The array that all hosts share.
    pub array: ArraySettings,
    /// Number of slots of the exchange: at least one for each host.
    pub exchange_slots: u32,
    /// Medium in which the hosts exchange reports.
    pub transport: MeetingTransport,
    /// Number of members of the etcd, where hosts meet in one.
    pub etcd_members: u8,
    /// Tenants, whose settings all hosts have.
    pub tenants: Vec<TenantSettings>,
    /// Hosts, in the order of the file.
    pub hosts: Vec<Host>,
    /// Events in time order. Events of one time keep the order of the file, after the `start` and
    /// `stop` of VMs. VMs that run from the beginning have a start event at zero.
    pub timeline: Vec<TimelineEvent>,
    /// Phases, in which values are measured.
    pub phases: Vec<Phase>,
    /// Expectations of the measured values.
    pub expectations: Vec<Expectation>,
}

/// A host, with an agent unless it is outside control.
#[derive(Clone, Debug)]
pub struct Host {
    /// Name, unique among hosts.
    pub name: String,
    /// Path of the host's entry in the document, such as `host.2`, for errors.
    pub path: String,
    /// Whether the host is present. A host that a variant leaves out keeps its disks on the array and
    /// does nothing.
    pub present: bool,
    /// Settings of a guest. `None` for an agent that serves disks.
    pub guest: Option<GuestSettings>,
    /// Whether the host is outside control: without an agent and without a slot in the exchange. Its
    /// VMs have no shares and use the array directly.
    pub outside: bool,
    /// Settings at the beginning: the scenario's, with the host's own on top. `mode = "off"` for a host
    /// outside control.
    pub control: ControlSettings,
    /// State of the host's access to the exchange at the beginning.
    pub hearing: Hearing,
    /// VMs of the host, in the order of the file.
    pub vms: Vec<Vm>,
}

/// A VM: one disk, and one client that uses all of it.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Name, unique among the VMs of all hosts.
    pub name: String,
    /// Settings at the beginning, with defaults in place of those that the file leaves out.
    pub settings: VmSettings,
    /// Size of the disk.
    pub disk: Bytes,
    /// LUN of the disk on the array, counted from 0. Several VMs may share one.
    pub lun: u32,
    /// Load of the VM's client.
    pub load: ClientLoad,
}

/// Index of a host in [`Scenario::hosts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostIndex(pub usize);

/// Index of a VM, together with that of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmIndex {
    /// Index of the host.
    pub host: HostIndex,
    /// Index of the VM in [`Host::vms`].
    pub index: usize,
}

/// An action at a moment of the run.
#[derive(Clone, Debug)]
pub struct TimelineEvent {
    /// Time from the beginning of the run.
    pub at: Duration,
    /// The action to apply.
    pub action: Action,
    /// Path of the entry in the document that asks for it, such as `event.2`, for errors.
    pub path: String,
}

/// A change to a VM, a host, the exchange or the array.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A VM's client starts.
    StartVm(VmIndex),
    /// A VM's client stops.
    StopVm(VmIndex),
    /// A VM's settings change to these, in full.
    SetVm(VmIndex, Box<VmSettings>),
    /// A host dies without notice, together with its VMs' clients.
    KillHost(HostIndex),
    /// A dead host starts again, together with its VMs.
    StartHost(HostIndex),
    /// A host's agent stops (SIGSTOP). Its VMs go on and wait for their IOs.
    HangHost(HostIndex),
    /// A stopped agent continues.
    ResumeHost(HostIndex),
    /// A host's settings change to these, in full.
    SetControl(HostIndex, Box<ControlSettings>),
    /// Some of a host's settings of the exchange change.
    SetExchange(HostIndex, Box<ExchangeSettings>),
    /// All members of the etcd in which hosts meet change.
    Etcd(EtcdEvent),
    /// The array fails or changes.
    Array(ArrayEvent),
}

impl Action {
    /// The host that an action concerns; `None` for one on the array or the etcd.
    #[must_use]
    pub fn host(&self) -> Option<HostIndex> {
        match *self {
            Action::StartVm(vm) | Action::StopVm(vm) | Action::SetVm(vm, _) => Some(vm.host),
            Action::KillHost(host)
            | Action::StartHost(host)
            | Action::HangHost(host)
            | Action::ResumeHost(host)
            | Action::SetControl(host, _)
            | Action::SetExchange(host, _) => Some(host),
            Action::Array(_) | Action::Etcd(_) => None,
        }
    }
}

/// Name of the exchange's LUN, which no VM may have.
pub const EXCHANGE: &str = "exchange";

/// Largest number of hosts that meet over a network.
pub const MAX_HOSTS: usize = 16_384;

/// Largest number of slots of an exchange, and so of hosts that meet in a file.
pub const MAX_SLOTS: usize = 1024;

/// Default number of slots of the exchange, if there are no more hosts.
pub(crate) const USUAL_SLOTS: usize = 64;

/// Size of a slot of the exchange.
pub const SLOT: Bytes = Bytes::kib(4);

/// Size of all slots of an exchange with the default number of slots.
pub const EXCHANGE_SIZE: Bytes = Bytes(SLOT.0 * USUAL_SLOTS as u64);

/// Size of the header before the slots of an exchange.
pub const EXCHANGE_HEADER: Bytes = SLOT;

/// Sizes of the array's LUNs: each disk once, then the exchange.
pub(crate) fn array_luns(hosts: &[Host], exchange_slots: u32) -> Vec<parda_array::Bytes> {
    let disks: BTreeMap<u32, Bytes> =
        hosts.iter().flat_map(|host| &host.vms).map(|vm| (vm.lun, vm.disk)).collect();
    let exchange = Bytes(EXCHANGE_HEADER.0 + SLOT.0 * u64::from(exchange_slots));
    disks.into_values().chain([exchange]).map(|size| parda_array::Bytes(size.0)).collect()
}

impl Scenario {
    /// Parameters of the array. Its LUNs are the VMs' disks in the order of the file (see [`Vm::lun`]),
    /// then the exchange: [`Scenario::exchange_slots`] slots of [`SLOT`] each.
    ///
    /// # Errors
    /// None for a parsed scenario, whose array was checked.
    pub fn array_params(&self) -> Result<ArrayParams, ArrayFault> {
        self.array.params(array_luns(&self.hosts, self.exchange_slots))
    }

    /// LUN of the exchange: the one after all disks.
    #[must_use]
    pub fn exchange_lun(&self) -> u32 {
        self.vm_ids().map(|(_, vm)| vm.lun + 1).max().unwrap_or(0)
    }

    /// The VM that gives a disk its name: the first that uses the disk.
    #[must_use]
    pub fn disk_owner(&self, lun: u32) -> Option<&Vm> {
        self.vm_ids().map(|(_, vm)| vm).find(|vm| vm.lun == lun)
    }

    /// All hosts, with their ids.
    pub fn host_ids(&self) -> impl Iterator<Item = (HostIndex, &Host)> {
        self.hosts.iter().enumerate().map(|(i, host)| (HostIndex(i), host))
    }

    /// All VMs with their ids, host by host.
    pub fn vm_ids(&self) -> impl Iterator<Item = (VmIndex, &Vm)> {
        self.host_ids().flat_map(|(id, host)| {
            host.vms.iter().enumerate().map(move |(index, vm)| (VmIndex { host: id, index }, vm))
        })
    }

    /// The host with an id of this scenario.
    #[must_use]
    pub fn host(&self, id: HostIndex) -> &Host {
        &self.hosts[id.0]
    }

    /// All hosts that are present, with their ids.
    pub fn present(&self) -> impl Iterator<Item = (HostIndex, &Host)> {
        self.host_ids().filter(|(_, host)| host.present)
    }

    /// The VM with an id of this scenario.
    #[must_use]
    pub fn vm(&self, id: VmIndex) -> &Vm {
        &self.hosts[id.host.0].vms[id.index]
    }

    /// State of the cluster after every event up to and including `at`.
    #[must_use]
    pub fn state_at(&self, at: Duration) -> ClusterState {
        let mut state = ClusterState::new(&self.hosts);
        for event in self.timeline.iter().take_while(|event| event.at <= at) {
            // Errors are impossible: the timeline was checked by applying it.
            let _ = state.apply(&event.action);
        }
        state
    }

    /// Largest delay of the exchange over all hosts and settings.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        let changes = self.timeline.iter().filter_map(|event| match &event.action {
            Action::SetExchange(_, settings) => settings.delay,
            _ => None,
        });
        let first = self.hosts.iter().map(|host| host.hearing.delay);
        first.chain(changes).max().unwrap_or_default()
    }

    /// Whether a VM's client runs throughout a phase: its host is alive and does not hang. If the
    /// client works in bursts, the phase must lie within one burst. `at_start` is the state at the
    /// beginning of the phase, which callers compute once for all VMs.
    #[must_use]
    pub fn runs_throughout(&self, vm: VmIndex, phase: &Phase, at_start: &ClusterState) -> bool {
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
                // The client runs, so an event has started it.
                let start = self.started(vm, after).unwrap_or_default();
                bursts.works_throughout(
                    phase.from.saturating_sub(start),
                    phase.to.saturating_sub(start),
                )
            })
    }

    /// Time at which a VM's client was last started, by the first `events` events.
    fn started(&self, vm: VmIndex, events: usize) -> Option<Duration> {
        let starts = |action: &Action| match *action {
            Action::StartVm(id) => id == vm,
            Action::StartHost(id) => id == vm.host,
            _ => false,
        };
        let mut back = self.timeline[..events].iter().rev();
        back.find(|event| starts(&event.action)).map(|event| event.at)
    }
}

/// State of all hosts and VMs at a moment of the timeline.
#[derive(Clone, Debug)]
pub struct ClusterState {
    hosts: Vec<HostCondition>,
    etcd: EtcdState,
}

/// State of a host.
#[derive(Clone, Debug)]
pub struct HostCondition {
    /// Whether the host is alive.
    pub alive: bool,
    /// Whether the agent is alive and stopped.
    pub hangs: bool,
    /// Control settings in force, in full.
    pub control: ControlSettings,
    /// State of the host's access to the exchange.
    pub hearing: Hearing,
    /// States of the VMs, in the order of [`Host::vms`].
    pub vms: Vec<VmState>,
}

/// State of a VM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmState {
    /// Whether the client was started and not stopped since. The client runs while its host is alive.
    pub started: bool,
    /// Settings in force, which events may change.
    pub settings: VmSettings,
}

impl ClusterState {
    /// State before the first event: hosts that are present are alive, and no VM is started.
    #[must_use]
    pub fn new(hosts: &[Host]) -> ClusterState {
        let vm = |vm: &Vm| VmState { started: false, settings: vm.settings };
        let hosts = hosts.iter().map(|host| HostCondition {
            alive: host.present,
            hangs: false,
            control: host.control.clone(),
            hearing: host.hearing.clone(),
            vms: host.vms.iter().map(vm).collect(),
        });
        ClusterState { hosts: hosts.collect(), etcd: EtcdState::default() }
    }

    /// State of the etcd in which hosts meet.
    #[must_use]
    pub fn etcd(&self) -> EtcdState {
        self.etcd
    }

    /// State of a host.
    #[must_use]
    pub fn host(&self, id: HostIndex) -> &HostCondition {
        &self.hosts[id.0]
    }

    /// State of a VM.
    #[must_use]
    pub fn vm(&self, id: VmIndex) -> VmState {
        self.hosts[id.host.0].vms[id.index]
    }

    /// Whether a host reaches the exchange.
    #[must_use]
    pub fn reaches_exchange(&self, id: HostIndex) -> bool {
        self.host(id).hearing.reachable && self.etcd == EtcdState::Serves
    }

    /// Whether a VM's client runs.
    #[must_use]
    pub fn runs(&self, id: VmIndex) -> bool {
        self.host(id.host).alive && self.vm(id).started
    }

    /// Applies an action.
    ///
    /// # Errors
    /// Reason why the action is invalid in this state, for people; the state is unchanged.
    pub fn apply(&mut self, action: &Action) -> Result<(), &'static str> {
        let require = |ok: bool, otherwise| if ok { Ok(()) } else { Err(otherwise) };
        match action {
            Action::StartVm(id) => {
                require(self.host(id.host).alive, "the host of this VM is dead")?;
                require(!self.host(id.host).hangs, "the host of this VM hangs")?;
                require(!self.vm(*id).started, "this VM is running already")?;
                self.vm_mut(*id).started = true;
            }
            Action::StopVm(id) => {
                require(self.vm(*id).started, "this VM is not running")?;
                self.vm_mut(*id).started = false;
            }
            Action::SetVm(id, settings) => self.vm_mut(*id).settings = **settings,
            Action::KillHost(id) => {
                require(self.host(*id).alive, "this host is dead already")?;
                (self.hosts[id.0].alive, self.hosts[id.0].hangs) = (false, false);
            }
            Action::StartHost(id) => {
                require(!self.host(*id).alive, "this host is alive already")?;
                self.hosts[id.0].alive = true;
            }
            Action::HangHost(id) => {
                require(self.host(*id).alive, "this host is dead")?;
                require(!self.host(*id).hangs, "this host hangs already")?;
                self.hosts[id.0].hangs = true;
            }
            Action::ResumeHost(id) => {
                require(self.host(*id).hangs, "this host does not hang")?;
                self.hosts[id.0].hangs = false;
            }
            // The array checks its own events.
            Action::Array(_) => {}
            Action::Etcd(event) => {
                let otherwise = "etcd is not in a state for it: it hangs while it serves, resumes while it hangs, starts while it is dead";
                self.etcd = self.etcd.after(*event).ok_or(otherwise)?;
            }
            Action::SetControl(id, settings) => {
                self.hosts[id.0].control = ControlSettings::clone(settings);
            }
            Action::SetExchange(id, settings) => {
                let host = &mut self.hosts[id.0];
                host.hearing = host.hearing.changed(settings);
            }
        }
        Ok(())
    }

    fn vm_mut(&mut self, id: VmIndex) -> &mut VmState {
        &mut self.hosts[id.host.0].vms[id.index]
    }
}
