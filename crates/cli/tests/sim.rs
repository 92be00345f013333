//! `parda sim` as a person runs it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/demo.toml");
    Command::new(env!("CARGO_BIN_EXE_parda")).arg("sim").arg(demo).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_answer_is_a_table_or_json_and_the_same_each_time() {
    let table = sim(&[]);
    assert!(table.status.success());
    assert!(text(&table.stdout).contains("all 6 expectations hold"), "{}", text(&table.stdout));
    let json = sim(&["--json", "-"]);
    assert_eq!(json.stdout, sim(&["--json", "-"]).stdout);
    assert_ne!(json.stdout, sim(&["--json", "-", "--seed", "2"]).stdout);
    let answer: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((answer["engine"].as_str(), answer["seed"].as_u64()), (Some("sim"), Some(1)));
}

#[test]
fn an_expectation_that_fails_is_exit_status_1() {
    let output = sim(&["--set", "event.0.control.mode=off"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("FAIL"), "{}", text(&output.stdout));
}

#[test]
fn a_setting_that_cannot_be_is_named() {
    for (setting, says) in [
        ("control.epsilon=7", "epsilon must be above 0, at most 1, but is 7"),
        ("host.9.vm.0.shares=1", "there is no host.9: host has 4"),
        ("host.0.vm.0.sahres=1", "unknown field `sahres`"),
        ("seed", "must be KEY=VALUE"),
    ] {
        let output = sim(&["--set", setting]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && error.contains(setting), "{error}");
    }
}

#[test]
fn a_series_has_a_number_for_each_host_and_second() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("series.json");
    assert!(sim(&["--series", file.to_str().unwrap()]).status.success());
    let series: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(series["at"].as_array().unwrap().len(), 60);
    let host = &series["hosts"][3];
    assert_eq!(host["name"], "kvm-04");
    for quantity in ["window", "beta", "device_latency_ms", "iops"] {
        assert_eq!(host[quantity].as_array().unwrap().len(), 60, "{quantity}");
    }
}

#[test]
fn variants_come_in_one_table_and_one_of_them_alone_if_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("demo.toml");
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/demo.toml");
    let demo = std::fs::read_to_string(demo).unwrap();
    let (scenario, _) = demo.split_once("[[expect]]").unwrap();
    let sweep = "[[sweep]]\nkey = \"host.0.vm.0.shares\"\nvalues = [1000, 4000]\n";
    std::fs::write(&file, format!("{scenario}{sweep}")).unwrap();
    let sim = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parda"));
        command.arg("sim").arg(&file).args(args).output().unwrap()
    };
    let table = text(&sim(&[]).stdout);
    let rows =
        |table: &str| table.lines().filter(|l| l.trim_start().starts_with("shares=")).count();
    assert_eq!(rows(&table), 4, "{table}");
    assert_eq!(rows(&text(&sim(&["--variant", "shares=4000"]).stdout)), 2);
    let error = sim(&["--variant", "shares=2"]);
    assert_eq!(error.status.code(), Some(2));
    assert!(
        text(&error.stderr).contains("there is shares=1000, shares=4000"),
        "{}",
        text(&error.stderr)
    );
}
