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
        ("workload = { trace = \"t.log\", speed = 0 }", "speed = 0: must be 0.001 to 1000"),
        ("workload = { trace = \"t.log\", read = 7 }", "read = 7: means nothing beside `trace`"),
        ("workload = { size = \"4KiB\", speed = 2 }", "speed = 2: means nothing without `trace`"),
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
