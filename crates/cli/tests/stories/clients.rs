//! The clients that people use, against every kind of backend.

use std::net::TcpListener;

use rustix::process::Signal;

use crate::stage::{Agent, Process, Stage, config, noise, until, uri};
use parda_control::ModeName;
use parda_disk::Errno;
use parda_testkit::{Client, write};

const MIB: u64 = 1 << 20;
const OFF: &str = "mode = \"off\"";

/// A disk `vm1` of the agent `host`, and all that is behind it.
struct Served {
    _agent: Agent,
    _array: Option<Agent>,
    _qemu: Option<Process>,
    // Last, so that it is there until the others are gone.
    stage: Stage,
}

const VM1: &str = "nbd+unix:///vm1?socket=host";

fn serve(stage: Stage, path: &str) -> Served {
    let agent = stage.agent("host", &config("host", OFF, &[("vm1", path)]));
    Served { _agent: agent, _array: None, _qemu: None, stage }
}

/// Serves the file `data` directly.
fn on_a_file(size: u64) -> Served {
    let stage = Stage::new();
    stage.sparse("data", size);
    serve(stage, "data")
}

/// Serves it through qemu-nbd.
fn on_qemu(size: u64) -> Served {
    let stage = Stage::new();
    stage.sparse("data", size);
    let qemu = qemu_nbd(&stage);
    Served { _qemu: Some(qemu), ..serve(stage, "nbd+unix:///?socket=qemu") }
}

/// Serves it through another agent.
fn on_parda(size: u64) -> Served {
    let stage = Stage::new();
    stage.sparse("data", size);
    let array = stage.agent("array", &config("array", OFF, &[("lun", "data")]));
    Served { _array: Some(array), ..serve(stage, &uri("array", "lun")) }
}

/// Serves `data` at the socket `qemu`.
pub(crate) fn qemu_nbd(stage: &Stage) -> Process {
    let socket = format!("--socket={}", stage.path("qemu").display());
    let options = ["--format=raw", "--persistent", "--shared=0", "--discard=unmap"];
    let qemu = stage.start("qemu-nbd", &[&["qemu-nbd", &socket, "data"], &options[..]].concat());
    until("qemu-nbd answers", || {
        stage.run(&["nbdinfo", "nbd+unix:///?socket=qemu"]).status.success()
    });
    qemu
}

#[test]
fn nbdinfo_sees_what_is_configured() {
    let stage = Stage::new();
    stage.sparse("a", 64 * MIB);
    stage.sparse("b", 8 * MIB);
    stage.sparse("c", 12_345);
    let disks = [("a", "a"), ("b", "b"), ("c", "c")];
    let text =
        config("host", OFF, &disks).replace("name = \"b\"", "name = \"b\"\nread_only = true");
    let _agent = stage.agent("host", &text);
    let list = stage.ok(&["nbdinfo", "--list", "--json", "nbd+unix:///?socket=host"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let exports = list["exports"].as_array().unwrap();
    assert_eq!(list["structured"], true);
    assert_eq!(exports.len(), 3);
    for (export, (name, size, writable)) in
        exports.iter().zip([("a", 64 * MIB, true), ("b", 8 * MIB, false), ("c", 12_345, true)])
    {
        assert_eq!(export["export-name"], name);
        assert_eq!(export["export-size"], size);
        for (key, value) in [
            ("is_read_only", !writable),
            ("can_trim", writable),
            ("can_zero", writable),
            ("can_flush", true),
            ("can_fua", true),
            ("can_multi_conn", true),
        ] {
            assert_eq!(export[key], value, "{name}: {key}");
        }
        assert_eq!(export["block_size_preferred"], 4096);
        assert_eq!(export["block_size_maximum"], 32 * MIB);
    }
    // An odd size allows no direct IO, and so needs no alignment.
    assert_eq!(exports[2]["block_size_minimum"], 1);
    assert_eq!(stage.ok(&["nbdinfo", "--size", &uri("host", "b")]).trim(), (8 * MIB).to_string());
    let error = stage.fails(&["nbdinfo", &uri("host", "d")]);
    assert!(error.contains("export: d"), "{error}");
}

/// What is copied in comes out again, and lies in the file as it was.
fn copies(served: impl Fn(u64) -> Served) {
    let random = noise(24 * MIB as usize);
    let mut sparse = vec![0; 24 * MIB as usize];
    sparse[5 * MIB as usize..][..MIB as usize].copy_from_slice(&random[..MIB as usize]);
    for content in [&random[..], &sparse, &random[..10 * MIB as usize + 1536]] {
        let served = served(content.len() as u64);
        let stage = &served.stage;
        stage.write("in", content);
        stage.ok(&["nbdcopy", "--connections=4", "--requests=32", "--flush", "in", VM1]);
        assert!(stage.read("data") == content, "the file is not what was copied to it");
        stage.ok(&["nbdcopy", "--connections=4", "--requests=32", VM1, "out"]);
        assert!(stage.read("out") == content, "what came out is not what was copied in");
    }
}

#[test]
fn nbdcopy_both_ways_on_a_file() {
    copies(on_a_file);
}

#[test]
fn nbdcopy_both_ways_on_qemu_nbd() {
    copies(on_qemu);
}

#[test]
fn nbdcopy_both_ways_on_another_agent() {
    copies(on_parda);
}

#[test]
fn nbdcopy_keeps_a_size_of_odd_bytes() {
    let content = noise(3_000_001);
    let served = on_a_file(content.len() as u64);
    let stage = &served.stage;
    stage.write("in", &content);
    stage.ok(&["nbdcopy", "--flush", "in", VM1]);
    stage.ok(&["nbdcopy", VM1, "out"]);
    assert!(stage.read("out") == content && stage.read("data") == content);
}

#[test]
fn qemu_img_converts_in_and_out_and_compares() {
    let served = on_a_file(32 * MIB);
    let stage = &served.stage;
    let mut content = vec![0; 32 * MIB as usize];
    content[3 * MIB as usize..][..5 * MIB as usize].copy_from_slice(&noise(5 * MIB as usize));
    stage.write("in", &content);
    stage.ok(&["qemu-img", "convert", "-n", "-W", "-f", "raw", "-O", "raw", "in", VM1]);
    stage.ok(&["qemu-img", "compare", "-f", "raw", "-F", "raw", "in", VM1]);
    stage.ok(&["qemu-img", "convert", "-f", "raw", "-O", "qcow2", VM1, "out"]);
    stage.ok(&["qemu-img", "compare", "-f", "qcow2", "-F", "raw", "out", VM1]);
    assert!(stage.read("data") == content);
    // The comparison can fail.
    content[4 * MIB as usize] ^= 1;
    stage.write("in", &content);
    stage.fails(&["qemu-img", "compare", "-f", "raw", "-F", "raw", "in", VM1]);
}

/// Every command, aligned and not, with what must be read after each.
fn commands(served: &Served) {
    let io = |commands: &[&str]| {
        let mut line = vec!["qemu-io", "-f", "raw", VM1];
        line.extend(commands.iter().flat_map(|command| ["-c", *command]));
        let said = served.stage.ok(&line);
        assert!(!said.contains("Pattern verification failed"), "{said}");
    };
    io(&["write -P 17 0 1M", "read -P 17 0 1M", "read -P 0 1M 1M"]);
    io(&["write -f -P 18 4k 8k", "read -P 17 0 4k", "read -P 18 4k 8k", "read -P 17 12k 4k"]);
    io(&["write -P 19 100 1000", "read -P 17 0 100", "read -P 19 100 1000", "read -P 17 1100 2k"]);
    io(&["write -f -P 20 65000 70001", "flush", "read -P 20 65000 70001", "read -P 17 135001 99"]);
    io(&["write -z 64k 64k", "read -P 0 64k 64k", "read -P 20 65000 536", "read -P 20 128k 3929"]);
    io(&["write -z -u 256k 64k", "read -P 0 256k 64k", "read -P 17 320k 4k"]);
    io(&["write -z -f 511 1", "read -P 0 511 1", "read -P 19 512 10"]);
    io(&["discard 512k 128k", "read 512k 128k", "read -P 17 640k 4k"]);
    io(&["aio_write -P 21 2M 1M", "aio_write -P 22 3M 1M", "aio_flush", "read -P 22 3M 1M"]);
    let line = ["qemu-io", "-f", "raw", VM1, "-c", "read -P 99 0 4k"];
    assert!(!served.stage.run(&line).status.success(), "the verification of patterns can fail");
}

#[test]
fn qemu_io_on_a_file() {
    commands(&on_a_file(16 * MIB));
}

#[test]
fn qemu_io_on_qemu_nbd() {
    commands(&on_qemu(16 * MIB));
}

#[test]
fn qemu_io_on_another_agent() {
    commands(&on_parda(16 * MIB));
}

/// Writes over four connections at once, and reads back what was written.
fn verified_load(stage: &Stage, uri: &str) {
    let target = format!("--uri={uri}");
    let mut line = vec!["fio", "--name=verified", "--ioengine=nbd", &target, "--rw=randwrite"];
    line.extend(["--bsrange=4k-64k", "--size=6m", "--offset_increment=8m", "--numjobs=4"]);
    line.extend(["--iodepth=16", "--fsync=50", "--verify=crc32c", "--verify_fatal=1"]);
    line.extend(["--verify_state_save=0", "--thread"]);
    let said = stage.ok(&line);
    assert!(said.contains("err= 0") && !said.contains("err= 22"), "{said}");
}

#[test]
fn fio_verifies_over_several_connections() {
    for served in [on_a_file(32 * MIB), on_qemu(32 * MIB), on_parda(32 * MIB)] {
        verified_load(&served.stage, VM1);
    }
}

#[test]
fn fio_verifies_under_control() {
    let stage = Stage::new();
    stage.sparse("data", 32 * MIB);
    let control = "latency_threshold = \"5ms\"\nperiod = \"100ms\"\nwindow_max = 8";
    let agent = stage.agent("host", &config("host", control, &[("vm1", "data")]));
    verified_load(&stage, VM1);
    let volume = agent.volume();
    assert_eq!((volume.mode, volume.disks[0].errors), (ModeName::Parda, 0));
    assert!(volume.disks[0].writes.ios > 300, "{volume:?}");
    agent.stop();
}

#[test]
fn unix_and_tcp_listeners_serve_the_same_disks() {
    let stage = Stage::new();
    stage.sparse("data", 32 * MIB);
    stage.sparse("more", MIB);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let disks = [("vm1", "data"), ("vm2", "more")];
    let text =
        config("host", OFF, &disks).replace("unix:host\"", &format!("tcp:127.0.0.1:{port}\""));
    let agent = stage.agent("host", &text);
    verified_load(&stage, &format!("nbd://127.0.0.1:{port}/vm1"));
    stage.ok(&["nbdinfo", &format!("nbd://localhost:{port}/vm2")]);
    agent.process.signal(Signal::HUP);
    agent.says("in force");
    agent.stop();
}

#[test]
fn a_read_only_disk_refuses_writes() {
    let stage = Stage::new();
    let content = noise(MIB as usize);
    stage.write("data", &content);
    let text = config("host", OFF, &[("vm1", "data")]) + "read_only = true\n";
    let _agent = stage.agent("host", &text);
    stage.write("in", vec![7; MIB as usize]);
    stage.fails(&["nbdcopy", "in", VM1]);
    stage.fails(&["qemu-io", "-f", "raw", VM1, "-c", "write -P 7 0 4k"]);
    let mut client = Client::connect(&stage.path("host"), "vm1");
    assert_eq!(client.call(write(0, 4096), &[7; 4096]), Err(Errno::Perm));
    stage.ok(&["nbdcopy", VM1, "out"]);
    assert!(stage.read("out") == content && stage.read("data") == content);
}
