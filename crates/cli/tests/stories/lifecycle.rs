//! Disks, listeners and volumes that come late, come and go, move, or panic: the others go on.

use std::os::unix::net::UnixListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parda_agent::status::DiskState;
use parda_agent::status::{DiskStatus, Status};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;

use crate::stage::{Agent, Load, PARDA, Stage, config, until, uri};
use parda_testkit::{Client, read, write};

const OFF: &str = "mode = \"off\"";
const SIZE: u64 = 8 << 20;

/// Its name, its path and its listener.
type NamedDisk<'a> = (&'a str, &'a str, &'a str);

/// A configuration with several volumes: each a name, and disks with a name, a path and a listener.
fn volumes(volumes: &[(&str, &[NamedDisk])]) -> String {
    let mut text = "host = \"host\"\nstatus = \"unix:host.status\"\n".to_owned();
    for (name, disks) in volumes {
        text += &format!("[[volume]]\nname = \"{name}\"\n[volume.control]\n{OFF}\n");
        for (name, path, listen) in *disks {
            text += &format!(
                "[[volume.disk]]\nname = \"{name}\"\npath = \"{path}\"\nlisten = \"unix:{listen}\"\n"
            );
        }
    }
    text
}

fn reload(stage: &Stage, agent: &Agent, text: &str) {
    stage.write("host.toml", text);
    agent.process.signal(Signal::HUP);
}

fn disk(status: &Status, name: &str) -> Option<DiskStatus> {
    let mut all = status.volumes.iter().flat_map(|volume| &volume.disks);
    all.find(|disk| disk.name == name).cloned()
}

fn serves(agent: &Agent, name: &str) -> bool {
    disk(&agent.status(), name).is_some_and(|disk| disk.state == DiskState::Serving)
}

/// A client that writes and verifies, and must notice nothing.
fn witness(stage: &Stage, agent: &Agent, listener: &str, name: &str) -> Load {
    let options = ["--rw=randwrite", "--bs=4k", "--size=4m", "--iodepth=8", "--verify=crc32c"];
    let load = stage.load(&format!("fio-{name}"), &uri(listener, name), &options);
    until("the witness is there", || {
        disk(&agent.status(), name).is_some_and(|disk| disk.writes.ios > 50)
    });
    load
}

#[test]
fn a_disk_that_is_missing_at_the_start_is_served_when_it_is_there_and_the_others_at_once() {
    let stage = Stage::new();
    stage.sparse("data", SIZE);
    let late = "nbd+unix:///?socket=late";
    let text = volumes(&[
        ("a", &[("vm1", "data", "a"), ("vm2", "missing", "a")]),
        ("b", &[("vm3", late, "b")]),
    ]);
    stage.write("host.toml", &text);
    let checked = stage.parda(&["check", "host.toml"]);
    assert!(checked.status.success() && checked.out.contains("note: vm2: missing: No such file"));
    let agent = stage.restart(&[], "host");
    let load = witness(&stage, &agent, "a", "vm1");
    let status = agent.status();
    let waiting = disk(&status, "vm2").unwrap();
    assert_eq!(waiting.state, DiskState::Waiting);
    assert!(waiting.fault.unwrap().contains("cannot open missing: No such file"));
    assert!(disk(&status, "vm3").unwrap().fault.unwrap().contains("unix:late"));
    let said = stage.ok(&[PARDA, "status", "--socket", "host.status"]);
    assert!(said.contains("disk vm2: waiting for") && said.contains("No such file"), "{said}");
    // Nobody finds it, and nobody hangs.
    for (listener, name) in [("a", "vm2"), ("b", "vm3")] {
        let said = stage.fails(&["nbdinfo", &uri(listener, name)]);
        assert!(said.contains("No such file or directory for export"), "{said}");
    }
    stage.sparse("missing", SIZE);
    stage.sparse("behind", SIZE);
    let socket = stage.path("late");
    let socket = socket.to_str().unwrap();
    let _server = stage.start("late", &["qemu-nbd", "-t", "-f", "raw", "-k", socket, "behind"]);
    until("both are served", || serves(&agent, "vm2") && serves(&agent, "vm3"));
    for (listener, name) in [("a", "vm2"), ("b", "vm3")] {
        stage.ok(&["nbdinfo", &uri(listener, name)]);
    }
    assert_eq!(agent.process.log().matches("cannot open missing").count(), 1, "it is said once");
    load.finish();
    agent.stop();
}

#[test]
fn disks_listeners_and_volumes_come_and_go_and_the_others_keep_their_connections() {
    let stage = Stage::new();
    for file in ["data1", "data2", "data3"] {
        stage.sparse(file, SIZE);
    }
    let one = [("vm1", "data1", "a")];
    let agent = stage.agent("host", &volumes(&[("a", &one)]));
    let load = witness(&stage, &agent, "a", "vm1");

    // Another disk, another listener, another volume.
    let more = volumes(&[
        ("a", &[("vm1", "data1", "a"), ("vm2", "data2", "a2")]),
        ("b", &[("vm3", "data3", "b")]),
    ]);
    reload(&stage, &agent, &more);
    until("all are served", || serves(&agent, "vm2") && serves(&agent, "vm3"));
    until("all can connect", || stage.path("a2").exists() && stage.path("b").exists());
    let mut second = Client::connect(&stage.path("a2"), "vm2");
    second.call(write(0, 4096), &[2; 4096]).unwrap();

    // A file with a mistake changes nothing.
    reload(&stage, &agent, &more.replace("data3", ""));
    agent.says("configuration not changed: host.toml:");
    second.call(read(0, 4096), &[]).unwrap();

    // It becomes read-only, and smaller: opened anew, and only its own clients notice.
    let size = "path = \"data2\"\nread_only = true\nsize = \"1MiB\"";
    reload(&stage, &agent, &more.replace("path = \"data2\"", size));
    assert!(second.receive().is_none(), "its connection is closed");
    until("it is served again", || serves(&agent, "vm2"));
    let info = stage.ok(&["nbdinfo", "--json", &uri("a2", "vm2")]);
    assert!(info.contains("1048576") && info.contains("\"is_read_only\": true"), "{info}");

    // It moves to the other volume, with its listener, and back the listeners are swapped.
    let moved = volumes(&[("a", &one), ("b", &[("vm3", "data3", "b"), ("vm2", "data2", "a2")])]);
    reload(&stage, &agent, &moved);
    let there = |status: Status| {
        let b = status.volumes.into_iter().find(|volume| volume.name == "b");
        b.is_some_and(|b| {
            b.disks.iter().filter(|disk| disk.state == DiskState::Serving).count() == 2
        })
    };
    until("it has moved", || there(agent.status()));
    until("its listener has moved", || stage.run(&["nbdinfo", &uri("a2", "vm2")]).status.success());
    let data = Client::connect(&stage.path("a2"), "vm2").call(read(0, 4096), &[]).unwrap();
    assert_eq!(data, vec![2; 4096]);
    let swapped = volumes(&[
        ("a", &[("vm1", "data1", "b")]),
        ("b", &[("vm3", "data3", "a"), ("vm2", "data2", "a2")]),
    ]);
    reload(&stage, &agent, &swapped);
    for (listener, name) in [("b", "vm1"), ("a", "vm3")] {
        until("the listeners are swapped", || {
            stage.run(&["nbdinfo", &uri(listener, name)]).status.success()
        });
    }

    // Away again.
    reload(&stage, &agent, &volumes(&[("a", &[("vm1", "data1", "b")])]));
    agent.says("stopped");
    until("only one is left", || {
        let status = agent.status();
        status.volumes.len() == 1 && status.volumes[0].disks.len() == 1
    });
    assert!(!stage.path("a").exists() && !stage.path("a2").exists());
    load.finish();
    agent.stop();
}

#[test]
fn a_storm_of_reloads_and_a_silent_backend_stop_nobody() {
    let stage = Stage::new();
    for file in ["data1", "data2"] {
        stage.sparse(file, SIZE);
    }
    let text = |disks: &[(&str, &str, &str)]| volumes(&[("a", disks)]);
    let one = [("vm1", "data1", "a")];
    let two = [("vm1", "data1", "a"), ("vm2", "data2", "a2")];
    // It accepts, and never says a word.
    let silent = UnixListener::bind(stage.path("silent")).unwrap();
    let dead = [("vm1", "data1", "a"), ("dead", "nbd+unix:///?socket=silent", "a3")];
    let agent = stage.agent("host", &text(&one));
    let load = witness(&stage, &agent, "a", "vm1");
    for round in 0..60 {
        let disks: &[_] = [&one[..], &two[..], &dead[..]][round % 3];
        reload(&stage, &agent, &text(disks));
        if round % 10 == 0 {
            agent.status();
        }
        sleep(Duration::from_millis(10));
    }
    reload(&stage, &agent, &text(&two));
    until("it comes to rest", || serves(&agent, "vm2") && agent.volume().disks.len() == 2);
    stage.ok(&["nbdinfo", &uri("a2", "vm2")]);
    load.finish();
    drop(silent);
    agent.stop();
}

#[test]
fn an_agent_that_is_killed_in_the_middle_of_a_reload_starts_again() {
    let stage = Stage::new();
    for file in ["data1", "data2"] {
        stage.sparse(file, SIZE);
    }
    let one = volumes(&[("a", &[("vm1", "data1", "a")])]);
    let two = volumes(&[("a", &[("vm1", "data1", "a")]), ("b", &[("vm2", "data2", "b")])]);
    for delay in [0, 1, 3] {
        let agent = stage.agent("host", &one);
        reload(&stage, &agent, &two);
        sleep(Duration::from_millis(delay));
        agent.process.kill();
        let agent = stage.restart(&[], "host");
        until("both are served", || serves(&agent, "vm1") && serves(&agent, "vm2"));
        for (listener, name) in [("a", "vm1"), ("b", "vm2")] {
            stage.ok(&["nbdinfo", &uri(listener, name)]);
        }
        agent.stop();
    }
}

#[test]
fn a_configuration_that_is_no_file_disables_nothing() {
    let stage = Stage::new();
    stage.sparse("data", SIZE);
    let text = config("host", OFF, &[("vm1", "data")]);
    let mut agent = stage.agent("host", &text);
    let path = stage.path("host.toml");
    let says = |what: &str| {
        agent.process.signal(Signal::HUP);
        agent.says(what);
    };
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    says("configuration not changed: host.toml: is a pipe");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    says("configuration not changed: host.toml: is not a regular file");
    std::fs::remove_dir(&path).unwrap();
    stage.sparse("host.toml", 1 << 30);
    says("configuration not changed: host.toml: is larger than 16 MiB");
    stage.ok(&["nbdinfo", &uri("host", "vm1")]);
    let asked = Instant::now();
    agent.process.signal(Signal::TERM);
    assert!(agent.process.wait().success());
    // Not the time that requests have which are answered.
    assert!(asked.elapsed() < Duration::from_secs(28));
    // At the start, a pipe is read once.
    stage.write("real.toml", &text);
    let said = stage.ok(&["sh", "-c", &format!("cat real.toml | {PARDA} check /dev/stdin")]);
    assert!(said.contains("good"), "{said}");
}

#[test]
fn a_panic_of_one_volume_costs_only_its_own_clients_a_reconnect() {
    let stage = Stage::new();
    for file in ["data1", "data2"] {
        stage.sparse(file, SIZE);
    }
    let text = volumes(&[("a", &[("vm1", "data1", "a")]), ("b", &[("vm2", "data2", "b")])]);
    stage.write("host.toml", &text);
    let mut agent = stage.restart(&["env", "PARDA_TEST_PANIC_SHARES=777"], "host");
    let load = witness(&stage, &agent, "a", "vm1");
    let mut client = Client::connect(&stage.path("b"), "vm2");
    client.call(write(0, 4096), &[7; 4096]).unwrap();
    reload(&stage, &agent, &text.replace("name = \"vm2\"", "name = \"vm2\"\nshares = 777"));
    assert!(client.receive().is_none(), "its connection is closed");
    agent.says("ended by a panic: a test asked for this panic");
    agent.says("started again");
    until("it is served again", || serves(&agent, "vm2"));
    until("they can connect", || stage.run(&["nbdinfo", &uri("b", "vm2")]).status.success());
    let mut client = Client::connect(&stage.path("b"), "vm2");
    assert_eq!(client.call(read(0, 4096), &[]).unwrap(), vec![7; 4096]);
    let status = agent.status();
    let b = status.volumes.iter().find(|volume| volume.name == "b").unwrap();
    assert_eq!(b.restarts, 1);
    let last = b.last_failure.as_ref().unwrap();
    assert!(last.why.contains("a test asked for this panic") && last.ago_s < 600.0, "{last:?}");
    assert!(b.fault.is_none(), "it is over");
    let said = stage.ok(&[PARDA, "status", "--socket", "host.status"]);
    assert!(said.contains("last failure ") && !said.contains("FAULT"), "{said}");
    load.finish();
    agent.process.signal(Signal::TERM);
    assert!(agent.process.wait().success());
    agent.process.forgive_panics();
}
