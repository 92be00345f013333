//! `parda-lab sim` as a person runs it.
use std::path::Path;
use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/demo.toml");
    Command::new(env!("CARGO_BIN_EXE_parda-lab")).arg("sim").arg(demo).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_answer_is_a_table_or_json_and_the_same_each_time() {
    let table = sim(&[]);
    assert!(table.status.success());
    assert!(
        text(&table.stdout).contains("6 passed, 0 missed, 0 exempt"),
        "{}",
        text(&table.stdout)
    );
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
        ("control.gamma=7", "gamma must be above 0, at most 1, but is 7"),
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_parda-lab"));
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

/// Runs a scenario of its own: the demo's, without its expectations, and what is added.
fn sim_with(added: &str, args: &[&str]) -> (Output, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/demo.toml");
    let demo = std::fs::read_to_string(demo).unwrap();
    let (scenario, _) = demo.split_once("[[expect]]").unwrap();
    let file = dir.path().join("own.toml");
    std::fs::write(&file, format!("{scenario}{added}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_parda-lab"));
    let output = command.current_dir(&dir).arg("sim").arg(&file).args(args).output().unwrap();
    (output, dir)
}

/// Names of files in a folder, and whether each is what its ending says.
fn drawn(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap();
        assert!(content.starts_with(b"<svg"), "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    names
}

#[test]
fn without_plots_of_its_own_a_scenario_is_drawn_over_time() {
    let dir = tempfile::tempdir().unwrap();
    let plots = dir.path().join("new/folder");
    let output = sim(&["--plot", plots.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(drawn(&plots), ["demo.svg"]);
    let said = text(&output.stderr);
    assert!(said.contains("demo.svg"), "{said}");
    let svg = std::fs::read_to_string(plots.join("demo.svg")).unwrap();
    for part in [
        "Window, slots",
        "Device latency, ms",
        "Throughput, IOPS",
        "time, s",
        "kvm-04",
        "threshold",
        "controlled",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    assert_eq!(svg.matches("class=\"series\"").count(), 12, "three panels of four hosts");
}

#[test]
fn a_scenario_says_what_is_drawn_of_it() {
    let plots = "
        [[plot]]
        name = \"latency\"
        title = \"Only latency\"
        over = \"time\"
        panels = [\"device_latency_ms\"]
        [[plot]]
        over = \"hosts\"
        panels = [\"iops\"]
        [[expect]]
        what = \"controlled/host/kvm-04/iops\"
        expected = 130
        tolerance = \"20%\"
        source = \"test\"
    ";
    let (output, dir) = sim_with(plots, &["--plot", "plots"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plots = dir.path().join("plots");
    assert_eq!(drawn(&plots), ["demo-2.svg", "demo-latency.svg"]);
    let latency = std::fs::read_to_string(plots.join("demo-latency.svg")).unwrap();
    assert!(latency.contains("Only latency") && !latency.contains("Window"));
    let hosts = std::fs::read_to_string(plots.join("demo-2.svg")).unwrap();
    assert_eq!(hosts.matches("class=\"series\"").count(), 3, "two phases, and what is expected");
    assert!(hosts.contains("expected (hollow)"));
}

#[test]
fn a_sweep_is_a_table_with_a_row_for_each_variant_and_judges_each() {
    let sweep = [
        "--sweep",
        "control.latency_threshold=30ms,50ms",
        "--sweep",
        "host.3.vm.0.shares=500,4000",
    ];
    let output = sim(&sweep);
    let table = text(&output.stdout);
    // At 30 ms, latency is not the 50 ms that the file expects.
    assert_eq!(output.status.code(), Some(1), "{table}");
    let rows: Vec<&str> = table.lines().filter(|l| l.contains(" controlled ")).collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(
        rows[0].contains("latency_threshold=30ms,shares=500") && rows[0].contains("4 of 5"),
        "{table}"
    );
    assert!(
        rows[2].contains("latency_threshold=50ms,shares=500") && rows[2].contains("5 of 5"),
        "{table}"
    );

    let json = sim(&[&sweep[..], &["--json", "-"]].concat());
    let answer: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["phases"].as_array().unwrap().len(), 8);
    assert_eq!(answer["expectations"].as_array().unwrap().len(), 24);
    let what = answer["expectations"][0]["what"].as_str().unwrap();
    assert_eq!(what, "latency_threshold=30ms,shares=500.uncontrolled/total/fairness");
}

#[test]
fn a_sweep_is_drawn_over_what_is_swept() {
    let sweep = ["--sweep", "control.latency_threshold=30ms,50ms", "--plot", "plots"];
    let (output, dir) = sim_with("", &sweep);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plots = dir.path().join("plots");
    assert_eq!(drawn(&plots), ["demo.svg"]);
    let svg = std::fs::read_to_string(plots.join("demo.svg")).unwrap();
    for part in
        ["latency threshold", ">\n30ms\n<", ">\n50ms\n<", "uncontrolled", "Throughput, IOPS"]
    {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn a_sweep_or_a_plot_that_cannot_be_is_named() {
    for (args, says) in [
        (&["--sweep", "control.gamma"][..], "--sweep control.gamma: must be KEY=VALUE,VALUE"),
        (&["--sweep", "control.gamma=0.2,"], "must be KEY=VALUE,VALUE"),
        (&["--sweep", "control.gamma=0.2,7"], "--sweep control.gamma=7"),
        (&["--sweep", "control.gamma=0.2,0.2"], "there is another variant of this name"),
        (&["--sweep", "host.9.vm.0.shares=1,2"], "there is no host.9"),
        (&["--sweep", "control.epsilno=1"], "unknown field `epsilno`"),
    ] {
        let output = sim(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(says), "{error}");
    }
    for (plot, says) in [
        ("over = \"space\"", "unknown variant `space`"),
        ("over = \"time\"\npanels = [\"iops\", \"iosp\"]", "= \"iosp\": is not kept"),
        ("over = \"time\"\npanels = [\"fairness\"]", "is not kept over time; there is window"),
        ("over = \"time\"\npanels = []", "must name at least one quantity"),
        ("over = \"time\"\nvariant = \"q\"", "there are no variants"),
        ("over = \"time\"\nx = \"hosts\"", "means nothing for a plot over this"),
        (
            "over = \"hosts\"\nphase = \"q\"",
            "there is no phase of this name; there is uncontrolled",
        ),
        ("over = \"hosts\"\npanels = [\"total/iops\"]", "there is no quantity `total/iops`"),
        ("over = \"variants\"\npanels = [\"host/q/iops\"]", "there is no host `q`"),
        ("over = \"variants\"\nx = \"control.gamma\"", "must be what every variant sets"),
        ("over = \"time\"\nname = \"a/b\"", "must be 1 to 63 letters"),
    ] {
        let (output, _dir) = sim_with(&format!("[[plot]]\n{plot}\n"), &["--check"]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{plot}: {error}");
        assert!(error.contains("own.toml:") && error.contains(says), "{plot}: {error}");
    }
    let output = sim(&["--plot", "/dev/null/plots"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot make the folder /dev/null/plots"));
}
