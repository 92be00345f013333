//! The scenario language: the manual's example, and where each error points.

use std::path::PathBuf;
use std::time::Duration;

use parda_array::{Placement, WriteCacheParams};
use parda_config::Document;
use parda_control::ModeName;
use parda_control::{Bytes, Shares};
use parda_scenario::expectation::Bound;
use parda_scenario::{Action, GuestDisk, GuestSettings, HostIndex, Scenario, Study, VmIndex};
use parda_workload::{ArrivalRule, Bursts, Hot, SizePart, Workload};

/// The example of the manual.
fn example() -> String {
    let manual = include_str!("../../../../docs/scenarios.md");
    let (_, rest) = manual.split_once("```toml\n").expect("an example");
    rest.split_once("```").expect("its end").0.to_owned()
}

fn parse(text: &str) -> Result<Scenario, parda_config::Error> {
    Scenario::parse(&Document::new("s.toml", text))
}

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

const fn vm(host: usize, index: usize) -> VmIndex {
    VmIndex { host: HostIndex(host), index }
}

#[test]
fn the_manuals_example_means_what_it_says() {
    let scenario = parse(&example()).unwrap();
    assert_eq!(scenario.name, "example");
    assert_eq!((scenario.seed, scenario.duration), (7, secs(60)));

    let [first, second] = scenario.hosts.as_slice() else { panic!("two hosts") };
    assert_eq!((first.control.window_max, second.control.window_max), (Some(48.0), None));
    assert_eq!(second.control.mode, Some(ModeName::Off));
    let [db, web] = first.vms.as_slice() else { panic!("two VMs") };
    assert_eq!(
        (db.settings.shares(), db.settings.burst, db.disk),
        (Shares(2000), Some(4.0), Bytes(20 << 30))
    );
    let workload = Workload {
        sizes: vec![SizePart { size: Bytes::kib(16), percent: 100 }],
        read_percent: 70.0,
        random_percent: 100.0,
        hot: None,
        demand: ArrivalRule::Closed { outstanding: 32 },
        one_stream: false,
        trim_percent: 0.0,
        bursts: None,
    };
    assert_eq!(db.load, workload.clone().into());
    let demand = ArrivalRule::Closed { outstanding: 16 };
    assert_eq!(web.load, Workload { read_percent: 100.0, demand, ..workload }.into());

    let happens: Vec<_> = scenario.timeline.iter().map(|e| (e.at, &e.action)).collect();
    let mut controlled = first.control.clone();
    controlled.mode = Some(ModeName::Parda);
    assert_eq!(happens[0], (secs(0), &Action::StartVm(vm(0, 0))));
    assert_eq!(happens[1], (secs(0), &Action::StartVm(vm(1, 0))));
    assert_eq!(happens[2], (secs(5), &Action::StartVm(vm(0, 1))));
    assert_eq!(happens[3], (secs(20), &Action::SetControl(HostIndex(0), Box::new(controlled))));
    assert!(matches!(happens[4], (_, Action::SetControl(HostIndex(1), _))));
    let Action::SetVm(id, settings) = happens[5].1 else { panic!("{:?}", happens[5]) };
    assert_eq!((happens[5].0, *id, settings.shares()), (secs(30), vm(1, 0), Shares(1000)));
    assert_eq!(happens[6], (secs(40), &Action::KillHost(HostIndex(1))));
    assert_eq!(happens[7], (secs(45), &Action::StartHost(HostIndex(1))));
    assert_eq!(happens[8], (secs(55), &Action::StopVm(vm(0, 1))));
    assert_eq!(happens.len(), 9);

    let bounds: Vec<_> =
        scenario.expectations.iter().map(|e| (e.what.to_string(), e.bound)).collect();
    assert!(matches!(bounds[0].1, Bound::Near { expected: 30.0, .. }));
    assert_eq!(bounds[1], ("controlled/total/iops".to_owned(), Bound::AtLeast(0.92)));
}

#[test]
fn a_key_of_the_write_cache_changes_that_key_alone() {
    let text = with(
        "raid = { drives = 6 }",
        "raid = { drives = 6 }\ncontroller = { write_cache = { capacity = \"64MiB\" } }",
    );
    let cache = parse(&text).unwrap().array_params().unwrap().controller.write_cache.unwrap();
    let preset = parda_array::Preset::Cx340Raid0.params().controller.write_cache.unwrap();
    assert_eq!(cache, WriteCacheParams { capacity: parda_array::Bytes::mib(64), ..preset });
}

#[test]
fn the_array_has_a_lun_for_each_vm_and_one_for_the_exchange() {
    let array = parse(&example()).unwrap().array_params().unwrap();
    let preset = parda_array::Preset::Cx340Raid0.params();
    assert_eq!((array.raid.drives, array.raid.element), (6, preset.raid.element));
    let luns: Vec<u64> = array.layout.luns.iter().map(|size| size.0).collect();
    assert_eq!(luns, [20 << 30, 20 << 30, 20 << 30, 260 << 10]);
    assert!(matches!(array.layout.placement, Placement::Interleaved { .. }));
}

#[test]
fn many_alike_hosts_are_written_once_and_numbered() {
    let text = with("name = \"kvm-02\"", "name = \"kvm\"\ncount = 12")
        .replace("vm = \"batch\"", "vm = \"batch-012\"")
        .replace("host = \"kvm-02\"", "host = \"kvm-003\"");
    let scenario = parse(&text).unwrap();
    let names: Vec<_> =
        scenario.hosts.iter().map(|h| (h.name.as_str(), h.vms[0].name.as_str())).collect();
    assert_eq!(names[..2], [("kvm-01", "db"), ("kvm-001", "batch-001")]);
    assert_eq!((names.len(), names[12]), (13, ("kvm-012", "batch-012")));
    assert_eq!(scenario.hosts[1].vms[0].load, scenario.hosts[12].vms[0].load);
    assert!(
        scenario.timeline.iter().any(|e| matches!(&e.action, Action::SetVm(id, to) if *id == vm(12, 0) && to.shares() == Shares(1000)))
    );
    assert!(scenario.timeline.iter().any(|e| e.action == Action::KillHost(HostIndex(3))));
    assert_eq!(scenario.array_params().unwrap().layout.luns.len(), 2 + 12 + 1);
}

#[test]
fn a_disk_may_be_shared() {
    // The second VM shares the first one's disk; the third one's lies after it.
    let text = example().replacen(
        "shares = 1000\n  disk = \"20GiB\"",
        "shares = 1000\n  same_disk_as = \"db\"",
        1,
    );
    let scenario = parse(&text).unwrap();
    assert_eq!(scenario.vm_ids().map(|(_, vm)| vm.lun).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(
        (scenario.exchange_lun(), scenario.array_params().unwrap().layout.luns.len()),
        (2, 3)
    );
    assert_eq!(scenario.disk_owner(1).map(|vm| vm.name.as_str()), Some("batch"));
}

#[test]
fn state_follows_the_timeline() {
    let scenario = parse(&example()).unwrap();
    let (db, web, batch) = (vm(0, 0), vm(0, 1), vm(1, 0));
    let runs = |at, id| scenario.state_at(secs(at)).runs(id);
    assert!(runs(0, db) && !runs(4, web) && runs(5, web) && !runs(55, web));
    assert!(runs(39, batch) && !runs(40, batch) && runs(45, batch));
    assert_eq!(scenario.state_at(secs(30)).vm(batch).settings.shares(), Shares(1000));
    let mode = |at| scenario.state_at(secs(at)).host(HostIndex(0)).control.mode;
    assert_eq!((mode(19), mode(20)), (Some(ModeName::Off), Some(ModeName::Parda)));

    let [_, controlled] = scenario.phases.as_slice() else { panic!("two phases") };
    let across = parda_scenario::Phase { to: secs(50), ..controlled.clone() };
    // A phase that ends when the host is killed counts as whole; one across the kill does not.
    let throughout = |id, phase: &parda_scenario::Phase| {
        scenario.runs_throughout(id, phase, &scenario.state_at(phase.from))
    };
    assert!(throughout(batch, controlled));
    assert!(!throughout(batch, &across) && throughout(db, &across));
}

/// The example with the first `from` replaced. `from` must occur.
fn with(from: &str, to: &str) -> String {
    let text = example();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

/// Number of the first line of the example that contains `text`.
fn line_of(text: &str) -> usize {
    example().lines().position(|l| l.contains(text)).expect("such a line") + 1
}

#[test]
fn each_error_points_at_its_line_and_says_what_is_wrong() {
    // Text of the example, its replacement, the text whose line the error names, and the message.
    let cases = [
        ("name = \"example\"", "name = \"ex ample\"", "letters, digits"),
        ("seed = 7", "sead = 7", "unknown field `sead`"),
        ("duration = \"60s\"", "duration = \"60\"", "duration = \"60\""),
        ("duration = \"60s\"", "duration = \"0s\"", "must be above zero"),
        ("preset = \"cx3-40-raid0\"", "preset = \"cx5\"", "no array is called `cx5`"),
        ("raid = { drives = 6 }", "raid = { drivers = 6 }", "unknown field `drivers`"),
        ("raid = { drives = 6 }", "raid = { drives = 0 }", "drives = 0"),
        ("raid = { drives = 6 }", "drive = { seek = { base = \"5\" } }", "the unit is missing"),
        ("layout = \"interleaved\"", "layout = \"spread\"", "unknown variant `spread`"),
        ("# gap = \"4GB\"", "gap = \"4GB\"", "means nothing with layout = \"interleaved\""),
        ("# extent = \"1MiB\"", "extent = \"4KiB\"", "must be at least 1MiB"),
        ("mode = \"off\"", "mode = \"of\"", "unknown variant `of`"),
        (
            "latency_threshold = \"30ms\"",
            "latency_threshold = \"0ms\"",
            "latency_threshold must be at least 10us",
        ),
        ("window_max = 48", "window_max = 0.0001", "at least window_min"),
        ("name = \"kvm-02\"", "name = \"kvm-01\"", "another host of this name"),
        ("name = \"kvm-02\"", "count = 0\nname = \"many\"", "must be at least 1"),
        ("name = \"kvm-02\"", "count = 1024\nname = \"many\"", "at most 1024 hosts"),
        ("name = \"web\"", "name = \"db\"", "another VM of this name"),
        ("name = \"web\"", "name = \"exchange\"", "the name of the exchange's LUN"),
        ("shares = 2000", "shares = 0", "must be from 1 to 1000000"),
        ("burst = 4", "burst = -1", "must be from 0 to 1000000 IOs"),
        ("burst = 4", "latency_target = \"11s\"", "must be at most 10s"),
        ("disk = \"20GiB\"", "disk = \"8KiB\"", "hold one IO"),
        ("disk = \"20GiB\"", "same_disk_as = \"web\"", "must be the name of a VM further up"),
        (
            "name = \"db\"",
            "name = \"db\"\nsame_disk_as = \"web\"",
            "either `disk` or `same_disk_as`",
        ),
        ("read = \"70%\"", "read = \"170%\"", "0% to 100%"),
        ("read = \"70%\"", "read = 66.7", "must be a whole percentage"),
        ("read = \"70%\"", "read = \"much\"", "a number or a percentage"),
        ("size = \"16KiB\"", "size = \"100B\"", "multiple of 512 bytes"),
        ("outstanding = 32", "outstanding = 0", "at least 1"),
        ("stop = \"55s\"", "stop = \"4s\"", "after start"),
        ("stop = \"55s\"", "stop = \"2min\"", "not before the end of the run, 1m"),
        ("control = { mode = \"parda\" }", "control = { gamma = 2.0 }", "gamma must be"),
        ("vm = \"batch\"", "vm = \"bitch\"", "no VM of this name"),
        ("host = \"kvm-02\"", "host = \"kvm-03\"", "no host of this name"),
        ("do = \"kill\"", "do = \"hug\"", "unknown variant `hug`"),
        ("to = \"20s\"", "to = \"2s\"", "must be after from"),
        ("to = \"40s\"", "to = \"61s\"", "after the end of the run, 1m"),
        ("name = \"controlled\"", "name = \"uncontrolled\"", "another phase of this name"),
        ("controlled/total/device", "calm/total/device", "no phase `calm`; there is uncontrolled"),
        ("total/device_latency_ms", "host/kvm-9/iops", "no host `kvm-9`; there is kvm-01, kvm-02"),
        ("total/device_latency_ms", "total/happiness", "no quantity `happiness`; there is iops"),
        ("what = \"controlled/total/device_latency_ms\"", "what = \"iops\"", "is not a path"),
        ("tolerance = \"10%\"", "tolerance = -1", "must not be negative"),
        ("tolerance = \"10%\"", "exempt = \"\"\ntolerance = 1", "must say why"),
        ("name = \"controlled\"", "name = \"largest.x\"", "stands for an extreme"),
    ];
    for (from, to, says) in cases {
        let error = parse(&with(from, to)).expect_err(to).to_string();
        assert!(error.starts_with(&format!("s.toml:{}:", line_of(from))), "{to}: {error}");
        assert!(error.contains(says), "{to}: {error}");
    }
}

/// The example with this text as its first workload, and the line of that.
fn with_workload(workload: &str) -> (String, usize) {
    let text = with(
        "workload = { size = \"16KiB\", read = \"70%\", random = \"100%\", outstanding = 32 }",
        &format!("workload = {{ {workload} }}"),
    );
    let line = text.lines().position(|l| l.contains(workload)).expect("it") + 1;
    (text, line)
}

#[test]
fn a_workload_can_be_more_than_a_plain_closed_loop() {
    let of = |workload: &str| {
        let scenario = parse(&with_workload(workload).0).unwrap();
        scenario.hosts[0].vms[0].load.drawn().unwrap().clone()
    };
    let part = |kib, percent| SizePart { size: Bytes::kib(kib), percent };
    let workload = of("sizes = { \"64KiB\" = \"30%\", \"4KiB\" = 70 }, read = 67, random = 70, \
                       hot = { part = \"10%\", hits = \"90%\" }, rate = 500, on = \"2s\", off = \"8s\", one_stream = true");
    let expected = Workload {
        sizes: vec![part(4, 70), part(64, 30)],
        read_percent: 67.0,
        random_percent: 70.0,
        hot: Some(Hot { part_percent: 10.0, hits_percent: 90.0 }),
        demand: ArrivalRule::Open { rate: 500.0 },
        one_stream: true,
        trim_percent: 0.0,
        bursts: Some(Bursts { on: secs(2), off: secs(8) }),
    };
    assert_eq!(workload, expected);
    let demand = of("size = \"4KiB\", read = 67, random = 70, rate = 0.5").demand;
    assert_eq!(demand, ArrivalRule::Open { rate: 0.5 });
}

#[test]
fn a_workload_that_makes_no_sense_is_refused_where_it_stands() {
    let size = "size = \"4KiB\"";
    let mix = "read = 50, random = 50";
    let closed = "outstanding = 8";
    for (workload, value, says) in [
        (format!("{size}, sizes = {{}}, {mix}, {closed}"), "sizes", "in place of `size`"),
        (format!("{mix}, {closed}"), "workload", "must have `size`, or `sizes`"),
        (format!("sizes = {{}}, {mix}, {closed}"), "sizes", "100% together"),
        (
            format!("sizes = {{ \"4KiB\" = 70, \"8KiB\" = 20 }}, {mix}, {closed}"),
            "sizes",
            "100% together",
        ),
        (
            format!("sizes = {{ \"4KiB\" = 99.5, \"8KiB\" = 0.5 }}, {mix}, {closed}"),
            "4KiB = 99.5",
            "a whole percentage",
        ),
        (
            format!("sizes = {{ \"4KiB\" = 100, \"8KiB\" = 0 }}, {mix}, {closed}"),
            "8KiB = 0",
            "1% to 100%",
        ),
        (
            format!("sizes = {{ big = 100 }}, {mix}, {closed}"),
            "big = 100",
            "must be a size, such as",
        ),
        (format!("sizes = {{ \"4KB\" = 100 }}, {mix}, {closed}"), "4KB = 100", "multiple of 512"),
        (
            format!("sizes = {{ \"4KiB\" = 50, \"4096B\" = 50 }}, {mix}, {closed}"),
            "sizes",
            "the same size twice",
        ),
        (
            format!("sizes = {{ \"4KiB\" = 50, \"6KiB\" = 50 }}, {mix}, {closed}"),
            "sizes",
            "multiples of the smallest",
        ),
        (format!("{size}, {mix}"), "workload", "must have `outstanding`, or `rate`"),
        (format!("{size}, {mix}, {closed}, rate = 5"), "rate = 5", "in place of `outstanding`"),
        (format!("{size}, {mix}, rate = 0"), "rate = 0", "must be 0.001 to 1000000"),
        (format!("{size}, {mix}, rate = -5"), "rate = -5", "must be 0.001 to 1000000"),
        (format!("{size}, {mix}, rate = 1e7"), "rate = 1e7", "must be 0.001 to 1000000"),
        (format!("{size}, {mix}, rate = nan"), "rate = nan", "must be 0.001 to 1000000"),
        (format!("{size}, {mix}, {closed}, on = \"2s\""), "on = \"2s\"", "without `off`"),
        (format!("{size}, {mix}, {closed}, off = \"2s\""), "off = \"2s\"", "without `on`"),
        (
            format!("{size}, {mix}, {closed}, on = \"2s\", off = \"0s\""),
            "off = \"0s\"",
            "must be at least 1ms",
        ),
        (
            format!("{size}, {mix}, {closed}, hot = {{ part = 10 }}"),
            "workload = {",
            "missing field `hits`",
        ),
        (
            format!("{size}, {mix}, {closed}, hot = {{ part = 100, hits = 90 }}"),
            "part = 100",
            "1% to 99%",
        ),
        (
            format!("{size}, {mix}, {closed}, hot = {{ part = 10, hits = 0 }}"),
            "hits = 0",
            "1% to 100%",
        ),
        (
            format!("{size}, read = 50, random = 0, {closed}, hot = {{ part = 10, hits = 90 }}"),
            "hot",
            "none are random",
        ),
    ] {
        let (text, line) = with_workload(&workload);
        let error = parse(&text).expect_err(&workload).to_string();
        assert!(error.starts_with(&format!("s.toml:{line}:")), "{workload}: {error}");
        let message = error.splitn(4, ':').nth(3).unwrap_or_default().trim_start();
        assert!(message.starts_with(value), "{workload}: {error}");
        assert!(error.contains(says), "{workload}: {error}");
    }
}

#[test]
fn a_disk_must_have_room_for_the_hot_part_and_the_rest() {
    let (text, _) = with_workload(
        "sizes = { \"4KiB\" = 50, \"64KiB\" = 50 }, read = 50, random = 50, outstanding = 8, \
         hot = { part = 10, hits = 90 }",
    );
    let on =
        |disk: &str| parse(&text.replacen("disk = \"20GiB\"", &format!("disk = \"{disk}\""), 1));
    assert!(on("80KiB").is_ok());
    assert!(on("60KiB").unwrap_err().to_string().contains("hold one IO"));
    assert!(on("64KiB").unwrap_err().to_string().contains("too small to have a hot part"));
}

#[test]
fn a_phase_counts_as_worked_through_within_one_burst_only() {
    let workload =
        "size = \"4KiB\", read = 50, random = 50, outstanding = 8, on = \"4s\", off = \"6s\"";
    // On kvm-02, which dies at 40 s and is back at 45 s, batch begins a burst at that moment.
    let text = with(
        "workload = { size = \"16KiB\", read = \"100%\", random = \"100%\", outstanding = 64 }",
        &format!("workload = {{ {workload} }}"),
    );
    let scenario = parse(&text).unwrap();
    let throughout = |from: u64, to: u64| {
        let phase = parda_scenario::Phase { name: "p".to_owned(), from: secs(from), to: secs(to) };
        scenario.runs_throughout(vm(1, 0), &phase, &scenario.state_at(phase.from))
    };
    assert!(throughout(0, 4) && throughout(11, 13) && throughout(45, 49) && throughout(56, 58));
    assert!(!throughout(0, 5) && !throughout(5, 9) && !throughout(9, 12) && !throughout(51, 53));
    assert!(!throughout(42, 44), "its host is dead");
}

#[test]
fn events_that_make_no_sense_are_refused_where_they_stand() {
    let cases = [
        ("vm = \"db\"\ndo = \"start\"", "this VM is running already"),
        (
            "vm = \"web\"\ndo = \"stop\"\n[[event]]\nat=\"41s\"\nvm=\"web\"\ndo=\"stop\"",
            "not running",
        ),
        ("host = \"kvm-01\"\ndo = \"start\"", "alive already"),
        (
            "host = \"kvm-01\"\ndo = \"kill\"\n[[event]]\nat=\"41s\"\nhost=\"kvm-02\"\ndo=\"kill\"",
            "dead",
        ),
        ("host = \"kvm-01\"\ndo = \"stop\"", "must say one thing"),
        ("host = \"kvm-01\"\nshares = 3", "must say one thing"),
        ("vm = \"db\"", "must say one thing"),
        ("", "must say one thing"),
    ];
    for (event, says) in cases {
        let text = format!("{}\n[[event]]\nat = \"41s\"\n{event}\n", example());
        let error = parse(&text).expect_err(event).to_string();
        let place = text.lines().collect::<Vec<_>>().iter().rposition(|l| l.starts_with("at"));
        assert!(error.starts_with(&format!("s.toml:{}:", place.unwrap() + 1)), "{event}: {error}");
        assert!(error.contains(says), "{event}: {error}");
    }
}

#[test]
fn an_expectation_has_one_bound() {
    for (from, to) in [("tolerance = \"10%\"", ""), ("at_least = \"92%\"", "")] {
        let error = parse(&with(from, to)).unwrap_err().to_string();
        assert!(error.contains("`expected` and `tolerance`, or `at_least`"), "{error}");
    }
}

#[test]
fn a_scenario_needs_hosts_vms_and_phases() {
    let head = "name = \"x\"\nduration = \"1s\"\n[array]\npreset = \"drive-7200\"\n";
    assert!(parse(head).unwrap_err().to_string().contains("at least one [[host]]"));
    let host = format!("{head}[[host]]\nname = \"h\"\n");
    assert!(
        parse(&host).unwrap_err().to_string().starts_with("s.toml:6:8: name = \"h\": must have at")
    );
}

#[test]
fn the_scenarios_that_come_with_parda_make_sense() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut folders = vec![PathBuf::from(folder)];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // The folder also has the traces that the scenarios replay.
            if path.extension().is_none_or(|kind| kind != "toml") {
                continue;
            }
            let study = Study::parse(&Document::read(&path).unwrap()).unwrap();
            assert_eq!(path.file_stem().unwrap().to_str(), Some(study.name.as_str()));
            assert!(!study.expectations.is_empty(), "{}: expects nothing", study.name);
            names.push(study.name);
        }
    }
    assert!(names.iter().any(|name| name == "demo"), "{names:?}");
}

#[test]
fn a_guest_has_one_disk_and_only_its_own_settings() {
    let guest = |host: &str, second: &str| {
        let vm = |name: &str, disk: &str| {
            format!(
                "[[host.vm]]\nname = \"{name}\"\nshares = 1\n{disk}\n\
                 workload = {{ size = \"4KiB\", read = 100, random = 100, outstanding = 8 }}\n"
            )
        };
        let text = format!(
            "name = \"x\"\nduration = \"9s\"\n[array]\npreset = \"drive-15k\"\n\
             [[host]]\nname = \"h\"\n{host}\n{}{}[[phase]]\nname = \"p\"\nfrom = \"1s\"\n\
             to = \"2s\"\n",
            vm("db", "disk = \"1GiB\""),
            vm("web", second),
        );
        parse(&text).map(|scenario| scenario.hosts[0].guest)
    };
    let same = "same_disk_as = \"db\"";
    assert_eq!(guest("", same).unwrap(), None);
    let found = guest("kind = \"guest\"", same).unwrap();
    let settings = GuestSettings { disk: GuestDisk::Scsi, queue_depth: None };
    assert_eq!(found, Some(settings));
    let all = "outside = true\nkind = \"guest\"\n\
               guest = { disk = \"iscsi\", queue_depth = 4 }";
    let found = guest(all, same).unwrap();
    let settings = GuestSettings { disk: GuestDisk::Iscsi, queue_depth: Some(4) };
    assert_eq!(found, Some(settings));
    for (host, second, says) in [
        ("guest = { disk = \"nbd\" }", same, "s.toml:7:9: guest: means nothing for a host"),
        ("kind = \"guest\"", "disk = \"1GiB\"", "a guest has one disk"),
        ("kind = \"guest\"", "same_disk_as = \"db\"\nburst = 3", "cannot have `burst`"),
        ("kind = \"guest\"\nguest = { queue_depth = 4 }", same, "its agent's affair"),
        (
            "kind = \"guest\"\ncontrol = { fairness = \"bytes\" }",
            same,
            "the kernel's queue counts IOs",
        ),
        ("kind = \"cloud\"", same, "unknown variant `cloud`"),
    ] {
        let error = guest(host, second).expect_err(host).to_string();
        assert!(error.contains(says), "{host}: {error}");
    }
}
