//! The configuration file: the README's example works, and everything wrong is pointed at.

mod exchange;
mod listeners;
mod steered;

use parda_agent::config::{Config, Vms, Work};
use parda_block::{BackendConfig, NbdOptions};
use parda_config::Document;
use parda_control::Shares;

const GOOD: &str = r#"host = "kvm-01"

[[volume]]
name = "array-a"

[volume.control]
latency_threshold = "30ms"
window_max = 64

[volume.exchange]
file = "/mnt/array-a/parda.exchange"
slots = 64
slot = 3

[[volume.disk]]
name = "vm1"
path = "/mnt/array-a/vm1.img"
listen = "unix:/run/parda/array-a.sock"
shares = 1000

[[volume.disk]]
name = "vm2"
path = "nbd+unix:///vm2?socket=/run/array.sock"
listen = "unix:/run/parda/array-a.sock"
size = "8GiB"
"#;

fn check(text: &str) -> Result<Config, String> {
    Config::check(&Document::new("parda.toml", text)).map_err(|e| e.to_string())
}

#[test]
fn a_good_file_means_what_it_says() {
    let config = check(GOOD).unwrap();
    let volume = &config.volumes[0];
    assert_eq!(volume.law.law.threshold.secs(), 0.030);
    assert_eq!(volume.disks()[0].settings.shares().0, 1000);
    assert_eq!(volume.disks()[1].bytes(), Some(0..8 << 30));
    assert!(matches!(volume.disks()[1].backend, BackendConfig::Nbd { .. }));
}

#[test]
fn the_ready_configurations_for_many_hosts_are_accepted() {
    let page = include_str!("../../../../../docs/many-hosts.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: Vec<_> = blocks.collect();
    let (before, rest) = blocks[0].split_once("[volume.exchange]").unwrap();
    let (_, disks) = rest.split_once("[[volume.disk]]").unwrap();
    let whole = |exchange: &&str| format!("{before}{exchange}[[volume.disk]]{disks}");
    let others = blocks[1..].iter().map(whole);
    let all = others.chain([blocks[0].to_owned()]);
    let configs: Vec<_> = all.map(|block| check(&block).unwrap()).collect();
    assert_eq!(configs.len(), 3);
    assert!(configs.iter().all(|config| config.volumes[0].exchange.is_some()));
}

#[test]
fn the_use_of_an_nbd_server_is_configured_and_checked() {
    let config = check(GOOD).unwrap();
    let nbd = |config: &Config| -> NbdOptions {
        match config.volumes[0].disks()[1].backend {
            BackendConfig::Nbd { options, .. } => options,
            _ => panic!("no NBD server"),
        }
    };
    let seconds = std::time::Duration::from_secs;
    assert_eq!((nbd(&config).connections, nbd(&config).hold), (1, seconds(10)));
    let with = |line: &str| check(&format!("{GOOD}\n[volume.disk.nbd]\n{line}\n"));
    let config = with("connections = 4\nhold = \"30s\"\ntimeout = \"1m\"").unwrap();
    let options = nbd(&config);
    assert_eq!((options.connections, options.hold, options.timeout), (4, seconds(30), seconds(60)));
    let at = GOOD.lines().count() + 3;
    for (line, message) in [
        ("connections = 0", "must be from 1 to 16"),
        ("connections = 17", "must be from 1 to 16"),
        ("hold = \"2h\"", "must be from 0s"),
        ("timeout = \"0s\"", "must be from 1s to 1h"),
        ("timeout = 30", "must be a duration such as \"30ms\", not 30"),
        ("retries = 3", "unknown field"),
    ] {
        let error = with(line).unwrap_err();
        assert!(error.starts_with(&format!("parda.toml:{at}:")), "{error}");
        assert!(error.contains(message), "{error}");
    }
    let file = GOOD.replace("nbd+unix:///vm2?socket=/run/array.sock", "/mnt/vm2.img");
    let error = check(&format!("{file}\n[volume.disk.nbd]\nhold = \"1s\"\n")).unwrap_err();
    assert!(error.contains("is only for a disk whose path is an NBD URI"), "{error}");
}

/// What `parda probe --json` writes.
const PROBE: &str = r#"{
    "format": 2, "begun": "2026-11-21T20:00:00Z", "took_s": 60, "seed": 1, "end": "complete",
    "target": {"name": "/dev/sdb", "kind": "device", "bytes": 4096, "writes": false, "about": []},
    "points": [],
    "findings": {
        "curves": [], "suspicions": [], "unknown": [],
        "advice": {
            "latency_threshold_ms": 12.5, "window_max": 64, "throughput_fraction": 0.96,
            "why": [], "snippet": ""
        }
    }
}"#;

/// A stored probe says where an automatic threshold begins, and what is wrong with it is pointed at.
#[test]
fn an_automatic_threshold_begins_at_the_stored_probe() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("probe.json");
    let auto = |more: &str| {
        let setting = format!("{{ probe = \"{}\"{more} }}", file.display());
        check(&GOOD.replacen("\"30ms\"", &setting, 1))
    };
    let begins = |config: Config| config.volumes[0].law.law.threshold.secs();
    assert_eq!(begins(auto("").unwrap()), 0.030, "no probe yet");
    assert_eq!(begins(auto(", start = \"20ms\"").unwrap()), 0.020);
    std::fs::write(&file, PROBE).unwrap();
    assert_eq!(begins(auto(", start = \"20ms\"").unwrap()), 0.0125);
    for former in ["idle_probe", "inject"] {
        let config = auto(&format!(", {former} = \"daily\"")).unwrap();
        assert!(config.volumes[0].idle_probe.is_some());
    }
    assert!(auto(", idle_probe = \"off\"").unwrap().volumes[0].idle_probe.is_none());
    let alone = check(&GOOD.replacen("\"30ms\"", "{ idle_probe = \"daily\" }", 1)).unwrap_err();
    assert!(alone.contains("7:36: idle_probe = \"daily\": needs probe"), "{alone}");
    std::fs::write(&file, "{}").unwrap();
    let wrong = auto("").unwrap_err();
    assert!(wrong.contains("parda.toml:7:31: probe = "), "{wrong}");
    assert!(wrong.contains("probe.json:1:2: not a probe: missing field `format`"), "{wrong}");
}

/// Replaces one line of the good file, and expects the error to point at it.
#[test]
fn everything_wrong_is_pointed_at() {
    for (from, to, error) in [
        ("host = \"kvm-01\"", "host = \"\"", "parda.toml:1:8: host = \"\": "),
        ("window_max = 64", "window_max = 0", "parda.toml:8:14: window_max = 0: must be at least"),
        ("window_max = 64", "window_mx = 64", "parda.toml:8:1: window_mx = 64: unknown field"),
        ("\"30ms\"", "\"30\"", "parda.toml:7:21: latency_threshold = \"30\": "),
        ("\"30ms\"", "30", "parda.toml:7:21: latency_threshold = 30: must be a duration such"),
        ("slot = 3", "slot = 64", "parda.toml:13:8: slot = 64: must be from 0 to 63"),
        ("slots = 64", "slots = 0", "parda.toml:12:9: slots = 0: must be from 1 to"),
        ("shares = 1000", "shares = 0", "parda.toml:19:10: shares = 0: must be from 1 to"),
        (
            "shares = 1000",
            "shares = -1",
            "parda.toml:19:10: shares = -1: must be a whole number from 1 to 1000000",
        ),
        (
            "shares = 1000",
            "latency_target = \"11s\"",
            "parda.toml:19:18: latency_target = \"11s\": must be at most 10s, which is far above",
        ),
        ("shares = 1000", "latency_target = \"0s\"", "latency_target = \"0s\": must be above zero"),
        ("shares = 1000", "description = \"a\\u0000b\"", "parda.toml:19:15: description"),
        ("name = \"vm1\"", "name = \"vm2\"", "parda.toml:22:8: name = \"vm2\": is served at"),
        (
            "name = \"vm1\"",
            "name = \"..\"",
            "parda.toml:16:8: name = \"..\": is a directory in a URL",
        ),
        (
            "name = \"array-a\"",
            "name = \".\"",
            "parda.toml:4:8: name = \".\": is a directory in a URL",
        ),
        (
            "[[volume.disk]]",
            "[[volume.tenant]]\nname = \"..\"\n[[volume.disk]]",
            "parda.toml:16:8: name = \"..\": must be 1 to 63 letters",
        ),
        (
            "[[volume.disk]]",
            "[[volume.tenant]]\nname = \"a/b\"\n[[volume.disk]]\ntenant = \"a/b\"",
            "parda.toml:16:8: name = \"a/b\": must be 1 to 63 letters",
        ),
        (
            "name = \"array-a\"",
            "name = \"a\\u0000\"",
            "parda.toml:4:8: name = \"a\\u0000\": must not contain control characters",
        ),
        (
            "size = \"8GiB\"",
            "offset = \"1MiB\"",
            "parda.toml:25:10: offset = \"1MiB\": needs a size as well",
        ),
        ("\"8GiB\"", "\"8GiBs\"", "parda.toml:25:8: size = \"8GiBs\": "),
        ("\"8GiB\"", "\"1000B\"", "parda.toml:25:8: size = \"1000B\": must be a multiple of 4KiB"),
        (
            "\"8GiB\"",
            "\"8EiB\"",
            "parda.toml:25:8: size = \"8EiB\": must be above zero, and end below",
        ),
        ("nbd+unix:///vm2?socket=/run/array.sock", "nbd+unix:///vm2", "parda.toml:23:8: path"),
        ("nbd+unix:///vm2?socket=/run/array.sock", "nbds://x/y", "nothing says which CA"),
        (
            "/mnt/array-a/parda.exchange",
            "nbds://x/y",
            "parda.toml:11:8: file = \"nbds://x/y\": asks",
        ),
        ("nbd+unix:///vm2?socket=/run/array.sock", "/mnt/array-a/vm1.img", "overlaps the disk vm1"),
        ("name = \"array-a\"", "", "parda.toml:3:1: [[volume]]: missing field `name`"),
        ("host = \"kvm-01\"", "host = \"kvm-01\"\nhosts = 1", "parda.toml:2:1: hosts = 1: unknown"),
        ("host = \"kvm-01\"", "host = ", "parda.toml:1:"),
        ("host = \"kvm-01\"\n", "", "parda.toml: missing field `host`"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let message = check(&text).expect_err(&text);
        assert!(message.contains(error), "{to}: {message}");
    }
}

#[test]
fn a_description_has_at_most_what_the_protocol_carries() {
    let described = |n: usize| {
        let line = format!("description = \"{}\"", "x".repeat(n));
        check(&GOOD.replacen("shares = 1000", &line, 1))
    };
    assert_eq!(described(4096).unwrap().volumes[0].disks()[0].description.len(), 4096);
    assert!(described(4097).unwrap_err().contains("must be at most 4096 bytes"));
}

#[test]
fn nothing_to_serve_is_an_error() {
    assert!(check("host = \"a\"").unwrap_err().contains("at least one [[volume]]"));
    let message = check("host = \"a\"\n[[volume]]\nname = \"v\"\n").unwrap_err();
    assert_eq!(
        message,
        "parda.toml:2:1: disk: is missing: a [[volume.disk]] to serve is needed, or \
         [volume.steer]; disk = [] waits for parda disk add"
    );
    let waits = "host = \"a\"\n[[volume]]\nname = \"v\"\ndisk = []\n";
    assert!(check(waits).unwrap().volumes[0].disks().is_empty());
    let listener = "[[listener]]\naddress = \"unix:/s\"\nmode = \"0660\"\n";
    check(&format!("{waits}{listener}")).unwrap();
}

#[test]
fn everything_wrong_with_limits_is_pointed_at() {
    for (lines, error) in [
        ("memory = \"1MiB\"", "memory = \"1MiB\": must be from 64MiB to 1TiB"),
        ("memory = \"15EiB\"", "memory = \"15EiB\": must be from 64MiB to 1TiB"),
        ("memory = \"16EiB\"", "memory = \"16EiB\": must be below 16EiB"),
        ("memory = \"much\"", "memory = \"much\": "),
        ("connections = 0", "connections = 0: must be from 1 to 65536"),
        ("connections = 70000", "connections = 70000: must be from 1 to 65536"),
        ("connections = -1", "connections = -1: "),
        ("connections_per_export = 0", "connections_per_export = 0: must be from 1"),
        ("connections_per_peer = 0", "connections_per_peer = 0: must be from 1"),
        ("handshakes_per_second = 0", "handshakes_per_second = 0: must be from 1 to 65536"),
        ("handshakes_per_second = 1e9", "handshakes_per_second = 1e9: "),
        ("requests_per_connection = 0", "requests_per_connection = 0: must be from 1"),
        (
            "memory_per_connection = \"4KiB\"",
            "memory_per_connection = \"4KiB\": must be from 1MiB to 1TiB",
        ),
        ("handshake_timeout = \"1ms\"", "handshake_timeout = \"1ms\": must be from 100ms to 1day"),
        ("progress_timeout = \"2days\"", "progress_timeout = \"2days\": must be from 100ms"),
        ("progress_timeout = \"soon\"", "progress_timeout = \"soon\": "),
        ("memory_per_conection = \"1MiB\"", "memory_per_conection = \"1MiB\": unknown field"),
    ] {
        let text = format!("{GOOD}\n[volume.limits]\n{lines}\n");
        let line = text.lines().position(|l| l == lines).unwrap() + 1;
        let message = check(&text).expect_err(lines);
        assert!(message.starts_with(&format!("parda.toml:{line}:")), "{lines}: {message}");
        assert!(message.contains(error), "{lines}: {message}");
    }
    let crowd = format!("{GOOD}\n[volume.limits]\nmemory = \"64MiB\"\nconnections = 5000\n");
    let message = check(&crowd).unwrap_err();
    assert!(message.contains("lower connections"), "{message}");
    let agent = GOOD.replacen("[[volume]]", "[limits]\nmemory = \"63MiB\"\n\n[[volume]]", 1);
    let message = check(&agent).unwrap_err();
    assert!(
        message.starts_with("parda.toml:4:10: memory = \"63MiB\": must be from 64MiB to 1TiB"),
        "{message}"
    );
}

#[test]
fn reservations_and_tenants_without_effect_are_warned_about() {
    let tenant = "[[volume.tenant]]\nname = \"gold\"\nshares = 5\n\n[[volume.disk]]";
    let text = GOOD.replacen("[[volume.disk]]", tenant, 1).replacen(
        "name = \"vm1\"",
        "name = \"vm1\"\ntenant = \"gold\"\nreservation = 100",
        1,
    );
    assert_eq!(check(&text).unwrap().warnings(), Vec::<String>::new(), "{text}");
    let off = text.replacen("window_max", "mode = \"static\"\nwindow_max", 1);
    let warnings = check(&off).unwrap().warnings().join("\n");
    for said in ["reservation needs mode", "tenant gold: shares and reservation need mode"] {
        assert!(warnings.contains(said), "{warnings}");
    }
    let unknown = text.replacen("tenant = \"gold\"", "tenant = \"silver\"", 1);
    assert!(
        check(&unknown)
            .unwrap_err()
            .to_string()
            .contains("tenant = \"silver\": is no [[volume.tenant]]")
    );
}
