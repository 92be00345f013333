//! Looking before acting: everything is measured, exchanged and computed, and nothing is set.

use std::time::Duration;

use parda_agent::outlook::ForecastStatus;
use parda_control::ModeName;
use rustix::process::Signal;

use crate::array::{Array, Delays};
use crate::stage::{Agent, Load, Stage, config, until, uri};

/// A host that observes, with a disk of so many shares and a load of that depth on it.
fn host(stage: &Stage, name: &str, shares: u32, depth: u32) -> (Agent, Load) {
    let law =
        "mode = \"observe\"\nperiod = \"200ms\"\nlatency_threshold = \"5ms\"\nwindow_start = 256";
    let text = config(name, law, &[("vm", "nbd+unix:///?socket=array")])
        .replace("name = \"vm\"", &format!("name = \"vm\"\nshares = {shares}"))
        .replace("[[volume.disk]]", "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]");
    let agent = stage.agent(name, &text);
    let options = ["--rw=randread", "--bs=4k", "--size=16m", &format!("--iodepth={depth}")];
    let load = stage.load(&format!("fio-{name}"), &uri(name, "vm"), &options);
    (agent, load)
}

fn last(agent: &Agent) -> Option<ForecastStatus> {
    agent.volume().outlook.map(|outlook| outlook.last)
}

fn near(is: f64, want: f64) -> bool {
    (is / want - 1.0).abs() < 0.2
}

#[test]
fn hosts_that_observe_say_what_would_be_done_and_do_nothing() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(2), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    stage.exchange("exchange", 64);
    let (a, load_a) = host(&stage, "a", 1000, 16);
    let (b, load_b) = host(&stage, "b", 3000, 4);

    // Of 20 IOs at the array 16 are a's. A fourth of them would meet the threshold, and b's three
    // quarters of that are less than the four that it asks for.
    until("both foretell what would be", || {
        let [Some(of_a), Some(of_b)] = [&a, &b].map(last) else { return false };
        let is = |forecast: &ForecastStatus, part, would_be| {
            let disk = &forecast.disks[0];
            near(forecast.latency_would_be_ms, 5.0)
                && near(disk.part, part)
                && near(disk.part_would_be, would_be)
        };
        is(&of_a, 0.8, 0.25) && is(&of_b, 0.2, 0.75) && near(of_b.window / of_a.window, 3.0)
    });

    let volume = a.volume();
    assert_eq!((volume.mode, volume.window), (ModeName::Observe, None));
    // An IO that comes while the agent has no processor is held for longer than the others.
    let held = volume.disks[0].held.summary();
    assert!(held.p50 < 1.0, "nothing is held, but for {held:?} ms");
    let peer = volume.exchange.unwrap().peers.swap_remove(0);
    assert_eq!((peer.window, peer.would_be.is_some()), (None, true));
    let text = stage.parda(&["status", "--socket", "a.status"]).out;
    for says in
        ["mode observe, window none (would be ", "in place of ", "part now", "since observing"]
    {
        assert!(text.contains(says), "{says}: {text}");
    }
    let slots = stage.parda(&["exchange", "show", "exchange", "--json", "-"]).out;
    assert!(slots.contains("\"window\": null") && !slots.contains("\"would_be\": null"), "{slots}");

    // From now on it acts, and begins where it said that it would be.
    let acts = String::from_utf8(stage.read("a.toml")).unwrap().replace("observe", "parda");
    stage.write("a.toml", acts);
    a.process.signal(Signal::HUP);
    until("a window is in force", || a.volume().window.is_some());
    let volume = a.volume();
    assert!(volume.outlook.is_none());
    let window = volume.window.unwrap_or(f64::INFINITY);
    assert!(window < 16.0, "a window of {window}, as if it began with 256");
    load_a.finish();
    load_b.finish();
    a.stop();
    b.stop();
}
