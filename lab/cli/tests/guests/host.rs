//! A host of a scenario that is a guest: its machine, its agent and its VMs' clients, controlled
//! over one port.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use parda_agent::file::{DiskTable, File, SteerTable, SteeredVmTable};
use parda_agent::latency::Latency;
use parda_agent::status::{Counter, DiskStatus, Status, VolumeStatus};
use parda_lab::array_control::{ArrayRequest, ask};
use parda_lab::guest::{DISK, GuestError, GuestHost};
use parda_lab::meter::HostReading;
use parda_lab::relay::{AddressRelay, RelayEnd};
use parda_lab::{RunDir, limits};
use parda_scenario::exchange::MeetingTransport;
use parda_scenario::scenario::EXCHANGE;
use parda_scenario::{GuestDisk, GuestSettings, HostIndex, Scenario, VmIndex};
use rustix::process::Signal;

use crate::guest::{Bus, ExportFile, Guest, GuestConfig, IscsiTarget, Job, Server, Source};
use crate::{PARDA, SOON};

/// Name of the LUN that the host's VMs open: the last part of [`DISK`].
const LUN: &str = "lun";

/// Device of the exchange's LUN.
const EXCHANGE_DISK: &str = "/dev/lab/exchange";

/// Status socket of the agent.
const STATUS: &str = "/run/parda.sock";

/// Parent of the VMs' cgroups, as libvirt names it.
const SLICE: &str = "machine.slice";

const CONFIGURATION: &str = "/run/parda.toml";

/// Path of a VM's cgroup, below the cgroup root.
fn cgroup(vm: &str) -> String {
    format!("{SLICE}/{vm}.scope")
}

/// The disks of a configuration as VMs of the guest's device.
fn steered(disks: Vec<DiskTable>) -> SteerTable {
    let vms = disks.into_iter().map(|disk| SteeredVmTable {
        cgroup: cgroup(&disk.name),
        name: disk.name,
        shares: disk.shares,
        limit: disk.limit,
        tenant: disk.tenant,
    });
    let vms: Vec<SteeredVmTable> = vms.collect();
    let (shares, vm) = match vms.as_slice() {
        [only] if only.limit.is_none() && only.tenant.is_none() => (only.shares, Vec::new()),
        _ => (None, vms),
    };
    SteerTable { device: DISK.into(), method: None, measure: None, shares, sharing: None, vm }
}

/// A host that is a guest.
#[derive(Debug)]
struct Host {
    guest: Guest,
    /// Control socket of the array, and its name of the LUN.
    array: (PathBuf, String),
    _lun_path: LunPath,
    /// Script that creates the cgroups and sets the queue depth.
    prepare: String,
    /// Names of the VMs.
    vms: Vec<String>,
    agent: Option<Job>,
    clients: BTreeMap<VmIndex, Job>,
    /// Counters of the array for the LUN when the agent started.
    before: DiskStatus,
}

/// Boots the guests among these hosts, all at the same time.
pub(crate) fn boot(
    scenario: &Scenario,
    ids: &[HostIndex],
    run_dir: &RunDir,
) -> Result<BTreeMap<HostIndex, Box<dyn GuestHost>>, GuestError> {
    let guests = ids.iter().filter_map(|&id| Some((id, scenario.host(id).guest?)));
    let mut lun_paths = Vec::new();
    let mut machines = Vec::new();
    for (id, settings) in guests {
        check(scenario, id);
        let lun_path = LunPath::open(settings.disk, lun(scenario, id), run_dir)?;
        machines.push(machine(scenario, id, run_dir, &lun_path));
        lun_paths.push((id, settings, lun_path));
    }
    let booted = Guest::boot_each(machines)?.into_iter().zip(lun_paths);
    let hosts = booted.map(|(guest, (id, settings, _lun_path))| {
        let host = Host {
            guest,
            array: (run_dir.array_control(), lun(scenario, id).to_owned()),
            _lun_path,
            prepare: prepare(scenario, id, settings),
            vms: scenario.host(id).vms.iter().map(|vm| vm.name.clone()).collect(),
            agent: None,
            clients: BTreeMap::new(),
            before: DiskStatus::default(),
        };
        host.guest.ok(&host.prepare, SOON)?;
        Ok((id, Box::new(host) as Box<dyn GuestHost>))
    });
    hosts.collect()
}

/// A guest has a LUN of its own, and meets the others in slots of the array from which nothing cuts it off.
fn check(scenario: &Scenario, id: HostIndex) {
    let name = &scenario.host(id).name;
    assert_eq!(
        scenario.transport,
        MeetingTransport::File,
        "the hosts of {name}, a guest, meet elsewhere"
    );
    assert!(!limits::has_own_relay(scenario, id), "{name}, a guest, is cut off");
    let luns = |id: HostIndex| scenario.host(id).vms.iter().map(|vm| vm.lun);
    let mut others =
        scenario.present().filter(|(other, _)| *other != id).flat_map(|(o, _)| luns(o));
    assert!(
        !others.any(|lun| luns(id).any(|l| l == lun)),
        "the LUN of {name}, a guest, is another's"
    );
}

fn prepare(scenario: &Scenario, id: HostIndex, settings: GuestSettings) -> String {
    let mut script = format!(
        "set -e\ncd /sys/fs/cgroup\nmkdir {SLICE}\n\
         echo +io | tee cgroup.subtree_control >{SLICE}/cgroup.subtree_control\n"
    );
    for vm in &scenario.host(id).vms {
        script += &format!("mkdir {}\n", cgroup(&vm.name));
    }
    if let Some(depth) = settings.queue_depth {
        let knob = match settings.disk {
            GuestDisk::Scsi | GuestDisk::Iscsi => "device/queue_depth",
            GuestDisk::Nbd => "queue/nr_requests",
        };
        script += &format!(
            "knob=/sys/block/$(basename $(readlink -f {DISK}))/{knob}\n\
             echo {depth} >$knob\n[ $(cat $knob) = {depth} ]\n"
        );
    }
    script
}

impl Host {
    /// Counters of the array for the LUN. The array does not know held times.
    fn counted(&self) -> Result<DiskStatus, GuestError> {
        let (control, lun) = &self.array;
        let exports = ask(control, ArrayRequest::Status)?.exports;
        let counted = exports.into_iter().find(|export| export.name == *lun);
        let counted = counted.ok_or_else(|| format!("the array has no {lun}"))?;
        Ok(DiskStatus { held: Latency::default(), total: Latency::default(), ..counted })
    }
}

impl GuestHost for Host {
    fn configure(&self, mut file: File) -> Result<(), GuestError> {
        file.status = Some(format!("unix:{STATUS}"));
        for volume in &mut file.volume {
            volume.steer = Some(steered(std::mem::take(&mut volume.disk)));
            volume.exchange.iter_mut().for_each(|it| it.file = Some(EXCHANGE_DISK.to_owned()));
        }
        Ok(self.guest.put(CONFIGURATION, toml::to_string(&file)?.as_bytes())?)
    }

    fn start_agent(&mut self) -> Result<(), GuestError> {
        self.before = self.counted()?;
        self.agent = Some(self.guest.begin(&format!("exec parda serve -c {CONFIGURATION}"))?);
        Ok(())
    }

    fn signal_agent(&self, signal: Signal) -> Result<(), GuestError> {
        let agent = self.agent.as_ref();
        Ok(agent.map_or(Ok(()), |agent| self.guest.signal(agent, signal.as_raw()))?)
    }

    fn status(&self) -> Option<Status> {
        let answer = self.guest.ok(&format!("nc.openbsd -N -U {STATUS} </dev/null"), SOON).ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// With several VMs only the agent knows whose the IOs are; only the array knows their latency.
    fn reading(&self, volume: VolumeStatus) -> Result<HostReading, GuestError> {
        let VolumeStatus { window, beta, steer, .. } = volume;
        let counted = self.counted()?;
        let counted = DiskStatus {
            reads: counted.reads.since(self.before.reads),
            writes: counted.writes.since(self.before.writes),
            device: counted.device.since(&self.before.device),
            ..counted
        };
        let disks = match self.vms.as_slice() {
            [only] => vec![DiskStatus { name: only.clone(), ..counted }],
            vms => {
                let told = steer.map_or(Vec::new(), |steer| steer.vms);
                let disk = |(i, name): (usize, &String)| {
                    let told = told.iter().find(|told| told.name == *name);
                    let (ios, bytes) = told.map_or((0, 0), |told| (told.ios, told.bytes));
                    DiskStatus {
                        name: name.clone(),
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
        Ok(HostReading { window, beta, disks })
    }

    fn start_client(&mut self, id: VmIndex, arguments: &[String]) -> Result<(), GuestError> {
        let script = format!(
            "echo $$ >/sys/fs/cgroup/{}/cgroup.procs && cd /run && exec fio '{}'",
            cgroup(&self.vms[id.index]),
            arguments.join("' '")
        );
        self.clients.insert(id, self.guest.begin(&script)?);
        Ok(())
    }

    fn stop_client(&mut self, id: VmIndex) -> Result<(), GuestError> {
        let Some(client) = self.clients.remove(&id) else { return Ok(()) };
        self.guest.signal(&client, Signal::INT.as_raw())?;
        Ok(self.guest.signal(&client, Signal::CONT.as_raw())?)
    }

    fn signal_client(&self, id: VmIndex, signal: Signal) -> Result<(), GuestError> {
        let client = self.clients.get(&id);
        Ok(client.map_or(Ok(()), |client| self.guest.signal(client, signal.as_raw()))?)
    }

    fn check(&mut self) -> Result<(), GuestError> {
        if !self.guest.runs() {
            return Err(self.guest.is_gone().into());
        }
        for job in self.agent.iter().chain(self.clients.values()) {
            if let Some(output) = self.guest.look(job, Duration::ZERO)? {
                return Err(self.guest.failed(job, output).into());
            }
        }
        Ok(())
    }

    fn kill(&mut self) {
        self.guest.kill();
        self.agent = None;
        self.clients.clear();
    }

    fn restart(&mut self) -> Result<(), GuestError> {
        self.guest.restart()?;
        self.guest.ok(&self.prepare, SOON)?;
        Ok(())
    }

    fn ran_and_waited(&self) -> (Duration, Duration) {
        self.guest.ran_and_waited()
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
    /// The guest connects to the array itself.
    Nbd(
        Server,
        #[expect(dead_code, reason = "the way from its network to the array's socket")]
        AddressRelay,
    ),
}

impl LunPath {
    fn open(disk: GuestDisk, lun: &str, run_dir: &RunDir) -> Result<LunPath, GuestError> {
        let file = || Ok(ExportFile::mount(&run_dir.array(), lun)?);
        match disk {
            GuestDisk::Scsi => file().map(LunPath::File),
            GuestDisk::Iscsi => {
                let file = file()?;
                Ok(LunPath::Iscsi(IscsiTarget::serve(&file.path(), LUN)?, file))
            }
            GuestDisk::Nbd => {
                let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
                let relay =
                    AddressRelay::start(RelayEnd::Tcp(free), RelayEnd::Unix(run_dir.array()))?;
                Ok(LunPath::Nbd(Server::Nbd { port: free.port(), export: lun.to_owned() }, relay))
            }
        }
    }

    /// Adds the LUN to a machine.
    fn add_to(&self, machine: GuestConfig) -> GuestConfig {
        match self {
            LunPath::File(file) => machine.disk(LUN, Bus::Scsi(0), Source::File(file.path())),
            LunPath::Iscsi(target, _) => machine.remote(LUN, Server::Iscsi { port: target.port() }),
            LunPath::Nbd(server, _) => machine.remote(LUN, server.clone()),
        }
    }
}

/// Name of the export of a guest's LUN.
fn lun(scenario: &Scenario, id: HostIndex) -> &str {
    let first = scenario.host(id).vms.first().and_then(|vm| scenario.disk_owner(vm.lun));
    first.map_or("", |vm| &vm.name)
}

/// Configuration of a host's machine.
fn machine(
    scenario: &Scenario,
    id: HostIndex,
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
    config.program(&PARDA).disk("exchange", Bus::Virtio, exchange)
}
