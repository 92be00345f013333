//! Workloads that a scenario takes from files beside it.
use std::path::Path;
use std::sync::Arc;

use parda_config::Document;
use parda_control::Bytes;
use parda_scenario::{Scenario, Study};
use parda_workload::ClientLoad;
use parda_workload::trace::Begin;

/// Three IOs within 300 ms, the last at the end of a disk of 1 MiB.
const THREE: &str = "fio version 3 iolog\n0 d add\n1 d open\n100000 d read 0 4096\n\
                     200000 d write 4096 512\n400000 d read 1044480 4096\n500000 d close\n";

fn scenario(folder: &Path, vm: &str) -> Result<Scenario, String> {
    let text = format!(
        "name = \"t\"\nduration = \"3s\"\n[array]\npreset = \"cx3-40-raid0\"\n[[host]]\n\
         name = \"a\"\n[[host.vm]]\nname = \"db\"\nshares = 1\n{vm}\n[[phase]]\nname = \"p\"\n\
         from = \"1s\"\nto = \"2s\"\n"
    );
    let name = folder.join("t.toml").display().to_string();
    Scenario::parse(&Document::new(name, text)).map_err(|e| e.to_string())
}

#[test]
fn a_scenario_takes_a_job_by_its_name_from_the_file_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[global]\nioengine=libaio\nrw=randread\nsize=2g\n[a]\n[b]\nbs=8k\n";
    std::fs::write(folder.path().join("db.fio"), job).unwrap();
    let parse = |vm: &str| scenario(folder.path(), vm);
    let made = parse("workload = { fio = \"db.fio\", job = \"b\" }").unwrap();
    let vm = &made.hosts[0].vms[0];
    assert_eq!(vm.disk, Bytes(2 << 30));
    assert_eq!(vm.load.drawn().unwrap().grain(), Bytes::kib(8));
    assert!(parse("disk = \"2GiB\"\nworkload = { fio = \"db.fio\", job = \"b\" }").is_ok());
    for (vm, says) in [
        ("workload = { fio = \"db.fio\" }", "has several jobs: say which: a, b"),
        ("workload = { fio = \"no.fio\" }", "cannot be read"),
        ("workload = { fio = \"db.fio\", job = \"c\" }", "has no job `c`; it has a, b"),
        ("workload = { fio = \"db.fio\", read = 10 }", "read = 10: means nothing beside `fio`"),
        (
            "disk = \"1GiB\"\nworkload = { fio = \"db.fio\", job = \"a\" }",
            "disk = \"1GiB\": is not that of the job, whose `size` is 2147483648",
        ),
        (
            "disk = \"1GiB\"\nworkload = { size = \"4KiB\", read = 1, random = 1, outstanding = 1, \
             speed = 2 }",
            "speed = 2: means nothing without `trace`",
        ),
        (
            "disk = \"1GiB\"\nworkload = { size = \"4KiB\", random = 1 }",
            "workload: must have `read`",
        ),
    ] {
        let error = parse(vm).unwrap_err();
        assert!(error.contains("t.toml:") && error.contains(says), "{error}");
    }
}

fn replayed(folder: &Path, vm: &str, more: &str) -> Result<Scenario, String> {
    let text = format!(
        "name = \"t\"\nduration = \"3s\"\n[array]\npreset = \"cx3-40-raid0\"\n[[host]]\n\
         name = \"a\"\ncount = 3\n[[host.vm]]\nname = \"db\"\nshares = 1\n{vm}\n[[phase]]\n\
         name = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n{more}"
    );
    let name = folder.join("t.toml").display().to_string();
    let study = Study::parse(&Document::new(name, text)).map_err(|e| e.to_string())?;
    Ok(study.runs[0].scenario.clone())
}

#[test]
fn hosts_share_one_copy_of_a_trace_and_do_not_keep_step() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.log"), THREE).unwrap();
    let old = "fio version 2 iolog\nd read 0 512\nd read 512 512\n";
    std::fs::write(folder.path().join("old.log"), old).unwrap();
    let parse = |vm: &str, more: &str| replayed(folder.path(), vm, more);
    let replays = |scenario: &Scenario| {
        let all = scenario.vm_ids().map(|(_, vm)| match &vm.load {
            ClientLoad::Replayed(replay) => (replay.clone(), vm.disk),
            ClientLoad::Drawn(_) => panic!("drawn"),
        });
        all.collect::<Vec<_>>()
    };
    let sweep = "[[sweep]]\nkey = \"host.0.vm.0.workload.speed\"\nvalues = [2, 3]\n";
    let all = replays(&parse("workload = { trace = \"t.log\", repeat = true }", sweep).unwrap());
    assert!(all.iter().all(|(one, disk)| {
        Arc::ptr_eq(&one.trace, &all[0].0.trace) && *disk == Bytes(1 << 20) && one.speed == 2.0
    }));
    let begin: Vec<Begin> = all.iter().map(|(replay, _)| replay.begin).collect();
    assert_eq!(begin, [Begin::First, Begin::Anywhere, Begin::Anywhere]);
    let all = replays(&parse("workload = { trace = \"t.log\", in_step = true }", "").unwrap());
    assert!(all.iter().all(|(one, _)| one.begin == Begin::First && !one.repeat));
    for (vm, says) in [
        ("workload = { trace = \"no.log\" }", "cannot be read"),
        ("workload = { trace = \"old.log\" }", "says not when its IOs arrived"),
        ("workload = { trace = \"t.log\", speed = 0 }", "speed = 0: must be 0.001 to 1000"),
        ("workload = { trace = \"t.log\", read = 7 }", "read = 7: means nothing beside `trace`"),
        ("workload = { trace = \"t.log\", fio = \"x\" }", "stands in place of `fio`: give one"),
        (
            "disk = \"512KiB\"\nworkload = { trace = \"t.log\" }",
            "is too small for the trace, which goes up to 1048576",
        ),
        ("disk = \"2KiB\"\nworkload = { trace = \"t.log\", fold = true }", "hold an IO of 4096"),
    ] {
        let error = parse(vm, "").unwrap_err();
        assert!(error.contains("t.toml:") && error.contains(says), "{error}");
    }
    let folded = parse("disk = \"512KiB\"\nworkload = { trace = \"t.log\", fold = true }", "");
    assert_eq!(replays(&folded.unwrap())[0].1, Bytes(512 << 10));
}
