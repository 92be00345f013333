//! Clients whose host vanishes from the network without a word: their connections are closed in
//! the time that is documented, and what they held is another's.

use std::time::{Duration, Instant};

use parda_nbd::{Cookie, client, wire};

use crate::stage::{Process, Stage, noise, until};
use crate::wire::{NEAR, Wire};
use parda_testkit::{read, write};

/// `progress_timeout` of the agent: longer than a busy machine takes to start the clients.
const PATIENCE: Duration = Duration::from_secs(5);

fn config() -> String {
    format!(
        "host = \"host\"\nstatus = \"unix:host.status\"\n\
         [[listener]]\naddress = \"tcp:{NEAR}:10809\"\nplain = true\n\
         [[volume]]\nname = \"array\"\n\
         [volume.limits]\nprogress_timeout = \"{}s\"\n\
         [[volume.disk]]\nname = \"vm1\"\npath = \"data\"\nlisten = \"tcp:{NEAR}:10809\"\n",
        PATIENCE.as_secs()
    )
}

/// A client that opens a session on the disk, says this, and then neither reads nor writes.
fn say(stage: &Stage, far: &[&str], who: &str, bytes: &[u8]) -> Process {
    let mut all = 3u32.to_be_bytes().to_vec();
    wire::put_option(&mut all, wire::option::EXPORT_NAME, b"vm1");
    all.extend(bytes);
    stage.write(who, all);
    let script = format!("exec 3<>/dev/tcp/{NEAR}/10809; cat {who} >&3; sleep infinity");
    stage.start(who, &[far, &["bash", "-c", &script]].concat())
}

#[test]
fn clients_that_vanish_are_closed_in_time_whatever_they_did() {
    let stage = Stage::new();
    stage.write("data", noise(8 << 20));
    let cable = Wire::new(&stage);
    let agent = stage.agent_within(&cable.near(), "host", &config());
    let far = cable.far();
    let mut half = Vec::new();
    client::put_request(&mut half, Cookie(1), write(0, 4 << 20));
    half.extend(vec![0; 1 << 20]);
    let mut reads = Vec::new();
    (0..8).for_each(|n| client::put_request(&mut reads, Cookie(n), read(0, 8 << 20)));
    let clients = [("idle", vec![]), ("half", half), ("reads", reads)];
    let clients = clients.map(|(who, bytes)| say(&stage, &far, who, &bytes));
    until("all are there", || {
        let volume = agent.volume();
        let memory = volume.memory.unwrap();
        // Half of a write, and replies that nobody takes.
        volume.connections == 3 && memory.granted > 16 << 20
    });
    cable.cut(&stage);
    let cut = Instant::now();
    until("all are closed", || agent.volume().connections == 0);
    let took = cut.elapsed();
    eprintln!("the last was closed {took:?} after its host had vanished");
    // Keepalive and the timers of the kernel go by steps of up to a third of it.
    assert!(took < PATIENCE * 3, "{took:?}");
    let volume = agent.volume();
    let memory = volume.memory.unwrap();
    assert_eq!((memory.granted, memory.buffers, volume.held), (0, 0, 0), "{memory:?}");
    assert!(volume.outstanding < 0.01, "{}", volume.outstanding);
    let dropped = volume.dropped;
    assert_eq!(dropped.stalled + dropped.socket, 3, "{dropped:?}");
    agent.stop();
    assert!(stage.read("data") == noise(8 << 20), "half a write was made");
    drop(clients);
}
