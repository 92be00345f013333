//! The configuration file: the README's example works, and everything wrong is pointed at.

use parda_agent::config::{Config, Place, Vms, Work};
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
    assert_eq!(volume.law.control.law.threshold.secs(), 0.030);
    assert_eq!(volume.disks()[0].vm.shares.0, 1000);
    assert_eq!(volume.disks()[1].region, Some(0..8 << 30));
    assert!(matches!(volume.disks()[1].place, Place::Nbd(_)));
}

/// What `parda probe --json` writes.
const PROBE: &str = r#"{
    "format": 1, "begun": "2026-11-21T20:00:00Z", "took_s": 60, "seed": 1, "end": "complete",
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
    let begins = |config: Config| config.volumes[0].law.control.law.threshold.secs();
    assert_eq!(begins(auto("").unwrap()), 0.030, "no probe yet");
    assert_eq!(begins(auto(", start = \"20ms\"").unwrap()), 0.020);
    std::fs::write(&file, PROBE).unwrap();
    assert_eq!(begins(auto(", start = \"20ms\"").unwrap()), 0.0125);
    let config = auto(", inject = \"daily\"").unwrap();
    assert!(config.volumes[0].inject.is_some());
    assert!(auto(", inject = \"off\"").unwrap().volumes[0].inject.is_none());
    let alone = check(&GOOD.replacen("\"30ms\"", "{ inject = \"daily\" }", 1)).unwrap_err();
    assert!(alone.contains("7:32: inject = \"daily\": needs probe"), "{alone}");
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
        ("\"30ms\"", "30", "parda.toml:7:21: latency_threshold = 30: invalid type"),
        ("slot = 3", "slot = 64", "parda.toml:13:8: slot = 64: must be from 0 to 63"),
        ("slots = 64", "slots = 0", "parda.toml:12:9: slots = 0: must be from 1 to"),
        ("shares = 1000", "shares = 0", "parda.toml:19:10: shares = 0: must be from 1 to"),
        ("shares = 1000", "shares = -1", "parda.toml:19:10: shares = -1: invalid value"),
        ("name = \"vm1\"", "name = \"vm2\"", "parda.toml:22:8: name = \"vm2\": is served at"),
        ("\"8GiB\"", "\"8GiBs\"", "parda.toml:25:8: size = \"8GiBs\": "),
        ("\"8GiB\"", "\"1000B\"", "parda.toml:25:8: size = \"1000B\": must be a multiple of 4KiB"),
        ("nbd+unix:///vm2?socket=/run/array.sock", "nbd+unix:///vm2", "parda.toml:23:8: path"),
        ("nbd+unix:///vm2?socket=/run/array.sock", "nbds://x/y", "parda.toml:23:8: path"),
        ("nbd+unix:///vm2?socket=/run/array.sock", "/mnt/array-a/vm1.img", "overlaps the disk vm1"),
        ("name = \"array-a\"", "", "parda.toml:3:1: [[volume]]: missing field `name`"),
        ("host = \"kvm-01\"", "host = \"kvm-01\"\nhosts = 1", "parda.toml:2:1: hosts = 1: unknown"),
        ("host = \"kvm-01\"", "host = ", "parda.toml:1:"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let message = check(&text).expect_err(&text);
        assert!(message.contains(error), "{to}: {message}");
    }
}

#[test]
fn listeners_are_checked() {
    let unix = "listen = \"unix:/run/parda/array-a.sock\"";
    for bad in ["unix:", "tcp:10809", "tcp:host:port", "/run/x.sock", "udp:1.2.3.4:5"] {
        let message = check(&GOOD.replacen(unix, &format!("listen = \"{bad}\""), 1)).unwrap_err();
        assert!(message.contains("parda.toml:18:10: listen"), "{message}");
    }
    for good in ["tcp:0.0.0.0:10809", "tcp:[::1]:10809", "unix:relative.sock"] {
        check(&GOOD.replacen(unix, &format!("listen = \"{good}\""), 1)).unwrap();
    }
    let long = format!("listen = \"unix:/{}\"", "x".repeat(120));
    assert!(check(&GOOD.replacen(unix, &long, 1)).unwrap_err().contains("at most 107 bytes"));
}

#[test]
fn two_volumes_need_listeners_of_their_own() {
    let second = GOOD.split_once("[[volume]]").unwrap().1.replace("array-a\"", "array-b\"");
    let text = format!("{GOOD}\n[[volume]]{}", second.replace("\"vm", "\"other"));
    let message = check(&text).unwrap_err();
    assert!(message.contains("belongs to another volume"), "{message}");
}

/// An exchange that is a disk is refused, whatever both are called.
#[test]
fn an_exchange_that_is_a_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("vm.img"), [0; 4096]).unwrap();
    std::os::unix::fs::symlink("vm.img", at("link")).unwrap();
    std::fs::hard_link(at("vm.img"), at("hard")).unwrap();
    let with = |exchange: &str, disk: &str| {
        let text = GOOD.replace("/mnt/array-a/parda.exchange", exchange);
        check(&text.replace("/mnt/array-a/vm1.img", disk))
    };
    for exchange in ["vm.img", "./vm.img", "link", "hard"] {
        let message = with(&at(exchange), &at("vm.img")).unwrap_err();
        let says = ["parda.toml:11:8: file = ", "the disk vm1 of volume array-a"];
        assert!(says.iter().all(|says| message.contains(says)), "{message}");
    }
    with(&at("exchange"), &at("vm.img")).unwrap();
    let uri = "nbd+unix:///vm2?socket=/run/array.sock";
    assert!(with(uri, &at("vm.img")).unwrap_err().contains("the disk vm2"));
    // The other disk of this export is 8 GiB.
    let beyond = GOOD.replace("/mnt/array-a/parda.exchange", uri);
    check(&beyond.replace("slots = 64", "slots = 64\noffset = \"8GiB\"")).unwrap();
}

/// The disks of all volumes count, and so do their exchanges.
#[test]
fn an_exchange_is_compared_over_all_volumes() {
    let second = GOOD.split_once("[[volume]]").unwrap().1.replace("array-a", "array-b");
    let second = second.replace("\"vm", "\"other").replace("///vm2", "///other2");
    let both = |second: &str| check(&format!("{GOOD}\n[[volume]]{second}"));
    both(&second).unwrap();
    let message = both(&second.replace("array-b/parda.exchange", "array-a/vm1.img")).unwrap_err();
    assert!(message.contains("the disk vm1 of volume array-a"), "{message}");
    let message = both(&second.replace("array-b/parda.ex", "array-a/parda.ex")).unwrap_err();
    assert!(message.contains("is the exchange of volume array-a"), "{message}");
}

#[test]
fn nothing_to_serve_is_an_error() {
    assert!(check("host = \"a\"").unwrap_err().contains("at least one [[volume]]"));
    let message = check("host = \"a\"\n[[volume]]\nname = \"v\"\n").unwrap_err();
    assert_eq!(
        message,
        "parda.toml:2:1: disk: is missing: a [[volume.disk]] to serve is needed, or \
         [volume.steer]"
    );
}

const STEERED: &str = r#"host = "db-01"

[[volume]]
name = "san"
exchange = { file = "/dev/mapper/exchange" }

[volume.control]
window_max = 32

[volume.steer]
device = "/dev/mapper/san"
method = "queue_depth"
measure = "little"
shares = 2000
"#;

#[test]
fn a_volume_may_be_steered_in_place_of_served() {
    let config = check(STEERED).unwrap();
    let Work::Steer(steer) = &config.volumes[0].work else { panic!("not steered") };
    assert_eq!(steer.device.to_str(), Some("/dev/mapper/san"));
    assert_eq!(steer.method.map(|m| m.to_string()).as_deref(), Some("queue_depth"));
    assert_eq!(steer.vms, Vms::Host(Shares(2000)));
    let plain = check(&STEERED.replace("shares = 2000", "")).unwrap();
    let Work::Steer(steer) = &plain.volumes[0].work else { panic!("not steered") };
    assert_eq!(steer.vms, Vms::Host(Shares(1000)));
    let vms = "[[volume.steer.vm]]\nname = \"vms\"\ncgroup = \"proxmox:*\"\nshares = 500\n";
    let groups = check(&format!("{}{vms}", STEERED.replace("shares = 2000", ""))).unwrap();
    let Work::Steer(steer) = &groups.volumes[0].work else { panic!("not steered") };
    let Vms::Groups(patterns) = &steer.vms else { panic!("one VM") };
    assert_eq!((patterns[0].name.as_str(), patterns[0].shares), ("vms", Shares(500)));
    check(&STEERED.replace("queue_depth", "auto").replace("little", "auto")).unwrap();
}

#[test]
fn everything_wrong_with_steering_is_pointed_at() {
    for (from, to, error) in [
        ("/dev/mapper/san", "san", "parda.toml:11:10: device = \"san\": must be an absolute path"),
        ("queue_depth", "nr_request", "parda.toml:12:10: method = \"nr_request\": "),
        ("little", "bpf", "parda.toml:13:11: measure = \"bpf\": "),
        ("shares = 2000", "shares = 0", "parda.toml:14:10: shares = 0: must be from 1 to 1000000"),
        (
            "window_max = 32",
            "fairness = \"bytes\"",
            "parda.toml:8:12: fairness = \"bytes\": cannot",
        ),
        ("device =", "devise =", "parda.toml:11:1: devise = \"/dev/mapper/san\": unknown field"),
    ] {
        let text = STEERED.replacen(from, to, 1);
        assert_ne!(text, STEERED);
        let message = check(&text).expect_err(&text);
        assert!(message.contains(error), "{to}: {message}");
    }
    let both =
        format!("{STEERED}[[volume.disk]]\nname = \"a\"\npath = \"/a\"\nlisten = \"unix:/b\"\n");
    let message = check(&both).unwrap_err();
    assert!(message.contains("a volume is either steered or served"), "{message}");
}
