//! Lines on where settings come from.

use parda_agent::status::{SettingsFrom, Status, VolumeStatus};
use parda_api::ValueFrom;
use parda_config::short;
use serde_json::Value;

/// Settings with their origins, in a list. One that is set and has no value was set to `none`.
fn list(settings: &SettingsFrom, has: impl Fn(&str) -> bool) -> String {
    let each = settings.iter().map(|(key, from)| {
        let none = if has(key) { "" } else { " = none" };
        format!("{key}{none} ({})", from.words())
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Line on the settings of a VM or a tenant that do not come from the configuration's file.
fn line(name: &str, settings: &SettingsFrom, has: impl Fn(&str) -> bool) -> String {
    let mut settings = settings.clone();
    // Values from the configuration file are left out: readers look there first.
    settings.retain(|_, from| *from != ValueFrom::Configuration);
    if settings.is_empty() {
        return String::new();
    }
    format!("  {name}: {}\n", list(&settings, has))
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
        let list = list(&volume.settings_from, |_| true);
        text += &format!("settings: {list}; all others are defaults\n");
    }
    let disks = volume.disks.iter().map(|disk| (&disk.name, &disk.settings_from, &disk.settings));
    let steered = volume.steer.iter().flat_map(|steer| &steer.vms);
    for (name, from, settings) in
        disks.chain(steered.map(|vm| (&vm.name, &vm.settings_from, &vm.settings)))
    {
        let values = serde_json::to_value(settings).unwrap_or_default();
        text += &line(name, from, |key| !values.get(key).is_some_and(Value::is_null));
    }
    for tenant in &volume.tenants {
        let name = format!("tenant {}", tenant.name);
        text += &line(&name, &tenant.settings_from, |key| tenant.settings.contains_key(key));
    }
    text
}
