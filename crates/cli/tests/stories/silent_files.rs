//! File systems that do not answer: what is on them waits, and nothing else does.

use parda_agent::status::{DiskState, DiskStatus};
use parda_testkit::{Client, read};
use rustix::process::Signal;

use crate::fuse::{FuseFile, Halted};
use crate::stage::{Agent, PARDA, Stage, until, uri};

const SIZE: u64 = 1 << 20;

/// Volume `a` has the disk `good`, volume `b` what is given, by name and path. Each has a listener of its own name. The exchange of `b` is the
/// file `slots`.
fn config(disks: &[(&str, &str)]) -> String {
    let mut text = "host = \"host\"\nstatus = \"unix:host.status\"\n".to_owned();
    for (volume, disks) in [("a", &[("good", "data")][..]), ("b", disks)] {
        text += &format!(
            "[[volume]]\nname = \"{volume}\"\n[volume.control]\nmode = \"off\"\nperiod = \"100ms\"\n"
        );
        if volume == "b" {
            text += "[volume.exchange]\nfile = \"slots\"\n";
        }
        for (name, path) in disks {
            text += &format!(
                "[[volume.disk]]\nname = \"{name}\"\npath = \"{path}\"\nlisten = \"unix:{volume}\"\n"
            );
        }
    }
    text
}

/// Stops a file system; returns when it answers nothing from what is remembered either.
fn halt<'a>(stage: &Stage, file: &'a FuseFile, path: &str) -> Halted<'a> {
    let halted = Halted::new(file.file_system());
    let look = ["timeout", "--signal=KILL", "1", "stat", path];
    until("it does not answer", || !stage.run(&look).status.success());
    halted
}

fn disk(agent: &Agent, name: &str) -> DiskStatus {
    let status = agent.status();
    let mut all = status.volumes.into_iter().flat_map(|volume| volume.disks);
    all.find(|disk| disk.name == name).unwrap()
}

fn serves(agent: &Agent, name: &str) -> bool {
    disk(agent, name).state == DiskState::Serving
}

fn reload(stage: &Stage, agent: &Agent, text: &str) {
    let reloads = || agent.process.log().matches("host.toml: in force").count();
    let before = reloads();
    stage.write("host.toml", text);
    agent.process.signal(Signal::HUP);
    until("it is in force", || reloads() > before);
}

fn reads(stage: &Stage, listener: &str, name: &str) {
    let mut client = Client::connect(&stage.path(listener), name);
    assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![0; 4096]), "{name}");
}

/// Threads of an agent that open disks or look at their files.
fn asking(agent: &Agent) -> usize {
    agent.threads(&["open", "look"])
}

#[test]
fn a_file_system_that_does_not_answer_holds_up_no_start_no_reload_and_no_change() {
    let stage = Stage::new();
    for name in ["data", "data2", "data3"] {
        stage.sparse(name, SIZE);
    }
    let [file, slots] = ["bad", "slots"].map(|name| FuseFile::new(&stage, name, &["memory", "1M"]));
    let halted = [halt(&stage, &file, "bad"), halt(&stage, &slots, "slots")];
    let both = config(&[("near", "data2"), ("far", "bad")]);
    let agent = stage.agent("host", &both);
    until("the others are served", || serves(&agent, "good") && serves(&agent, "near"));
    agent.says(
        "cannot be served: bad: its file system does not answer within 3s: see whether the server",
    );
    let far = disk(&agent, "far");
    assert_eq!(far.state, DiskState::Waiting);
    assert!(far.fault.is_some_and(|fault| fault.contains("see whether the server")));
    reads(&stage, "a", "good");
    reads(&stage, "b", "near");

    // Taken out and put in again, it is not asked by more threads.
    for _ in 0..5 {
        reload(&stage, &agent, &config(&[("near", "data2")]));
        reload(&stage, &agent, &both);
    }
    until("each path is asked for by one thread at most", || asking(&agent) <= 3);
    reload(&stage, &agent, &config(&[("near", "data2"), ("more", "data3"), ("far", "bad")]));
    until("a new disk is served", || serves(&agent, "more"));
    reads(&stage, "b", "more");
    std::os::unix::fs::symlink("bad", stage.path("alias")).unwrap();
    stage.ok(&[PARDA, "set", "good", "shares=700", "--temporary", "-c", "host.toml"]);
    assert_eq!(disk(&agent, "good").shares, 700);
    // Who asks the agent asks no file system, as one would who looks whether two disks are one.
    stage.write("one.toml", both.replace("\"data2\"", "\"data\""));
    assert!(stage.fails(&[PARDA, "check", "one.toml"]).contains("overlaps"));
    stage.ok(&[PARDA, "status", "--over", "100ms", "-c", "one.toml"]);
    let add =
        ["disk", "add", "again", "path=alias", "listen=unix:b", "--volume", "b", "-c", "host.toml"];
    let said = stage.fails(&[&[PARDA][..], &add].concat());
    assert!(said.contains("path = alias: does not answer"), "{said}");
    let checked = stage.ok(&[PARDA, "check", "host.toml"]);
    assert!(
        checked.contains(
            "note: far: bad: does not answer: the agent waits for it; see whether the server"
        ),
        "{checked}"
    );
    assert!(asking(&agent) <= 4, "{} threads ask", asking(&agent));

    // One that ends and one that starts do not wait for it either.
    agent.stop();
    let agent = stage.restart(&[], "host");
    until("the others are served again", || serves(&agent, "good") && serves(&agent, "near"));
    drop(halted);
    until("it is served when it answers", || serves(&agent, "far"));
    reads(&stage, "b", "far");
    until("nobody asks any more", || asking(&agent) == 0);
    agent.stop();
}

#[test]
fn a_disk_is_removed_though_its_file_system_does_not_answer_and_the_others_go_on() {
    let stage = Stage::new();
    for name in ["data", "data2"] {
        stage.sparse(name, SIZE);
    }
    let file = FuseFile::new(&stage, "bad", &["memory", "1M"]);
    let both = config(&[("near", "data2"), ("far", "bad")]);
    let agent = stage.agent("host", &config(&[("near", "data2")]));
    reads(&stage, "b", "near");
    reload(&stage, &agent, &both);
    until("both are served", || serves(&agent, "far"));
    reads(&stage, "b", "far");
    let mut near = Client::connect(&stage.path("b"), "near");
    let halted = Halted::new(file.file_system());
    // The look at the files of the volume hangs at one of them, and another goes on with the other. The first
    // volume has one as well.
    until("a second thread looks", || agent.threads(&["parda-map"]) == 3);
    let data = std::fs::File::options().write(true).open(stage.path("data2")).unwrap();
    data.set_len(2 * SIZE).unwrap();
    agent.says("the disk has grown");
    // To close the file asks the file system.
    reload(&stage, &agent, &config(&[("near", "data2")]));
    until("it is closed by a thread", || agent.threads(&["parda-close"]) == 1);
    assert_eq!(near.call(read(0, 4096), &[]), Ok(vec![0; 4096]));
    assert_eq!(disk(&agent, "far").state, DiskState::Leaving);
    // Wanted again, it waits for its own end.
    reload(&stage, &agent, &both);
    reads(&stage, "b", "near");
    drop(halted);
    until("it is served again", || {
        let volumes = agent.status().volumes;
        volumes[1].disks.iter().all(|disk| disk.state == DiskState::Serving)
    });
    stage.ok(&["nbdinfo", &uri("b", "far")]);
    // The look that hung had seen the other file before it grew.
    assert!(!agent.process.log().contains("the disk has shrunk"), "{}", agent.process.log());
    agent.stop();
}

#[test]
fn an_agent_that_ends_beside_a_look_that_hangs_leaves_the_other_disks_to_the_next() {
    let stage = Stage::new();
    for name in ["data", "data2"] {
        stage.sparse(name, SIZE);
    }
    let file = FuseFile::new(&stage, "bad", &["memory", "1M"]);
    let near = config(&[("near", "data2")]);
    // It is looked at after `far`, which is opened first.
    let agent = stage.agent("host", &config(&[("far", "bad")]));
    until("the first is served", || serves(&agent, "far"));
    reload(&stage, &agent, &config(&[("far", "bad"), ("near", "data2")]));
    until("both are served", || serves(&agent, "near"));
    let halted = Halted::new(file.file_system());
    until("a second thread looks", || agent.threads(&["parda-map"]) == 3);
    agent.process.signal(Signal::TERM);
    agent.says("stopped");
    // The process stays until its last call is answered.
    let next = stage.agent("next", &near.replace("host.status", "next.status"));
    until("the next one serves them", || serves(&next, "good") && serves(&next, "near"));
    reads(&stage, "b", "near");
    drop(halted);
    next.stop();
    drop(agent);
}
