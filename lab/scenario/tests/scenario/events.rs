//! Events: hosts outside control, hosts that hang, faults of the exchange and of the array; and
//! where each error points.

use std::time::Duration;

use parda_config::Document;
use parda_control::ModeName;
use parda_control::Shares;
use parda_scenario::array::ArrayEvent;
use parda_scenario::exchange::{Hearing, MeetingTransport};
use parda_scenario::{Action, HostIndex, Phase, Scenario, VmIndex};

const CLUSTER: &str = r#"name = "t"
duration = "60s"
[array]
preset = "cx3-40-raid0"
[exchange]
delay = "2s"
loss = "10%"
[[host]]
name = "a"
[[host.vm]]
name = "db"
shares = 2000
disk = "1GiB"
workload = { size = "4KiB", read = 100, random = 100, outstanding = 8 }
[[host]]
name = "b"
[[host.vm]]
name = "web"
shares = 1000
disk = "1GiB"
workload = { size = "4KiB", read = 100, random = 100, outstanding = 8 }
[[host]]
name = "out"
outside = true
[[host.vm]]
name = "backup"
disk = "1GiB"
workload = { size = "4KiB", read = 100, random = 100, outstanding = 8 }
[[phase]]
name = "p"
from = "1s"
to = "2s"
"#;

const A: HostIndex = HostIndex(0);
const B: HostIndex = HostIndex(1);
const OUT: HostIndex = HostIndex(2);

fn parse(text: &str) -> Result<Scenario, parda_config::Error> {
    Scenario::parse(&Document::new("t.toml", text))
}

/// The cluster with these events, at 10 s, 11 s and so on.
fn with_events(events: &[&str]) -> String {
    let event = |(i, what): (usize, &&str)| format!("[[event]]\nat = \"{}s\"\n{what}\n", 10 + i);
    CLUSTER.to_owned() + &events.iter().enumerate().map(event).collect::<String>()
}

fn hearing(scenario: &Scenario, host: HostIndex, at: u64) -> Hearing {
    scenario.state_at(Duration::from_secs(at)).host(host).hearing.clone()
}

/// Parses a scenario and expects an error that points at the line of `place` and contains `says`.
fn refused(text: &str, place: &str, says: &str) {
    let error = parse(text).expect_err(text).to_string();
    let line = text.lines().collect::<Vec<_>>().iter().rposition(|line| line.contains(place));
    let line = line.unwrap_or_else(|| panic!("{place}")) + 1;
    assert!(error.starts_with(&format!("t.toml:{line}:")), "{error}, not at line {line}: {text}");
    assert!(error.contains(says), "{error}: {says}");
}

#[test]
fn an_outsider_has_neither_settings_nor_shares() {
    let scenario = parse(CLUSTER).unwrap();
    let out = scenario.host(OUT);
    assert!(out.outside && !scenario.host(A).outside);
    assert_eq!((out.control.mode, out.vms[0].settings.shares()), (Some(ModeName::Off), Shares(0)));
    // A single line puts any host outside control.
    let text = CLUSTER.replace("name = \"b\"", "name = \"b\"\noutside = true");
    assert_eq!(parse(&text).unwrap().host(B).vms[0].settings.shares(), Shares(0));
}

#[test]
fn what_is_for_all_hosts_is_not_for_outsiders() {
    let events = ["control = { mode = \"static\" }", "exchange = { loss = 0 }"];
    let scenario = parse(&with_events(&events)).unwrap();
    let hosts = scenario.timeline.iter().filter_map(|event| match event.action {
        Action::SetControl(host, _) | Action::SetExchange(host, _) => Some(host),
        _ => None,
    });
    assert_eq!(hosts.collect::<Vec<_>>(), [A, B, A, B]);
}

#[test]
fn an_outsider_lives_and_dies_like_any_host() {
    let events = ["host = \"out\"\ndo = \"kill\"", "host = \"out\"\ndo = \"start\""];
    let scenario = parse(&with_events(&events)).unwrap();
    let backup = VmIndex { host: OUT, index: 0 };
    let runs = |at| scenario.state_at(Duration::from_secs(at)).runs(backup);
    assert_eq!((runs(9), runs(10), runs(11)), (true, false, true));
}

#[test]
fn the_exchange_is_as_it_was_set_last_for_each_host() {
    let scenario = parse(&with_events(&[
        "host = \"a\"\nexchange = { delay = \"5s\", side = \"left\", writable = false }",
        "exchange = { loss = 0.5, reachable = false }",
        "host = \"a\"\nexchange = { reachable = true, writable = true, side = \"\" }",
    ]))
    .unwrap();
    let first = Hearing { delay: Duration::from_secs(2), loss: 0.1, ..Hearing::default() };
    assert_eq!(hearing(&scenario, A, 9), first);
    let delay = Duration::from_secs(5);
    let left = Hearing { delay, side: "left".to_owned(), writable: false, ..first.clone() };
    assert_eq!(
        (hearing(&scenario, A, 10), hearing(&scenario, B, 10)),
        (left.clone(), first.clone())
    );
    let cut = |hearing: &Hearing| Hearing { loss: 0.005, reachable: false, ..hearing.clone() };
    assert_eq!((hearing(&scenario, A, 11), hearing(&scenario, B, 11)), (cut(&left), cut(&first)));
    let back = Hearing { loss: 0.005, delay, ..first };
    assert_eq!(hearing(&scenario, A, 12), back);
    assert_eq!(scenario.longest_delay(), delay);
}

#[test]
fn a_host_begins_with_its_own_settings_of_the_exchange() {
    let own = "name = \"a\"\nexchange = { side = \"lun-a\", loss = 0 }";
    let text = with_events(&["exchange = { delay = \"1s\" }"]).replace("name = \"a\"", own);
    let scenario = parse(&text).unwrap();
    let all = Hearing { delay: Duration::from_secs(2), loss: 0.1, ..Hearing::default() };
    let a = Hearing { side: "lun-a".to_owned(), loss: 0.0, ..all.clone() };
    assert_eq!((hearing(&scenario, A, 9), hearing(&scenario, B, 9)), (a.clone(), all));
    assert_eq!(hearing(&scenario, A, 10), Hearing { delay: Duration::from_secs(1), ..a });
    let at_a = |keys: &str| {
        CLUSTER.replace("name = \"a\"", &format!("name = \"a\"\nexchange = {{ {keys} }}"))
    };
    refused(&at_a("loss = 101"), "loss = 101", "0% to 100%");
    refused(&at_a("slots = 8"), "slots = 8", "is for all hosts");
    let out = CLUSTER.replace("outside = true", "outside = true\nexchange = { loss = 1 }");
    refused(&out, "exchange = { loss = 1 }", "means nothing for a host that is outside control");
}

#[test]
fn what_an_outsider_cannot_do_is_refused_where_it_stands() {
    let out = "is outside control";
    let with = |what: &str| with_events(&[what]);
    refused(&with("host = \"out\"\ncontrol = { mode = \"off\" }"), "host = \"out\"", out);
    refused(&with("host = \"out\"\nexchange = { loss = 1 }"), "host = \"out\"", out);
    refused(&with("vm = \"backup\"\nshares = 10"), "vm = \"backup\"", out);
    let own = CLUSTER.replace("outside = true", "outside = true\ncontrol = { mode = \"off\" }");
    refused(&own, "control = {", "means nothing for a host that is outside control");
    let inside = CLUSTER.replace("outside = true", "");
    let shares = parse(&inside).unwrap().host(OUT).vms[0].settings.shares();
    assert_eq!(shares, Shares(1000), "those of any disk");
}

#[test]
fn an_exchange_that_cannot_be_is_refused_where_it_stands() {
    for (from, to, says) in [
        ("loss = \"10%\"", "loss = \"110%\"", "0% to 100%"),
        ("loss = \"10%\"", "loss = -1", "0% to 100%"),
        ("delay = \"2s\"", "delay = 2", "delay"),
        ("delay = \"2s\"", "decay = \"2s\"", "unknown field `decay`"),
        ("delay = \"2s\"", "slots = 2", "must be from 3, a slot for each host, to 1024"),
        ("delay = \"2s\"", "slots = 1025", "must be from 3, a slot for each host, to 1024"),
    ] {
        refused(&CLUSTER.replace(from, to), to, says);
    }
    let with = |what: &str| with_events(&[what]);
    refused(&with("exchange = { loss = 101 }"), "loss = 101", "0% to 100%");
    refused(
        &with("exchange = { slots = 8 }"),
        "slots = 8",
        "is for all hosts and cannot change during a run",
    );
    refused(&with("vm = \"db\"\nexchange = { loss = 1 }"), "at = \"10s\"", "must say one thing");
    let two = "exchange = { loss = 1 }\ncontrol = { mode = \"off\" }";
    refused(&with(two), "at = \"10s\"", "must say one thing");
}

#[test]
fn what_makes_no_sense_on_a_transport_is_refused_where_it_stands() {
    let over = |transport: &str, event: &str| {
        let text = with_events(&[event]);
        text.replace("delay = \"2s\"", &format!("transport = \"{transport}\""))
    };
    for (transport, event, place, says) in [
        ("etcd", "exchange = { side = \"left\" }", "side = \"left\"", "use reachable"),
        ("udp", "exchange = { delay = \"61m\" }", "delay = \"61m\"", "must be at most 1h"),
        ("etcd", "exchange = { writable = false }", "writable = false", "use reachable"),
        ("udp", "etcd = \"hang\"", "etcd = \"hang\"", "is for [exchange] transport = \"etcd\""),
        ("file", "etcd = \"hang\"", "etcd = \"hang\"", "is for [exchange] transport = \"etcd\""),
        ("etcd", "etcd = \"resume\"", "at = \"10s\"", "etcd is not in a state for it"),
        ("etcd", "etcd = \"wipe\"", "\"wipe\"", "unknown variant `wipe`"),
        ("udp", "exchange = { transport = \"file\" }", "transport = \"file\"", "cannot change"),
        ("etcd", "exchange = { members = 3 }", "members = 3", "cannot change"),
        ("tcp", "exchange = { loss = 1 }", "\"tcp\"", "unknown variant `tcp`"),
        ("udp\"\nslots = 8\n#\"", "exchange = { loss = 1 }", "slots = 8", "nothing else has slots"),
        ("udp\"\nmembers = 3\n#\"", "exchange = { loss = 1 }", "members = 3", "is for transport"),
        ("etcd\"\nmembers = 0\n#\"", "exchange = { loss = 1 }", "members = 0", "from 1 to 7"),
    ] {
        refused(&over(transport, event), place, says);
    }
    let good = parse(&over("etcd\"\nmembers = 3\n#\"", "etcd = \"hang\"")).unwrap();
    assert_eq!((good.transport, good.etcd_members), (MeetingTransport::Etcd, 3));
    let reaches = |at| good.state_at(Duration::from_secs(at)).reaches_exchange(A);
    assert_eq!((reaches(9), reaches(10)), (true, false));
}

#[test]
fn an_exchange_has_a_slot_for_each_host_and_some_to_spare_unless_the_file_says_how_many() {
    let slots = |text: &str| {
        let scenario = parse(text).unwrap();
        let lun = scenario.array_params().unwrap().layout.luns.pop().unwrap();
        (scenario.exchange_slots, lun.0)
    };
    assert_eq!(slots(CLUSTER), (64, 65 * 4096));
    assert_eq!(slots(&CLUSTER.replace("delay = \"2s\"", "slots = 3")), (3, 4 * 4096));
}

#[test]
fn a_host_that_hangs_lives_and_does_nothing() {
    let events = ["host = \"a\"\ndo = \"hang\"", "host = \"a\"\ndo = \"resume\""];
    let scenario = parse(&with_events(&events)).unwrap();
    let at = |at| scenario.state_at(Duration::from_secs(at));
    let how = |at: &parda_scenario::ClusterState| (at.host(A).alive, at.host(A).hangs);
    assert_eq!([9, 10, 11].map(|s| how(&at(s))), [(true, false), (true, true), (true, false)]);
    // The clients of its VMs go on, and are not judged.
    let db = VmIndex { host: A, index: 0 };
    assert!(at(10).runs(db));
    let throughout = |from: u64, to: u64| {
        let (name, from, to) = ("p".to_owned(), Duration::from_secs(from), Duration::from_secs(to));
        scenario.runs_throughout(db, &Phase { name, from, to }, &scenario.state_at(from))
    };
    assert!(throughout(5, 10) && throughout(11, 20));
    assert!(!throughout(5, 11) && !throughout(10, 11) && !throughout(10, 20));
}

#[test]
fn a_host_that_hangs_can_be_killed_and_comes_back_well() {
    let events = ["hang", "kill", "start"].map(|verb| format!("host = \"a\"\ndo = \"{verb}\""));
    let scenario = parse(&with_events(&events.each_ref().map(String::as_str))).unwrap();
    let state = scenario.state_at(Duration::from_secs(12));
    assert!(state.host(A).alive && !state.host(A).hangs);
}

#[test]
fn hanging_that_makes_no_sense_is_refused_where_it_stands() {
    let host = |verb: &str| format!("host = \"a\"\ndo = \"{verb}\"");
    let refused_second = |first: &str, second: &str, says: &str| {
        refused(&with_events(&[first, second]), "at = \"11s\"", says);
    };
    refused_second(&host("hang"), &host("hang"), "this host hangs already");
    refused_second(&host("kill"), &host("hang"), "this host is dead");
    refused_second(&host("hang"), &host("start"), "alive already");
    refused_second("vm = \"db\"\ndo = \"stop\"", &host("resume"), "does not hang");
    let stopped =
        with_events(&["vm = \"db\"\ndo = \"stop\"", &host("hang"), "vm = \"db\"\ndo = \"start\""]);
    refused(&stopped, "at = \"12s\"", "the host of this VM hangs");
    refused(&with_events(&["host = \"out\"\ndo = \"hang\""]), "host = \"out\"", "outside control");
    refused(&with_events(&["vm = \"db\"\ndo = \"hang\""]), "at = \"10s\"", "must say one thing");
}

/// The cluster on a RAID-5 of five drives with a write cache.
fn raid5(events: &[&str]) -> String {
    with_events(events).replace("cx3-40-raid0", "cx3-40-raid5-vms")
}

#[test]
fn what_happens_to_the_array_is_on_the_timeline() {
    let events = [
        "array = { fail_drive = 2 }",
        "array = { rebuild_drive = 2 }",
        "array = { write_cache = false }",
        // The rebuild may have ended by then.
        "array = { fail_drive = 3 }",
    ];
    let scenario = parse(&raid5(&events)).unwrap();
    let happens = scenario.timeline.iter().filter_map(|event| match event.action {
        Action::Array(happens) => Some(happens),
        _ => None,
    });
    let expected = [
        ArrayEvent::FailDrive(2),
        ArrayEvent::RebuildDrive(2),
        ArrayEvent::WriteCache(false),
        ArrayEvent::FailDrive(3),
    ];
    assert_eq!(happens.collect::<Vec<_>>(), expected);
}

#[test]
fn what_no_array_bears_is_refused_where_it_stands() {
    let fail = |drive: u32| format!("array = {{ fail_drive = {drive} }}");
    let rebuild = |drive: u32| format!("array = {{ rebuild_drive = {drive} }}");
    let with = |first: &str, then: &str| raid5(&[first, then]);
    refused(&with_events(&[&fail(2)]), "fail_drive = 2", "RAID-0 has no redundancy");
    refused(&raid5(&[&fail(5)]), "fail_drive = 5", "the array has 5, counted from 0");
    refused(&with(&fail(2), &fail(3)), "fail_drive = 3", "drive 2 has failed and is not rebuilt");
    refused(&raid5(&[&rebuild(2)]), "rebuild_drive = 2", "all drives are there");
    refused(&with(&fail(2), &rebuild(3)), "rebuild_drive = 3", "drive 2 has failed, not drive 3");
    let twice = raid5(&[&fail(2), &rebuild(2), &rebuild(2)]);
    refused(&twice, "rebuild_drive = 2", "being rebuilt already");
    let bare =
        with_events(&["array = { write_cache = true }"]).replace("cx3-40-raid0", "drive-7200");
    refused(&bare, "write_cache = true", "has no write cache");
    let both = "array = { fail_drive = 2, write_cache = true }";
    refused(&raid5(&[both]), both, "must say one thing: `fail_drive`");
    refused(&raid5(&["host = \"a\"\narray = { fail_drive = 2 }"]), "at = \"10s\"", "must say one");
    refused(&raid5(&["array = { fail_driver = 2 }"]), "fail_driver", "unknown field");
}

/// A move to each host, and back.
const MOVES: [&str; 3] = [
    "vm = \"db\"\ndo = \"move\"\nto = \"b\"",
    "vm = \"db\"\nshares = 500",
    "vm = \"db\"\ndo = \"move\"\nto = \"a\"",
];

#[test]
fn a_vm_that_moves_runs_on_one_host_at_a_time_with_its_disk_and_its_shares() {
    let scenario = parse(&with_events(&MOVES)).unwrap();
    let (home, there) = (VmIndex { host: A, index: 0 }, VmIndex { host: B, index: 1 });
    let (db, moved) = (scenario.vm(home), scenario.vm(there));
    assert_eq!((moved.name.as_str(), moved.lun, moved.disk), ("db.b", db.lun, db.disk));
    let at = |at| {
        let state = scenario.state_at(Duration::from_secs(at));
        [home, there].map(|vm| (state.runs(vm), state.vm(vm).settings.shares()))
    };
    assert_eq!(at(9), [(true, Shares(2000)), (false, Shares(2000))]);
    assert_eq!(at(10), [(false, Shares(2000)), (true, Shares(2000))]);
    assert_eq!(at(11), [(false, Shares(500)), (true, Shares(500))]);
    assert_eq!(at(12), [(true, Shares(500)), (false, Shares(500))]);
}

#[test]
fn a_vm_keeps_the_settings_that_an_event_does_not_change() {
    let change = "vm = \"db\"\nlimit = { iops = 300 }\nreservation = 200";
    let scenario = parse(&with_events(&[change, "vm = \"db\"\nlimit = { iops = 400 }"])).unwrap();
    let state = scenario.state_at(Duration::from_secs(20));
    let settings = state.vm(VmIndex { host: A, index: 0 }).settings;
    assert_eq!((settings.shares(), settings.reservation), (Shares(2000), Some(200.0)));
    let limit = parda_control::Limit::from(&settings.limit.unwrap());
    assert_eq!(limit.iops.total.unwrap().mean, 400.0);
    refused(
        &with_events(&[change, "vm = \"db\"\nreservation = 301"]),
        "reservation = 301",
        "must be at most the `iops` of the limit, 300",
    );
    refused(&with_events(&["vm = \"db\"\nshares = 0"]), "shares = 0", "must be from 1");
    refused(&with_events(&["host = \"a\"\nlimit = { iops = 3 }"]), "at = \"10s\"", "must say one");
}

#[test]
fn a_vm_that_moved_is_stopped_where_it_is() {
    let scenario = parse(&with_events(&[MOVES[0], "vm = \"db\"\ndo = \"stop\""])).unwrap();
    let there = VmIndex { host: B, index: 1 };
    assert_eq!(scenario.timeline.last().unwrap().action, Action::StopVm(there));
}

#[test]
fn the_end_of_a_vm_that_moved_is_where_it_is() {
    let stop = CLUSTER.replacen("shares = 2000", "shares = 2000\nstop = \"15s\"", 1);
    let text = with_events(&MOVES[..1]).replace(CLUSTER, &stop);
    let there = VmIndex { host: B, index: 1 };
    assert_eq!(parse(&text).unwrap().timeline.last().unwrap().action, Action::StopVm(there));
}

#[test]
fn a_vm_that_moved_has_its_own_name_in_events() {
    for event in ["do = \"start\"", "do = \"stop\"", "shares = 5", "do = \"move\"\nto = \"a\""] {
        let text = with_events(&[MOVES[0], MOVES[2], &format!("vm = \"db.b\"\n{event}")]);
        refused(&text, "vm = \"db.b\"", "use its own name");
    }
}

#[test]
fn a_move_that_cannot_be_is_refused_where_it_stands() {
    let with = |what: &str| with_events(&[what]);
    let to = |host: &str| with(&format!("vm = \"db\"\ndo = \"move\"\nto = \"{host}\""));
    refused(&to("a"), "to = \"a\"", "is the host that the VM is on");
    refused(&to("none"), "to = \"none\"", "there is no host of this name");
    refused(&to("out"), "to = \"out\"", "must be under control");
    refused(&with("vm = \"db\"\ndo = \"move\""), "do = \"move\"", "must be with `vm`");
    refused(&with("to = \"b\"\ndo = \"move\""), "do = \"move\"", "must be with `vm`");
    refused(
        &with("vm = \"db\"\ndo = \"stop\"\nto = \"b\""),
        "to = \"b\"",
        "is for `do = \"move\"`",
    );
    let named = to("b").replace("\"web\"", "\"db.b\"");
    refused(&named, "to = \"b\"", "there is a VM named \"db.b\"");
    let stopped = with_events(&["vm = \"db\"\ndo = \"stop\"", MOVES[0]]);
    refused(&stopped, "at = \"11s\"", "this VM is not running");
    let guest = to("b").replace("name = \"b\"", "name = \"b\"\nkind = \"guest\"");
    refused(&guest, "to = \"b\"", "must not be a guest");
}
