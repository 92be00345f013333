//! Lines on where settings come from.

use parda_agent::status::{SettingsFrom, Status, VolumeStatus};
use parda_api::ValueFrom;
use parda_config::short;

/// Settings with their origins, in a list.
fn list(settings: &SettingsFrom) -> String {
    let each = settings.iter().map(|(key, from)| format!("{key} ({})", from.words()));
    each.collect::<Vec<_>>().join(", ")
}

/// Line on the policy that was read last.
pub(super) fn policy(status: &Status) -> String {
    let Some(policy) = &status.policy else { return String::new() };
    let mut text = match (&policy.by, policy.revision) {
        (Some(by), revision) => format!("policy revision {revision} by {by}\n"),
        (None, _) => "policy: none has been read\n".to_owned(),
    };
    if let Some(fault) = &policy.fault {
        text += &format!("  FAULT of the policy: {fault}; what was read last stays in force\n");
    }
    text
}

/// Lines on the policy of a volume, and on the settings that do not have their defaults.
pub(super) fn lines(status: &Status, volume: &VolumeStatus) -> String {
    let mut text = String::new();
    let policies = status.policy.iter().flat_map(|policy| &policy.volumes);
    for policy in policies.filter(|policy| policy.name == volume.name) {
        if let Some(fault) = &policy.fault {
            let instead = match policy.in_force {
                Some(revision) => format!("revision {revision} is in force"),
                None => "none is in force".to_owned(),
            };
            text += &format!("  POLICY REFUSED: {fault}; {instead}\n");
        }
        if !policy.unknown.is_empty() {
            let unknown = policy.unknown.join(", ");
            let unknown = short(&unknown);
            text += &format!("  policy: {unknown} UNKNOWN to this version, without effect\n");
        }
    }
    if !volume.settings_from.is_empty() {
        text += &format!("settings: {}; all others are defaults\n", list(&volume.settings_from));
    }
    let disks = volume.disks.iter().map(|disk| (&disk.name, &disk.settings_from));
    let steered = volume.steer.iter().flat_map(|steer| &steer.vms);
    let vms = disks.chain(steered.map(|vm| (&vm.name, &vm.settings_from)));
    let vms = vms.map(|(vm, settings)| (vm.clone(), settings));
    let tenants = volume.tenants.iter();
    let tenants = tenants.map(|it| (format!("tenant {}", it.name), &it.settings_from));
    for (name, settings) in vms.chain(tenants) {
        let mut settings = settings.clone();
        // What stands in the file is where everybody looks first.
        settings.retain(|_, from| *from != ValueFrom::Configuration);
        if !settings.is_empty() {
            text += &format!("  {name}: {}\n", list(&settings));
        }
    }
    text
}
