//! Limits of the laboratory: features of scenarios that only the simulator has. They are refused by
//! name before any process starts.

use std::collections::BTreeSet;

use parda_scenario::exchange::{Hearing, MeetingTransport};
use parda_scenario::{Action, Host, HostIndex, Scenario};

use crate::error::LabRefusal;
use crate::fio;

/// Checks that the laboratory can run a scenario, whose hosts may be guests or not.
///
/// # Errors
/// It cannot; the error names the feature, and where in the document it may stand.
pub fn check(scenario: &Scenario, guests: bool) -> Result<(), LabRefusal> {
    fio::can_do(scenario)?;
    let guest = scenario.present().find(|(_, host)| host.guest.is_some());
    if let Some((_, guest)) = guest.filter(|_| !guests) {
        let (paths, what) =
            (vec![format!("{}.kind", guest.path)], format!("{}, a guest,", guest.name));
        return Err(LabRefusal { paths, what });
    }
    let faults = |(id, _)| {
        hearings(scenario, id).find_map(|found| fault_of_packets(scenario.transport, found))
    };
    let Some((what, paths)) = scenario.present().find_map(faults) else { return Ok(()) };
    let over = match scenario.transport {
        MeetingTransport::File => "",
        MeetingTransport::Udp => " over UDP",
        MeetingTransport::Etcd => " over etcd",
    };
    Err(LabRefusal { paths, what: format!("{what}{over}") })
}

/// Whether the host is ever cut off from the exchange, or on a side of its own.
#[must_use]
pub fn has_own_relay(scenario: &Scenario, id: HostIndex) -> bool {
    hearings(scenario, id).any(|(hearing, _)| !hearing.reachable || !hearing.side.is_empty())
}

/// Sides of a partition of an exchange on the array, without the one on which all hosts begin.
#[must_use]
pub fn sides(scenario: &Scenario) -> BTreeSet<String> {
    if scenario.transport != MeetingTransport::File {
        return BTreeSet::new();
    }
    let all = scenario.present().flat_map(|(id, _)| hearings(scenario, id));
    all.map(|(hearing, _)| hearing.side).filter(|side| !side.is_empty()).collect()
}

/// Each state of a host's access to the exchange, at the beginning and after each change. The path names its entry in the
/// scenario.
fn hearings(scenario: &Scenario, id: HostIndex) -> impl Iterator<Item = (Hearing, &str)> {
    let changes = scenario.timeline.iter().filter_map(move |event| match &event.action {
        Action::SetExchange(host, settings) if *host == id => {
            Some((Hearing::default().changed(settings), event.path.as_str()))
        }
        _ => None,
    });
    let Host { hearing, path, .. } = scenario.host(id);
    std::iter::once((hearing.clone(), path.as_str())).chain(changes)
}

/// The first of these settings that no real exchange over this transport has, and where it may stand. Only over UDP can single
/// packets be lost: a connection can only be cut.
fn fault_of_packets(
    transport: MeetingTransport,
    (hearing, path): (Hearing, &str),
) -> Option<(String, Vec<String>)> {
    let usual = Hearing::default();
    let is_udp = transport == MeetingTransport::Udp;
    let beyond = [
        (hearing.delay != usual.delay, "delay"),
        (!is_udp && hearing.loss != usual.loss, "loss"),
        (!is_udp && hearing.writable != usual.writable, "writable"),
    ];
    let (_, key) = beyond.into_iter().find(|(is, _)| *is)?;
    let what = format!("exchange.{key}");
    Some((what.clone(), vec![format!("{path}.{what}"), what]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_config::Document;
    use parda_scenario::{GuestDisk, GuestSettings};

    fn checked(more: &str) -> (Scenario, Result<(), String>) {
        let text = format!(
            "name = \"t\"\nduration = \"9s\"\n[array]\npreset = \"cx3-40-raid5-vms\"\n\
             [[host]]\nname = \"a\"\n[[host.vm]]\nname = \"db\"\nshares = 1\ndisk = \"1GiB\"\n\
             workload = {{ size = \"4KiB\", read = 100, random = 100, outstanding = 8 }}\n\
             [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n[[event]]\nat = \"3s\"\n{more}\n"
        );
        let scenario = Scenario::parse(&Document::new("t.toml", text)).unwrap();
        let checked = check(&scenario, false).map_err(|e| e.to_string());
        (scenario, checked)
    }

    #[test]
    fn what_a_real_exchange_cannot_do_is_refused_by_name() {
        for (setting, name) in
            [("delay = \"1s\"", "delay"), ("loss = 1", "loss"), ("writable = false", "writable")]
        {
            let says = format!("exchange.{name} is beyond the laboratory: parda-lab sim can do it");
            assert_eq!(checked(&format!("exchange = {{ {setting} }}")).1, Err(says));
        }
        let usual = "exchange = { delay = \"0s\", loss = 0, side = \"\" }";
        assert_eq!(checked(usual).1, Ok(()));
    }

    #[test]
    fn a_guest_is_refused_at_its_kind_unless_there_can_be_one() {
        let (mut scenario, _) = checked("host = \"a\"\ndo = \"hang\"");
        let settings = GuestSettings { disk: GuestDisk::Scsi, queue_depth: None };
        scenario.hosts[0].guest = Some(settings);
        let refusal = check(&scenario, false).unwrap_err();
        assert_eq!(refusal.paths, ["host.0.kind"]);
        let says = "a, a guest, is beyond the laboratory: parda-lab sim can do it";
        assert_eq!(refusal.to_string(), says);
        assert!(check(&scenario, true).is_ok());
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
            assert_eq!(has_own_relay(&scenario, HostIndex(0)), own_relay, "{event}");
        }
    }
}
