//! A threshold that is found while working: where it begins, what pins it, and what is said of it.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::array::{Array, Delays};
use crate::stage::{Agent, Stage, config, until};

fn text(name: &str, threshold: &str) -> String {
    let law = format!("period = \"100ms\"\nlatency_threshold = {threshold}");
    config(name, &law, &[("vm", "nbd+unix:///?socket=array")])
        .replace("[[volume.disk]]", "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]")
}

fn holds(agent: &Agent, ms: f64) -> bool {
    (agent.volume().latency_threshold_ms / ms - 1.0).abs() < 1e-3
}

#[test]
fn a_threshold_begins_at_a_stored_probe_and_goes_where_an_operator_pins_it() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let delays = Delays { io: Duration::from_millis(2), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    let probe = ["probe", "model:drive-7200", "--quick", "--only", "depth", "--json", "probe.json"];
    let probed = stage.lab(&probe);
    assert!(stage.path("probe.json").exists(), "{}{}", probed.out, probed.err);
    let answer: Value = serde_json::from_slice(&stage.read("probe.json")).unwrap();
    let advised = answer["findings"]["advice"]["latency_threshold_ms"].as_f64().unwrap();

    let a = stage.agent("a", &text("a", "{ probe = \"probe.json\" }"));
    // It listens first: maybe others have one already.
    until("it leads", || a.volume().threshold.is_some_and(|found| found.leads));
    assert!(holds(&a, advised), "{}", a.volume().latency_threshold_ms);
    assert_eq!(a.volume().threshold.unwrap().probed_ms, Some(advised));
    let told = stage.parda(&["status", "--socket", "a.status"]).out;
    for says in ["threshold found by this host: ", "the stored probe"] {
        assert!(told.contains(says), "{says}: {told}");
    }

    // A number on one host is everybody's.
    let b = stage.agent("b", &text("b", "\"20ms\""));
    until("it goes to the number of the other", || holds(&a, 20.0));
    assert!(a.volume().threshold.is_some_and(|found| found.moves > 3), "step by step");
    assert!(b.volume().threshold.is_none() && holds(&b, 20.0));
    b.stop();

    // Its own, too, and at once.
    stage.write("a.toml", text("a", "\"35ms\""));
    a.process.signal(Signal::HUP);
    until("it is pinned", || a.volume().threshold.is_none() && holds(&a, 35.0));
    stage.write("a.toml", text("a", "\"auto\""));
    a.process.signal(Signal::HUP);
    until("it is found again", || a.volume().threshold.is_some() && holds(&a, 35.0));
    a.stop();
}

#[test]
fn a_stored_probe_that_is_none_is_pointed_at() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    stage.write("probe.json", "{}");
    stage.write("a.toml", text("a", "{ probe = \"probe.json\" }"));
    let checked = stage.parda(&["check", "a.toml"]);
    assert!(
        checked.err.contains("a.toml:") && checked.err.contains("probe.json"),
        "{}",
        checked.err
    );
    // One that is not there yet is none.
    stage.write("a.toml", text("a", "{ probe = \"later.json\" }"));
    assert!(stage.parda(&["check", "a.toml"]).err.is_empty());
}
