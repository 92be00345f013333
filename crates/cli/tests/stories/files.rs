//! Files and devices that are changed, replaced, taken away or fail while they are served: the client gets
//! the protocol's error, the window's slots come back, and the other disks go on.

use std::time::{Duration, Instant};

use parda_disk::{Errno, Op};
use rustix::process::Signal;

use crate::fuse::FuseFile;
use crate::island::Island;
use crate::stage::{Agent, Load, PARDA, Stage, config, until, uri};
use parda_testkit::{Client, LoopDevice, read, write};

const MIB: u64 = 1 << 20;

/// Few slots, so that one that does not come back is missed; a period that is soon over.
const LAW: &str = "mode = \"static\"\nwindow_max = 4\nperiod = \"100ms\"";

/// An agent with the disk `vm1` at a path, and a neighbour that writes and verifies meanwhile.
struct Scene {
    agent: Agent,
    neighbour: Load,
    client: Client,
}

impl Scene {
    fn new(stage: &Stage, wrapper: &[&str], path: &str, direct: &str) -> Scene {
        stage.sparse("other", 16 * MIB);
        let text = config("host", LAW, &[("other", "other"), ("vm1", path)]);
        let agent = stage.agent_within(wrapper, "host", &(text + direct));
        let options = ["--rw=randwrite", "--bs=4k", "--size=4m", "--iodepth=2", "--verify=crc32c"];
        let neighbour = stage.load("fio", &uri("host", "other"), &options);
        let client = Client::connect(&stage.path("host"), "vm1");
        Scene { agent, neighbour, client }
    }

    /// More requests that fail than the window has slots.
    fn fails(&mut self, op: Op, payload: &[u8], errno: Errno) {
        for _ in 0..20 {
            assert_eq!(self.client.call(op, payload), Err(errno), "{op:?}");
        }
    }

    fn replaced(&self) -> bool {
        self.agent.volume().disks[1].replaced
    }

    /// Nothing is held or outstanding but what the neighbour has, who goes on; then nothing at all.
    fn end(self) {
        let ios = || self.agent.volume().disks[0].writes.ios;
        let before = ios();
        until("the neighbour goes on", || ios() > before + 100);
        self.neighbour.finish();
        until("all slots are free", || {
            let volume = self.agent.volume();
            volume.held == 0 && volume.outstanding == 0.0
        });
        assert_eq!(self.agent.volume().disks[0].errors, 0);
        self.agent.stop();
    }
}

#[test]
fn a_file_that_is_cut_off_fails_behind_its_end_and_one_that_grows_back_does_not() {
    for direct in ["direct = \"auto\"\n", "direct = \"off\"\n"] {
        let stage = Stage::new();
        stage.sparse("data", 8 * MIB);
        let mut scene = Scene::new(&stage, &[], "data", direct);
        scene.client.call(write(0, 4096), &[1; 4096]).unwrap();
        let file = std::fs::File::options().write(true).open(stage.path("data")).unwrap();
        file.set_len(4 * MIB).unwrap();
        // At once, whether it has been noticed or not: a read in the page cache is no access to a mapping.
        let error = scene.client.call(read(6 * MIB, 4096), &[]).unwrap_err();
        assert!([Errno::Io, Errno::Inval].contains(&error), "{error:?}");
        scene.agent.says("the disk has shrunk");
        scene.fails(read(6 * MIB, 4096), &[], Errno::Inval);
        scene.fails(write(6 * MIB, 4096), &[9; 4096], Errno::NoSpc);
        assert_eq!(file.metadata().unwrap().len(), 4 * MIB, "nothing is written behind the end");
        assert_eq!(scene.client.call(read(0, 4096), &[]), Ok(vec![1; 4096]));
        file.set_len(8 * MIB).unwrap();
        scene.agent.says("the disk has grown");
        scene.client = Client::connect(&stage.path("host"), "vm1");
        assert_eq!(scene.client.call(read(6 * MIB, 4096), &[]), Ok(vec![0; 4096]));
        scene.end();
    }
}

#[test]
fn a_file_that_is_replaced_or_deleted_is_served_on_and_said_to_be() {
    let stage = Stage::new();
    stage.sparse("data", 8 * MIB);
    let mut scene = Scene::new(&stage, &[], "data", "");
    scene.client.call(write(0, 4096), &[1; 4096]).unwrap();
    // As an editor or a restore does it.
    stage.sparse("new", 8 * MIB);
    std::fs::hard_link(stage.path("data"), stage.path("old")).unwrap();
    std::fs::rename(stage.path("new"), stage.path("data")).unwrap();
    scene.agent.says("its path leads to another file now");
    assert!(scene.replaced());
    let said = stage.ok(&[PARDA, "status", "--socket", "host.status"]);
    assert!(said.contains("disk vm1: its path leads to another file now"), "{said}");
    assert_eq!(scene.client.call(read(0, 4096), &[]), Ok(vec![1; 4096]));
    scene.client.call(write(4096, 4096), &[2; 4096]).unwrap();
    assert_eq!(stage.read("old")[4096..8192], [2; 4096], "what was opened");
    assert!(stage.read("data").iter().all(|byte| *byte == 0), "not what has its name");

    std::fs::rename(stage.path("old"), stage.path("data")).unwrap();
    scene.agent.says("its path leads to what is served again");
    std::fs::remove_file(stage.path("data")).unwrap();
    until("it is said again", || scene.replaced());
    assert_eq!(scene.client.call(read(4096, 4096), &[]), Ok(vec![2; 4096]));
    scene.client.call(Op::Flush, &[]).unwrap();
    scene.end();
}

#[test]
fn a_mode_that_forbids_it_or_a_read_only_mount_comes_too_late() {
    let stage = Stage::new();
    let island = Island::new(&stage, "32m");
    std::fs::File::create(island.path("data")).unwrap().set_len(8 * MIB).unwrap();
    let mut scene = Scene::new(&stage, &island.enter(), "island/data", "");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    std::fs::set_permissions(island.path("data"), mode).unwrap();
    scene.client.call(write(0, 4096), &[1; 4096]).unwrap();
    // Linux makes no mount read-only of which a file is open for writing.
    let remount = ["mount", "-o", "remount,bind,ro", "island"];
    let said = stage.fails(&[&island.enter()[..], &remount].concat());
    assert!(said.contains("busy"), "{said}");
    assert_eq!(scene.client.call(read(0, 4096), &[]), Ok(vec![1; 4096]));
    scene.end();
}

#[test]
fn one_file_by_a_bind_mount_is_one_file_and_by_a_hard_link_another_agents() {
    let stage = Stage::new();
    let island = Island::new(&stage, "32m");
    stage.sparse("img", 8 * MIB);
    std::fs::hard_link(stage.path("img"), stage.path("hard")).unwrap();
    stage.sparse("bound", 0);
    stage.ok(&[&island.enter()[..], &["mount", "--bind", "img", "bound"]].concat());
    stage.write("two.toml", config("two", LAW, &[("vm1", "img"), ("vm2", "bound")]));
    let check = [&island.enter()[..], &[PARDA, "check", "two.toml"]].concat();
    let said = stage.fails(&check);
    assert!(said.contains("overlaps the disk vm1"), "{said}");

    let agent = stage.agent("host", &config("host", LAW, &[("vm1", "img")]));
    for (who, path) in [("hard", "hard"), ("bound", "bound")] {
        stage.write(&format!("{who}.toml"), config(who, LAW, &[("vm1", path)]));
        let file = format!("{who}.toml");
        let line = [&island.enter()[..], &[PARDA, "serve", "-c", &file]].concat();
        let second = stage.start(who, &line);
        until("it waits", || second.log().contains("another agent has it, or the kernel has IO"));
        assert!(!second.log().contains("serving"), "{}", second.log());
    }
    agent.stop();
}

#[test]
fn a_device_that_fails_costs_the_requests_that_meet_it_and_one_that_is_detached_none() {
    let stage = Stage::new();
    stage.sparse("behind", 8 * MIB);
    let Some(device) = LoopDevice::new(&stage.path("behind"), &[]) else { return };
    let path = device.path().display().to_string();
    let mut scene = Scene::new(&stage, &[], &path, "");
    scene.client.call(write(0, 4096), &[1; 4096]).unwrap();
    // Linux keeps it until nobody has it open.
    device.detach();
    scene.client.call(write(4096, 4096), &[2; 4096]).unwrap();
    scene.client.call(Op::Flush, &[]).unwrap();
    assert_eq!(scene.client.call(read(4096, 4096), &[]), Ok(vec![2; 4096]));
    // A loop device without its file's end: EIO to whoever reads there, as from a bad sector.
    let behind = std::fs::File::options().write(true).open(stage.path("behind")).unwrap();
    behind.set_len(4 * MIB).unwrap();
    scene.fails(read(6 * MIB, 4096), &[], Errno::Io);
    assert!(scene.agent.volume().disks[1].errors >= 20);
    assert_eq!(scene.client.call(read(0, 4096), &[]), Ok(vec![1; 4096]));
    scene.end();
}

/// A file whose writes take ten minutes.
fn stuck(stage: &Stage) -> FuseFile {
    FuseFile::new(stage, "img", &["--filter=delay", "memory", "16M", "wdelay=600"])
}

#[test]
fn a_file_system_that_never_answers_holds_up_no_other_disk() {
    let stage = Stage::new();
    let file = stuck(&stage);
    let mut scene = Scene::new(&stage, &[], "img", "direct = \"off\"\n");
    scene.client.send(write(0, 4096), &[1; 4096]).unwrap();
    until("the write is under way", || scene.agent.volume().outstanding > 0.0);
    // Long enough for the file to be looked at, which does not return.
    let ticks = || scene.agent.volume().ticks;
    let before = ticks();
    until("some periods are over", || ticks() > before + 5);
    let map = stage.ok(&["timeout", "30", "nbdinfo", "--map", &uri("host", "other")]);
    assert!(map.contains("data") || map.contains("hole"), "{map}");
    let ios = || scene.agent.volume().disks[0].writes.ios;
    let before = ios();
    until("the neighbour goes on", || ios() > before + 100);
    scene.neighbour.finish();
    // The request ends with its file system, and not before.
    drop(file);
    assert_eq!(scene.client.receive().unwrap().1, Err(Errno::Io));
    scene.agent.stop();
}

#[test]
fn an_agent_that_is_told_to_end_waits_so_long_for_a_file_system_and_no_longer() {
    if std::env::var_os("PARDA_LONG").is_none() {
        eprintln!("SKIPPED: takes 70 s; PARDA_LONG=1 cargo test --test stories -- told_to_end");
        return;
    }
    for (direct, at_least, at_most) in [("auto", 30, 40), ("off", 35, 50)] {
        let stage = Stage::new();
        let file = stuck(&stage);
        let text = config("host", LAW, &[("vm1", "img")]) + &format!("direct = \"{direct}\"\n");
        let mut agent = stage.agent("host", &text);
        let mut client = Client::connect(&stage.path("host"), "vm1");
        client.send(write(0, 4096), &[1; 4096]).unwrap();
        until("the write is under way", || agent.volume().outstanding > 0.0);
        let asked = Instant::now();
        agent.process.signal(Signal::TERM);
        if direct == "off" {
            // Linux keeps the process until the write returns, as it would after SIGKILL.
            agent.says("ends while Linux still has IO of its");
            drop(file);
        }
        agent.process.wait();
        let took = asked.elapsed();
        let expected = Duration::from_secs(at_least)..Duration::from_secs(at_most);
        assert!(expected.contains(&took), "direct {direct}: {took:?}");
        agent.says("requests stay unanswered at the end");
    }
}
