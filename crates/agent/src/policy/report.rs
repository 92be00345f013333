//! The report on the policies in force on this host, for etcd and for the status.

use std::collections::BTreeMap;

use parda_config::short;
use parda_exchange::HostName;
use parda_policy::{HostReport, ValueInForce, VolumeReport};

use crate::live::{Live, Origins, Policies, Target};

/// The report for etcd. `unknown`: keys that this version does not know, and `unreadable`: faults of reading, each by volume.
pub(super) fn of(
    host: &HostName,
    live: &Live,
    unknown: &BTreeMap<String, Vec<String>>,
    unreadable: &BTreeMap<String, String>,
) -> HostReport {
    let (wanted, in_force) = (live.layers().policy, live.in_force());
    let names = wanted.volumes.iter().map(|stored| &stored.volume.name);
    let names: std::collections::BTreeSet<_> = names.chain(unreadable.keys()).collect();
    let volumes = names.into_iter().map(|name| {
        let (control, vms) = values(name, &wanted, &in_force.origins);
        VolumeReport {
            name: name.clone(),
            in_force: in_force.layers.policy.of(name).map(|stored| stored.revision),
            fault: unreadable.get(name).or(in_force.refused.get(name)).cloned(),
            unknown: unknown.get(name).cloned().unwrap_or_default(),
            control,
            vms,
        }
    });
    HostReport {
        host: host.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: wanted.head.as_ref().map_or(0, |head| head.revision),
        volumes: volumes.collect(),
    }
}

type Values = BTreeMap<String, ValueInForce>;

/// Values in force of the settings that the policy of a volume names: of the law, and of the VMs.
fn values(
    volume: &str,
    wanted: &Policies,
    origins: &Origins,
) -> (Values, BTreeMap<String, Values>) {
    let Some(stored) = wanted.of(volume) else { return Default::default() };
    let of = |target: &Target, keys: Vec<String>| -> Values {
        let set = origins.of_target(target);
        let value = |key: String| {
            let found = set.get(&key);
            let value = found.and_then(|(value, _)| serde_json::to_value(value).ok());
            let from = found.map(|(_, from)| *from).unwrap_or_default().to_string();
            (key, ValueInForce { value: value.unwrap_or_default(), from })
        };
        keys.into_iter().map(value).collect()
    };
    let control = of(&Target::volume(volume), stored.volume.control.keys().cloned().collect());
    let vms = origins.vms(volume).filter_map(|target| {
        let name = target.disk_name()?;
        let keys: Vec<_> = stored.volume.settings_of(name).keys().cloned().collect();
        (!keys.is_empty()).then(|| (name.to_owned(), of(target, keys)))
    });
    (control, vms.collect())
}

/// The report as the status and the API show it.
pub(super) fn shown(
    report: &HostReport,
    wanted: &Policies,
    fault: Option<&String>,
) -> parda_api::Policy {
    let head = wanted.head.as_ref();
    let volumes = report.volumes.iter().map(|volume| parda_api::VolumePolicy {
        name: volume.name.clone(),
        in_force: volume.in_force,
        fault: volume.fault.clone(),
        unknown: volume.unknown.clone(),
    });
    parda_api::Policy {
        revision: report.revision,
        by: head.map(|head| short(&head.by).into_owned()),
        at_ms: head.map(|head| head.at_ms),
        fault: fault.cloned(),
        volumes: volumes.collect(),
    }
}
