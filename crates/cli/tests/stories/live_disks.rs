//! Disks that are added, removed and drained while the agent runs.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Agent, PARDA, Stage, config, until, uri};

/// An agent with a state file and one disk, `vm1`.
fn start(stage: &Stage) -> Agent {
    stage.sparse("data1", 1 << 20);
    let text = config("a", "mode = \"off\"", &[("vm1", "data1")]);
    stage.agent("a", &format!("state = \"state.toml\"\n{text}"))
}

fn parda(stage: &Stage, line: &[&str]) -> String {
    stage.ok(&[&[PARDA], line, &["-c", "a.toml"]].concat())
}

fn refused(stage: &Stage, line: &[&str]) -> String {
    stage.fails(&[&[PARDA], line, &["-c", "a.toml"]].concat())
}

/// Whether a client finds a disk.
fn found(stage: &Stage, disk: &str) -> bool {
    stage.run(&["nbdinfo", "--size", &uri("a", disk)]).status.success()
}

fn names(agent: &Agent) -> Vec<String> {
    agent.volume().disks.into_iter().map(|disk| disk.name).collect()
}

#[test]
fn disks_come_and_go_by_command_and_outlive_the_agent() {
    let stage = Stage::new();
    let agent = start(&stage);
    stage.sparse("data2", 2 << 20);
    stage.sparse("data3", 1 << 20);
    let said = parda(&stage, &["disk", "add", "vm2", "path=data2", "listen=unix:a", "shares=500"]);
    assert_eq!(said.trim(), "volume array, disk vm2: serving, kept in the state file");
    assert!(found(&stage, "vm2"));
    // A name that looks like a setting.
    parda(&stage, &["disk", "add", "v=3", "path=data3", "listen=unix:.//a", "--temporary"]);
    let said = parda(&stage, &["set", "--disk", "v=3", "shares=300", "--temporary"]);
    assert!(said.contains("disk v=3: shares = 300"), "{said}");
    parda(&stage, &["disk", "remove", "v=3"]);
    parda(&stage, &["disk", "add", "vm3", "path=data3", "listen=unix:a", "--temporary"]);
    parda(&stage, &["set", "vm2", "shares=700"]);
    assert_eq!(names(&agent), ["vm1", "vm2", "vm3"]);
    agent.says("by=\"uid ");

    // Removed with the client connected: it is told so, and its data stays.
    let load = stage.load("vm3", &uri("a", "vm3"), &["--rw=randread", "--bs=4k", "--size=1m"]);
    until("it loads", || agent.volume().disks[2].reads.ios > 0);
    let said = parda(&stage, &["disk", "remove", "vm3"]);
    let how = "removed, as it was added: the configuration has no such disk";
    assert!(said.contains(&format!("disk vm3: {how}")), "{said}");
    assert!(!found(&stage, "vm3") && stage.path("data3").exists());
    drop(load);

    // A disk of the configuration comes back by its name.
    let said = parda(&stage, &["disk", "remove", "vm1"]);
    let again = "kept in the state file; parda disk add vm1 serves that of the configuration again";
    assert!(said.contains(again), "{said}");
    assert_eq!(names(&agent), ["vm2"]);
    agent.process.signal(Signal::HUP);
    agent.says("a.toml: in force");
    assert_eq!(names(&agent), ["vm2"], "a reload keeps it");
    agent.stop();
    let agent = stage.restart(&[], "a");
    assert_eq!(names(&agent), ["vm2"], "so does a restart");
    assert_eq!(agent.volume().disks[0].shares, 700);
    let said = parda(&stage, &["disk", "add", "vm1"]);
    assert_eq!(said.trim(), "volume array, disk vm1: serving, as the configuration says");
    assert_eq!(names(&agent), ["vm2", "vm1"].map(str::to_owned).to_vec());
    // The last removal is what is taken back: of the disk that the state file has in the place of the configuration's.
    stage.sparse("data4", 3 << 20);
    let size = || stage.ok(&["nbdinfo", "--size", &uri("a", "vm1")]).trim().parse();
    parda(&stage, &["disk", "remove", "vm1"]);
    parda(&stage, &["disk", "add", "vm1", "path=data4", "listen=unix:a"]);
    parda(&stage, &["disk", "remove", "vm1", "--temporary"]);
    let said = parda(&stage, &["disk", "add", "vm1"]);
    assert_eq!(
        (said.trim(), size()),
        ("volume array, disk vm1: serving, kept in the state file", Ok(3 << 20))
    );
    let error = refused(&stage, &["disk", "add", "vm1"]);
    assert!(error.contains("is served at unix:a already"), "{error}");
    parda(&stage, &["disk", "remove", "vm1"]);
    parda(&stage, &["disk", "add", "vm1"]);
    assert_eq!(size(), Ok(1 << 20));
    parda(&stage, &["disk", "remove", "vm2"]);
    // The last one may go as well.
    parda(&stage, &["disk", "remove", "vm1"]);
    assert!(names(&agent).is_empty() && !found(&stage, "vm1"));
    assert_eq!(refused(&stage, &["drain"]), "parda: volume \"array\": has no disks to drain\n");
    parda(&stage, &["disk", "add", "vm1"]);
    assert!(found(&stage, "vm1"));
    let kept = String::from_utf8(stage.read("state.toml")).unwrap();
    assert!(!kept.contains("[["), "nothing is changed any more: {kept}");
}

#[test]
fn what_is_kept_outlives_removals_until_the_agent_ends() {
    let stage = Stage::new();
    ["data0", "data1"].iter().for_each(|data| stage.sparse(data, 1 << 20));
    // The other disk keeps the listener.
    let text = config("a", "mode = \"off\"", &[("vm1", "data1"), ("vm0", "data0")]);
    let agent = stage.agent("a", &format!("state = \"state.toml\"\n{text}"));
    ["data2", "data3"].iter().zip(2..).for_each(|(data, mib)| stage.sparse(data, mib << 20));
    let size =
        || stage.ok(&["nbdinfo", "--size", &uri("a", "vm1")]).trim().parse::<u64>().unwrap() >> 20;
    let disk = || {
        let mut disks = agent.volume().disks.into_iter();
        disks.find(|disk| disk.name == "vm1").unwrap()
    };
    // What was set of a disk counts again when it comes back. Drained it was for its removal.
    parda(&stage, &["set", "vm1", "shares=700"]);
    parda(&stage, &["drain", "vm1"]);
    parda(&stage, &["disk", "remove", "vm1"]);
    let error = refused(&stage, &["disk", "add", "vm1", "--temporary"]);
    assert!(error.contains("the state file keeps the disk's removal"), "{error}");
    parda(&stage, &["disk", "add", "vm1"]);
    assert_eq!((disk().shares, disk().drain, size()), (700, false, 1));
    // Nothing of it belongs to another disk in its place.
    parda(&stage, &["disk", "remove", "vm1"]);
    parda(&stage, &["disk", "add", "vm1", "path=data2", "listen=unix:a"]);
    parda(&stage, &["set", "vm1", "burst=5"]);
    assert_eq!((disk().shares, size()), (1000, 2));
    let again = "until the agent ends; parda disk add vm1 serves that of the state file or the configuration again";
    let said = parda(&stage, &["disk", "remove", "vm1", "--temporary"]);
    assert!(said.contains(again), "{said}");
    let other = ["disk", "add", "vm1", "path=data3", "listen=unix:a"];
    let error = refused(&stage, &other);
    assert!(
        error.contains("is removed until the agent ends, and this one would be too"),
        "{error}"
    );
    parda(&stage, &[&other[..], &["burst=7", "--temporary"]].concat());
    assert_eq!((size(), disk().burst), (3, 7.0));
    // The one that goes is the one that is served, and the other stays kept.
    let said = parda(&stage, &["disk", "remove", "vm1"]);
    assert!(said.contains(again), "{said}");
    parda(&stage, &["disk", "add", "vm1"]);
    assert_eq!((size(), disk().burst), (2, 5.0));
    parda(&stage, &["disk", "remove", "vm1", "--temporary"]);
    agent.stop();
    let agent = stage.restart(&[], "a");
    assert_eq!((names(&agent).len(), size()), (2, 2));
}

#[test]
fn a_disk_of_a_name_that_two_have_comes_back_by_its_listener() {
    let stage = Stage::new();
    ["data1", "data2"].iter().for_each(|data| stage.sparse(data, 1 << 20));
    let text = config("a", "mode = \"off\"", &[("vm1", "data1"), ("vm1", "data2")]);
    let at = text.rfind("unix:a").unwrap();
    let agent = stage.agent("a", &format!("{}unix:b{}", &text[..at], &text[at + 6..]));
    let said = parda(&stage, &["disk", "remove", "vm1@unix:b"]);
    let again = "until the agent ends; parda disk add vm1 listen=unix:b serves";
    assert!(said.contains(again), "{said}");
    parda(&stage, &["disk", "add", "vm1", "listen=unix:b"]);
    assert_eq!(names(&agent), ["vm1", "vm1"]);
}

#[test]
fn a_disk_that_cannot_be_served_is_not_added() {
    let stage = Stage::new();
    let agent = start(&stage);
    stage.ok(&["qemu-img", "create", "-q", "-f", "qcow2", "image", "1M"]);
    stage.write("locked", vec![0; 1 << 20]);
    let _other = stage.agent("b", &config("b", "mode = \"off\"", &[("vm", "locked")]));
    let add = |path: &str| {
        let path = format!("path={path}");
        refused(&stage, &["disk", "add", "vm2", &path, "listen=unix:a"])
    };
    assert!(add("nowhere").contains("cannot be served, and is not added"), "{}", add("nowhere"));
    assert!(add("image").contains("qcow2"), "{}", add("image"));
    assert!(add("data1").contains("overlaps the disk vm1"), "{}", add("data1"));
    assert!(add("locked").contains("is not added"), "another program has it");
    let error = refused(&stage, &["disk", "add", "vm2", "path=nowhere", "listen=tcp:0.0.0.0:1"]);
    assert!(error.contains("is not a loopback address"), "{error}");
    let error = refused(&stage, &["disk", "add", "vm2", "listen=unix:a", "paht=data2"]);
    assert!(error.contains("paht"), "{error}");
    let error = refused(&stage, &["disk", "add", "vm2"]);
    assert!(error.contains("path: is missing"), "{error}");
    assert_eq!(names(&agent), ["vm1"]);
    agent.stop();
    let agent = stage.restart(&[], "a");
    assert_eq!(names(&agent), ["vm1"]);
}

#[test]
fn a_disk_is_not_added_where_nobody_could_connect() {
    let stage = Stage::new();
    let agent = start(&stage);
    stage.sparse("data2", 1 << 20);
    stage.write("file", "no socket");
    std::fs::create_dir(stage.path("d")).unwrap();
    let add = |listen: &str| {
        let listen = format!("listen=unix:{listen}");
        refused(&stage, &["disk", "add", "vm2", "path=data2", &listen, "--volume", "array"])
    };
    for (listen, why) in [
        ("a.status", "is the status socket's"),
        ("d/../a.status", "is the status socket's"),
        ("d/../a", "is the socket of unix:a: write it the same way"),
        ("a.status.api", "is the socket of the API"),
        ("new", "would be in the directory of the agent: name it by an absolute path"),
        (&stage.path("file").display().to_string(), "cannot be served, and is not added: "),
    ] {
        let error = add(listen);
        assert!(error.contains(why), "{listen}: {error}");
    }
    assert_eq!(names(&agent), ["vm1"]);
    parda(&stage, &["disk", "add", "vm2", "path=data2", "listen=unix:a"]);
    agent.stop();
    // What an older agent has kept does not keep this one from starting.
    let kept = String::from_utf8(stage.read("state.toml")).unwrap();
    assert!(kept.contains("\"unix:a\""), "{kept}");
    stage.write("state.toml", kept.replace("\"unix:a\"", "\"unix:a.status\""));
    let agent = stage.restart(&[], "a");
    assert_eq!(names(&agent), ["vm1"]);
    agent.says("is the status socket's");
}

#[test]
fn a_disk_that_is_added_listens_as_a_table_of_the_file_says() {
    let stage = Stage::new();
    stage.sparse("data1", 1 << 20);
    stage.sparse("data2", 1 << 20);
    let b = format!("unix:{}", stage.path("b").display());
    let text = config("a", "mode = \"off\"", &[("vm1", "data1")])
        + &format!("[[listener]]\naddress = \"{b}\"\nmode = \"0660\"\n");
    let agent = stage.agent("a", &format!("state = \"state.toml\"\n{text}"));
    let unused = format!("{b}: a [[listener]] where no disk of the configuration listens: ");
    agent.says(&unused);
    assert!(stage.ok(&[PARDA, "check", "a.toml"]).contains(&unused));
    let mode = || std::fs::metadata(stage.path("b")).unwrap().permissions().mode() & 0o777;
    parda(&stage, &["disk", "add", "vm2", "path=data2", &format!("listen={b}")]);
    assert_eq!(mode(), 0o660);
    agent.stop();
    // The file alone still has no disk there.
    let agent = stage.restart(&[], "a");
    assert_eq!((names(&agent), mode()), (vec!["vm1".to_owned(), "vm2".to_owned()], 0o660));
}

#[test]
fn the_files_of_the_agent_are_no_disks() {
    let stage = Stage::new();
    let agent = start(&stage);
    stage.sparse("data2", 1 << 20);
    parda(&stage, &["disk", "add", "vm2", "path=data2", "listen=unix:a"]);
    std::os::unix::fs::symlink("a.toml", stage.path("link")).unwrap();
    std::fs::hard_link(stage.path("state.toml"), stage.path("hard")).unwrap();
    let add = |path: &str| {
        let path = format!("path={path}");
        refused(&stage, &["disk", "add", "vm3", &path, "listen=unix:a"])
    };
    for (path, what) in [
        ("a.toml", "the configuration"),
        ("link", "the configuration"),
        ("state.toml", "the state file"),
        ("hard", "the state file"),
        ("nbd+unix:///vm1?socket=a", "is served by this agent itself"),
    ] {
        let error = add(path);
        assert!(error.contains(what), "{path}: {error}");
    }
    assert_eq!(names(&agent), ["vm1", "vm2"]);
    agent.stop();
    let text = String::from_utf8(stage.read("a.toml")).unwrap();
    let own = "\n[[volume.disk]]\nname = \"vm3\"\npath = \"link\"\nlisten = \"unix:a\"\n";
    stage.write("a.toml", format!("{text}{own}"));
    let error = stage.fails(&[PARDA, "check", "a.toml"]);
    assert!(error.contains("is the configuration of this agent"), "{error}");
    let agent = stage.restart(&[], "a");
    assert!(found(&stage, "vm1") && found(&stage, "vm2") && !found(&stage, "vm3"));
    agent.says("is the configuration of this agent");
}

#[test]
fn a_drained_disk_takes_no_new_clients_and_keeps_those_it_has() {
    let stage = Stage::new();
    let agent = start(&stage);
    let load = stage.load("vm1", &uri("a", "vm1"), &["--rw=randread", "--bs=4k", "--size=1m"]);
    until("it loads", || agent.volume().disks[0].reads.ios > 0);
    let said = parda(&stage, &["drain"]);
    assert_eq!(said.trim(), "volume array, disk vm1: takes no new connections, 1 client");
    assert!(!found(&stage, "vm1"));
    let before = agent.volume().disks[0].reads.ios;
    until("its client goes on", || agent.volume().disks[0].reads.ios > before + 100);
    let error = refused(&stage, &["drain", "--wait", "100ms"]);
    assert!(error.contains("clients after 100ms: vm1 has 1"), "{error}");
    assert!(parda(&stage, &["status"]).contains("drained, takes no new connections; 1 client"));
    load.finish();
    let said = parda(&stage, &["drain", "vm1", "--wait", "20s"]);
    assert_eq!(said.trim(), "volume array, disk vm1: drained: nobody is connected");
    agent.stop();
    let agent = stage.restart(&[], "a");
    assert!(agent.volume().disks[0].drain && !found(&stage, "vm1"), "a restart keeps it");
    let said: Value = serde_json::from_str(&parda(&stage, &["drain", "--undo", "--json"])).unwrap();
    assert_eq!(said[0]["drain"], false);
    assert!(found(&stage, "vm1"));
    assert!(parda(&stage, &["events"]).contains("takes new connections again"));
    // One that the configuration has drained is let go as well, and stays so.
    let text = String::from_utf8(stage.read("a.toml")).unwrap();
    stage.write("a.toml", text.replacen("[[volume.disk]]\n", "[[volume.disk]]\ndrain = true\n", 1));
    agent.process.signal(Signal::HUP);
    until("it is drained", || agent.volume().disks[0].drain);
    for line in [&["drain", "--undo"][..], &["drain", "vm1", "--undo"]] {
        assert!(parda(&stage, line).starts_with("volume array, disk vm1: takes connections"));
        assert!(found(&stage, "vm1"));
        parda(&stage, &["drain", "--temporary"]);
        assert!(!found(&stage, "vm1"));
    }
}
