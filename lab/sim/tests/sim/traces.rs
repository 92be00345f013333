//! Traces, replayed: every IO once, when the trace says, wherever a host begins.
use std::fmt::Write;
use std::path::Path;

use parda_config::Document;
use parda_scenario::{RunAnswer, Scenario};
use parda_sim::{KeptRuns, run};

/// 2000 reads of 4 KiB in 10 s: at even times, and all but one at once.
fn traces(folder: &Path) {
    let trace = |name: &str, at: &dyn Fn(u64) -> u64| {
        let mut text = "fio version 3 iolog\n".to_owned();
        for i in 0..2000_u64 {
            writeln!(text, "{} disk read {} 4096", at(i), i * 7919 % 16384 * 4096).unwrap();
        }
        std::fs::write(folder.join(name), text).unwrap();
    };
    trace("even.log", &|i| i * 5000);
    trace("burst.log", &|i| i / 1999 * 10_000_000);
}

fn answer(workload: &str, more: &str) -> RunAnswer {
    let folder = tempfile::tempdir().unwrap();
    traces(folder.path());
    let text = format!(
        "name = \"t\"\nduration = \"30s\"\n[array]\npreset = \"cx3-40-raid0\"\n[control]\n\
         mode = \"off\"\n[[host]]\nname = \"h\"\ncount = 3\n[[host.vm]]\nname = \"db\"\nshares = 1\n\
         workload = {{ {workload} }}\n{more}"
    );
    let name = folder.path().join("t.toml").display().to_string();
    let scenario = Scenario::parse(&Document::new(name, text)).unwrap();
    run(&scenario, KeptRuns::Nothing, |_| {}).unwrap().answer
}

fn phase(name: &str, from: u32, to: u32) -> String {
    format!("[[phase]]\nname = \"{name}\"\nfrom = \"{from}s\"\nto = \"{to}s\"\n")
}

/// How many IOs each host has done in a phase.
fn ios(answer: &RunAnswer, phase: &str, seconds: f64) -> Vec<f64> {
    let phase = answer.phases.iter().find(|p| p.name == phase).unwrap();
    phase.hosts.iter().map(|host| (host.iops * seconds).round()).collect()
}

#[test]
fn each_host_does_all_of_a_trace_once_wherever_it_begins() {
    let phases = [phase("all", 0, 30), phase("first", 0, 5), phase("after", 20, 30)].concat();
    let answer = answer("trace = \"even.log\"", &phases);
    assert_eq!(ios(&answer, "all", 30.0), [2000.0; 3]);
    assert!(ios(&answer, "first", 5.0).iter().all(|n| (995.0..=1001.0).contains(n)));
    assert_eq!(ios(&answer, "after", 10.0), [0.0; 3]);
}

#[test]
fn a_trace_can_be_faster_and_go_on_and_on() {
    let phases = [phase("early", 2, 4), phase("late", 25, 27)].concat();
    let answer = answer("trace = \"even.log\", speed = 2, repeat = true", &phases);
    for phase in ["early", "late"] {
        // 400 a second: some of what begins in a phase ends after it.
        assert!(ios(&answer, phase, 2.0).iter().all(|n| (790.0..=810.0).contains(n)), "{phase}");
    }
}

#[test]
fn a_client_that_is_started_again_begins_its_trace_again() {
    let events = "[[event]]\nat = \"5s\"\nhost = \"h-002\"\ndo = \"kill\"\n\
                  [[event]]\nat = \"6s\"\nhost = \"h-002\"\ndo = \"start\"\n\
                  [[event]]\nat = \"5s\"\nvm = \"db-003\"\ndo = \"stop\"\n";
    let phases = [phase("all", 0, 30), phase("later", 6, 30)].concat();
    let answer = answer("trace = \"even.log\"", &format!("{events}{phases}"));
    let later = ios(&answer, "later", 24.0);
    assert_eq!(later[1], 2000.0);
    assert!((790.0..=810.0).contains(&later[0]), "{later:?}");
    assert_eq!(later[2], 0.0);
}

#[test]
fn those_who_keep_step_wait_for_one_another() {
    let phases = phase("all", 0, 30);
    let latency = |more: &str| {
        let answer = answer(&format!("trace = \"burst.log\"{more}"), &phases);
        answer.phases[0].total.device_latency_ms.unwrap()
    };
    let (apart, in_step) = (latency(""), latency(", in_step = true"));
    assert!(in_step > 1.2 * apart, "{in_step} ms and {apart} ms");
}
