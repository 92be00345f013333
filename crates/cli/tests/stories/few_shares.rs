//! A VM of very few shares beside one of very many: it is not held without bound.

use std::time::Duration;

use crate::array::{Array, Delays};
use crate::stage::{Stage, config, until, uri};

#[test]
fn a_disk_of_one_share_beside_one_of_ten_thousand_is_served_by_hold_max_and_it_is_counted() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(2), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    let law = "period = \"100ms\"\nlatency_threshold = \"10ms\"\nhold_max = \"400ms\"";
    let array = "nbd+unix:///?socket=array";
    let text = config("a", law, &[("tiny", array), ("huge", array)])
        .replace("name = \"huge\"", "name = \"huge\"\nread_only = true\nshares = 10000")
        .replace(
            "name = \"tiny\"",
            "name = \"tiny\"\nread_only = true\nshares = 1\nlatency_target = \"50ms\"",
        );
    let agent = stage.agent("a", &text);
    let load = |disk: &str, depth| {
        let depth = format!("--iodepth={depth}");
        let options = ["--rw=randread", "--bs=4k", "--size=16m", &depth];
        stage.load(&format!("fio-{disk}"), &uri("a", disk), &options)
    };
    let huge = load("huge", 32);
    until("the large one is held", || agent.volume().held > 0);
    let tiny = load("tiny", 1);
    let disk =
        |name: &str| agent.volume().disks.into_iter().find(|disk| disk.name == name).unwrap();
    // An IO that is held while the agent has no processor is held for longer: of most it is true.
    until("the small one is served out of turn, after 400 ms and not much later", || {
        let small = disk("tiny");
        small.overdue >= 4 && small.held.summary().p50 < 1000.0
    });
    until("the large one is not, but for what a busy machine keeps waiting", || {
        let large = disk("huge");
        20 * large.overdue <= large.reads.ios
    });
    let (small, large) = (disk("tiny"), disk("huge"));
    assert!(agent.volume().overdue >= small.overdue);
    assert!(large.reads.ios > 20 * small.reads.ios, "{large:?} {small:?}");
    let says = stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(says.contains("disk tiny: ") && says.contains("IOs went out of turn"), "{says}");
    // It does too little for its objective to be in force, as it is held, and misses it all the same.
    let short = || disk("tiny").latency_target.is_some_and(|target| target.short_of_shares);
    until("it misses its objective", short);
    assert_eq!(agent.volume().latency_threshold_ms, 10.0);
    // What is held for longest goes first: each IO waits for at most 400 ms.
    tiny.finish();
    until("an idle disk misses nothing", || !short());
    huge.finish();
    agent.stop();
}
