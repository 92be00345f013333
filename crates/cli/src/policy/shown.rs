//! The policy and what hosts have in force, as text and JSON.

use std::time::Duration;

use parda_config::short;
use parda_policy::{
    HistoryEntry, HostRecord, HostReport, Policy, PolicyChange, PolicyHead, PolicySnapshot,
    PolicyVolume, Presence, ValueInForce, VolumeReport,
};
use parda_terminal::output::{date, line};
use serde::Serialize;
use toml::Table;

/// The policy and its hosts as JSON.
#[derive(Serialize)]
pub(super) struct Whole {
    #[serde(flatten)]
    head: Option<PolicyHead>,
    policy: Policy,
    /// Volumes whose policy this version cannot read, with the reason.
    unreadable: Vec<(String, String)>,
    hosts: Vec<HostRecord>,
}

impl Whole {
    pub(super) fn new(read: &PolicySnapshot, hosts: Vec<HostRecord>) -> Whole {
        let (volume, unreadable) = parts(read);
        let unreadable = unreadable.into_iter().map(|(name, fault)| (name.to_owned(), fault));
        let policy =
            Policy { volume: volume.into_iter().map(|(_, volume)| volume.clone()).collect() };
        Whole { head: read.head.clone(), policy, unreadable: unreadable.collect(), hosts }
    }
}

type Readable<'a> = Vec<(u64, &'a PolicyVolume)>;

/// Volumes with the revisions of their policies, and those that cannot be read.
fn parts(read: &PolicySnapshot) -> (Readable<'_>, Vec<(&str, String)>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (name, stored) in &read.volumes {
        match stored {
            Ok(stored) => good.push((stored.revision, &stored.volume)),
            Err(fault) => bad.push((name.as_str(), fault.to_string())),
        }
    }
    (good, bad)
}

/// A revision in a line.
pub(super) fn headline(head: &PolicyHead) -> String {
    let comment =
        head.comment.as_ref().map(|comment| format!(": {}", short(comment))).unwrap_or_default();
    let told = format!(
        "revision {} by {} at {}{comment}",
        head.revision,
        short(&head.by),
        date(head.at_ms)
    );
    line(&told)
}

/// Changes, one a line.
pub(super) fn lines(changes: &[PolicyChange]) -> String {
    changes.iter().map(|change| format!("  {}\n", line(&change.to_string()))).collect()
}

/// An entry of the history.
pub(super) fn entry(entry: &HistoryEntry) -> String {
    let mut text = format!("{}\n{}", headline(&entry.head), lines(&entry.changes));
    if entry.more > 0 {
        text += &format!("  and {} more\n", entry.more);
    }
    text
}

/// The policy, and the policy in force on each host.
pub(super) fn text(read: &PolicySnapshot, hosts: &[HostRecord]) -> String {
    let mut text = match &read.head {
        Some(head) => format!("policy {}\n", headline(head)),
        None => "etcd has no policy yet\n".to_owned(),
    };
    let (volumes, unreadable) = parts(read);
    for (revision, volume) in volumes {
        text += &format!("\nvolume {}, changed last in revision {revision}\n", line(&volume.name));
        text += &settings("control", &volume.control);
        for group in &volume.group {
            let of = format!("group {} ({})", group.name, group.vms.join(", "));
            text += &settings(&of, &group.settings);
        }
        for vm in &volume.vm {
            let of = format!("vm {}{}", vm.name, nowhere(volume, &vm.name, hosts));
            text += &settings(&of, &vm.settings);
        }
    }
    for (name, fault) in unreadable {
        text += &format!("\nvolume {}: {}\n", line(name), line(&fault));
    }
    text += "\nhosts\n";
    for host in hosts {
        text += &line(&format!("  {}: {}", host.host, standing(host, read.revision())));
        text += "\n";
    }
    if hosts.is_empty() {
        text += "  none takes its settings from here yet: [policy] in parda.toml\n";
    }
    text
}

fn settings(of: &str, settings: &Table) -> String {
    settings.iter().map(|(key, value)| line(&format!("  {of}: {key} = {value}")) + "\n").collect()
}

/// Note on a VM that no host has.
fn nowhere(volume: &PolicyVolume, vm: &str, hosts: &[HostRecord]) -> &'static str {
    let reports = hosts.iter().filter_map(|host| host.report.as_ref());
    let mut volumes =
        reports.flat_map(|report| &report.volumes).filter(|of| of.name == volume.name).peekable();
    if volumes.peek().is_none() || volumes.any(|of| of.vms.contains_key(vm)) {
        ""
    } else {
        " (on no host)"
    }
}

/// What a host has in force, in a line.
fn standing(host: &HostRecord, revision: u64) -> String {
    let mut said = match host.presence {
        Presence::Live => Vec::new(),
        Presence::Silent(seconds) => {
            let silence = humantime::format_duration(Duration::from_secs(seconds));
            vec![format!("SILENT for {silence}; what follows is what it said last")]
        }
    };
    let Some(report) = &host.report else {
        said.push("says what this version cannot read".to_owned());
        return said.join("; ");
    };
    if report.revision == revision {
        said.push(format!("revision {revision} read"));
    } else {
        said.push(format!("READ REVISION {} LAST, not {revision}", report.revision));
    }
    if report.volumes.is_empty() {
        said.push("no policy for its volumes".to_owned());
    }
    said.extend(report.volumes.iter().map(|volume| of_volume(report, volume)));
    said.join("; ")
}

fn of_volume(report: &HostReport, volume: &VolumeReport) -> String {
    let mut text = format!("volume {} ", volume.name);
    text += &match (&volume.fault, volume.in_force) {
        (None, Some(revision)) => format!("in force (revision {revision})"),
        (None, None) => "NOT IN FORCE".to_owned(),
        (Some(fault), None) => format!("NOT IN FORCE: {fault}"),
        (Some(fault), Some(revision)) => format!("STILL AT REVISION {revision}: {fault}"),
    };
    if !volume.unknown.is_empty() {
        text +=
            &format!(", {} UNKNOWN to parda {}", short(&volume.unknown.join(", ")), report.version);
    }
    let other = |of: &str, values: &std::collections::BTreeMap<String, ValueInForce>| -> String {
        let differ = values.iter().filter(|(_, value)| value.from != "policy");
        differ
            .map(|(key, value)| format!(", DIFFERS: {of}{key} = {} ({})", value.value, value.from))
            .collect()
    };
    text += &other("", &volume.control);
    for (vm, values) in &volume.vms {
        text += &other(&format!("vm {vm}: "), values);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_somebody_made_up_is_shown() {
        let head = PolicyHead {
            revision: u64::MAX,
            by: "x\u{1b}[31m".to_owned(),
            at_ms: u64::MAX,
            comment: None,
        };
        let shown = headline(&head);
        assert!(shown.ends_with(r"by x\u001b[31m at 9999-12-31T23:59:59Z"), "{shown}");
        let long = "\u{202e}".to_owned() + &"x".repeat(1 << 20);
        let shown = headline(&PolicyHead { by: long.clone(), comment: Some(long), ..head });
        assert!(shown.contains(r"by \u202exxx") && shown.contains(r": \u202exxx"), "{shown}");
        assert!(shown.len() < 1000, "{shown}");
    }
}
