//! A host's agent: its configuration and its status.

use std::time::Duration;

use parda_address::{Address, ExportName, Uri};
use parda_agent::file::{AgentLimits, DiskTable, ExchangeTable, File, VolumeTable};
use parda_agent::status::{Status, VolumeStatus};
use parda_config::{ControlSettings, ThresholdSetting};
use parda_exchange::{Header, Location, Site, SlotCount, VolumeName, init_as};
use parda_scenario::scenario::{EXCHANGE, HostCondition};
use parda_scenario::{HostIndex, Scenario};

use crate::error::LabError;
use crate::export_uri::export_uri;
use crate::limits;
use crate::run_dir::RunDir;

/// Name of the volume that all hosts of a scenario share.
pub const VOLUME: &str = "array";

/// Time for an IO of the array before there is any load.
const PATIENCE: Duration = Duration::from_secs(30);

/// Creates a scenario's exchange on the array that serves it, and a copy for each side of a
/// partition.
///
/// # Errors
/// An array does not answer, or its exchange is not empty.
pub fn make_exchange(scenario: &Scenario, run_dir: &RunDir) -> Result<(), LabError> {
    let wrong = |why: String| LabError::failed(format!("{EXCHANGE}: {why}"));
    let slots = SlotCount::new(scenario.exchange_slots);
    let slots = slots.ok_or_else(|| wrong(format!("{} slots", scenario.exchange_slots)))?;
    let volume = VolumeName::new(VOLUME).map_err(|e| wrong(e.to_string()))?;
    let header = Header::new(slots, Some(volume));
    let sides = (0..limits::sides(scenario).len()).map(|side| run_dir.side(side));
    [run_dir.array()].into_iter().chain(sides).try_for_each(|socket| {
        let export = ExportName::new(EXCHANGE).map_err(|e| wrong(e.to_string()))?;
        let uri = Uri { address: Address::Unix(socket), export, tls: None };
        let site = Site::new(Location::Nbd(uri), None).map_err(|e| wrong(e.to_string()))?;
        init_as(&site, header.clone(), PATIENCE).map(drop).map_err(LabError::failed)
    })
}

/// The configuration of a host in its current state. Disks are served at a socket; a guest steers its only disk instead, and says how.
#[must_use]
pub fn configuration(
    scenario: &Scenario,
    id: HostIndex,
    state: &HostCondition,
    run_dir: &RunDir,
) -> File {
    let host = scenario.host(id);
    let exchange = match limits::has_own_relay(scenario, id) {
        true => run_dir.exchange(id),
        false => run_dir.array(),
    };
    let exchange = ExchangeTable {
        file: Some(export_uri(&exchange, EXCHANGE)),
        slots: Some(scenario.exchange_slots),
        ..ExchangeTable::default()
    };
    let volume = VolumeTable {
        tenant: scenario.tenants.clone(),
        limits: None,
        name: VOLUME.to_owned(),
        pool: None,
        control: state.control.clone(),
        exchange: Some(exchange),
        disk: disks(scenario, id, state, run_dir),
        steer: None,
        qemu: None,
    };
    File {
        limits: AgentLimits::default(),
        host: host.name.clone(),
        status: Some(format!("unix:{}", run_dir.status(id).display())),
        state: None,
        http: None,
        policy: None,
        listener: Vec::new(),
        volume: vec![volume],
    }
}

fn disks(
    scenario: &Scenario,
    id: HostIndex,
    state: &HostCondition,
    run_dir: &RunDir,
) -> Vec<DiskTable> {
    let disks = scenario.host(id).vms.iter().zip(&state.vms).map(|(vm, state)| {
        // The array names an export after the first VM that has the disk.
        let export = scenario.disk_owner(vm.lun).map_or(&vm.name, |owner| &owner.name);
        DiskTable {
            name: vm.name.clone(),
            path: export_uri(&run_dir.array(), export),
            listen: format!("unix:{}", run_dir.disks(id).display()),
            ..DiskTable::default().with(state.settings)
        }
    });
    disks.collect()
}

/// Whether an agent's status matches a configuration, so that a change is in force. Settings that
/// the configuration leaves out are not compared.
#[must_use]
pub fn follows(status: &Status, file: &File) -> bool {
    file.volume.iter().all(|volume| {
        status.volumes.iter().any(|s| s.name == volume.name && volume_follows(s, volume))
    })
}

fn volume_follows(status: &VolumeStatus, volume: &VolumeTable) -> bool {
    let ControlSettings { mode, latency_threshold, .. } = &volume.control;
    let in_mode = |mode| mode == status.mode;
    let at_threshold = |setting: &ThresholdSetting| match setting {
        ThresholdSetting::Fixed(t) => {
            (t.as_secs_f64() * 1e3 - status.latency_threshold_ms).abs() < 1e-6
        }
        ThresholdSetting::Auto(auto) => status.threshold.is_some() == auto.learn.unwrap_or(true),
    };
    // A guest's disks are VMs of its steered device, or that as a whole.
    let vms = status.steer.as_ref().map_or([].as_slice(), |steer| &steer.vms);
    let disks = status.disks.iter().map(|disk| (&disk.name, Some(disk.shares)));
    let mut told: Vec<_> = disks.chain(vms.iter().map(|vm| (&vm.name, Some(vm.shares)))).collect();
    if let (true, [only]) = (told.is_empty(), volume.disk.as_slice()) {
        told.push((&only.name, Some(status.shares)));
    }
    mode.is_none_or(in_mode)
        && latency_threshold.as_ref().is_none_or(at_threshold)
        && volume.disk.iter().all(|disk| told.contains(&(&disk.name, disk.shares)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_agent::config::Config;
    use parda_config::Document;
    use parda_scenario::ClusterState;

    fn scenario() -> Scenario {
        let text = "name = \"t\"\nduration = \"9s\"\n[array]\npreset = \"cx3-40-raid0\"\n\
            [control]\nmode = \"off\"\nlatency_threshold = \"20ms\"\n[[host]]\nname = \"a\"\n\
            control = { window_max = 6.5 }\n[[host.vm]]\nname = \"db\"\nshares = 700\nburst = 2\n\
            disk = \"1GiB\"\n\
            workload = { size = \"4KiB\", read = 100, random = 100, outstanding = 8 }\n\
            [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n";
        Scenario::parse(&Document::new("t.toml", text)).unwrap()
    }

    fn file(scenario: &Scenario) -> File {
        let (id, state) = (HostIndex(0), ClusterState::new(&scenario.hosts));
        configuration(scenario, id, state.host(id), &RunDir::new("/run/lab"))
    }

    #[test]
    fn an_agent_understands_its_configuration() {
        let text = toml::to_string(&file(&scenario())).unwrap();
        let config = Config::check(&Document::new("a.toml", text)).unwrap();
        let [volume] = config.volumes.as_slice() else { panic!("one volume") };
        assert_eq!((config.host.to_string().as_str(), volume.disks().len()), ("a", 1));
        assert_eq!(volume.law.law.window_max.0, 6.5);
        assert_eq!(volume.disks()[0].settings.shares().0, 700);
        assert_eq!(volume.disks()[0].listen.to_string(), "unix:/run/lab/h0.sock");
        assert!(volume.exchange.is_some());
    }

    #[test]
    fn a_change_is_taken_up_when_the_agent_says_so() {
        let file = file(&scenario());
        let status = |mode: &str, threshold: f64, shares: u32| -> Status {
            let disk = serde_json::json!({
                "name": "db", "shares": shares, "others": 0, "errors": 0,
                "reads": { "ios": 0, "bytes": 0 }, "writes": { "ios": 0, "bytes": 0 },
                "held": { "buckets": [] }, "device": { "buckets": [] }, "total": { "buckets": [] },
            });
            let volume = serde_json::json!({
                "name": VOLUME, "mode": mode, "latency_threshold_ms": threshold,
                "source": "cluster", "window": null, "beta": 0.0, "shares": shares,
                "active_shares": 0.0, "outstanding": 0.0, "held": 0, "connections": 0,
                "ticks": 0, "disks": [disk],
            });
            let status = serde_json::json!({
                "host": "a", "version": "", "pid": 1, "uptime_s": 0.0, "volumes": [volume],
            });
            serde_json::from_value(status).unwrap()
        };
        assert!(follows(&status("off", 20.0, 700), &file));
        assert!(!follows(&status("parda", 20.0, 700), &file));
        assert!(!follows(&status("off", 30.0, 700), &file));
        assert!(!follows(&status("off", 20.0, 701), &file));
    }
}
