//! Limits of the laboratory: features of scenarios that only the simulator has. They are refused by
//! name before any process starts.

use std::collections::BTreeSet;

use parda_scenario::exchange::{ExchangeSettings, Hearing, Transport};
use parda_scenario::{Action, HostId, Scenario};

use crate::error::LabError;
use crate::fio;
use crate::network::Addresses;

/// Checks that the laboratory can run a scenario with hosts at such addresses.
///
/// # Errors
/// It cannot; the error names the feature.
pub fn check(scenario: &Scenario, addresses: Addresses) -> Result<(), LabError> {
    fio::can_do(scenario)?;
    let elsewhere = scenario.transport != Transport::File || addresses == Addresses::Namespaces;
    if let Some((_, guest)) = scenario.present().find(|(_, host)| host.kind.guest().is_some())
        && elsewhere
    {
        let what = format!(
            "a network between hosts (`exchange.transport`, --netns) with {}, a guest,",
            guest.name
        );
        return Err(LabError::OnlySimulated(what));
    }
    scenario.present().filter(|(_, host)| host.kind.guest().is_some()).try_for_each(
        |(id, guest)| {
            if has_own_relay(scenario, id) {
                let what =
                    format!("`exchange.reachable` or `exchange.side` of {}, a guest,", guest.name);
                return Err(LabError::OnlySimulated(what));
            }
            let luns = |id: HostId| scenario.host(id).vms.iter().map(|vm| vm.lun);
            let others = scenario.present().filter(|(other, _)| *other != id);
            if others.flat_map(|(other, _)| luns(other)).any(|lun| luns(id).any(|l| l == lun)) {
                let what = format!("{}, a guest whose disk is another host's, too,", guest.name);
                return Err(LabError::OnlySimulated(what));
            }
            Ok(())
        },
    )?;
    let faults = |(id, _)| settings(scenario, id).find_map(fault_of_packets);
    let Some(what) = scenario.present().find_map(faults) else { return Ok(()) };
    match (scenario.transport, addresses) {
        (Transport::Udp, _) | (Transport::Etcd { .. }, Addresses::Namespaces) => Ok(()),
        (Transport::Etcd { .. }, Addresses::Loopback) => Err(LabError::Needs {
            what: format!("{what} over etcd"),
            needs: "--netns: on loopback a connection can only be cut",
        }),
        (Transport::File, _) => Err(LabError::OnlySimulated(what.to_owned())),
    }
}

/// Whether the host is ever cut off from the exchange, or on a side of its own.
#[must_use]
pub fn has_own_relay(scenario: &Scenario, id: HostId) -> bool {
    settings(scenario, id).any(|settings| {
        let hearing = settings.hearing();
        !hearing.reachable || hearing.side != Hearing::default().side
    })
}

/// Sides of a partition of an exchange on the array, without the one on which all hosts begin.
#[must_use]
pub fn sides(scenario: &Scenario) -> Vec<String> {
    if scenario.transport != Transport::File {
        return Vec::new();
    }
    let all = scenario.present().flat_map(|(id, _)| settings(scenario, id));
    let sides: BTreeSet<String> = all.map(|settings| settings.hearing().side).collect();
    sides.into_iter().filter(|side| *side != Hearing::default().side).collect()
}

/// All settings of the exchange that a host ever has.
fn settings(scenario: &Scenario, id: HostId) -> impl Iterator<Item = &ExchangeSettings> {
    let changes = scenario.timeline.iter().filter_map(move |event| match &event.action {
        Action::SetExchange(host, settings) if *host == id => Some(&**settings),
        _ => None,
    });
    std::iter::once(&scenario.host(id).exchange).chain(changes)
}

/// The first of these settings that concerns single packets, or visits to a simulated exchange.
fn fault_of_packets(settings: &ExchangeSettings) -> Option<&'static str> {
    let (hearing, usual) = (settings.hearing(), Hearing::default());
    let beyond = [
        (hearing.delay != usual.delay, "exchange.delay"),
        (hearing.loss != usual.loss, "exchange.loss"),
        (hearing.writable != usual.writable, "exchange.writable"),
    ];
    beyond.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_config::Document;

    fn checked(more: &str) -> (Scenario, Result<(), String>) {
        let text = format!(
            "name = \"t\"\nduration = \"9s\"\n[array]\npreset = \"cx3-40-raid5-vms\"\n\
             [[host]]\nname = \"a\"\n[[host.vm]]\nname = \"db\"\nshares = 1\ndisk = \"1GiB\"\n\
             workload = {{ size = \"4KiB\", read = 100, random = 100, outstanding = 8 }}\n\
             [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n[[event]]\nat = \"3s\"\n{more}\n"
        );
        let scenario = Scenario::parse(&Document::new("t.toml", text)).unwrap();
        let checked = check(&scenario, Addresses::Loopback).map_err(|e| e.to_string());
        (scenario, checked)
    }

    #[test]
    fn what_a_real_exchange_cannot_do_is_refused_by_name() {
        for (setting, name) in
            [("delay = \"1s\"", "delay"), ("loss = 1", "loss"), ("writable = false", "writable")]
        {
            let says = format!("exchange.{name} is beyond the laboratory: parda sim can do it");
            assert_eq!(checked(&format!("exchange = {{ {setting} }}")).1, Err(says));
        }
        let usual = "exchange = { delay = \"0s\", loss = 0, side = \"\" }";
        assert_eq!(checked(usual).1, Ok(()));
    }

    #[test]
    fn what_a_guest_cannot_do_is_refused_by_name() {
        let refused = |guest: &str, other: &str, more: &str| {
            let host = |name: &str, keys: &str, disk: &str| {
                format!(
                    "[[host]]\nname = \"{name}\"\n{keys}\n[[host.vm]]\nname = \"vm-{name}\"\n\
                     shares = 1\n{disk}\nworkload = {{ size = \"4KiB\", read = 100, random = 100, \
                     outstanding = 8 }}\n"
                )
            };
            let text = format!(
                "name = \"t\"\nduration = \"9s\"\n[array]\npreset = \"drive-7200\"\n{}{}\
                 [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n{more}",
                host("a", &format!("kind = \"guest\"\n{guest}"), "disk = \"1GiB\""),
                host("b", "", other),
            );
            let scenario = Scenario::parse(&Document::new("t.toml", text)).unwrap();
            check(&scenario, Addresses::Loopback).map_err(|e| e.to_string())
        };
        let own = "disk = \"1GiB\"";
        for disk in ["scsi", "iscsi", "nbd"] {
            assert_eq!(refused(&format!("guest = {{ disk = \"{disk}\" }}"), own, ""), Ok(()));
        }
        let cut = "[[event]]\nat = \"3s\"\nhost = \"a\"\nexchange = { reachable = false }\n";
        for (guest, other, more, says) in [
            ("", "same_disk_as = \"vm-a\"", "", "a, a guest whose disk is another host's, too, is"),
            ("", own, cut, "`exchange.reachable` or `exchange.side` of a, a guest, is"),
        ] {
            let says = format!("{says} beyond the laboratory: parda sim can do it");
            assert_eq!(refused(guest, other, more), Err(says));
        }
    }

    #[test]
    fn what_real_processes_can_do_is_not() {
        for (event, own_relay) in [
            ("exchange = { reachable = false }", true),
            ("exchange = { reachable = true }", false),
            ("exchange = { side = \"left\" }", true),
            ("exchange = { side = \"\" }", false),
            ("host = \"a\"\ndo = \"hang\"", false),
            ("array = { fail_drive = 1 }", false),
        ] {
            let (scenario, checked) = checked(event);
            assert_eq!(checked, Ok(()));
            assert_eq!(has_own_relay(&scenario, HostId(0)), own_relay, "{event}");
        }
    }
}
