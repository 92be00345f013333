//! A disk with a latency objective: the threshold of all hosts follows it, and it is said what that costs.

use std::time::Duration;

use rustix::process::Signal;

use crate::array::{Array, Delays};
use crate::stage::{Agent, Load, Stage, config, until, uri};
use parda_exchange::Liveness;

fn text(name: &str, disk: &str) -> String {
    let law = "period = \"100ms\"\nlatency_threshold = \"60ms\"\nlatency_target_min = \"5ms\"";
    config(name, law, &[(disk, &format!("nbd+unix:///?socket=array-{name}"))])
        .replace("[[volume.disk]]", "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]")
}

fn with_target(target: &str) -> String {
    text("a", "db").replace("name = \"db\"", &format!("name = \"db\"\n{target}"))
}

fn load(stage: &Stage, host: &str, disk: &str, depth: u32) -> Load {
    let options = ["--rw=randread", "--bs=4k", "--size=16m", &format!("--iodepth={depth}")];
    stage.load(&format!("fio-{host}"), &uri(host, disk), &options)
}

fn threshold(agent: &Agent) -> f64 {
    agent.volume().latency_threshold_ms
}

#[test]
fn all_hosts_follow_the_objective_of_a_disk_while_it_works_and_say_whose_it_is() {
    let stage = Stage::new();
    // Each host's array takes 2 ms for an IO, and does one at a time.
    let delays = Delays { io: Duration::from_millis(2), flush: Duration::ZERO };
    for name in ["a", "b"] {
        Array::start(&stage.path(&format!("array-{name}")), 4096, delays);
    }
    stage.exchange("exchange", 64);
    let a = stage.agent("a", &with_target("latency_target = \"5ms\""));
    let b = stage.agent("b", &text("b", "hog"));
    let hog = load(&stage, "b", "hog", 64);
    until("they hear each other", || {
        [&a, &b].iter().all(|agent| {
            let peers = agent.volume().exchange.map_or(Vec::new(), |exchange| exchange.peers);
            peers.iter().any(|peer| peer.liveness == Liveness::Live)
        })
    });
    assert_eq!((threshold(&a), threshold(&b)), (60.0, 60.0));
    until("the volume's own threshold is in force for a while", || b.volume().ticks > 30);

    let db = load(&stage, "a", "db", 3);
    until("both hosts hold another threshold", || threshold(&a) < 60.0 && threshold(&b) < 60.0);
    let of = |agent: &Agent| agent.volume().objective.map(|objective| objective.of);
    until("both say whose it is", || {
        of(&a).as_deref() == Some("disk db") && of(&b).as_deref() == Some("host a")
    });
    until("what it costs is known", || {
        b.volume().objective.is_some_and(|o| {
            o.others_iops_before.is_some_and(|iops| iops > 0.0) && o.others_iops_now.is_some()
        })
    });
    until("the status says so", || {
        let says = stage.parda(&["status", "--socket", "a.status"]).out;
        let whats =
            ["latency objective of disk db: the threshold is ", "disk db: objective 5.0 ms; at"];
        whats.iter().all(|what| says.contains(what))
    });

    // It ends: after ten periods the volume's own threshold is in force again.
    db.finish();
    until("the volume's own is in force again", || threshold(&a) == 60.0 && threshold(&b) == 60.0);

    // A bound that the operator of any host sets holds on all of them.
    let bounded = text("b", "hog").replace("\"5ms\"", "\"45ms\"");
    stage.write("b.toml", bounded);
    b.process.signal(Signal::HUP);
    let db = load(&stage, "a", "db", 3);
    until("both stop at the bound", || threshold(&a) == 45.0 && threshold(&b) == 45.0);

    // Without the objective, nothing is asked for.
    stage.write("a.toml", with_target(""));
    a.process.signal(Signal::HUP);
    until("nothing is asked for", || threshold(&a) == 60.0 && threshold(&b) == 60.0);
    assert!(a.volume().disks[0].latency_target.is_none());
    db.finish();
    hog.finish();
    a.stop();
    b.stop();
}

#[test]
fn an_objective_that_cannot_be_meant_is_pointed_at() {
    let stage = Stage::new();
    stage.write("a.toml", with_target("latency_target = \"0s\""));
    let says = stage.fails(&[crate::stage::PARDA, "check", "a.toml"]);
    assert!(says.contains("a.toml:") && says.contains("latency_target = \"0s\""), "{says}");
    stage.write("a.toml", with_target("latency_target = \"2ms\""));
    let says = stage.ok(&[crate::stage::PARDA, "check", "a.toml"]);
    assert!(says.contains("latency_target_min"), "a bound above it is worth a word: {says}");
}
