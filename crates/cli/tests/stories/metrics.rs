//! Metrics as a real Prometheus takes them: scraped, recorded, drawn, alerted on.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::prometheus::Prometheus;
use crate::stage::{Agent, PARDA, Stage, config, until, uri};

pub(crate) const CONTRIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");

/// A TCP port of this host that nobody uses now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The body of the answer to a GET; none while nobody answers.
pub(crate) fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A configuration with metrics at a port.
pub(crate) fn with_metrics(text: &str, port: u16) -> String {
    let http = format!("[http]\naddress = \"tcp:127.0.0.1:{port}\"\n[[volume]]");
    text.replacen("[[volume]]", &http, 1)
}

/// A host with metrics at a port, and a disk of a name.
fn host(stage: &Stage, name: &str, disk: &str, port: u16) -> Agent {
    let law = "period = \"200ms\"\nlatency_threshold = \"30ms\"";
    let text = with_metrics(&config(name, law, &[(disk, &format!("{name}.img"))]), port)
        .replace("[[volume.disk]]", "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]");
    stage.sparse(&format!("{name}.img"), 1 << 20);
    let agent = stage.agent(name, &text);
    // The status is there before HTTP is.
    agent.says("started");
    agent
}

/// All expressions of the dashboard, of all volumes.
fn dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(CONTRIB).join("grafana/parda.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|t| t["expr"].as_str().unwrap().replace("$volume", ".*")).collect()
}

#[test]
fn rules_are_right_and_each_alert_fires_and_is_cleared() {
    let stage = Stage::new();
    let rules = |name: &str| format!("{CONTRIB}/prometheus/{name}");
    stage.ok(&["promtool", "check", "rules", &rules("parda.rules.yml")]);
    stage.ok(&["promtool", "test", "rules", &rules("parda.rules.test.yml")]);
    let text = std::fs::read_to_string(rules("parda.rules.yml")).unwrap();
    let tests = std::fs::read_to_string(rules("parda.rules.test.yml")).unwrap();
    let stories = include_str!("alerts.rs");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    for alert in text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} has no test");
        assert!(stories.contains(&format!("fires(\"{alert}\"")), "{alert} has no story");
        assert!(page.contains(&format!("\n### {alert}\n")), "{alert} has no runbook");
        assert!(text.contains(&format!("#{}\"", alert.to_lowercase())), "{alert} names none");
    }
}

#[test]
fn a_prometheus_scrapes_two_hosts_and_says_when_one_is_lost() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let ports = [free_port(), free_port()];
    // A name that would end the label, and the line.
    let _a = host(&stage, "a", "vm \\\"1\\\"\\\\ \\n", ports[0]);
    let b = host(&stage, "b", "vm", ports[1]);
    assert_eq!(get(ports[1], "/readyz"), Some((200, "ready\n".to_owned())));
    let url = format!("http://127.0.0.1:{}/metrics", ports[0]);
    let text = stage.ok(&["curl", "-sS", "-H", "accept: application/openmetrics-text", &url]);
    assert!(text.ends_with("# EOF\n"), "{text}");

    let prometheus = Prometheus::start(&stage, &ports);
    let has = |expression: &str| prometheus.has(expression);
    until("they hear each other", || has("parda_peer_up == 1") && has("parda:disk_iops:rate1m"));
    let names = prometheus.query("parda_disk_up").unwrap();
    let names: BTreeSet<_> =
        names.iter().map(|disk| disk["metric"]["disk"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["vm", "vm \"1\"\\ \n"]));

    stage.ok(&["qemu-io", "-f", "raw", "-c", "write 0 64k", "-c", "read 0 64k", &uri("b", "vm")]);
    until("what the client did is counted", || {
        has("parda_disk_ios_total{disk=\"vm\",op=\"write\"} > 0")
            && has("parda_disk_device_seconds_count{disk=\"vm\"} >= 2")
    });
    // Who asks for no format has that of Prometheus before OpenMetrics.
    for port in ports {
        let check = format!(
            "curl -sSf http://127.0.0.1:{port}/metrics > text && promtool check metrics < text"
        );
        stage.ok(&["sh", "-c", &check]);
        let text = String::from_utf8(stage.read("text")).unwrap();
        assert!(text.contains("# TYPE parda_disk_ios_total counter\n"), "{text}");
    }
    // What has no sample without load, such as a latency, is known to Prometheus all the same.
    let (drawn, empty): (Vec<_>, Vec<_>) = dashboard().into_iter().partition(|panel| has(panel));
    assert!(drawn.len() > empty.len(), "nothing to draw for {empty:#?}");

    // A host that has no processor for two seconds is lost for a moment.
    prometheus.until_all_cleared();
    b.process.kill();
    let other = format!("127.0.0.1:{}", ports[0]);
    prometheus.until_fires("PardaHostLost", &[("instance", &other)]);
    let _b = host(&stage, "b", "vm", ports[1]);
    prometheus.until_all_cleared();
}

#[test]
fn the_source_of_the_threshold_follows_the_configuration_and_live_changes() {
    let stage = Stage::new();
    let port = free_port();
    let control = "period = \"200ms\"\nlatency_threshold = \"30ms\"";
    let text = |control| with_metrics(&config("a", control, &[("vm", "a.img")]), port);
    stage.sparse("a.img", 1 << 20);
    let agent = stage.agent("a", &format!("state = \"a.state\"\n{}", text(control)));
    let comes_from = |from: &str| {
        let name = "parda_volume_latency_threshold_source";
        let line = format!("{name}{{volume=\"array\",from=\"{from}\"}} 1.0\n");
        until(&line, || get(port, "/metrics").is_some_and(|(_, text)| text.contains(&line)));
    };
    comes_from("configuration");
    let set = [PARDA, "set", "latency_threshold=20ms", "-c", "a.toml"];
    stage.ok(&set);
    comes_from("state");
    stage.ok(&[&set[..], &["--temporary"]].concat());
    comes_from("live");
    stage.ok(&[PARDA, "set", "--reset", "latency_threshold", "-c", "a.toml"]);
    comes_from("configuration");
    stage.write("a.toml", text("period = \"200ms\""));
    agent.process.signal(Signal::HUP);
    comes_from("default");
}

#[test]
fn an_address_in_use_keeps_no_disk_waiting_and_is_served_when_it_is_free() {
    let stage = Stage::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let agent = host_alone(&stage, port);
    stage.ok(&["qemu-io", "-f", "raw", "-c", "write 0 64k", &uri("a", "vm")]);
    drop(other);
    agent.process.signal(Signal::HUP);
    until("it is served", || get(port, "/readyz") == Some((200, "ready\n".to_owned())));
}

#[test]
fn a_disk_whose_file_has_shrunk_is_not_ready() {
    let stage = Stage::new();
    let port = free_port();
    let _agent = host_alone(&stage, port);
    stage.sparse("a.img", 1 << 19);
    until("it is said", || {
        get(port, "/readyz").is_some_and(|(code, text)| code == 503 && text.contains("has shrunk"))
    });
    let (_, text) = get(port, "/metrics").unwrap();
    assert!(
        text.contains("parda_disk_up{volume=\"array\",disk=\"vm\",listen=\"unix:a\"} 0.0"),
        "{text}"
    );
    stage.sparse("a.img", 1 << 20);
    until("it is ready again", || get(port, "/readyz").is_some_and(|(code, _)| code == 200));
}

/// A host that shares its volume with nobody, with metrics at a port.
fn host_alone(stage: &Stage, port: u16) -> Agent {
    let text = config("a", "period = \"200ms\"", &[("vm", "a.img")]);
    stage.sparse("a.img", 1 << 20);
    stage.agent("a", &with_metrics(&text, port))
}

#[test]
fn the_address_follows_a_reload_and_refusals_name_the_line() {
    let stage = Stage::new();
    let ports = [free_port(), free_port()];
    let text = config("a", "mode = \"off\"", &[("vm", "a.img")]);
    let with = |port: u16| with_metrics(&text, port);
    stage.sparse("a.img", 1 << 20);
    let agent = stage.agent("a", &with(ports[0]));
    agent.says("started");
    assert!(get(ports[0], "/healthz").is_some());
    stage.write("a.toml", with(ports[1]));
    agent.process.signal(Signal::HUP);
    until("the new address answers", || get(ports[1], "/healthz").is_some());
    until("the old one does not", || get(ports[0], "/healthz").is_none());
    stage.write("a.toml", &text);
    agent.process.signal(Signal::HUP);
    until("it is gone", || get(ports[1], "/healthz").is_none());

    let open = with(ports[0]).replace("tcp:127.0.0.1", "tcp:0.0.0.0");
    stage.write("open.toml", &open);
    let error = stage.fails(&[PARDA, "check", "open.toml"]);
    assert!(error.contains("open.toml:") && error.contains("plain = true"), "{error}");
}
