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
    assert_eq!(volume.disks()[0].settings.shares().0, 1000);
    assert_eq!(volume.disks()[1].region, Some(0..8 << 30));
    assert!(matches!(volume.disks()[1].place, Place::Nbd(_)));
}

#[test]
fn the_ready_configurations_for_many_hosts_are_accepted() {
    let page = include_str!("../../../../docs/many-hosts.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let configs: Vec<_> = blocks.map(|block| check(block).unwrap()).collect();
    assert_eq!(configs.len(), 4);
    assert!(configs.iter().all(|config| config.volumes[0].exchange.is_some()));
}

#[test]
fn the_use_of_an_nbd_server_is_configured_and_checked() {
    let config = check(GOOD).unwrap();
    let nbd = |config: &Config| config.volumes[0].disks()[1].nbd;
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
    let begins = |config: Config| config.volumes[0].law.control.law.threshold.secs();
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
fn listeners_are_checked() {
    let unix = "listen = \"unix:/run/parda/array-a.sock\"";
    for bad in ["unix:", "tcp:10809", "tcp:host:port", "/run/x.sock", "udp:1.2.3.4:5"] {
        let message = check(&GOOD.replacen(unix, &format!("listen = \"{bad}\""), 1)).unwrap_err();
        assert!(message.contains("parda.toml:18:10: listen"), "{message}");
    }
    for good in ["tcp:127.0.0.1:10809", "tcp:[::1]:10809", "unix:relative.sock"] {
        check(&GOOD.replacen(unix, &format!("listen = \"{good}\""), 1)).unwrap();
    }
    let long = format!("listen = \"unix:/{}\"", "x".repeat(120));
    assert!(check(&GOOD.replacen(unix, &long, 1)).unwrap_err().contains("at most 107 bytes"));
}

/// The good file with a `[[listener]]` of these lines at the end.
fn with_listener(lines: &str) -> String {
    format!("{GOOD}[[listener]]\n{lines}\n")
}

const UNIX: &str = "address = \"unix:/run/parda/array-a.sock\"";

#[test]
fn a_listener_says_who_may_connect() {
    let listener = |text: &str| check(text).unwrap().volumes[0].listeners[0].clone();
    let plain = listener(GOOD);
    assert_eq!(plain.address.to_string(), "unix:/run/parda/array-a.sock");
    assert_eq!((plain.access.mode, plain.access.owner, plain.access.group), (0o600, None, None));
    let lines = format!("{UNIX}\nmode = \"0660\"\nowner = \"root\"\ngroup = \"107\"");
    let open = listener(&with_listener(&lines));
    assert_eq!(
        (open.access.mode, open.access.owner, open.access.group),
        (0o660, Some(0), Some(107))
    );
    let config = check(&with_listener(&format!("{UNIX}\nmode = \"0666\""))).unwrap();
    assert!(config.warnings()[0].contains("every user of this host"), "{:?}", config.warnings());
    assert_eq!(check(GOOD).unwrap().warnings(), Vec::<String>::new());
}

#[test]
fn other_hosts_reach_a_disk_without_tls_only_if_the_file_says_so() {
    let exposed = GOOD.replace("unix:/run/parda/array-a.sock", "tcp:0.0.0.0:10809");
    let refused = check(&exposed).unwrap_err();
    assert!(
        refused.starts_with(
            "parda.toml:18:10: listen = \"tcp:0.0.0.0:10809\": is not a loopback address"
        ),
        "{refused}"
    );
    let listener = "[[listener]]\naddress = \"tcp:0.0.0.0:10809\"\n";
    let refused = check(&format!("{exposed}{listener}plain = false\n")).unwrap_err();
    assert!(refused.starts_with("parda.toml:27:11: address"), "{refused}");
    let config = check(&format!("{exposed}{listener}plain = true\n")).unwrap();
    assert!(config.volumes[0].listeners[0].plain);
    let warnings = config.warnings();
    assert!(
        warnings[0].contains("without TLS") && warnings[0].ends_with("vm1 vm2"),
        "{warnings:?}"
    );
}

#[test]
fn everything_wrong_with_a_listener_is_pointed_at() {
    let tcp = "address = \"tcp:127.0.0.1:1\"";
    for (lines, error) in [
        (
            "address = \"unix:/run/other\"".to_owned(),
            "27:11: address = \"unix:/run/other\": no disk",
        ),
        ("address = \"carrier pigeon\"".to_owned(), "27:11: address = \"carrier pigeon\": must be"),
        (format!("{UNIX}\n[[listener]]\n{UNIX}"), "29:11: address = "),
        (format!("{UNIX}\nmode = \"rw\""), "28:8: mode = \"rw\": must be three octal digits"),
        (format!("{UNIX}\nmode = 660"), "28:8: mode = 660: must be a text"),
        (
            format!("{UNIX}\nowner = \"no such one\""),
            "28:9: owner = \"no such one\": this host has",
        ),
        (
            format!("{UNIX}\ngroup = \"no such one\""),
            "28:9: group = \"no such one\": this host has",
        ),
        (format!("{UNIX}\nplain = true"), "28:9: plain = true: is for TCP"),
        (format!("{UNIX}\nmodes = \"0600\""), "28:1: modes = \"0600\": unknown field"),
        (format!("{tcp}\nmode = \"0600\""), "28:8: mode = \"0600\": is for unix sockets"),
        (format!("{tcp}\ngroup = \"root\""), "28:9: group = \"root\": is for unix sockets"),
        ("mode = \"0600\"".to_owned(), "26:1: [[listener]]: missing field `address`"),
    ] {
        let message = check(&with_listener(&lines)).unwrap_err();
        assert!(message.starts_with(&format!("parda.toml:{error}")), "{lines}: {message}");
    }
}

#[test]
fn tls_files_are_read_by_the_check_and_keep_no_agent_from_starting() {
    let exposed = GOOD.replace("unix:/run/parda/array-a.sock", "tcp:0.0.0.0:10809");
    let text =
        |lines: &str| format!("{exposed}[[listener]]\naddress = \"tcp:0.0.0.0:10809\"\n{lines}\n");
    let listener = |lines: &str| check(&text(lines));
    let dir = tempfile::tempdir().unwrap();
    let (pem, key) = (dir.path().join("pem"), dir.path().join("key"));
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&pem, identity.cert.pem()).unwrap();
    std::fs::write(&key, identity.signing_key.serialize_pem()).unwrap();
    let tls = |certificate: &str, key: &str, more: &str| {
        format!("[listener.tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{more}")
    };
    let (pem, key) = (pem.to_str().unwrap(), key.to_str().unwrap());
    let good = listener(&tls(pem, key, &format!("clients = \"{pem}\""))).unwrap();
    assert!(good.volumes[0].listeners[0].tls.as_ref().unwrap().required);
    assert_eq!(good.warnings(), Vec::<String>::new());
    let anybody = listener(&tls(pem, key, "")).unwrap().warnings();
    assert!(anybody[0].contains("tls has no clients"), "{anybody:?}");
    for (lines, error) in [
        (tls("/no/where", key, ""), "29:15: certificate = \"/no/where\": cannot be read: No such"),
        (tls(key, key, ""), "29:15: certificate = "),
        (tls(pem, pem, ""), "30:7: key = "),
        (
            tls(pem, key, "clients = \"/dev/null\""),
            "31:11: clients = \"/dev/null\": is not a regular",
        ),
    ] {
        let message = Config::look_into(&Document::new("parda.toml", text(&lines))).unwrap_err();
        assert!(message.to_string().starts_with(&format!("parda.toml:{error}")), "{message}");
        assert!(listener(&lines).is_ok(), "{lines}");
    }
    for (lines, error) in [
        (tls(pem, key, "required = false"), "31:12: required = false: leaves clients without TLS"),
        (format!("plain = true\n{}", tls(pem, key, "")), "28:9: plain = true: contradicts tls"),
        (tls(pem, key, "requires = true"), "31:1: requires = true: unknown field"),
    ] {
        let message = listener(&lines).unwrap_err();
        assert!(message.starts_with(&format!("parda.toml:{error}")), "{lines}: {message}");
    }
    let plain = format!("plain = true\n{}", tls(pem, key, "required = false"));
    assert!(listener(&plain).unwrap().warnings()[0].contains("without TLS"));
}

#[test]
fn two_volumes_need_listeners_of_their_own() {
    let second = GOOD.split_once("[[volume]]").unwrap().1.replace("array-a\"", "array-b\"");
    let text = format!("{GOOD}\n[[volume]]{}", second.replace("\"vm", "\"other"));
    let message = check(&text).unwrap_err();
    assert!(message.contains("belongs to another volume"), "{message}");
}

/// Two volumes of one host in the pool `array`, each with this exchange.
fn pool(exchanges: [&str; 2]) -> Result<Config, String> {
    let volume = |(n, exchange): (usize, &str)| {
        format!(
            "[[volume]]\nname = \"lun-{n}\"\npool = \"array\"\n[volume.exchange]\n{exchange}\n[[volume.disk]]\n\
             name = \"vm\"\npath = \"/mnt/{n}.img\"\nlisten = \"unix:/run/{n}.sock\"\n"
        )
    };
    let volumes: String = exchanges.into_iter().enumerate().map(volume).collect();
    check(&format!("host = \"kvm-01\"\n{volumes}"))
}

#[test]
fn volumes_of_a_pool_meet_in_one_exchange() {
    let file = "file = \"/mnt/x\"\nslots = 8";
    let config = pool([file, file]).unwrap();
    for (volume, member) in config.volumes.iter().zip(["kvm-01/lun-0", "kvm-01/lun-1"]) {
        assert_eq!(volume.meets_as(), "array");
        assert_eq!(volume.pool.as_ref().unwrap().member.as_str(), member);
    }
    let group = |port: u32| {
        format!("udp = \"239.7.7.7:{port}\"\ninterface = \"eth1\"\nkey_file = \"/etc/key\"")
    };
    let udp = |port: u32, peer: &str| format!("udp = \"127.0.0.1:{port}\"\npeers = [\"{peer}\"]");
    pool([&group(7), &group(7)]).unwrap();
    pool([&udp(7, "127.0.0.1:8"), &udp(8, "127.0.0.1:7")]).unwrap();
    let fixed = format!("{file}\nslot = 3");
    let etcd = "etcd = [\"http://127.0.0.1:2379\"]";
    pool([etcd, etcd]).unwrap();
    for (first, second, says) in [
        (file, &*file.replace("/x", "/y"), "is not the exchange of volume lun-0, of the same pool"),
        (file, "file = \"/mnt/x\"\nslots = 9", "is not the exchange of volume lun-0"),
        (file, etcd, "is not the exchange of volume lun-0"),
        (etcd, &format!("{etcd}\nprefix = \"/x/\""), "is not the exchange of volume lun-0"),
        (&fixed, &fixed, "slot = 3: is the slot of volume lun-0"),
        (
            "file = \"/mnt/x\"\nslots = 1",
            "file = \"/mnt/x\"\nslots = 1",
            "has 1 slots for the 2 volumes",
        ),
        (
            &udp(7, "127.0.0.1:8"),
            &format!("{}\nkey_file = \"/etc/key\"", udp(8, "127.0.0.1:7")),
            "unlike with volume lun-0",
        ),
        (&group(7), &group(8), "is in another group than volume lun-0"),
        (&group(7), &udp(8, "127.0.0.1:7"), "is in another group than volume lun-0"),
        (
            &udp(7, "127.0.0.1:8"),
            &udp(8, "127.0.0.1:9"),
            "lacks 127.0.0.1:7, the address of volume lun-0",
        ),
        (
            &udp(7, "127.0.0.1:9"),
            &udp(8, "127.0.0.1:7"),
            "needs 127.0.0.1:8 among the peers of volume lun-0",
        ),
        (&udp(7, "127.0.0.1:9"), &udp(7, "127.0.0.1:9"), "is the address of volume lun-0"),
    ] {
        let message = pool([first, second]).unwrap_err();
        assert!(message.starts_with("parda.toml:") && message.contains(says), "{says}: {message}");
    }
    // By a name a host may be at any address.
    pool([
        "udp = \"10.0.0.1:7\"\npeers = [\"kvm-01:8\"]\nkey_file = \"/etc/key\"",
        "udp = \"10.0.0.1:8\"\npeers = [\"10.0.0.1:7\"]\nkey_file = \"/etc/key\"",
    ])
    .unwrap();
}

#[test]
fn a_pool_has_a_name_an_exchange_and_room_for_its_hosts() {
    let with_pool =
        |name: &str| GOOD.replace("\"array-a\"\n", &format!("\"array-a\"\npool = \"{name}\"\n"));
    let with = |name: &str| check(&with_pool(name));
    assert_eq!(with("p").unwrap().volumes[0].meets_as(), "p");
    assert!(with("").unwrap_err().contains("pool = \"\": must not be empty"));
    let slash = GOOD.replace("\"array-a\"\n", "\"a/b\"\npool = \"p\"\n");
    assert!(check(&slash).unwrap_err().contains("HOST/VOLUME would be ambiguous"));
    let beside = format!(
        "{}\n[[volume]]\nname = \"p\"\n[[volume.disk]]\nname = \"p\"\npath = \"/mnt/p\"\nlisten = \"unix:/run/p\"\n",
        with_pool("p")
    );
    let message = check(&beside).unwrap_err();
    assert!(message.contains("is the name of volume p, which is not in the pool"), "{message}");
    let long = GOOD.replace("\"array-a\"\n", &format!("\"{}\"\npool = \"p\"\n", "x".repeat(58)));
    assert!(
        check(&long).unwrap_err().contains("at most 63 bytes together"),
        "kvm-01/ and 58 bytes are 65"
    );
    let alone = GOOD.split_once("[volume.exchange]").unwrap();
    let alone = format!("{}{}", alone.0, &alone.1[alone.1.find("[[volume.disk]]").unwrap()..]);
    let alone = alone.replace("\"array-a\"\n", "\"array-a\"\npool = \"p\"\n");
    assert!(check(&alone).unwrap_err().contains("needs [volume.exchange]"));
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
         [volume.steer]; disk = [] waits for parda disk add"
    );
    let waits = "host = \"a\"\n[[volume]]\nname = \"v\"\ndisk = []\n";
    assert!(check(waits).unwrap().volumes[0].disks().is_empty());
    let listener = "[[listener]]\naddress = \"unix:/s\"\nmode = \"0660\"\n";
    check(&format!("{waits}{listener}")).unwrap();
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
    assert_eq!((patterns[0].name.as_str(), patterns[0].settings.shares), ("vms", Some(500)));
    check(&STEERED.replace("queue_depth", "auto").replace("little", "auto")).unwrap();
}

const QEMU: &str = r#"host = "kvm-01"

[[volume]]
name = "ceph"

[volume.control]
window_max = 32

[volume.qemu]
sockets = "/run/parda/qmp/*.sock"
disks = ["rbd:*"]
probe = "/dev/rbd0"

[[volume.qemu.vm]]
name = "db-?"
shares = 2000

[[volume.qemu.vm]]
name = "web*"
"#;

#[test]
fn vms_of_qemu_have_shares_by_their_names() {
    let page = include_str!("../../../../docs/qemu.md");
    let of_page = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let of_page = of_page.replace("\"observe\"", "\"parda\"");
    let Work::Qemu(qemu) = &check(&of_page).unwrap().volumes[0].work else { panic!() };
    assert_eq!((qemu.vms.of(&["db-1"]).shares().0, qemu.disks[0].as_str()), (2000, "*rbd*"));

    let config = check(QEMU).unwrap();
    let Work::Qemu(qemu) = &config.volumes[0].work else { panic!("not QEMU's") };
    let shares = |names: &[&str]| qemu.vms.of(names).shares().0;
    assert_eq!((shares(&["db-1"]), shares(&["x", "db-1"])), (2000, 2000));
    assert_eq!((shares(&["web"]), shares(&["db-10"])), (1000, 1000));
    let observes = QEMU.replace("window_max = 32", "mode = \"observe\"");
    check(&observes.replace("probe = \"/dev/rbd0\"", "")).unwrap();
}

#[test]
fn everything_wrong_with_qemu_is_pointed_at() {
    for (from, to, error) in [
        (
            "/run/parda/qmp/*",
            "qmp/*",
            "parda.toml:10:11: sockets = \"qmp/*.sock\": must be an absolute path",
        ),
        (
            "parda/qmp/*",
            "*/qmp",
            "parda.toml:10:11: sockets = \"/run/*/qmp.sock\": has a pattern in its directory",
        ),
        ("[\"rbd:*\"]", "[]", "parda.toml:11:9: disks: must name the disks"),
        ("/dev/rbd0", "nbd://", "parda.toml:12:9: probe = \"nbd://\": "),
        ("probe = \"/dev/rbd0\"", "", "parda.toml:9:1: probe: is missing: QEMU counts the wait"),
        ("shares = 2000", "shares = 0", "parda.toml:16:10: shares = 0: must be from 1 to 1000000"),
        ("web*", "db-?", "parda.toml:19:8: name = \"db-?\": is also the name of another VM"),
        ("db-?", "", "parda.toml:15:8: name = \"\": must not be empty"),
        (
            "window_max = 32",
            "fairness = \"bytes\"",
            "parda.toml:7:12: fairness = \"bytes\": must be",
        ),
        (
            "[volume.qemu]",
            "[volume.steer]\ndevice = \"/dev/sdx\"\n[volume.qemu]",
            "a volume is either steered",
        ),
    ] {
        let message = check(&QEMU.replace(from, to)).unwrap_err();
        assert!(message.contains(error), "{to}: {message}");
    }
}

#[test]
fn a_steered_vm_has_shares_and_a_limit_that_the_kernel_can_hold() {
    let host = STEERED.replace("shares = 2000\n", "");
    let vm = |setting: &str| {
        check(&format!(
            "{host}[[volume.steer.vm]]\nname = \"db\"\ncgroup = \"libvirt:db\"\n{setting}\n"
        ))
    };
    let config = vm("limit = { iops = 500, bandwidth_reads = \"40MiB\" }").unwrap();
    let Work::Steer(steer) = &config.volumes[0].work else { panic!("not steered") };
    let limit = steer.vm("db").unwrap().settings.limit.unwrap();
    assert_eq!(
        (limit.iops, limit.bandwidth_reads.map(|b| b.as_u64())),
        (Some(500.0), Some(40 << 20))
    );
    for (setting, error) in [
        (
            "limit = { iops = 5, burst = 2, burst_for = \"1s\" }",
            "leave out `burst` and `burst_for`",
        ),
        ("limit = { iops = 3 }", "has iops = 3, which must be 4 or more on a steered device"),
        ("limit = { iops_reads = 1 }", "has iops_reads = 1, which must be 2 or more"),
        ("limit = { iops = 0 }", "must be from 1 to"),
        ("tenant = \"gold\"", "is no [[volume.tenant]] of this volume"),
        (
            "reservation = 5",
            "unknown field `reservation`, expected one of `name`, `cgroup`, `shares`, `limit`, `tenant`",
        ),
        ("shares = 0", "must be from 1 to 1000000"),
    ] {
        let message = vm(setting).unwrap_err();
        assert!(
            message.contains(error) && message.contains("parda.toml:17"),
            "{setting}: {message}"
        );
    }
}

#[test]
fn a_tenant_of_a_steered_vm_has_what_the_kernel_or_qemu_can_hold() {
    let tenant =
        |setting: &str| format!("[[volume.tenant]]\nname = \"gold\"\nshares = 500\n{setting}\n");
    let steered = STEERED.replace("shares = 2000\n", "")
        + "[[volume.steer.vm]]\nname = \"db\"\ncgroup = \"libvirt:db\"\ntenant = \"gold\"\n";
    let steered = |setting: &str| check(&(steered.clone() + &tenant(setting)));
    let qemu = QEMU.replacen("shares = 2000", "shares = 2000\ntenant = \"gold\"", 1);
    let qemu = |setting: &str| check(&(qemu.clone() + &tenant(setting)));
    let config = steered("limit = { iops = 500, bandwidth_reads = \"40MiB\" }").unwrap();
    let Work::Steer(steer) = &config.volumes[0].work else { panic!("not steered") };
    assert_eq!(steer.vms.to_string(), "db: 1000 of gold");
    let config = qemu("limit = { iops = 500 }").unwrap();
    let Work::Qemu(of) = &config.volumes[0].work else { panic!("not throttled") };
    assert_eq!(of.vms.of(&["db-1"]).tenant.as_deref(), Some("gold"));
    let burst = "limit = { iops = 5, burst = 2, burst_for = \"1s\" }";
    for (message, error) in [
        (
            steered("reservation = 5"),
            "reservation = 5: cannot be kept for VMs whose IOs the kernel",
        ),
        (steered(burst), "leave out `burst` and `burst_for`"),
        (qemu("reservation = 5"), "reservation = 5: cannot be kept for VMs whose IOs QEMU orders"),
        (
            qemu("limit = { bandwidth = \"1MiB\" }"),
            "must have `iops` alone for VMs whose disks QEMU",
        ),
        (qemu(burst), "must have `iops` alone"),
    ] {
        let message = message.unwrap_err();
        assert!(message.contains(error), "{message}");
    }
    // Without VMs of it here, a tenant may have all that a policy gives it elsewhere.
    check(&(STEERED.to_owned() + &tenant("reservation = 5"))).unwrap();
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
            "parda.toml:8:12: fairness = \"bytes\": must be",
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

/// The same file with an exchange over UDP.
fn with_udp(keys: &str) -> String {
    let file = "file = \"/mnt/array-a/parda.exchange\"\nslots = 64\nslot = 3";
    assert!(GOOD.contains(file));
    GOOD.replace(file, keys)
}

#[test]
fn an_exchange_over_udp_means_what_it_says() {
    let keys = "key_file = \"/etc/parda/key\"";
    for (text, shown) in [
        (
            "udp = \"10.1.2.3:7077\"\npeers = [\"kvm-02\", \"10.1.2.5:9\"]",
            "udp 10.1.2.3:7077, 2 peers",
        ),
        ("udp = \"[fd00::1]:7077\"\npeers = [\"fd00::2\"]", "udp [fd00::1]:7077, 1 peer"),
        ("udp = \"239.7.7.7:7077\"\ninterface = \"eth1\"", "udp 239.7.7.7:7077 at eth1"),
        ("udp = \"[ff15::7]:7077\"\ninterface = \"eth1\"", "udp [ff15::7]:7077 at eth1"),
    ] {
        let config = check(&with_udp(&format!("{text}\n{keys}"))).unwrap();
        assert_eq!(config.volumes[0].exchange.as_ref().unwrap().to_string(), shown);
    }
    // Without keys, but on loopback only.
    check(&with_udp("udp = \"127.0.0.1:7077\"\npeers = [\"127.0.0.2\"]")).unwrap();
    check(&with_udp("udp = \"[::1]:7077\"\npeers = [\"[::1]:7078\"]")).unwrap();
}

#[test]
fn what_is_wrong_with_an_exchange_over_udp_is_pointed_at() {
    let udp = "udp = \"10.1.2.3:7077\"";
    let peers = "peers = [\"10.1.2.4\"]";
    let keys = "key_file = \"/etc/parda/key\"";
    for (text, key, says) in [
        (format!("{udp}\n{peers}"), "", "without keys anybody"),
        (format!("udp = \"127.0.0.1:7077\"\n{peers}"), "", "without keys anybody"),
        ("udp = \"127.0.0.1:7077\"\npeers = [\"localhost\"]".to_owned(), "", "without keys"),
        ("udp = \"239.7.7.7:7\"\ninterface = \"lo\"".to_owned(), "", "without keys"),
        (format!("{udp}\n{keys}"), "", "addresses or names of 1 to 1024 hosts"),
        (format!("{udp}\npeers = []\n{keys}"), "peers", "1 to 1024 hosts"),
        (format!("{udp}\npeers = [\"a b\"]\n{keys}"), "peers = ", "neither an address nor a name"),
        (format!("{udp}\npeers = [\"fd00::1\"]\n{keys}"), "peers = ", "same family"),
        (format!("{udp}\npeers = [\"239.1.1.1\"]\n{keys}"), "peers = ", "no address of one host"),
        (format!("{udp}\npeers = [\"10.1.2.4:0\"]\n{keys}"), "peers = ", "port 0"),
        (format!("udp = \"kvm-01:7077\"\n{peers}\n{keys}"), "udp", "ADDRESS:PORT"),
        (format!("udp = \"10.1.2.3\"\n{peers}\n{keys}"), "udp", "ADDRESS:PORT"),
        (format!("udp = \"10.1.2.3:0\"\n{peers}\n{keys}"), "udp", "port 0"),
        (format!("udp = \"255.255.255.255:7\"\n{peers}\n{keys}"), "udp", "broadcast"),
        (format!("udp = \"239.7.7.7:7\"\n{keys}"), "", "interface where the multicast group is"),
        (format!("udp = \"239.7.7.7:7\"\n{peers}\n{keys}"), "peers", "not for a multicast group"),
        (format!("udp = \"239.7.7.7:7\"\ninterface = \"a/b\"\n{keys}"), "interface", "no name"),
        (format!("{udp}\n{peers}\ninterface = \"eth1\"\n{keys}"), "interface", "multicast group"),
        (format!("{udp}\n{peers}\nslots = 8\n{keys}"), "slots", "has slots"),
        (format!("{udp}\n{peers}\noffset = \"4KiB\"\n{keys}"), "offset", "has slots"),
        (format!("file = \"/x\"\n{udp}\n{peers}\n{keys}"), "udp", "contradicts file"),
        (format!("file = \"/x\"\n{keys}"), "key_file", "is for udp"),
        ("slot = 3".to_owned(), "", "names no place where hosts meet"),
    ] {
        let error = check(&with_udp(&text)).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
        assert!(error.starts_with("parda.toml:1") && error.contains(key), "{text}: {error}");
    }
    let other = with_udp(&format!("{udp}\n{peers}\n{keys}"));
    let second = other[other.find("[[volume]]").unwrap()..].replace("array-a", "array-b");
    let error = check(&format!("{other}\n{second}")).unwrap_err();
    assert!(error.contains("is the address of volume array-a"), "{error}");
    // All addresses of this host are in the way of each, at one port.
    for (mine, theirs, collide) in [
        ("127.0.0.1:7077", "0.0.0.0:7077", true),
        ("0.0.0.0:7077", "10.1.2.3:7077", true),
        ("[::]:7077", "[fd00::1]:7077", true),
        ("10.1.2.3:7077", "10.1.2.4:7077", false),
        ("0.0.0.0:7077", "10.1.2.3:7078", false),
        ("0.0.0.0:7077", "[fd00::1]:7077", false),
    ] {
        let at =
            |address: &str| with_udp(&format!("udp = \"{address}\"\npeers = [\"kvm-02\"]\n{keys}"));
        let second = at(theirs)[GOOD.find("[[volume]]").unwrap()..]
            .replace("array-a", "array-b")
            .replace("unix:/run/parda/array-a", "unix:/run/parda/array-b")
            .replace("/run/array.sock", "/run/other.sock");
        let checked = check(&format!("{}\n{second}", at(mine)));
        assert_eq!(checked.is_err(), collide, "{mine} {theirs}: {checked:?}");
    }
}

#[test]
fn a_fallback_is_an_exchange_of_slots_beside_another_one() {
    let udp = "udp = \"127.0.0.1:7077\"\npeers = [\"127.0.0.2\"]";
    let config = check(&with_udp(&format!("{udp}\nfallback = {{ file = \"/x\" }}"))).unwrap();
    let shown = config.volumes[0].exchange.as_ref().unwrap().to_string();
    assert_eq!(shown, "udp 127.0.0.1:7077, 1 peer, fall-back /x");
    let etcd = "etcd = [\"http://127.0.0.1\"]\nfallback = { file = \"/x\", slots = 8, slot = 7 }";
    check(&with_udp(etcd)).unwrap();
    for (text, says) in [
        (format!("{udp}\nfallback = {{ file = \"/x\", slots = 0 }}"), "fallback.slots"),
        (format!("{udp}\nfallback = {{ file = \"/x\", slot = 64 }}"), "must be from 0 to 63"),
        (format!("{udp}\nfallback = {{ slots = 8 }}"), "missing field"),
        (format!("{udp}\nfallback = {{ file = \"/x\", udp = \"y\" }}"), "unknown field"),
        ("file = \"/x\"\nfallback = { file = \"/y\" }".to_owned(), "is a fall-back itself"),
        (
            format!("{udp}\nfallback = {{ file = \"nbd+unix:///vm2?socket=/run/array.sock\" }}"),
            "has its data",
        ),
    ] {
        let error = check(&with_udp(&text)).unwrap_err();
        assert!(error.starts_with("parda.toml:1"), "{text}: {error}");
        assert!(error.contains(says) || error.contains("slots = 0"), "{text}: {error}");
    }
}

#[test]
fn a_check_reads_the_key_file_and_points_at_its_line() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (key, file) = (dir.path().join("key"), dir.path().join("parda.toml"));
    let text =
        with_udp(&format!("udp = \"10.1.2.3:7077\"\npeers = [\"10.1.2.4\"]\nkey_file = {key:?}"));
    std::fs::write(&file, text).unwrap();
    // An agent starts without the key, and tries again.
    Config::read(&file).unwrap();
    let error = || Config::look(&file).unwrap_err().to_string();
    assert!(error().contains("cannot read the key file"), "{}", error());
    std::fs::write(&key, "secret\n").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(error().contains("parda.toml:13:") && error().contains("mode 0644"), "{}", error());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(error().contains("key:1: is no key") && !error().contains("secret"), "{}", error());
    std::fs::write(&key, "ab".repeat(31) + "cd\n").unwrap();
    Config::look(&file).unwrap();
}

#[test]
fn an_exchange_over_etcd_means_what_it_says() {
    let ca = "tls = { ca = \"/etc/parda/ca.pem\" }";
    for (text, shown) in [
        ("etcd = [\"http://127.0.0.1:2379\"]".to_owned(), "etcd http://127.0.0.1:2379"),
        (format!("etcd = [\"https://a\", \"https://b\"]\n{ca}"), "etcd https://a:2379 and 1 other"),
        (
            "etcd = [\"http://a\", \"http://b\", \"http://c\"]\nplain = true".to_owned(),
            "etcd http://a:2379 and 2 others",
        ),
    ] {
        let config = check(&with_udp(&text)).unwrap();
        assert_eq!(config.volumes[0].exchange.as_ref().unwrap().to_string(), shown);
    }
}

#[test]
fn what_is_wrong_with_an_exchange_over_etcd_is_pointed_at() {
    let etcd = "etcd = [\"http://127.0.0.1:2379\"]";
    let tls = "etcd = [\"https://a\"]";
    for (text, key, says) in [
        ("etcd = []".to_owned(), "etcd", "URLs of 1 to 16 members"),
        ("etcd = [\"a:2379\"]".to_owned(), "etcd = ", "https://HOST:PORT"),
        ("etcd = [\"http://[::1]\", \"http://a\"]".to_owned(), "etcd = ", "without TLS"),
        ("etcd = [\"https://u:p@a\"]".to_owned(), "etcd = ", "user or password"),
        ("etcd = [\"https://a/v3\"]".to_owned(), "etcd = ", "paths are etcd's own"),
        (tls.to_owned(), "", "No CA is trusted unless it is named"),
        (format!("{etcd}\ntls = {{ ca = \"x\" }}"), "tls", "none does"),
        (format!("{tls}\ntls = {{ certificate = \"x\", key = \"y\" }}"), "tls", "missing field"),
        (format!("{tls}\ntls = {{ ca = \"x\", key = \"y\" }}"), "key", "of no certificate"),
        (
            format!("{tls}\ntls = {{ ca = \"x\", certificate = \"y\" }}"),
            "certificate",
            "private key",
        ),
        (format!("{etcd}\nuser = \"parda\""), "user", "add password_file"),
        (format!("{etcd}\nuser = \"\"\npassword_file = \"x\""), "user", "empty"),
        (format!("{etcd}\npassword_file = \"x\""), "password_file", "add user"),
        (format!("{etcd}\nprefix = \"/parda\""), "prefix", "must end with /"),
        (format!("{etcd}\nslots = 8"), "slots", "has slots"),
        (format!("{etcd}\npeers = [\"a\"]"), "peers", "is for udp"),
        (format!("file = \"/x\"\n{etcd}"), "etcd", "contradicts file"),
        (
            format!("udp = \"127.0.0.1:7\"\npeers = [\"127.0.0.2\"]\n{etcd}"),
            "etcd",
            "contradicts udp",
        ),
        ("file = \"/x\"\nplain = true".to_owned(), "plain", "is for etcd"),
    ] {
        let error = check(&with_udp(&text)).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
        assert!(error.starts_with("parda.toml:1") && error.contains(key), "{text}: {error}");
    }
}

#[test]
fn a_policy_is_in_the_etcd_that_it_names_or_in_that_of_the_exchange() {
    let with = |top: &str, exchange: &str| {
        check(&with_udp(exchange).replacen("\n[[volume]]", &format!("\n{top}\n[[volume]]"), 1))
    };
    let state = "state = \"/s\"\n[policy]\n";
    let (one, other) = ("etcd = [\"http://127.0.0.1:1\"]", "etcd = [\"http://127.0.0.1:2\"]");
    let found = |top: &str, exchange: &str| with(top, exchange).unwrap().policy.unwrap();
    assert_eq!(found(state, one).etcd.to_string(), "etcd http://127.0.0.1:1");
    let own = format!("{state}{other}\nperiod = \"1s\"");
    let policy = found(&own, one);
    assert_eq!(
        (policy.etcd.to_string().as_str(), policy.period.as_secs()),
        ("etcd http://127.0.0.1:2", 1)
    );
    assert_eq!(policy.kept.to_str(), Some("/s.policy"));
    assert_eq!(with("", one).unwrap().policy, None, "an exchange over etcd brings no policy");
    let file = "file = \"/x\"";
    for (top, exchange, says) in [
        ("[policy]", one, "needs state"),
        (state, file, "names no cluster"),
        (&format!("{state}prefix = \"/x/\""), one, "belongs to a cluster of its own"),
        (&format!("{state}etcd = [\"http://a\"]"), file, "without TLS"),
        (&format!("{state}period = \"99ms\""), one, "must be from 100ms to 1h"),
        (&format!("{state}perod = \"1s\""), one, "unknown field `perod`"),
    ] {
        let error = with(top, exchange).unwrap_err();
        assert!(error.contains(says) && error.starts_with("parda.toml:"), "{top}: {error}");
    }
}

#[test]
fn a_check_reads_the_files_for_etcd_and_points_at_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("parda.toml");
    let (ca, password) = (dir.path().join("ca.pem"), dir.path().join("password"));
    let tls = format!("etcd = [\"https://a\"]\ntls = {{ ca = {ca:?} }}");
    let error = |keys: &str| {
        std::fs::write(&file, with_udp(keys)).unwrap();
        // An agent starts without the files, and tries again.
        Config::read(&file).unwrap();
        Config::look(&file).map(|_| ()).map_err(|error| error.to_string())
    };
    let missing = error(&tls).unwrap_err();
    assert!(missing.contains("parda.toml:1") && missing.contains("ca = "), "{missing}");
    let user =
        format!("etcd = [\"http://127.0.0.1\"]\nuser = \"parda\"\npassword_file = {password:?}");
    let missing = error(&user).unwrap_err();
    assert!(missing.contains("parda.toml:1") && missing.contains("password file"), "{missing}");
    std::fs::write(&password, "secret\n").unwrap();
    let exposed = error(&user).unwrap_err();
    assert!(exposed.contains("chmod 0600") && !exposed.contains("secret"), "{exposed}");
}

/// What etcd has on a disk that is under control would be slow when it is needed most.
#[test]
fn etcd_on_a_volume_under_control_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("vm1.img");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let with = |data: &std::path::Path| {
        let etcd = format!("etcd = [\"http://127.0.0.1\"]\ndata_dir = {data:?}");
        let text = with_udp(&etcd).replace("/mnt/array-a/vm1.img", image.to_str().unwrap());
        check(&text).unwrap().warnings()
    };
    let warnings = with(dir.path());
    assert!(warnings[0].contains("etcd would be slow when it is needed"), "{warnings:?}");
    assert!(warnings[0].contains("vm1.img"), "{warnings:?}");
    assert_eq!(with(std::path::Path::new("/proc")), Vec::<String>::new());
    assert_eq!(with(std::path::Path::new("/nonexistent")), Vec::<String>::new());
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
