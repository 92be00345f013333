//! The web dashboard in Debian's Chromium, driven by Playwright: `web/test`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;

use crate::array::{Array, Delays};
use crate::metrics::get;
use crate::stage::{Agent, Stage, config, until, uri, wait_for};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/test");

#[test]
fn the_page_bears_sixty_four_hosts_and_a_thousand_vms() {
    let stage = Stage::new();
    // Phone and desktop, light and dark: charts drawn, nothing wider than the window, nothing on the console, no serious finding of axe-core;
    // reached by keyboard alone; its frames while it is live.
    let said = stage.ok(&["node", &format!("{TESTS}/browser.mjs")]);
    eprintln!("{said}");
}

/// IOs of the first disk for each of the second, from now on.
fn ratio(agent: &Agent) -> f64 {
    let ios = || agent.volume().disks.iter().map(|disk| disk.reads.ios).collect::<Vec<_>>();
    let before = ios();
    until("both have read on", || ios().iter().zip(&before).all(|(now, then)| now - then > 100));
    let after = ios();
    (after[0] - before[0]) as f64 / (after[1] - before[1]) as f64
}

/// IOs of the first disk for each of the second, in two seconds that begin ten periods of 100 ms after the last change.
fn ratio_after_ten_periods(port: u16) -> f64 {
    let answer =
        |path: &str| -> Value { serde_json::from_str(&get(port, path).unwrap().1).unwrap() };
    let events = answer("/api/v1/events?limit=1000");
    let mut changes = events["events"].as_array().unwrap().iter().rev();
    let change = changes.find(|event| event["kind"] == "live_change").unwrap();
    let from = change["at_ms"].as_u64().unwrap() + 1000;
    wait_for("two seconds pass", || {
        let history = answer("/api/v1/history?volume=array&seconds=60");
        let skip = from.saturating_sub(history["start_ms"].as_u64()?).div_ceil(1000) as usize;
        let ios = |disk: &str| -> Option<f64> {
            let each = history["disks"][disk]["iops"].as_array()?.get(skip..skip + 2)?;
            each.iter().map(Value::as_f64).sum()
        };
        Some(ios("vm1")? / ios("vm2")?)
    })
}

#[test]
fn shares_changed_on_the_page_are_what_clients_get_and_survive_a_restart() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(1), flush: Duration::ZERO };
    for array in ["array1", "array2"] {
        Array::start(&stage.path(array), 4096, delays);
    }
    let disks = [("vm1", "nbd+unix:///?socket=array1"), ("vm2", "nbd+unix:///?socket=array2")];
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let token = "0123456789abcdef0123456789abcdef";
    stage.write("tokens", format!("ops write {token}\n"));
    std::fs::set_permissions(stage.path("tokens"), PermissionsExt::from_mode(0o600)).unwrap();
    let http = format!(
        "state = \"state.toml\"\n[http]\naddress = \"tcp:127.0.0.1:{port}\"\ntokens = \"tokens\"\n[[volume]]"
    );
    let law = "period = \"100ms\"\nwindow_max = 2";
    let agent = stage.agent("host", &config("host", law, &disks).replacen("[[volume]]", &http, 1));
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=16"];
    let loads = ["vm1", "vm2"].map(|vm| stage.load(vm, &uri("host", vm), &options));
    until("both load", || agent.volume().disks.iter().all(|d| d.reads.ios > 50));
    let equal = ratio(&agent);
    assert!((0.7..1.4).contains(&equal), "equal shares, and {equal}");

    let url = format!("http://127.0.0.1:{port}/");
    stage.ok(&["node", &format!("{TESTS}/change.mjs"), &url, "vm1", "3000", token]);
    assert_eq!(agent.volume().disks[0].shares, 3000);
    let three = ratio(&agent);
    assert!((2.0..4.2).contains(&three), "three to one, and {three}");
    let three = ratio_after_ten_periods(port);
    assert!((2.0..4.2).contains(&three), "ten periods later three to one, and {three}");
    assert!(!agent.process.log().contains(token), "a secret in the log");
    for load in loads {
        load.finish();
    }
    agent.stop();
    let agent = stage.restart(&[], "host");
    assert_eq!(agent.volume().disks[0].shares, 3000);
    agent.stop();
}
