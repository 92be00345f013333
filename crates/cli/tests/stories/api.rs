//! The HTTP API, as a client sees it.

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Agent, Stage, config, until, uri, wait_for};

/// A host with its API at a unix socket.
fn text(host: &str, disks: &[(&str, &str)]) -> String {
    let http = format!("[http]\naddress = \"unix:{host}.http\"\n[[volume]]");
    config(host, "period = \"200ms\"", disks).replacen("[[volume]]", &http, 1)
}

/// Answer of the API to a GET: status and body.
fn get(stage: &Stage, host: &str, path: &str) -> (u16, Value) {
    let url = format!("http://localhost/api/v1/{path}");
    let socket = format!("{host}.http");
    let out = stage.ok(&["curl", "-s", "-w", "\n%{http_code}", "--unix-socket", &socket, &url]);
    let (body, code) = out.trim_end().rsplit_once('\n').unwrap();
    (code.parse().unwrap(), serde_json::from_str(body).unwrap())
}

fn ok(stage: &Stage, host: &str, path: &str) -> Value {
    let (code, body) = get(stage, host, path);
    assert_eq!(code, 200, "{path}: {body}");
    body
}

/// The only volume of the state.
fn volume(stage: &Stage, host: &str) -> Value {
    ok(stage, host, "state")["volumes"][0].take()
}

/// Kinds of all events.
fn kinds(stage: &Stage, host: &str) -> Vec<String> {
    let events = ok(stage, host, "events?after=0&limit=1000");
    let events = events["events"].as_array().unwrap();
    events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn state_and_history_show_what_a_client_does() {
    let stage = Stage::new();
    stage.sparse("data", 16 << 20);
    stage.sparse("idle", 1 << 20);
    let _agent = stage.agent("a", &text("a", &[("vm", "data"), ("idle", "idle")]));
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=4"];
    let load = stage.load("vm", &uri("a", "vm"), &options);
    let disk = wait_for("a second of load is seen", || {
        let volume = volume(&stage, "a");
        let did = volume["disks"][0]["reads_per_s"].as_f64()? > 0.0;
        (did && volume["hosts"][0]["iops"].as_f64()? > 0.0).then(|| volume["disks"].clone())
    });
    let number = |name: &str| disk[0][name].as_f64().unwrap_or_else(|| panic!("{name}: {disk}"));
    assert_eq!((disk[0]["key"].as_str(), disk[1]["key"].as_str()), (Some("vm"), Some("idle")));
    assert_eq!((number("shares"), number("writes_per_s")), (1000.0, 0.0));
    let bytes = number("bytes_per_s") / number("iops");
    assert!((bytes / 4096.0 - 1.0).abs() < 0.01, "{bytes} bytes each");
    assert!(number("device_p99_ms") >= 0.5 * number("device_ms"), "{disk}");
    // By Little's law all that fio has outstanding is at the array or held, or with fio itself.
    let at_a_time = number("outstanding") + number("waiting");
    assert!(at_a_time > 0.0 && at_a_time < 5.0, "{at_a_time}");
    assert_eq!((disk[1]["iops"].as_f64(), disk[1]["device_ms"].as_f64()), (Some(0.0), None));
    assert_eq!(disk[1]["limited_by"], "nothing done");

    let history = wait_for("two seconds are remembered", || {
        let history = ok(&stage, "a", "history?volume=array&seconds=30");
        let busy = history["disks"]["vm"]["iops"].as_array()?.iter();
        (busy.filter(|iops| iops.as_f64() > Some(0.0)).count() >= 2).then_some(history)
    });
    load.finish();
    assert_eq!(history["step_ms"], 1000);
    let column = |of: &Value| of.as_array().unwrap().len();
    assert_eq!(column(&history["volume"]["window"]), 30);
    assert_eq!(column(&history["disks"]["idle"]["held_ms"]), 30);
    let only = ok(&stage, "a", "history?volume=array&disk=idle");
    assert_eq!(only["disks"].as_object().unwrap().keys().collect::<Vec<_>>(), ["idle"]);
    assert_eq!(get(&stage, "a", "history?volume=array&disk=other").0, 404);
    assert_eq!(get(&stage, "a", "history?volume=array&seconds=86400").0, 400);
}

#[test]
fn events_tell_of_hosts_disks_and_reloads_whatever_is_logged() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let start = |name: &str, wrapper: &[&str]| -> Agent {
        stage.sparse(&format!("{name}.img"), 1 << 20);
        let text = text(name, &[("vm", &format!("{name}.img"))])
            .replace("[[volume.disk]]", "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]");
        stage.agent_within(wrapper, name, &text)
    };
    let a = start("a", &["env", "PARDA_LOG=error"]);
    let b = start("b", &[]);
    let says = |kind: &str| until(kind, || kinds(&stage, "a").iter().any(|one| one == kind));
    says("host_appeared");
    let hosts = volume(&stage, "a")["hosts"].clone();
    assert_eq!((hosts[0]["name"].as_str(), hosts[0]["own"].as_bool()), (Some("a"), Some(true)));
    assert_eq!(
        (hosts[1]["name"].as_str(), hosts[1]["liveness"].as_str()),
        (Some("b"), Some("live"))
    );
    b.process.kill();
    says("host_silent");
    let b = start("b", &[]);
    says("host_returned");
    b.stop();
    says("host_left");

    let log = a.process.log();
    assert!(!log.contains("serving"), "only errors are logged: {log}");
    stage.write("a.toml", "host = 3");
    a.process.signal(Signal::HUP);
    says("reload_refused");
    let events = ok(&stage, "a", "events?after=0");
    let find = |kind: &str| {
        let events = events["events"].as_array().unwrap();
        events.iter().find(|event| event["kind"] == kind).unwrap_or_else(|| panic!("{events:#?}"))
    };
    let up = find("disk_up");
    assert_eq!(
        (&up["volume"], &up["disk"], &up["severity"]),
        (&"array".into(), &"vm".into(), &"info".into())
    );
    let silent = find("host_silent");
    assert_eq!((&silent["host"], &silent["severity"]), (&"b".into(), &"warning".into()));
    assert!(find("reload_refused")["message"].as_str().unwrap().contains("a.toml:1:8"));
    let last = events["last_id"].as_u64().unwrap();
    assert_eq!(
        ok(&stage, "a", &format!("events?after={last}"))["events"],
        Value::Array(Vec::new())
    );
}
