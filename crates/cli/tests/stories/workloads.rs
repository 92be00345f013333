//! Workloads to and from fio, and a trace from its file to an answer.

use crate::stage::{PARDA, Stage};

fn scenario(name: &str) -> String {
    format!("{}/../../scenarios/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_scenarios_load_goes_to_fio_and_comes_back() {
    let stage = Stage::new();
    let demo = scenario("demo.toml");
    stage.ok(&[PARDA, "workload", "export", &demo, "--out", "demo.fio"]);
    stage.ok(&["fio", "--parse-only", "demo.fio"]);
    let imported = stage.ok(&[PARDA, "workload", "import", "demo.fio", "--job", "batch"]);
    let says = "# batch\ndisk = \"16GiB\"\nworkload = { size = \"16KiB\", read = 100, random = 100, \
                outstanding = 128 }\n";
    assert_eq!(imported, says);
    // A real fio does it, for a moment and on nothing.
    let only = ["workload", "export", &demo, "--vm", "db", "--out", "db.fio"];
    assert!(stage.parda(&only).status.success());
    let job = String::from_utf8(stage.read("db.fio")).unwrap();
    stage.write("db.fio", job.replace("libaio", "null").replace("runtime=60s", "number_ios=500"));
    let ran = stage.ok(&["fio", "--minimal", "db.fio"]);
    assert!(ran.starts_with("3;"), "{ran}");
}

#[test]
fn the_points_of_a_probe_go_to_fio() {
    let stage = Stage::new();
    stage.ok(&[PARDA, "probe", "model:drive-7200", "--experiment", "elling", "--json", "p.json"]);
    stage.ok(&[PARDA, "workload", "export", "p.json", "--target", "/dev/sdx", "--out", "p.fio"]);
    stage.ok(&["fio", "--parse-only", "p.fio"]);
    let job = String::from_utf8(stage.read("p.fio")).unwrap();
    let sections = job.lines().filter(|line| line.starts_with('[')).count();
    let probe: serde_json::Value = serde_json::from_slice(&stage.read("p.json")).unwrap();
    let points = probe["points"].as_array().unwrap().len();
    assert_eq!(sections, points + 1, "and what all have in common: {job}");
}

#[test]
fn what_is_wrong_with_a_job_file_or_a_trace_is_pointed_at() {
    let stage = Stage::new();
    stage.write("a.fio", "[a]\nrw=randread\nrate=10m\n");
    stage.write("t.log", "fio version 3 iolog\n0 d read 0\n");
    for (line, says) in [
        (
            ["import", "a.fio"],
            "a.fio:3:1: rate=10m: has no counterpart in a workload: say it in IOs",
        ),
        (["describe", "t.log"], "t.log:2:1: 0 d read 0: must be a file and what is done to it"),
        (["describe", "a.fio"], "a.fio:1:1: [a]: is neither fio's log"),
        (["export", "a.fio"], "a.fio:2:"),
        (["describe", "none"], "none: cannot be read: No such file"),
    ] {
        let done = stage.parda(&["workload", line[0], line[1]]);
        assert_eq!(done.status.code(), Some(2), "{}", done.err);
        assert!(done.err.contains(says), "{says} is not in: {}", done.err);
    }
    let nobody = ["workload", "export", &scenario("demo.toml"), "--vm", "nobody"];
    let done = stage.parda(&nobody);
    assert!(done.err.contains("there is no VM `nobody`; there is db, web,"), "{}", done.err);
}

/// What docs/workloads.md walks through.
#[test]
fn a_trace_answers_what_the_array_would_do_with_twelve_hosts() {
    let stage = Stage::new();
    let trace = scenario("traces/shop.blkparse");
    let said = stage.ok(&[PARDA, "workload", "describe", &trace]);
    let line = "IOs         2223, 6.5 MiB altogether";
    assert!(said.lines().any(|l| l == line), "{said}");
    let json = stage.ok(&[PARDA, "workload", "describe", &trace, "--json", "-"]);
    let summary: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&summary["ios"], &summary["disk"]), (&2223.into(), &134_235_136.into()));
    let twelve = scenario("traces/twelve-hosts.toml");
    let answer = stage.ok(&[PARDA, "sim", &twelve]);
    assert!(answer.contains("6 passed, 0 missed, 0 exempt"), "{answer}");
    let done = stage.parda(&["lab", "--check", &twelve]);
    assert!(done.err.contains("`trace`, of db-001, is beyond the laboratory"), "{}", done.err);
    // Each VM gets a log of its own, for fio to replay.
    let export = [PARDA, "workload", "export", &twelve, "--variant", "12", "--vm", "db-002"];
    stage.ok(&[&export[..], &["--out", "r.fio"]].concat());
    stage.ok(&["fio", "--parse-only", "r.fio"]);
    let said = stage.ok(&[PARDA, "workload", "describe", "db-002.iolog"]);
    assert!(said.contains("fio iolog, version 3"), "{said}");
}
