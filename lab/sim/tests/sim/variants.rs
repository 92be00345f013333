//! Variants of a scenario in virtual time: side by side, and as if each were alone.
use parda_config::Document;
use parda_scenario::Study;
use parda_sim::{KeptRuns, StudyOutcome, run_all};

const TEXT: &str = r#"name = "t"
duration = "12s"
[array]
preset = "cx3-40-raid0-vms"
layout = "contiguous"
gap = "4GiB"
[control]
latency_threshold = "20ms"
[[host]]
name = "a"
[[host.vm]]
name = "va"
shares = 1000
disk = "16GiB"
workload = { size = "16KiB", read = 100, random = 100, outstanding = 32 }
[[host]]
name = "b"
[[host.vm]]
name = "vb"
shares = 1000
disk = "16GiB"
workload = { size = "16KiB", read = 100, random = 100, outstanding = 32 }
[[phase]]
name = "p"
from = "2s"
to = "11s"
"#;

fn outcome(variants: &str, jobs: usize) -> StudyOutcome {
    let study = Study::parse(&Document::new("t.toml", format!("{TEXT}{variants}"))).unwrap();
    run_all(&study, KeptRuns::All, jobs, |_, _| ()).unwrap()
}

const SWEEP: &str = "[[variant]]\nname = \"off\"\nset = { \"control.mode\" = \"off\" }\n\
    [[variant]]\nname = \"b\"\nhosts = [\"b\"]\nset = { \"control.mode\" = \"off\" }\n\
    [[variant]]\nname = \"on\"\n";

#[test]
fn the_answer_does_not_depend_on_how_many_run_at_a_time() {
    assert_eq!(outcome(SWEEP, 1), outcome(SWEEP, 3));
}

#[test]
fn a_variant_answers_as_the_scenario_itself_does() {
    let (alone, among) = (outcome("", 1), outcome(SWEEP, 2));
    let on = &among.answer.phases[2];
    assert_eq!(on.name, "on.p");
    assert_eq!(
        (&on.hosts, on.total),
        (&alone.answer.phases[0].hosts, alone.answer.phases[0].total)
    );
    assert_eq!(among.runs[2].series, alone.runs[0].series);
}

#[test]
fn a_host_that_is_left_out_does_nothing() {
    let outcome = outcome(SWEEP, 2);
    let [off, b, on] = outcome.answer.phases.as_slice() else { panic!("three phases") };
    assert_eq!(b.hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["b"]);
    // Alone at half of the load, latency is much lower; its window is nobody's.
    let ms = |phase: &parda_scenario::PhaseAnswer| phase.total.device_latency_ms.unwrap();
    assert!(ms(b) < 0.7 * ms(off), "{} {}", ms(b), ms(off));
    assert_eq!((b.hosts[0].window, b.hosts[0].settled_s), (None, None));
    assert!(on.total.settled_s.is_some_and(|s| s < 9.0), "{:?}", on.total.settled_s);
}
