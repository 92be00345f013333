//! What is wrong with a configuration, or with what it names, is said in one line that helps.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use parda_agent::status::{DiskState, VolumeStatus};

use crate::stage::{Done, LAB, PARDA, Stage, config, uri};

const OFF: &str = "mode = \"off\"";

fn expect(done: &Done, code: i32, says: &[&str]) {
    assert_eq!(done.status.code(), Some(code), "{}", done.err);
    for what in says {
        assert!(done.err.contains(what), "{what:?} is not in: {}", done.err);
    }
    assert!(!done.err.contains("panicked"), "{}", done.err);
}

#[test]
fn mistakes_are_pointed_at_by_file_line_and_value() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let good = config("host", "latency_threshold = \"30ms\"", &[("vm1", "data"), ("vm2", "more")]);
    for (from, to, says) in [
        ("30ms\"", "30ms\"\nwindow = 3", "host.toml:7:1: window = 3: unknown field"),
        (
            "latency_threshold",
            "latency_treshold",
            "`latency_treshold`: did you mean `latency_threshold`?",
        ),
        (
            "\"vm1\"",
            "\"vm1\"\nshares = -1",
            "shares = -1: must be a whole number from 1 to 1000000, not -1",
        ),
        ("30ms\"", "30 parsecs\"", "host.toml:6:21: latency_threshold = \"30 parsecs\""),
        ("30ms\"", "30min\"", "host.toml:6:21: latency_threshold = \"30min\": must be at most 10s"),
        ("30ms\"", "1ns\"", "host.toml:6:21: latency_threshold = \"1ns\": must be at least 10us"),
        ("30ms\"", "0s\"", "host.toml:6:21: latency_threshold = \"0s\": must be"),
        ("\"vm2\"", "\"vm1\"", "host.toml:12:8: name = \"vm1\": is served at unix:host already"),
        ("\"vm1\"", "\"vm1\"\nshares = 0", "host.toml:9:10: shares = 0: must be from 1 to"),
        ("\"vm1\"", "\"vm1\"\nsize = \"1 furlong\"", "host.toml:9:8: size = \"1 furlong\""),
        ("path = \"more\"", "", "host.toml:11:1: [[volume.disk]]: missing field `path`"),
        ("\"unix:host\"", "\"carrier pigeon\"", "host.toml:10:10: listen = \"carrier pigeon\""),
        ("[[volume]]", "[[volume]", "host.toml:3:"),
        (
            "[[volume]]",
            "[http]\naddress = \"tcp:127.0.0.1:1\"\npages = \"kvm-01\"\n[[volume]]",
            "host.toml:5:9: pages = \"kvm-01\": must be a URL with {host} in it, such as https://{host}:9843/",
        ),
    ] {
        let wrong = good.replacen(from, to, 1);
        assert_ne!(wrong, good);
        stage.write("host.toml", wrong);
        expect(&stage.parda(&["check", "host.toml"]), 2, &[says]);
        expect(&stage.parda(&["serve", "-c", "host.toml"]), 2, &[says]);
    }
    stage.write("host.toml", good);
    assert!(stage.parda(&["check", "host.toml"]).status.success());
    expect(
        &stage.parda(&["check", "missing.toml"]),
        2,
        &["missing.toml: there is no such file: name the"],
    );
    stage.write("host.toml", [0xff, 0xfe, 0x00]);
    expect(&stage.parda(&["check", "host.toml"]), 2, &["host.toml"]);
    expect(&stage.parda(&["serve", "--colour"]), 2, &["--colour"]);
    let slots = ["exchange", "init", "x", "--volume", "v", "--slots", "-1"];
    expect(&stage.parda(&slots), 2, &["invalid value '-1' for '--slots <N>'"]);
    let bench = ["bench", "vhost-user", "nobody"];
    expect(&stage.lab(&bench), 1, &["nobody: ", "is it the socket of a server of vhost-user"]);
    expect(
        &stage.parda(&["status", "--socket", "nobody"]),
        1,
        &["nobody", "Is the agent running?"],
    );
}

#[test]
fn what_cannot_be_served_or_steered_is_said_before_anything_starts() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    std::fs::create_dir(stage.path("directory")).unwrap();
    let checks = |text: &str| {
        stage.write("host.toml", text);
        stage.parda(&["check", "host.toml"])
    };
    for (path, says) in [
        ("directory", "host.toml:9:8: path = \"directory\": is a directory: a disk's data is in a"),
        ("/dev/null", "host.toml:9:8: path = \"/dev/null\": is a character device: a disk's data"),
    ] {
        expect(&checks(&config("host", OFF, &[("vm1", path)])), 2, &[says]);
    }
    let served = config("host", OFF, &[("vm1", "data")]);
    let beyond = checks(&(served.clone() + "offset = \"4KiB\"\nsize = \"1MiB\"\n"));
    assert!(beyond.status.success(), "{}", beyond.err);
    let note = "note: vm1: data: has 1048576 bytes, and the disk's region ends at 1052672";
    assert!(beyond.out.contains(note), "{}", beyond.out);

    let steered = |device: &str| {
        format!(
            "[[volume]]\nname = \"lun\"\n[volume.steer]\ndevice = \"{device}\"\nshares = 1000\n"
        )
    };
    let missing = "cannot be looked at: No such file or directory (os error 2) (`lsblk` lists";
    let alone = format!("host = \"host\"\n{}", steered("/dev/nope"));
    let says = format!("host.toml:5:10: device = \"/dev/nope\": {missing}");
    expect(&checks(&alone), 2, &[&says]);
    expect(&stage.parda(&["serve", "-c", "host.toml"]), 1, &[missing]);
    // The other volume is served meanwhile.
    let beside = checks(&(served.clone() + &steered("/dev/nope")));
    assert!(beside.status.success(), "{}", beside.err);
    assert!(beside.out.contains(&format!("note: lun: /dev/nope: {missing}")), "{}", beside.out);
    let wrong = checks(&(served + &steered("/dev/null")));
    expect(&wrong, 2, &["device = \"/dev/null\": is no block device"]);
}

#[test]
fn a_document_of_another_kind_is_called_by_its_name() {
    let stage = Stage::new();
    stage.write("host.toml", config("host", OFF, &[("vm1", "data")]));
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/demo.toml");
    for command in ["sim", "lab"] {
        let says = "host.toml: is an agent's configuration and no scenario: parda check host.toml checks it";
        expect(&stage.lab(&[command, "host.toml"]), 2, &[says]);
    }
    let says =
        format!("{demo}: is a scenario and no agent's configuration: parda-lab sim {demo} runs it");
    for line in [&["check", demo][..], &["serve", "-c", demo], &["status", "-c", demo]] {
        expect(&stage.parda(line), 2, &[&says]);
    }
}

/// What takes the powers of root away, so that it is refused like anybody else.
fn powerless() -> &'static [&'static str] {
    let root = rustix::process::geteuid().is_root();
    if root { &["setpriv", "--bounding-set=-all"] } else { &[] }
}

#[test]
fn a_user_that_an_agent_does_not_answer_is_told_who_may_ask() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let agent = stage.agent("host", &config("host", OFF, &[("vm1", "data")]));
    agent.says("started");
    for (socket, line) in [
        ("host.status", &["status", "-c", "host.toml"][..]),
        ("host.status.api", &["set", "vm1", "shares=2000", "-c", "host.toml"]),
    ] {
        std::fs::set_permissions(stage.path(socket), Permissions::from_mode(0o000)).unwrap();
        let done = stage.run(&[powerless(), &[PARDA], line].concat());
        expect(&done, 1, &[socket, "Permission denied", "ask as one of them (sudo"]);
        assert!(!done.err.contains("Is the agent running?"), "{}", done.err);
    }
    agent.stop();
}

#[test]
fn a_check_says_which_files_its_user_may_not_open() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.exchange("exchange", 8);
    let text = config("host", OFF, &[("vm1", "data")]);
    let slots = "[volume.exchange]\nfile = \"exchange\"\nslots = 8\n[[volume.disk]]";
    stage.write("host.toml", text.replace("[[volume.disk]]", slots));
    let check = [powerless(), &[PARDA, "check", "host.toml"]].concat();
    assert!(!stage.ok(&check).contains("note"), "{}", stage.ok(&check));
    for file in ["data", "exchange"] {
        std::fs::set_permissions(stage.path(file), Permissions::from_mode(0o400)).unwrap();
    }
    let said = stage.ok(&check);
    // Whatever user a unit names: that of the process.
    let user = rustix::process::geteuid().as_raw();
    let lacks = format!(
        "Permission denied (os error 13). User {user} lacks the rights: `setfacl -m u:{user}:rw"
    );
    for (note, file) in [("note: vm1: data: ", "data"), ("note: exchange exchange: ", "exchange")] {
        assert!(said.contains(&format!("{note}{lacks} {file}`")), "{said}");
    }
    stage.write("host.toml", text.replace("path = ", "read_only = true\npath = "));
    let said = stage.ok(&check);
    assert!(!said.contains("note"), "to read is enough: {said}");
}

#[test]
fn an_agent_short_of_descriptors_says_which_limit_to_raise_and_answers() {
    let stage = Stage::new();
    let names: Vec<_> = (0..64).map(|n| format!("vm{n}")).collect();
    names.iter().for_each(|name| stage.sparse(name, 1 << 20));
    let disks: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    let text = config("host", OFF, &disks);
    let agent = stage.agent_within(&["prlimit", "--nofile=64"], "host", &text);
    agent.says("the limit of descriptors (RLIMIT_NOFILE, LimitNOFILE= of the unit) has no room");
    let refused =
        agent.volume().disks.iter().filter(|disk| disk.state != DiskState::Serving).count();
    assert!(refused > 0, "64 disks with 64 descriptors");
    agent.stop();
}

#[test]
fn mistakes_of_the_first_day_are_answered_with_what_to_do() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.exchange("eight", 8);
    stage.ok(&[PARDA, "exchange", "init", "other", "--volume", "array-b"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let good = config("host", OFF, &[("vm1", "data")]);
    let exchange = |more: &str| {
        let control = "latency_threshold = \"30ms\"";
        config("host", control, &[("vm1", "data")]).replacen(
            "[[volume.disk]]",
            &format!("[volume.exchange]\n{more}\n[[volume.disk]]"),
            1,
        )
    };
    let taken = format!("\"tcp:127.0.0.1:{port}\"");
    let names_it = "Another process has the address: `ss -lp` names it";
    let plain_file =
        format!("[http]\naddress = \"unix:{}\"\n[[volume]]", stage.path("eight").display());
    for (text, says) in [
        (exchange("file = \"eight\"\nslots = 16"), "Set slots = 8 here, as on the other hosts"),
        (exchange("file = \"other\""), "`name` of the [[volume]] as on the other hosts?"),
        (exchange("file = \"none\""), "Make it, once, on one host: parda exchange init none"),
        (good.replace("\"unix:host\"", &taken), names_it),
        (
            good.replacen("[[volume]]", &format!("[http]\naddress = {taken}\n[[volume]]"), 1),
            names_it,
        ),
        (
            good.replacen("[[volume]]", &plain_file, 1),
            "no HTTP server: there is a file that is not a socket",
        ),
    ] {
        let agent = stage.agent("host", &text);
        agent.says(says);
        agent.stop();
    }
    let agent = stage.agent("host", &good);
    agent.says("started");
    std::fs::create_dir(stage.path("directory")).unwrap();
    for (line, code, says) in [
        // The socket of its clients, and of its API.
        (&["status", "--socket", "host"][..], 1, "or this is another socket than its `status`"),
        (&["status", "--socket", "host.status.api"], 1, "another socket than its `status`"),
        (&["status", "--socket", "unix:"], 1, "A socket's path has 1 to 107 bytes"),
        (&["status", "--socket", "directory"], 2, "name the one that is `status`"),
        (
            &["status", "-c", "none.toml"],
            2,
            "none.toml: there is no such file: name the agent's configuration",
        ),
        (&["set", "vm2", "shares=1", "-c", "host.toml"], 2, "no volume has one; there are: vm1"),
        (&["explain", "vm2", "-c", "host.toml"], 2, "no VM of this name; there are: vm1"),
        (&["policy", "get", "--etcd", "http://127.0.0.1:1"], 1, "does etcd run there?"),
    ] {
        expect(&stage.parda(line), code, &[says]);
    }
    agent.stop();
}

/// Serves one disk, which cannot be opened; ends again. Returns what the agent said, and showed.
fn serve(stage: &Stage, wrapper: &[&str], path: &str, more: &str) -> (String, VolumeStatus) {
    let agent =
        stage.agent_within(wrapper, "host", &(config("host", OFF, &[("vm1", path)]) + more));
    let volume = agent.volume();
    let log = agent.process.log();
    agent.stop();
    for socket in ["host", "host.status"] {
        let left = stage.path(socket);
        let there = std::fs::symlink_metadata(&left).is_ok_and(|m| !m.is_file());
        assert!(!there, "{socket} is left behind");
    }
    (log, volume)
}

#[test]
fn storage_that_cannot_be_opened_is_named() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.sparse("odd", 1000);
    stage.sparse("secret", 1 << 20);
    std::fs::set_permissions(stage.path("secret"), Permissions::from_mode(0o000)).unwrap();
    let user = rustix::process::geteuid().as_raw();
    let lacks = format!(
        "cannot open secret: Permission denied (os error 13). User {user} lacks the rights"
    );
    for (path, more, says) in [
        ("missing", "", "cannot open missing: No such file"),
        (".", "", "cannot open .: Is a directory"),
        ("/dev/null", "", "/dev/null is neither a regular file nor a block device"),
        ("secret", "", &lacks),
        (
            "odd",
            "direct = \"on\"\n",
            "odd: direct = \"on\" is not possible: its size of 1000 bytes",
        ),
        (
            "data",
            "offset = \"1MiB\"\nsize = \"1MiB\"\n",
            "does not fit: the backend has 1048576 bytes",
        ),
        ("nbd+unix:///x?socket=nobody", "", "cannot connect to the NBD server at unix:nobody"),
    ] {
        let (log, volume) = serve(&stage, powerless(), path, more);
        assert!(log.contains("cannot be served: disk \"vm1\": "), "{log}");
        assert!(log.contains(says), "{says:?} is not in: {log}");
        let disk = &volume.disks[0];
        assert_eq!(disk.state, DiskState::Waiting);
        assert!(disk.fault.as_ref().is_some_and(|fault| fault.contains(says)), "{disk:?}");
    }
}

#[test]
fn a_place_that_is_taken_stays_with_whom_it_belongs_to() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.sparse("mine", 1 << 20);
    let agent = stage.agent("other", &config("other", OFF, &[("vm1", "data")]));
    let text = config("host", OFF, &[("vm1", "mine")]);
    for (from, to, says) in [
        (
            "unix:host\"",
            "unix:other\"",
            "unix:other: another process serves it: `ss -lxp` names it. End that one",
        ),
        (
            "unix:host.status",
            "unix:other.status",
            "another agent answers at other.status, so nothing was started",
        ),
        ("unix:host\"", "unix:data\"", "unix:data: there is a file that is not a socket"),
        ("unix:host.status", "unix:data", "status socket data: "),
        ("unix:host\"", "unix:no/where\"", "cannot listen on unix:no/where: No such file"),
        ("unix:host\"", "tcp:192.0.2.1:10809\"", "cannot listen on tcp:192.0.2.1:10809: "),
    ] {
        let mut text = text.replace(from, to);
        if to.starts_with("tcp") {
            text += "[[listener]]\naddress = \"tcp:192.0.2.1:10809\"\nplain = true\n";
        }
        if from.ends_with(".status") {
            stage.write("host.toml", text);
            expect(&stage.parda(&["serve", "-c", "host.toml"]), 1, &[says]);
        } else {
            // It waits for the place, and says so.
            let agent = stage.agent("host", &text);
            agent.says(says);
            let volume = agent.volume();
            assert!(volume.listeners[0].fault.as_ref().is_some_and(|f| f.contains(says)));
            assert_eq!(volume.disks[0].state, DiskState::Serving);
            agent.stop();
        }
        assert!(!stage.path("host").exists(), "a socket is left behind: {says}");
    }
    assert_eq!(stage.read("data").len(), 1 << 20, "the file in the socket's place is untouched");
    stage.ok(&["nbdinfo", &uri("other", "vm1")]);
    assert_eq!(agent.status().host, "other");
    agent.stop();
}

/// A configuration whose volume has these lines.
fn with_volume(lines: &str) -> String {
    config("host", OFF, &[("vm1", "data")]).replacen(
        "[[volume.disk]]",
        &format!("{lines}\n[[volume.disk]]"),
        1,
    )
}

#[test]
fn what_a_configuration_names_and_is_not_there_is_noted() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.sparse("empty", 0);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let good = config("host", OFF, &[("vm1", "data")]);
    let path = |path: &str| good.replace("\"data\"", &format!("{path:?}"));
    let exchange = |lines: &str| with_volume(&format!("[volume.exchange]\n{lines}"));
    let threshold = |of: &str| good.replace(OFF, &format!("latency_threshold = \"{of}\""));
    let udp = "udp = \"127.0.0.1:7077\"";
    stage.write("key", format!("{}\n", "5a17".repeat(16)));
    std::fs::set_permissions(stage.path("key"), Permissions::from_mode(0o600)).unwrap();
    for (text, says) in [
        (path(&format!("nbd://{free}/x")), "disk vm1: the NBD server tcp:127.0.0.1:"),
        (
            path("nbd+unix:///x?socket=nowhere"),
            "disk vm1: the NBD server unix:nowhere: No such file",
        ),
        (path("nbd://nowhere.invalid/x"), "disk vm1: the NBD server tcp:nowhere.invalid:10809: "),
        (path("none/vm1.img"), "(there is no directory none: is it mounted?)"),
        (path("empty"), "vm1: empty: has 0 bytes: clients find a disk without room"),
        (good.replace("\"unix:host\"", "\"unix:none/s\""), "none/s: there is no directory none"),
        (good.replace("host.status", "none/s"), "status: none/s: there is no directory none"),
        (format!("state = \"none/s\"\n{good}"), "state: none/s: there is no directory none"),
        (exchange(&format!("{udp}\npeers = [\"127.0.0.1\"]")), "peers: has no host but this one"),
        (
            exchange(&format!(
                "{udp}\npeers = [\"nowhere.invalid\", \"127.0.0.2\"]\nkey_file = \"key\""
            )),
            "volume array: peer nowhere.invalid:7077: has no address that this host finds",
        ),
        (exchange("file = \"none/exchange\""), "there is no directory none: is it mounted?"),
        (
            exchange(&format!("file = \"nbd://{free}/x\"")),
            "exchange of array: the NBD server tcp:127",
        ),
        (threshold("30us"), "latency_threshold is 0.030 ms: "),
    ] {
        stage.write("host.toml", text);
        let done = stage.parda(&["check", "host.toml"]);
        assert!(done.status.success(), "{}", done.err);
        assert!(done.out.contains("note: ") && done.out.contains(says), "{says}: {}", done.out);
        assert!(done.out.contains("host.toml: valid, with "), "{}", done.out);
    }
    for fine in [good.clone(), threshold("30ms")] {
        stage.write("host.toml", fine);
        let said = stage.ok(&[PARDA, "check", "host.toml"]);
        assert!(said.starts_with("host.toml: good.") && !said.contains("note: "), "{said}");
    }
    // A server that is there is asked for nothing, so that one which ends with its last client goes on.
    let server = stage.start(
        "qemu",
        &["qemu-nbd", "-k", &stage.path("qemu").display().to_string(), "-f", "raw", "data"],
    );
    crate::stage::until("qemu-nbd listens", || stage.path("qemu").exists());
    stage.write("host.toml", path("nbd+unix:///?socket=qemu"));
    for _ in 0..3 {
        assert!(stage.ok(&[PARDA, "check", "host.toml"]).contains("good."));
    }
    stage.ok(&["nbdinfo", "nbd+unix:///?socket=qemu"]);
    drop(server);
}

#[test]
fn a_key_in_another_table_is_sent_to_its_own() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    for (text, says) in [
        (
            with_volume("[volume.policy]\netcd = []"),
            "`policy` is not known here; it is a key of the top",
        ),
        (
            with_volume("state = \"/s\""),
            "`state` is not known here; it is a key of the top of the file",
        ),
        (
            with_volume("[volume.exchange]\nstate = \"/s\""),
            "is a key of the top of the file, above",
        ),
        (with_volume("peers = []"), "`peers` is not known here; it is a key of [volume.exchange]"),
    ] {
        stage.write("host.toml", text);
        expect(&stage.parda(&["check", "host.toml"]), 2, &["host.toml:", says]);
        expect(&stage.parda(&["serve", "-c", "host.toml"]), 2, &[says]);
    }
}

#[test]
fn a_pipe_that_nobody_writes_to_holds_up_no_command() {
    let stage = Stage::new();
    stage.ok(&["mkfifo", "-m", "600", "pipe"]);
    let silent = "pipe: is a pipe of which nobody has written all within 8 s";
    let token = "[http]\naddress = \"tcp:127.0.0.1:9109\"\ntokens = \"pipe\"\n";
    stage.sparse("data", 1 << 20);
    stage.write("tokens.toml", config("h", OFF, &[("vm1", "data")]) + token);
    let cases: [(&[&str], &str); 7] = [
        (&["check", "pipe"], silent),
        (&["serve", "-c", "pipe"], silent),
        (&["sim", "pipe"], silent),
        (&["lab", "pipe"], silent),
        (&["policy", "diff", "pipe", "-c", "none"], "pipe"),
        (&["explain", "vm1", "--socket", "none", "--score", "pipe"], silent),
        (&["check", "tokens.toml"], "not a regular file"),
    ];
    std::thread::scope(|scope| {
        for (line, says) in cases {
            let stage = &stage;
            scope.spawn(move || {
                let program = if ["sim", "lab"].contains(&line[0]) { LAB } else { PARDA };
                let err = stage.fails(&[&[program], line].concat());
                assert!(err.contains(says), "{line:?}: {err}");
            });
        }
    });
}

#[test]
fn a_pipe_of_a_shell_is_read_as_a_file_is() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.write("h.toml", config("h", OFF, &[("vm1", "data")]));
    for script in [
        "\"$0\" check <(sleep 1; cat h.toml)",
        "cat h.toml | \"$0\" check /dev/stdin",
        "\"$0\" check /dev/stdin < h.toml",
    ] {
        stage.ok(&["bash", "-c", script, PARDA]);
    }
    let err = stage.fails(&["bash", "-c", "\"$0\" check <(yes '#' | head -c 20000000)", PARDA]);
    assert!(err.contains("is larger than 16 MiB"), "{err}");
}

/// A `virsh` with one domain, whose definition is in a file.
const ONE_DOMAIN: &str = "#!/bin/sh
case \"$*\" in
*dumpxml*) exec cat xml;;
*--name*) echo '11111111-2222-3333-4444-555555555555 d';;
esac
";

#[test]
fn a_definition_beyond_all_bounds_is_refused_at_once() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("bin")).unwrap();
    stage.write("bin/virsh", ONE_DOMAIN);
    stage.ok(&["chmod", "+x", "bin/virsh"]);
    let path = format!("PATH={}:{}", stage.path("bin").display(), std::env::var("PATH").unwrap());
    let attributes: String = (0..200_000).map(|n| format!(" a{n}='1'")).collect();
    let elements = "<disk><target dev='vda'/></disk>".repeat(100_000);
    for (xml, says) in [
        (format!("<domain{attributes}><name>d</name></domain>"), "attributes"),
        (format!("<domain><devices>{elements}</devices></domain>"), "nodes limit"),
        ("<a>".repeat(200_000), "deep"),
        (format!("<domain>{}</domain>", " ".repeat(5 << 20)), "is larger than 4 MiB"),
    ] {
        stage.write("xml", xml);
        let begun = Instant::now();
        let line = ["env", &path, PARDA, "libvirt", "toml", "--listen", "unix:/run/s"];
        let err = stage.fails(&line);
        assert!(err.contains(says), "{err}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}
