//! Limits and reservations of disks, as fio sees them.

use std::ops::Range;
use std::time::Duration;

use parda_control::Limit;

use crate::array::{Array, Delays};
use crate::stage::{Agent, Load, PARDA, Stage, config, until, uri, wait_for};

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

/// IO/s of the disk with a limit, once they are in this range. They are never above it; a busy machine takes some away.
fn limited(agent: &Agent, range: Range<f64>) -> f64 {
    wait_for(&format!("{range:?} IO/s"), || {
        let [_, had] = rates(agent);
        assert!(had < range.end, "{had} IO/s for {range:?}");
        range.contains(&had).then_some(had)
    })
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
    limited(&a, 75.0..104.0);
    until("the status names the limit", || {
        let said = stage.parda(&["status", "--socket", "a.status"]).out;
        said.contains("disk hog: limited by its limit of 100 IO/s")
    });
    let explain = |more: &str| {
        stage.parda(&["explain", "hog", "-c", "a.toml", "--over", "2s", "--limit", "200", more]).out
    };
    let said = explain("--volume=array");
    assert!(said.contains("limited by its limit of 100 IO/s"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&explain("--json")).unwrap();
    let predicted = json["predictions"].as_array().unwrap().iter();
    let mut predicted = predicted.filter(|it| it["change"]["limit_iops"] == 200.0);
    let predicted = predicted.next().unwrap()["vm"]["iops"].as_f64().unwrap();

    // More, and then none: live, while the client goes on.
    let set = |more: &[&str]| {
        let done = stage.parda(&[&["set", "hog", "-c", "a.toml"], more].concat());
        assert!(done.status.success(), "{}", done.err);
    };
    set(&["limit={ iops = 200 }", "--temporary"]);
    let limited = limited(&a, 150.0..206.0);
    assert!((predicted / limited - 1.0).abs() < 0.3, "{predicted} predicted, {limited} had");

    // Without it the other disk has a hundred times the shares, but for the reservation.
    stage.write("a.toml", text(""));
    a.process.signal(rustix::process::Signal::HUP);
    set(&["--reset", "limit"]);
    until("the limit is gone", || {
        a.volume().disks.iter().all(|disk| disk.settings.limit.is_none())
    });
    // On a busy machine the array does less for some seconds.
    until("the reservation of 150 is met, and the other has the rest without a limit", || {
        let [reserved, other] = rates(&a);
        reserved > 120.0 && other > 220.0
    });
    db.finish();
    hog.finish();
    a.stop();
}

fn agent_works(agent: &Agent) -> bool {
    let volume = agent.volume();
    volume.ticks > 20 && volume.disks.iter().all(|disk| disk.reads.ios > 50)
}

/// An agent with one disk of the tenant `gold`.
fn of_gold(host: &str, tenant: &str) -> String {
    let law = "period = \"100ms\"\nlatency_threshold = \"100ms\"";
    config(host, law, &[("disk", "nbd+unix:///?socket=array")])
        .replace("[[volume.disk]]", &format!("{tenant}[[volume.disk]]"))
        .replace("name = \"disk\"", "name = \"disk\"\nread_only = true\ntenant = \"gold\"")
        + "[volume.exchange]\nfile = \"exchange\"\n"
}

fn gold(iops: u32) -> String {
    format!("[[volume.tenant]]\nname = \"gold\"\nlimit = {{ iops = {iops} }}\n")
}

#[test]
fn a_limit_of_a_tenant_holds_over_all_hosts_and_follows_demand() {
    let stage = Stage::new();
    // The array does 2,000 IO/s.
    let delays = Delays { io: Duration::from_micros(500), flush: Duration::ZERO };
    Array::start(&stage.path("array"), 4096, delays);
    stage.exchange("exchange", 64);
    let hosts = ["a", "b", "c"];
    let agents = hosts.map(|host| stage.agent(host, &of_gold(host, &gold(300))));
    until("the hosts hear each other", || {
        agents.iter().all(|agent| {
            let exchange = agent.volume().exchange;
            let peers = exchange.map(|exchange| exchange.peers).unwrap_or_default();
            peers.iter().filter(|peer| peer.liveness == parda_exchange::Liveness::Live).count() == 2
        })
    });
    let load = |host: &str| {
        let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=16"];
        stage.load(&format!("fio-{host}"), &uri(host, "disk"), &options)
    };
    // Rates over 3 s, and how many hosts took part: over all of the time between the first look and the last.
    let ios = || agents.each_ref().map(|agent| agent.volume().disks[0].reads.ios);
    let rates = || {
        let (begin, before) = (std::time::Instant::now(), ios());
        std::thread::sleep(Duration::from_secs(3));
        let after = ios();
        let seconds = begin.elapsed().as_secs_f64();
        [0, 1, 2].map(|i| (after[i] - before[i]) as f64 / seconds)
    };
    // A busy machine slows clients and timers for some seconds, and makes a host silent: the others divide its part while it goes on. What
    // holds in each ten seconds is held in virtual time (`lab/sim/tests/sim/tenants.rs`).
    let reached = |least: f64, most: f64| {
        let found = std::iter::repeat_with(rates).take(10).find(|rates| {
            let sum = rates.iter().sum::<f64>();
            assert!(sum < 1.5 * most, "{rates:?} are far above {most}");
            (least..most).contains(&sum)
        });
        found.unwrap_or_else(|| panic!("never from {least} to {most} IO/s"))
    };
    let settled = |parts: [f64; 3]| {
        until("each host has its part of the limit", || {
            agents.iter().zip(parts).all(|(agent, part)| {
                let tenants = agent.volume().tenants;
                tenants[0].limit_part.is_some_and(|now| (now - part).abs() < 0.1)
            })
        });
    };
    let one = load("a");
    settled([1.0, 0.0, 0.0]);
    reached(225.0, 312.0);

    let (two, three) = (load("b"), load("c"));
    settled([0.33; 3]);
    let three_hosts = reached(225.0, 315.0);
    assert!(three_hosts.iter().all(|rate| (65.0..125.0).contains(rate)), "{three_hosts:?}");
    let said = stage.parda(&["status", "--socket", "b.status"]).out;
    assert!(said.contains("tenant gold: ") && said.contains("% of the limit"), "{said}");

    one.finish();
    two.finish();
    settled([0.0, 0.0, 1.0]);
    reached(225.0, 312.0);

    let explain =
        ["explain", "disk", "-c", "c.toml", "--over", "3s", "--tenant-limit", "600", "--json"];
    let json: serde_json::Value = serde_json::from_str(&stage.parda(&explain).out).unwrap();
    let predicted = json["predictions"].as_array().unwrap().iter();
    let mut predicted = predicted.filter(|it| it["change"]["tenant_limit_iops"] == 600.0);
    let predicted = predicted.next().unwrap()["vm"]["iops"].as_f64().unwrap();

    // A reload changes it, and the client goes on.
    for (host, agent) in hosts.iter().zip(&agents) {
        stage.write(&format!("{host}.toml"), of_gold(host, &gold(600)));
        agent.process.signal(rustix::process::Signal::HUP);
    }
    until("the new limit is in force", || {
        agents[2].volume().tenants[0].settings["limit"]["iops"] == 600.0
    });
    reached(400.0, 624.0);
    // By a curve that is assumed. This array does an IO at a time, and far more than both limits.
    let had = json["vm"]["iops"].as_f64().unwrap();
    assert!((1.05 * had..630.0).contains(&predicted), "{predicted} predicted, {had} before");
    // A change on one host alone is noticed by the others.
    let differ = || {
        let said = stage.parda(&["status", "--socket", "a.status"]).out;
        said.contains(
            "DIFFERENT SETTINGS: tenant gold is not the same on all hosts: as here on a, c (",
        )
    };
    assert!(!differ());
    let set = ["set", "-c", "b.toml", "--tenant", "gold", "limit={ iops = 500 }"];
    assert!(stage.parda(&set).status.success());
    until("the difference is named", differ);
    three.finish();
    agents.into_iter().for_each(Agent::stop);
}

#[test]
fn a_limit_that_was_set_stays_over_a_restart() {
    let stage = Stage::new();
    stage.sparse("data", 16 << 20);
    let a = stage.agent(
        "a",
        &format!("state = \"a.state\"\n{}", config("a", "period = \"100ms\"", &[("db", "data")])),
    );
    let set = stage.parda(&["set", "db", "-c", "a.toml", "limit={ iops = 50 }"]);
    assert!(set.status.success(), "{}", set.err);
    let limit = |agent: &Agent| {
        let limit = Limit::from(&agent.volume().disks[0].settings.limit?);
        limit.iops.total.map(|rate| rate.mean)
    };
    until("it is in force", || limit(&a) == Some(50.0));
    a.stop();
    let a = stage.restart(&[], "a");
    until("it is in force after the restart", || limit(&a) == Some(50.0));
    a.stop();
}

#[test]
fn where_a_limit_holds_all_ios_of_a_disk_that_is_said() {
    let stage = Stage::new();
    stage.sparse("data", 16 << 20);
    let text = config("a", "period = \"100ms\"", &[("db", "data")]);
    let limit = "name = \"db\"\nlimit = { bandwidth = \"2KiB\" }";
    let a = stage.agent("a", &text.replace("name = \"db\"", limit));
    let load = stage.load("fio", &uri("a", "db"), &["--rw=randread", "--bs=64k", "--iodepth=4"]);
    until("one IO was done, and the next takes half a minute", || {
        let disk = &a.volume().disks[0];
        disk.reads.ios > 0 && disk.limited_now > 0
    });
    let said = || stage.parda(&["status", "--socket", "a.status", "--over", "200ms"]).out;
    until("no IO is done in an interval", || {
        let said = said();
        assert!(!said.contains("its slice"), "{said}");
        said.contains("disk db: limited by its limit of 2.0 KiB/s")
    });
    let set = stage.parda(&["set", "db", "-c", "a.toml", "limit={ bandwidth = \"1GiB\" }"]);
    assert!(set.status.success(), "{}", set.err);
    load.finish();
    a.stop();
}

#[test]
fn a_tenant_is_changed_live_and_stays_so_over_a_restart() {
    let stage = Stage::new();
    stage.sparse("data", 16 << 20);
    let text = config("a", "period = \"100ms\"", &[("db", "data")])
        .replace("[[volume.disk]]", &format!("{}[[volume.disk]]", gold(300)))
        .replace("name = \"db\"", "name = \"db\"\ntenant = \"gold\"");
    let a = stage.agent("a", &format!("state = \"a.state\"\n{text}"));
    let set =
        |more: &[&str]| stage.parda(&[&["set", "-c", "a.toml", "--tenant", "gold"], more].concat());
    let done = set(&["limit={ iops = 50 }", "shares=700"]);
    assert!(done.status.success(), "{}", done.err);
    assert!(
        done.out.contains("volume array, tenant gold: shares = 700 (before: not set), kept"),
        "{}",
        done.out
    );
    for (wrong, why) in [
        ("burst=5", "burst: cannot be changed of a tenant, as shares, reservation and limit can"),
        ("shares=0", "shares = 0: must be from 1 to 1000000"),
    ] {
        let refused = set(&[wrong]);
        assert!(!refused.status.success() && refused.err.contains(why), "{}", refused.err);
    }
    let nobody = stage.parda(&["set", "-c", "a.toml", "--tenant", "silver", "shares=5"]);
    assert!(nobody.err.contains("no volume has one; there are: gold"), "{}", nobody.err);
    let settings = |agent: &Agent| {
        let tenant = agent.volume().tenants.remove(0);
        (tenant.settings["limit"]["iops"].as_f64(), tenant.settings.get("shares").cloned())
    };
    assert_eq!(settings(&a), (Some(50.0), Some(700.into())));
    a.stop();
    let a = stage.restart(&[], "a");
    until("it is in force after the restart", || settings(&a) == (Some(50.0), Some(700.into())));
    let said = stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(said.contains("tenant gold: limit (kept in the state file), shares"), "{said}");
    // What takes a limit out has no value to be seen by.
    set(&["limit=none", "--temporary"]);
    stage.ok(&[PARDA, "set", "db", "limit=none", "-c", "a.toml"]);
    let said = stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(said.contains("  db: limit = none (kept in the state file)\n"), "{said}");
    let gold =
        "  tenant gold: limit = none (until the agent ends), shares (kept in the state file)\n";
    assert!(said.contains(gold), "{said}");
    let done = set(&["--reset-all"]);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(settings(&a), (Some(300.0), None));
    a.stop();
}
