//! Limits and reservations of disks, as fio sees them.

use std::time::Duration;

use crate::array::{Array, Delays};
use crate::stage::{Agent, Load, Stage, config, until, uri};

fn text(limit: &str) -> String {
    let law = "period = \"100ms\"\nlatency_threshold = \"20ms\"";
    let array = "nbd+unix:///?socket=array";
    config("a", law, &[("db", array), ("hog", array)])
        .replace("name = \"db\"", "name = \"db\"\nread_only = true\nshares = 10\nreservation = 150")
        .replace("name = \"hog\"", &format!("name = \"hog\"\nread_only = true\n{limit}"))
}

fn load(stage: &Stage, disk: &str) -> Load {
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=16"];
    stage.load(&format!("fio-{disk}"), &uri("a", disk), &options)
}

/// IO/s of both disks over some seconds.
fn rates(agent: &Agent) -> [f64; 2] {
    let look = || {
        let volume = agent.volume();
        let ios = |name: &str| {
            let disk = volume.disks.iter().find(|disk| disk.name == name);
            disk.map_or(0, |disk| disk.reads.ios)
        };
        (std::time::Instant::now(), ["db", "hog"].map(ios))
    };
    let (begin, before) = look();
    std::thread::sleep(Duration::from_secs(3));
    let (end, after) = look();
    let seconds = (end - begin).as_secs_f64();
    [0, 1].map(|disk| (after[disk] - before[disk]) as f64 / seconds)
}

#[test]
fn a_limit_is_not_exceeded_and_a_reservation_is_met_whatever_the_shares() {
    let stage = Stage::new();
    // The array does one IO at a time, in 2 ms: at most 500 IO/s.
    let delays = Delays { io: Duration::from_millis(2), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    let a = stage.agent("a", &text("limit = { iops = 100 }"));
    let (db, hog) = (load(&stage, "db"), load(&stage, "hog"));
    until("both work", || agent_works(&a));
    let [_, limited] = rates(&a);
    assert!((90.0..104.0).contains(&limited), "{limited} IO/s for a limit of 100");
    until("the status names the limit", || {
        stage.parda(&["status", "a.status"]).out.contains("its limit")
    });
    let said = stage.parda(&["explain", "hog", "-c", "a.toml", "--over", "2s"]).out;
    assert!(said.contains("limited by its limit"), "{said}");

    // More, and then none: live, while the client goes on.
    let set = |more: &[&str]| {
        let done = stage.parda(&[&["set", "hog", "-c", "a.toml"], more].concat());
        assert!(done.status.success(), "{}", done.err);
    };
    set(&["limit={ iops = 200 }", "--temporary"]);
    let [_, limited] = rates(&a);
    assert!((180.0..206.0).contains(&limited), "{limited} IO/s for a limit of 200");

    // Without it the other disk has a hundred times the shares, but for the reservation.
    stage.write("a.toml", text(""));
    a.process.signal(rustix::process::Signal::HUP);
    set(&["--reset", "limit"]);
    until("the limit is gone", || {
        a.volume().disks.iter().all(|disk| disk.settings.limit.is_none())
    });
    let [reserved, other] = rates(&a);
    assert!(reserved > 120.0, "{reserved} IO/s for a reservation of 150, beside {other}");
    assert!(other > 220.0, "{other} IO/s without a limit");
    db.finish();
    hog.finish();
    a.stop();
}

fn agent_works(agent: &Agent) -> bool {
    let volume = agent.volume();
    volume.ticks > 20 && volume.disks.iter().all(|disk| disk.reads.ios > 50)
}
