//! The web dashboard in Debian's Chromium, driven by Playwright: `web/test`.

use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use parda_testkit::TestEtcd;
use serde_json::{Value, json};

use crate::array::{Array, Delays};
use crate::metrics::get;
use crate::stage::{LAB, PARDA, Stage, config, until, uri, wait_for};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/test");

/// Ratios that are three to one, with room for a busy machine.
const THREE_TO_ONE: Range<f64> = 2.0..4.2;

#[test]
fn the_page_bears_sixty_four_hosts_and_a_thousand_vms() {
    let stage = Stage::new();
    // Phone and desktop, light and dark: charts drawn, nothing wider than the window, nothing on the console, no serious finding of axe-core;
    // reached by keyboard alone; its frames while it is live.
    let said = stage.ok(&["node", &format!("{TESTS}/browser.mjs")]);
    eprintln!("{said}");
}

/// Waits until the first disk has done three IOs for each of the second in two seconds that begin ten periods of 100 ms or more after the last
/// change.
fn until_three_to_one_after_ten_periods(port: u16) {
    let answer =
        |path: &str| -> Value { serde_json::from_str(&get(port, path).unwrap().1).unwrap() };
    let events = answer("/api/v1/events?limit=1000");
    let mut changes = events["events"].as_array().unwrap().iter().rev();
    let change = changes.find(|event| event["kind"] == "live_change").unwrap();
    let from = change["at_ms"].as_u64().unwrap() + 1000;
    wait_for("ten periods later it is three to one", || {
        let history = answer("/api/v1/history?volume=array&seconds=60");
        let skip = from.saturating_sub(history["start_ms"].as_u64()?).div_ceil(1000) as usize;
        let seconds = |disk: &str| -> Option<Vec<Option<f64>>> {
            let each = history["disks"][disk]["iops"].as_array()?.get(skip..)?;
            Some(each.iter().map(Value::as_f64).collect())
        };
        let (first, second) = (seconds("vm1")?, seconds("vm2")?);
        let two = |of: &[Option<f64>]| Some(of[0]? + of[1]?);
        let mut ratios = first
            .windows(2)
            .zip(second.windows(2))
            .filter_map(|(of_first, of_second)| Some(two(of_first)? / two(of_second)?));
        ratios.find(|ratio| THREE_TO_ONE.contains(ratio))
    });
}

#[test]
fn shares_changed_on_the_page_are_what_clients_get_and_survive_a_restart() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(1), flush: Duration::ZERO };
    for array in ["array1", "array2"] {
        Array::start(&stage.path(array), 4096, delays);
    }
    let disks = [("vm1", "nbd+unix:///?socket=array1"), ("vm2", "nbd+unix:///?socket=array2")];
    let port = free_port();
    let token = "0123456789abcdef0123456789abcdef";
    stage.write("tokens", format!("ops write {token}\n"));
    std::fs::set_permissions(stage.path("tokens"), PermissionsExt::from_mode(0o600)).unwrap();
    let http = format!(
        "state = \"state.toml\"\n[http]\naddress = \"tcp:127.0.0.1:{port}\"\ntokens = \"tokens\"\n[[volume]]"
    );
    let law = "period = \"100ms\"\nwindow_max = 2";
    let tenant = "[[volume.tenant]]\nname = \"gold\"\nlimit = { iops = 90000 }\n[[volume.disk]]";
    let text = config("host", law, &disks).replacen("[[volume]]", &http, 1);
    let agent = stage.agent("host", &text.replacen("[[volume.disk]]", tenant, 1));
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=16"];
    let loads = ["vm1", "vm2"].map(|vm| stage.load(vm, &uri("host", vm), &options));
    until("both load", || agent.volume().disks.iter().all(|d| d.reads.ios > 50));
    agent.until_ratio("equal shares", 0.7..1.4);

    let url = format!("http://127.0.0.1:{port}/");
    stage.ok(&["node", &format!("{TESTS}/change.mjs"), &url, "vm1", "3000", token]);
    assert_eq!(agent.volume().disks[0].shares, 3000);
    let gold = || Value::Object(agent.volume().tenants.remove(0).settings);
    assert_eq!(gold(), json!({ "shares": 2001, "limit": { "iops": 80000.0 }, "reservation": 5.5 }));
    agent.until_ratio("three to one", THREE_TO_ONE);
    until_three_to_one_after_ten_periods(port);
    assert!(!agent.process.log().contains(token), "a secret in the log");
    for load in loads {
        load.finish();
    }
    agent.stop();
    let agent = stage.restart(&[], "host");
    assert_eq!(agent.volume().disks[0].shares, 3000);
    agent.stop();
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Opens the page of an agent and asks for what one glance answers (`web/test/glance.mjs`).
fn glance(stage: &Stage, port: u16, phase: &str, words: &str) {
    let url = format!("http://127.0.0.1:{port}/");
    stage.ok(&["node", &format!("{TESTS}/glance.mjs"), &url, phase, words]);
}

#[test]
fn one_glance_tells_who_is_held_and_why_and_a_fault_says_what_it_costs() {
    let stage = Stage::new();
    stage.ok(&["node", &format!("{TESTS}/sentence.mjs")]);
    let line = [LAB, "array", "--preset", "cx3-40-raid0-vms", "--drives", "4"];
    let _array = stage.start("array", &[&line[..], &["--listen", "unix:array"]].concat());
    until("the array listens", || stage.path("array").exists());
    stage.exchange("exchange", 64);
    let lun = |n: u32| format!("nbd+unix:///lun{n}?socket=array");
    let agent = |host: &str, disks: &[(&str, &str)]| {
        let port = free_port();
        let http = format!(
            "[http]\naddress = \"tcp:127.0.0.1:{port}\"\npages = \"http://{{host}}:9843/\"\n[[volume]]"
        );
        let law = "period = \"200ms\"\nlatency_threshold = \"60ms\"\n[volume.exchange]\nfile = \"exchange\"";
        let tenant =
            "[[volume.tenant]]\nname = \"gold\"\nlimit = { iops = 100000 }\n[[volume.disk]]";
        let text = config(host, law, disks)
            .replacen("[[volume]]", &http, 1)
            .replacen("[[volume.disk]]", tenant, 1)
            .replace("name = \"db\"", "name = \"db\"\ntenant = \"gold\"");
        (stage.agent(host, &text), port)
    };
    let (a, page) = agent("a", &[("db", &lun(0)), ("batch", &lun(1))]);
    let (b, _) = agent("b", &[("hog", &lun(2))]);
    let load = |host: &str, disk: &str, depth: u32| {
        let depth = format!("--iodepth={depth}");
        let options = ["--rw=randread", "--bs=4k", "--size=1g", &depth];
        stage.load(&format!("fio-{disk}"), &uri(host, disk), &options)
    };
    let loads = [load("a", "db", 3), load("a", "batch", 64)];
    let hog = load("b", "hog", 64);

    glance(&stage, page, "held", "");
    glance(&stage, page, "narrow", "");
    let set = |host: &str, setting: &str| {
        stage.ok(&[PARDA, "set", "-c", &format!("{host}.toml"), setting, "--temporary"]);
    };
    set("b", "mode=off");
    glance(&stage, page, "unfair", "");
    set("b", "mode=parda");
    // Less than an IO takes that is alone.
    set("a", "latency_threshold=1ms");
    glance(&stage, page, "above", "");
    set("a", "latency_threshold=60ms");
    hog.finish();
    b.stop();
    glance(&stage, page, "left", "");
    std::fs::rename(stage.path("exchange"), stage.path("away")).unwrap();
    glance(&stage, page, "fault", "The exchange fails. No IO waits for it.");
    loads.into_iter().for_each(|load| _ = load.finish());
    glance(&stage, page, "idle", "");
    a.stop();
}

#[test]
fn the_dialog_of_a_vm_shows_which_settings_are_of_the_policy() {
    let stage = Stage::new();
    let etcd = TestEtcd::start(&stage.path(""), 1);
    stage.sparse("data", 16 << 20);
    let port = free_port();
    let more = format!(
        "state = \"a.state\"\n[http]\naddress = \"tcp:127.0.0.1:{port}\"\n[policy]\nperiod = \"100ms\"\n\
         etcd = [\"{}\"]\n[[volume]]",
        etcd.urls()[0]
    );
    let agent =
        stage.agent("a", &config("a", "", &[("vm1", "data")]).replacen("[[volume]]", &more, 1));
    let policy = "[[volume]]\nname = \"array\"\n[[volume.vm]]\nname = \"vm1\"\nshares = 4500\n";
    stage.write("policy.toml", policy);
    stage.ok(&[PARDA, "policy", "apply", "policy.toml", "-c", "a.toml"]);
    // What takes a value out has none to be seen by.
    stage.ok(&[PARDA, "set", "vm1", "limit=none", "-c", "a.toml"]);
    glance(&stage, port, "policy", "");
    agent.stop();
}
