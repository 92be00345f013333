//! The command `lab` as a person runs it: every scenario in `scenarios/` holds with real processes, its
//! answer is the simulator's, and nothing that it started outlives it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parda-lab"));
    command.arg("lab").stdin(Stdio::null());
    command
}

/// How long processes may take to start or to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How far the laboratory's throughput and latency may be from the simulator's.
const AGREEMENT: f64 = 0.1;

/// The throughput and the device latency of each phase, by its name.
fn totals(answer: &Path) -> BTreeMap<String, [f64; 2]> {
    let answer: Value = serde_json::from_slice(&fs::read(answer).unwrap()).unwrap();
    let total = |phase: &Value| {
        let numbers = ["iops", "device_latency_ms"].map(|q| phase["total"][q].as_f64().unwrap());
        (phase["name"].as_str().unwrap().to_owned(), numbers)
    };
    answer["phases"].as_array().unwrap().iter().map(total).collect()
}

/// The expectations that an answer misses; none if there is no answer.
fn missed(answer: &Path) -> Vec<String> {
    let answer = fs::read(answer).ok().and_then(|json| serde_json::from_slice::<Value>(&json).ok());
    let expectations = answer.and_then(|answer| answer["expectations"].as_array().cloned());
    let missed = expectations.into_iter().flatten().filter(|e| e["ok"] == Value::Bool(false));
    missed.map(|expectation| expectation.to_string()).collect()
}

/// What the laboratory says when its processes did not get a processor when they were due.
const SHORT: &str = "this machine was short of CPU";

/// Work that waits for a processor beside the laboratory, for each processor, beyond which its clients and agents are late.
const CROWDED: f64 = 1.5;

/// Runs of a scenario that has this process to itself, on a machine that others load.
const TRIES: usize = 3;

/// Time that a run waits for the work of others to end.
const CALM_WITHIN: Duration = Duration::from_secs(120);

/// Whether more waits for a processor, over the last minute, than a scenario in real time can stand.
fn is_crowded() -> bool {
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = load.split_whitespace().next().unwrap().parse().unwrap();
    load > CROWDED * std::thread::available_parallelism().unwrap().get() as f64
}

/// Waits for others on the machine, but not for ever.
fn until_calm() {
    let since = Instant::now();
    while is_crowded() && since.elapsed() < CALM_WITHIN {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// A run of one scenario.
struct Tried {
    /// Everything that the laboratory printed, and the comparison with the simulator.
    said: String,
    /// What does not hold; empty if all does.
    wrong: Vec<String>,
}

impl Tried {
    /// The machine had too little for it, by the laboratory or by its load.
    fn was_short(&self) -> bool {
        self.said.contains(SHORT) || is_crowded()
    }
}

/// Runs one scenario, and holds its answer against the simulator's.
fn tried(scenario: &Path, answer: &Path) -> Tried {
    let output = lab().arg(scenario).arg("--json").arg(answer).output().unwrap();
    let [mut said, errors] =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    said += &errors;
    if !output.status.success() {
        let mut wrong = vec![format!("{} does not hold", scenario.display())];
        wrong.extend(missed(answer));
        return Tried { said, wrong };
    }
    let parda = scenarios();
    if ![Some(&*parda), Some(&*parda.join("lab"))].contains(&scenario.parent()) {
        return Tried { said, wrong: Vec::new() };
    }
    let simulated = answer.with_extension("sim");
    let mut sim = Command::new(env!("CARGO_BIN_EXE_parda-lab"));
    let sim = sim.arg("sim").arg(scenario).arg("--json").arg(&simulated).output().unwrap();
    assert!(sim.status.success(), "{}", String::from_utf8_lossy(&sim.stderr));
    let (simulated, here) = (totals(&simulated), totals(answer));
    assert_eq!(simulated.len(), here.len());
    let mut wrong = Vec::new();
    for (phase, simulated) in simulated {
        let here = here[&phase];
        let far = |(s, l): (f64, f64)| (s / l - 1.0).abs() > AGREEMENT;
        said +=
            &format!("{phase}: IOPS and ms {here:.1?} here, {simulated:.1?} in the simulator\n");
        if simulated.into_iter().zip(here).any(far) {
            wrong.push(format!("{}, {phase}: {here:?}, but {simulated:?}", scenario.display()));
        }
    }
    Tried { said, wrong }
}

/// How many scenarios run side by side. Each asks for a fifth of a processor, and mostly waits.
const AT_A_TIME: usize = 4;

/// Scenarios of `make test`: shares, a host that hangs and a drive that fails, and a network that loses datagrams and parts.
/// The others hold the law in real time too; `lab/sim/tests` hold each of them, or its study, in virtual time.
const FIRST: [&str; 3] = ["demo", "events", "udp"];

#[test]
fn scenarios_hold_and_the_simulator_agrees() {
    let files = files(true);
    assert_eq!(files.len(), FIRST.len(), "{files:?}");
    all_hold(files);
}

#[test]
#[ignore = "the law in real time where virtual time holds it already: make nightly"]
fn the_other_scenarios_hold_and_the_simulator_agrees() {
    let files = files(false);
    assert!(files.len() >= 5, "{files:?}");
    all_hold(files);
}

/// The scenarios of [`FIRST`], or the others.
fn files(first: bool) -> Vec<PathBuf> {
    // Those that come with parda for it, and some that only try what it can do.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = [scenarios(), scenarios().join("lab"), own]
        .into_iter()
        .flat_map(|dir| fs::read_dir(dir).unwrap());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let is_first =
        |path: &PathBuf| FIRST.iter().any(|name| path.file_stem() == Some(name.as_ref()));
    files.retain(|path| path.is_file() && is_first(path) == first);
    files.sort();
    files
}

/// The machine, which a scenario that is run once more has to itself.
static MACHINE: RwLock<()> = RwLock::new(());

/// A turn beside others.
fn turn() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// All of these hold. One that does not, and for which the machine had too little, is run again and has this process to itself: then it
/// must.
fn all_hold(files: Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let (left, wrong, again) = (Mutex::new(files), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().pop();
    let work = &|worker: usize| {
        let answer = dir.path().join(format!("answer{worker}"));
        while let Some(file) = next() {
            let tried = tried(&file, &answer);
            println!("{}", tried.said);
            if !tried.wrong.is_empty() && tried.was_short() {
                println!("once more, alone, as the machine was short of CPU: {:#?}", tried.wrong);
                again.lock().unwrap().push(file);
            } else {
                wrong.lock().unwrap().extend(tried.wrong);
            }
        }
    };
    let beside = turn();
    std::thread::scope(|scope| {
        for worker in 0..AT_A_TIME {
            scope.spawn(move || work(worker));
        }
    });
    drop(beside);
    let mut wrong = wrong.into_inner().unwrap();
    for file in again.into_inner().unwrap() {
        let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        for left in (0..TRIES).rev() {
            until_calm();
            let tried = tried(&file, &dir.path().join("answer"));
            println!("{}", tried.said);
            if tried.wrong.is_empty() || left == 0 || !tried.was_short() {
                wrong.extend(tried.wrong);
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A lab that runs until it is signalled, with its temporary files in a directory of our own, by
/// which its processes are known.
struct Running {
    lab: Child,
    dir: tempfile::TempDir,
    _turn: RwLockReadGuard<'static, ()>,
}

impl Running {
    fn start() -> Running {
        let turn = turn();
        let dir = tempfile::tempdir().unwrap();
        let lab = lab()
            .arg(scenarios().join("demo.toml"))
            .env("TMPDIR", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let running = Running { lab, dir, _turn: turn };
        // An array, four agents, and a fio for each of five VMs.
        running.wait_for("all processes to start", |processes| processes >= 10);
        running
    }

    /// How many processes have our directory in their command line.
    fn processes(&self) -> usize {
        let mark = self.dir.path().to_str().unwrap();
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let ours = |path: &PathBuf| {
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(mark)
        };
        all.filter(ours).count()
    }

    fn wait_for(&self, what: &str, mut done: impl FnMut(usize) -> bool) {
        let since = Instant::now();
        while !done(self.processes()) {
            let waited = since.elapsed();
            assert!(waited < PATIENCE, "{what}: {} processes", self.processes());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.lab), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

#[test]
fn an_interrupted_lab_leaves_nothing() {
    let mut running = Running::start();
    running.signal(Signal::INT);
    let status = running.lab.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(running.processes(), 0);
    assert_eq!(fs::read_dir(running.dir.path()).unwrap().count(), 0, "files are left");
}

#[test]
#[ignore = "make nightly: 80 s in real time; virtual time holds rolling-upgrade. PARDA_BEFORE: the program from before"]
fn agents_of_a_program_from_before_are_replaced_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let (program, starts) = (dir.path().join("before"), dir.path().join("starts"));
    let lab_program = Path::new(env!("CARGO_BIN_EXE_parda-lab"));
    let before = std::env::var("PARDA_BEFORE");
    let before =
        before.unwrap_or_else(|_| lab_program.with_file_name("parda").display().to_string());
    let script =
        format!("#!/bin/sh\necho \"$1\" >> '{}'\nexec '{before}' \"$@\"\n", starts.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let scenario = scenarios().join("lab/rolling-upgrade.toml");
    let output = lab().arg(scenario).arg("--before").arg(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let starts = fs::read_to_string(starts).unwrap();
    // It is also asked for its version.
    let agents = starts.lines().filter(|line| *line == "serve").count();
    assert_eq!(agents, 4, "each host's first agent, and none of the second ones");
}

#[test]
#[ignore = "make nightly: 200 s in real time; the same in virtual time: scenarios/studies/outsider.toml"]
fn agents_say_that_load_comes_which_is_not_under_control() {
    // A directory for temporary files that means something in a URI.
    let dir = tempfile::Builder::new().prefix("with a space & more ").tempdir().unwrap();
    let scenario = scenarios().join("lab/outsider.toml");
    let output = lab().arg(scenario).arg("--keep-logs").env("TMPDIR", dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let runs = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let logs = runs.map(|run| fs::read_to_string(run.join("agent-kvm-01.log")).unwrap());
    let log: String = logs.collect();
    let says = |event: &str| log.matches(&format!("event=\"{event}\"")).count();
    assert!(says("array_slower") > 0, "{log}");
    assert!(says("array_as_usual") > 0, "{log}");
}

#[test]
fn the_processes_of_a_killed_lab_die_with_it() {
    let mut running = Running::start();
    running.signal(Signal::KILL);
    running.lab.wait().unwrap();
    running.wait_for("all processes to end", |processes| processes == 0);
}

#[test]
fn what_the_laboratory_cannot_do_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("open.toml");
    let demo = fs::read_to_string(scenarios().join("demo.toml")).unwrap();
    fs::write(&file, demo.replacen("outstanding = 48", "rate = 500", 1)).unwrap();
    let output = lab().arg(&file).env("TMPDIR", dir.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{error}");
    assert!(error.contains("is beyond the laboratory"), "{error}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the scenario: {left:?}");
}

#[test]
fn what_only_the_simulator_can_do_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("late.toml");
    let demo = fs::read_to_string(scenarios().join("demo.toml")).unwrap();
    fs::write(&file, demo.replacen("[array]", "[exchange]\ndelay = \"2s\"\n[array]", 1)).unwrap();
    for check in [&["--check"][..], &[]] {
        let output = lab().arg(&file).args(check).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        let line = 1 + demo[..demo.find("[array]").unwrap()].matches('\n').count() + 1;
        let says =
            format!("late.toml:{line}:9: delay = \"2s\": exchange.delay is beyond the laboratory");
        assert!(error.contains(&says), "{error}");
    }
}

#[test]
fn what_a_transport_cannot_do_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("parted.toml");
    let demo = fs::read_to_string(scenarios().join("demo.toml")).unwrap();
    fs::write(&file, demo.replacen("[array]", "[exchange]\nside = \"left\"\n[array]", 1)).unwrap();
    let lossy = dir.path().join("lossy.toml");
    fs::write(&lossy, demo.replacen("[array]", "[exchange]\nloss = 30\n[array]", 1)).unwrap();
    for (file, says) in [
        (
            &file,
            "side = \"left\": is not for etcd, which a host reaches or does not: use reachable",
        ),
        (&lossy, "exchange.loss over etcd is beyond the laboratory"),
    ] {
        let output = lab().arg(file).args(["--exchange", "etcd"]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{error}");
    }
    let output = lab().arg(&lossy).args(["--exchange", "udp", "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_mistake_in_a_scenario_is_pointed_at() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.toml");
    let demo = fs::read_to_string(scenarios().join("demo.toml")).unwrap();
    fs::write(&file, demo.replacen("shares = 2000", "shares = 0", 1)).unwrap();
    let output = lab().arg(&file).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("wrong.toml:"), "{error}");
    assert!(error.contains("shares = 0"), "{error}");
}
