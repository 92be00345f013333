//! The HTTP API, as a client sees it.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::array::{Array, Delays};
use crate::stage::{Agent, PARDA, Stage, config, until, uri, wait_for};

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
    let agent = stage.agent("a", &text("a", &[("vm", "data"), ("idle", "idle")]));
    // The status is there before HTTP is.
    agent.says("started");
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=4"];
    let load = stage.load("vm", &uri("a", "vm"), &options);
    let disk = wait_for("a second of load is seen", || {
        let volume = volume(&stage, "a");
        let number = |name: &str| volume["disks"][0][name].as_f64();
        let did = number("reads_per_s")? > 0.0;
        // By Little's law all that fio has outstanding is at the array or held, or with fio itself. An IO that ends in another second than
        // most of its time adds to that one.
        let at_a_time = number("outstanding")? + number("waiting")?;
        eprintln!("{at_a_time:.2} at a time");
        let right = at_a_time > 0.0 && at_a_time < 5.0;
        (did && right && volume["hosts"][0]["iops"].as_f64()? > 0.0)
            .then(|| volume["disks"].clone())
    });
    let number = |name: &str| disk[0][name].as_f64().unwrap_or_else(|| panic!("{name}: {disk}"));
    assert_eq!((disk[0]["key"].as_str(), disk[1]["key"].as_str()), (Some("vm"), Some("idle")));
    assert_eq!((number("shares"), number("writes_per_s")), (1000.0, 0.0));
    let bytes = number("bytes_per_s") / number("iops");
    assert!((bytes / 4096.0 - 1.0).abs() < 0.01, "{bytes} bytes each");
    assert!(number("device_p99_ms") >= 0.5 * number("device_ms"), "{disk}");
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
    until("a's HTTP is there", || stage.path("a.http").exists());
    let b = start("b", &[]);
    let says = |kind: &str| until(kind, || kinds(&stage, "a").iter().any(|one| one == kind));
    says("host_appeared");
    until("the hosts are this one, and b, which is live", || {
        let hosts = volume(&stage, "a")["hosts"].clone();
        assert_eq!((hosts[0]["name"].as_str(), hosts[0]["own"].as_bool()), (Some("a"), Some(true)));
        assert_eq!(hosts[1]["name"], "b");
        hosts[1]["liveness"] == "live"
    });
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

#[test]
fn shares_changed_live_are_what_clients_get_and_outlive_the_agent() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(1), flush: Duration::ZERO };
    for array in ["array1", "array2"] {
        Array::start(&stage.path(array), 4096, delays);
    }
    let disks = [("vm1", "nbd+unix:///?socket=array1"), ("vm2", "nbd+unix:///?socket=array2")];
    let text = config("a", "period = \"100ms\"\nwindow_max = 2", &disks);
    let text = format!("state = \"state.toml\"\n{text}");
    let agent = stage.agent("a", &text);
    let options = ["--rw=randread", "--bs=4k", "--size=16m", "--iodepth=16"];
    let loads = ["vm1", "vm2"].map(|vm| stage.load(vm, &uri("a", vm), &options));
    until("both load", || agent.volume().disks.iter().all(|d| d.reads.ios > 50));
    agent.until_ratio("equal shares", 0.75..1.33);

    let parda = |line: &[&str]| stage.ok(&[&[PARDA], line, &["-c", "a.toml"]].concat());
    let said = parda(&["set", "vm1", "shares=3000"]);
    assert_eq!(
        said.trim(),
        "volume array, disk vm1: shares = 3000 (before: 1000), kept in the state file; 75 % of the 4000 shares of all hosts that are heard"
    );
    agent.until_ratio("three to one", 2.2..4.0);
    let said = parda(&["set", "window_max=3", "--temporary", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["settings"][0]["in_force"], 3.0);
    assert_eq!(said["settings"][0]["configured"], 2);
    assert_eq!(agent.volume().window_max, Some(3.0));
    // The change is in the journal, with who did it.
    agent.says("shares = 3000 (before: 1000), kept in the state file");
    assert!(agent.process.log().contains("by=\"uid "), "{}", agent.process.log());
    assert!(parda(&["events"]).contains("disk vm1: shares = 3000 (before: 1000)"));
    assert!(parda(&["peers"]).contains("a (this)"));

    // What is wrong is said as for the file, and changes nothing.
    let wrong = |line: &[&str]| stage.fails(&[&[PARDA, "set"], line, &["-c", "a.toml"]].concat());
    assert!(wrong(&["vm1", "shares=0"]).contains("shares = 0: must be from 1 to 1000000"));
    assert!(wrong(&["vm3", "shares=1"]).contains("no volume has one; there are: vm1, vm2"));
    assert!(wrong(&["vm1", "path=/etc/passwd"]).contains("cannot be changed while"));
    assert!(wrong(&["window_max=0"]).contains("must be at least window_min"));
    assert!(wrong(&["windwo_max=1"]).contains("unknown field `windwo_max`"));

    // A reload keeps both; a restart keeps what is in the state file.
    stage.write("a.toml", text.replace("window_max = 2", "window_max = 4"));
    agent.process.signal(Signal::HUP);
    agent.says("a.toml: in force");
    let volume = agent.volume();
    assert_eq!((volume.disks[0].shares, volume.window_max), (3000, Some(3.0)));
    for load in loads {
        load.finish();
    }
    let follow = ["events", "--follow", "--last", "1", "-c", "a.toml"];
    let follow = stage.start("follow", &[&[PARDA], &follow[..]].concat());
    let told = || String::from_utf8(stage.read("follow.out")).unwrap();
    until("the last event is told", || !told().is_empty());
    agent.stop();
    until("the follower misses the agent", || follow.log().contains("goes on when"));
    let agent = stage.restart(&[], "a");
    let volume = agent.volume();
    assert_eq!((volume.disks[0].shares, volume.window_max), (3000, Some(4.0)));
    until("the next run is told from its first event", || told().matches("serving").count() == 2);
    let said = parda(&["set", "vm1", "--reset", "shares"]);
    assert!(said.contains("shares = 1000 (before: 3000), the default"), "{said}");
    assert_eq!(agent.volume().disks[0].shares, 1000);
    assert!(wrong(&["vm1", "--reset", "shares"]).contains("was not changed live"));
}

#[test]
fn over_tcp_a_change_takes_a_token_that_may_write() {
    let stage = Stage::new();
    let port = crate::metrics::free_port();
    stage.sparse("data", 1 << 20);
    let http =
        format!("[http]\naddress = \"tcp:127.0.0.1:{port}\"\ntokens = \"tokens\"\n[[volume]]");
    let text = config("a", "period = \"200ms\"", &[("vm", "data")]);
    let secrets = "ops write 0123456789abcdef\nscreen read fedcba9876543210\n";
    stage.write("tokens", secrets);
    stage.ok(&["chmod", "600", "tokens"]);
    let agent = stage.agent("a", &text.replacen("[[volume]]", &http, 1));
    agent.says("started");
    let url = format!("http://127.0.0.1:{port}/api/v1/volumes/array/disks/vm");
    let patch = |headers: &[&str], body: &str| -> (String, Value) {
        let mut line = vec!["curl", "-s", "-w", "\n%{http_code}", "-X", "PATCH", "-d", body, &url];
        headers.iter().for_each(|header| line.extend(["-H", header]));
        let out = stage.ok(&line);
        let (body, code) = out.trim_end().rsplit_once('\n').unwrap();
        (code.to_owned(), serde_json::from_str(body).unwrap())
    };
    let json = "content-type: application/json";
    let body = r#"{"shares": 2000}"#;
    let (writer, reader) =
        ("authorization: Bearer 0123456789abcdef", "authorization: Bearer fedcba9876543210");
    assert_eq!(patch(&[json], body).0, "401");
    assert_eq!(patch(&[json, "authorization: Bearer wrong"], body).0, "401");
    assert_eq!(patch(&[json, reader], body).0, "403");
    assert_eq!(patch(&[writer], body).0, "415", "a form");
    assert_eq!(patch(&[json, writer, "origin: http://evil.example"], body).0, "403");
    assert_eq!(patch(&[json, writer, "host: evil.example"], body).0, "403");
    assert_eq!(agent.volume().disks[0].shares, 1000);
    let (code, answer) = patch(&[json, writer], body);
    assert_eq!(code, "200", "{answer}");
    let setting = &answer["settings"][0];
    assert_eq!((&setting["in_force"], &setting["from"]), (&2000.into(), &"live".into()));
    let (code, answer) = patch(&[json, writer], r#"{"shares": 7, "keep": "state"}"#);
    assert_eq!(code, "409", "there is no state file: {answer}");
    assert_eq!(agent.volume().disks[0].shares, 2000);
    agent.says("by=\"ops\"");
    let log = agent.process.log();
    assert!(!log.contains("0123456789abcdef") && !log.contains("fedcba9876543210"), "{log}");

    // A file of tokens that others can read changes nothing; another one counts from then on.
    stage.ok(&["chmod", "644", "tokens"]);
    agent.process.signal(Signal::HUP);
    agent.says("tokens are as before");
    assert_eq!(patch(&[json, writer], body).0, "200");
    stage.ok(&["chmod", "600", "tokens"]);
    stage.write("tokens", secrets.replace("0123", "3210"));
    agent.process.signal(Signal::HUP);
    until("the old token is refused", || patch(&[json, writer], body).0 == "401");
    assert_eq!(patch(&[json, "authorization: Bearer 3210456789abcdef"], body).0, "200");
}
