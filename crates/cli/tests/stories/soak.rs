//! A long time under load, with reloads, lost backends and clients that come and go: the agent
//! neither grows nor slows down.
//!
//! `PARDA_SOAK_SECONDS` sets how long (10 unless it is set; `make nightly` takes half an hour).

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use parda_disk::Op;
use rustix::process::Signal;

use crate::clients::qemu_nbd;
use crate::held::Held;
use crate::stage::{Agent, Process, Stage, config, until, uri};
use parda_testkit::{Client, read, write};

const OFF: &str = "mode = \"off\"";

/// So many rounds at least, however long they take.
const ROUNDS: u64 = 16;

/// A configuration that differs from the last in what a reload can change.
fn configuration(round: u64) -> String {
    let disks = [("file", "near"), ("far", "nbd+unix:///?socket=qemu")];
    // Longer than a busy machine needs for another server.
    let text = config("host", OFF, &disks) + "[volume.disk.nbd]\nhold = \"60s\"\n";
    text.replace("listen", &format!("shares = {}\nlisten", 100 + round % 900))
}

/// Clients that misbehave, each in another way.
fn rude_clients(socket: &Path, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..8) {
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        let noise: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
        // It may be closed already.
        let _ = stream.write_all(&noise);
    }
    // Leaves with requests under way, and with a write that is not complete.
    if let Ok(mut client) = Client::try_connect(socket, "file") {
        for _ in 0..random.usize(..16) {
            let _ = client.send(read(0, 1 << 20), &[]);
        }
        let _ = client.send(write(16 << 20, 1 << 20), &[1; 4096]);
    }
}

#[test]
fn an_agent_under_load_with_reloads_and_kills_does_not_grow() {
    let seconds = std::env::var("PARDA_SOAK_SECONDS").map_or(10, |s| s.parse().unwrap());
    let stage = Stage::new();
    for name in ["data", "near"] {
        stage.sparse(name, 32 << 20);
    }
    let mut qemu: Process = qemu_nbd(&stage);
    let agent = stage.agent("host", &configuration(0));
    let options = [
        "--rw=randwrite",
        "--bs=4k",
        "--size=8m",
        "--iodepth=8",
        "--rate_iops=2000",
        "--verify=crc32c",
    ];
    let runtime = format!("--runtime={}", seconds + 3600);
    let options = [&options[..], &[&runtime]].concat();
    let loads = ["file", "far"].map(|disk| stage.load(disk, &uri("host", disk), &options));
    let writes = |disk: usize| agent.volume().disks[disk].writes.ios;
    until("both load", || writes(0) > 100 && writes(1) > 100);

    let mut random = fastrand::Rng::new();
    let (started, duration) = (Instant::now(), Duration::from_secs(seconds));
    let (mut round, mut early) = (0, None);
    while started.elapsed() < duration || round < ROUNDS {
        round += 1;
        stage.write("host.toml", configuration(round));
        agent.process.signal(Signal::HUP);
        rude_clients(&stage.path("host"), &mut random);
        if round % 8 == 0 {
            qemu.kill();
            qemu = qemu_nbd(&stage);
        }
        let mut client = Client::connect(&stage.path("host"), "file");
        client.call(write(16 << 20, 4096), &[2; 4096]).unwrap();
        client.call(Op::Flush, &[]).unwrap();
        drop(client);
        // Before that buffers and tables reach their usual size.
        if early.is_none() && started.elapsed() > duration / 4 && round >= ROUNDS / 2 {
            early = Some(at_rest(&agent));
        }
        std::thread::sleep(Duration::from_millis(random.u64(20..150)));
    }
    let (early, late) = (early.unwrap(), at_rest(&agent));
    eprintln!("{round} rounds in {seconds} s: {early:?}, then {late:?}");
    assert!(late.descriptors <= early.descriptors + 4, "{early:?}, then {late:?}");
    assert!(late.threads <= early.threads + 4, "{early:?}, then {late:?}");
    let allowed = early.resident_kib + (8 << 10);
    assert!(late.resident_kib <= allowed, "{early:?}, then {late:?}");
    for load in loads {
        load.finish();
    }
    agent.stop();
    drop(qemu);
}

/// What the agent holds once only the two loads are connected, and buffers of the others are given back to the kernel.
fn at_rest(agent: &Agent) -> Held {
    until("the other clients are gone", || {
        let volume = agent.volume();
        volume.connections <= 2 && volume.memory.is_some_and(|memory| memory.idle <= 1 << 20)
    });
    Held::of(agent)
}
