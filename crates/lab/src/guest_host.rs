//! A host of a scenario that is a guest: its machine, its agent and its VMs' clients, controlled
//! over one port.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use parda_address::Address;
use parda_agent::latency::Latency;
use parda_agent::status::{Counter, DiskStatus, Status, VolumeStatus};
use parda_scenario::scenario::EXCHANGE;
use parda_scenario::{GuestDisk, GuestSettings, HostId, Scenario, Vm, VmId};

use rustix::process::Signal;

use crate::array_control::{self, Request};
use crate::guest::{
    Bus, ExportFile, Guest, GuestConfig, GuestError, IscsiTarget, Job, Server, Source,
};
use crate::meter::HostReading;
use crate::run_dir::RunDir;

/// Name of the LUN that the host's VMs open.
const LUN: &str = "lun";

/// Device of that LUN in the guest.
pub const DISK: &str = "/dev/lab/lun";

/// Device of the exchange's LUN in the guest.
pub const EXCHANGE_DISK: &str = "/dev/lab/exchange";

/// Status socket of the agent in the guest.
pub const STATUS: &str = "/run/parda.sock";

/// Parent of the VMs' cgroups, as libvirt names it.
const SLICE: &str = "machine.slice";

/// Path of a VM's cgroup, below the cgroup root.
#[must_use]
pub fn cgroup(vm: &str) -> String {
    format!("{SLICE}/{vm}.scope")
}

const CONFIGURATION: &str = "/run/parda.toml";

/// Time for what a guest does at once, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A host that is a guest.
#[derive(Debug)]
pub struct GuestHost {
    guest: Guest,
    _lun_path: LunPath,
    settings: GuestSettings,
    agent: Option<Job>,
    clients: BTreeMap<VmId, Job>,
    /// Counters of the array for the LUN when the agent started.
    before: Option<DiskStatus>,
}

impl GuestHost {
    /// Boots the guests among these hosts, all at the same time.
    ///
    /// # Errors
    /// A guest does not come up.
    pub fn boot(
        scenario: &Scenario,
        ids: &[HostId],
        program: &Path,
        run_dir: &RunDir,
    ) -> Result<BTreeMap<HostId, GuestHost>, GuestError> {
        let guests = ids.iter().filter_map(|&id| Some((id, *scenario.host(id).kind.guest()?)));
        let guests: Vec<(HostId, GuestSettings)> = guests.collect();
        if guests.is_empty() {
            return Ok(BTreeMap::new());
        }
        let lun_path = |&(id, ref settings): &(HostId, GuestSettings)| {
            LunPath::open(settings.disk, lun(scenario, id), run_dir)
        };
        let lun_paths: Vec<LunPath> = guests.iter().map(lun_path).collect::<Result<_, _>>()?;
        let machines = guests.iter().zip(&lun_paths);
        let machines =
            machines.map(|((id, _), lun_path)| machine(scenario, *id, program, run_dir, lun_path));
        let booted = Guest::boot_each(machines)?;
        let hosts = guests.into_iter().zip(booted).zip(lun_paths).map(
            |(((id, settings), guest), _lun_path)| {
                let (agent, clients) = (None, BTreeMap::new());
                let host = GuestHost { guest, _lun_path, settings, agent, clients, before: None };
                host.prepare(scenario, id).map(|()| (id, host))
            },
        );
        hosts.collect()
    }

    /// Time that the guest ran, and time that it waited for a processor.
    #[must_use]
    pub fn ran_and_waited(&self) -> (Duration, Duration) {
        self.guest.ran_and_waited()
    }

    /// Kills the guest as a power failure would.
    pub fn kill(&mut self) {
        self.guest.kill();
        self.agent = None;
        self.clients.clear();
    }

    /// Boots the guest again.
    ///
    /// # Errors
    /// The guest does not come up.
    pub fn restart(&mut self, scenario: &Scenario, id: HostId) -> Result<(), GuestError> {
        self.guest.restart()?;
        self.prepare(scenario, id)
    }

    /// Creates the cgroups and sets the queue depth.
    fn prepare(&self, scenario: &Scenario, id: HostId) -> Result<(), GuestError> {
        let mut script = format!(
            "set -e\ncd /sys/fs/cgroup\nmkdir {SLICE}\n\
             echo +io | tee cgroup.subtree_control >{SLICE}/cgroup.subtree_control\n"
        );
        for vm in &scenario.host(id).vms {
            script += &format!("mkdir {}\n", cgroup(&vm.name));
        }
        if let Some(depth) = self.settings.queue_depth {
            let (knob, of) = match self.settings.disk {
                GuestDisk::Scsi | GuestDisk::Iscsi => ("device/queue_depth", depth),
                GuestDisk::Nbd => ("queue/nr_requests", depth),
            };
            script += &format!(
                "knob=/sys/block/$(basename $(readlink -f {DISK}))/{knob}\n\
                 echo {of} >$knob\n[ $(cat $knob) = {of} ]\n"
            );
        }
        self.guest.ok(&script, SOON).map(drop)
    }

    /// Starts the agent. `counted` has the array's counters of the LUN.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn start_agent(&mut self, counted: Option<DiskStatus>) -> Result<(), GuestError> {
        self.agent = Some(self.guest.begin(&format!("exec parda serve -c {CONFIGURATION}"))?);
        self.before = counted;
        Ok(())
    }

    /// Writes the agent's configuration, without a signal to reload it.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn configure(&self, configuration: &str) -> Result<(), GuestError> {
        self.guest.put(CONFIGURATION, configuration.as_bytes())
    }

    /// Sends the agent a signal, by number.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn signal_agent(&self, signal: i32) -> Result<(), GuestError> {
        self.agent.as_ref().map_or(Ok(()), |agent| self.guest.signal(agent, signal))
    }

    /// Status of the agent. `None` if it does not answer.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let answer = self.guest.ok(&format!("nc.openbsd -N -U {STATUS} </dev/null"), SOON).ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// Reading of the host, from the agent's status and the array's counters of the LUN. With several
    /// VMs only the agent knows whose the IOs are; only the array knows their latency.
    #[must_use]
    pub fn standing(
        &self,
        scenario: &Scenario,
        id: HostId,
        volume: VolumeStatus,
        counted: DiskStatus,
    ) -> HostReading {
        let VolumeStatus { window, beta, steer, .. } = volume;
        let counted = self.since_start(counted);
        let disks = match scenario.host(id).vms.as_slice() {
            [only] => vec![DiskStatus { name: only.name.clone(), ..counted }],
            vms => {
                let told = steer.map_or(Vec::new(), |steer| steer.vms);
                let disk = |(i, vm): (usize, &Vm)| {
                    let told = told.iter().find(|told| told.name == vm.name);
                    let (ios, bytes) = told.map_or((0, 0), |told| (told.ios, told.bytes));
                    DiskStatus {
                        name: vm.name.clone(),
                        reads: Counter { ios, bytes },
                        writes: Counter::default(),
                        // The latency of all IOs of the host is given once.
                        device: if i == 0 { counted.device.clone() } else { Latency::default() },
                        ..counted.clone()
                    }
                };
                vms.iter().enumerate().map(disk).collect()
            }
        };
        HostReading { window, beta, disks }
    }

    /// The array's counters of the LUN since the agent started. The array does not know held times.
    fn since_start(&self, counted: DiskStatus) -> DiskStatus {
        let unheld = DiskStatus { held: Latency::default(), total: Latency::default(), ..counted };
        let (Some(before), counted) = (&self.before, unheld.clone()) else { return unheld };
        DiskStatus {
            reads: counted.reads.since(before.reads),
            writes: counted.writes.since(before.writes),
            device: counted.device.since(&before.device),
            ..counted
        }
    }

    /// Starts a VM's client, a fio with these arguments, in the VM's cgroup.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn start_client(
        &mut self,
        vm: &Vm,
        id: VmId,
        arguments: &[String],
    ) -> Result<(), GuestError> {
        let script = format!(
            "echo $$ >/sys/fs/cgroup/{}/cgroup.procs && cd /run && exec fio '{}'",
            cgroup(&vm.name),
            arguments.join("' '")
        );
        self.clients.insert(id, self.guest.begin(&script)?);
        Ok(())
    }

    /// Asks a VM's client to stop and waits for its outstanding IOs.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn stop_client(&mut self, id: VmId) -> Result<(), GuestError> {
        let Some(client) = self.clients.remove(&id) else { return Ok(()) };
        self.guest.signal(&client, Signal::INT.as_raw())?;
        self.guest.signal(&client, Signal::CONT.as_raw())
    }

    /// Sends a VM's client a signal, by number.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn signal_client(&self, id: VmId, signal: i32) -> Result<(), GuestError> {
        self.clients.get(&id).map_or(Ok(()), |client| self.guest.signal(client, signal))
    }

    /// Checks that the guest, its agent and its clients live.
    ///
    /// # Errors
    /// One of them has ended by itself.
    pub fn check(&mut self) -> Result<(), GuestError> {
        if !self.guest.runs() {
            return Err(self.guest.is_gone());
        }
        for job in self.agent.iter().chain(self.clients.values()) {
            if let Some(output) = self.guest.look(job, Duration::ZERO)? {
                return Err(self.guest.failed(job, output));
            }
        }
        Ok(())
    }
}

/// Connection between a guest and its LUN. It outlives the guest, so that a guest that is killed
/// finds it unchanged.
#[derive(Debug)]
enum LunPath {
    /// QEMU has the LUN as a file.
    File(ExportFile),
    /// An iSCSI target has the LUN as a file.
    Iscsi(IscsiTarget, #[expect(dead_code, reason = "the target's file, for as long")] ExportFile),
    /// The guest connects to the array's port itself.
    Nbd(Server),
}

impl LunPath {
    fn open(disk: GuestDisk, lun: &str, run_dir: &RunDir) -> Result<LunPath, GuestError> {
        let file = || ExportFile::mount(&run_dir.array(), lun);
        match disk {
            GuestDisk::Scsi => file().map(LunPath::File),
            GuestDisk::Iscsi => {
                let file = file()?;
                Ok(LunPath::Iscsi(IscsiTarget::serve(&file.path(), LUN)?, file))
            }
            GuestDisk::Nbd => {
                let port = array_port(run_dir)?;
                Ok(LunPath::Nbd(Server::Nbd { port, export: lun.to_owned() }))
            }
        }
    }

    /// Adds the LUN to a machine.
    fn add_to(&self, machine: GuestConfig) -> GuestConfig {
        match self {
            LunPath::File(file) => machine.disk(LUN, Bus::Scsi(0), Source::File(file.path())),
            LunPath::Iscsi(target, _) => machine.remote(LUN, Server::Iscsi { port: target.port() }),
            LunPath::Nbd(server) => machine.remote(LUN, server.clone()),
        }
    }
}

/// Port of the array on the loopback interface.
fn array_port(run_dir: &RunDir) -> Result<u16, GuestError> {
    let status = array_control::ask(&run_dir.array_control(), Request::Status);
    let addresses = status.map_err(|e| GuestError::NoPort(e.to_string()))?.addresses;
    let port = |address: &String| match address.parse() {
        Ok(Address::Tcp { port, .. }) => Some(port),
        _ => None,
    };
    let none = || GuestError::NoPort(format!("it listens at {}", addresses.join(", ")));
    addresses.iter().find_map(port).ok_or_else(none)
}

/// Name of the export of a guest's LUN.
fn lun(scenario: &Scenario, id: HostId) -> &str {
    let first = scenario.host(id).vms.first().and_then(|vm| scenario.disk_owner(vm.lun));
    first.map_or("", |vm| &vm.name)
}

/// Configuration of a host's machine.
fn machine(
    scenario: &Scenario,
    id: HostId,
    program: &Path,
    run_dir: &RunDir,
    lun_path: &LunPath,
) -> GuestConfig {
    let host = scenario.host(id);
    let mut config = GuestConfig::new(&host.name);
    config = lun_path.add_to(config);
    if host.outside {
        return config;
    }
    let (socket, export) = (run_dir.array(), EXCHANGE.to_owned());
    let exchange = Source::Nbd { socket, export, reconnect: 0 };
    config.program(program).disk("exchange", Bus::Virtio, exchange)
}
