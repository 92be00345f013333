//! NBD servers behind disks that are restarted, stopped and continued.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use parda_disk::{Errno, Op};
use rustix::process::Signal;

use crate::stage::{Agent, Process, Stage, config, stop, until};
use parda_testkit::{Client, read, write};

const LEN: u32 = 4096;

fn nbdkit(stage: &Stage) -> Process {
    // What nbdkit leaves behind.
    let _ = std::fs::remove_file(stage.path("far"));
    let socket = stage.path("far").display().to_string();
    let line = ["nbdkit", "--foreground", "--unix", &socket, "file", "file=data"];
    let server = stage.start("nbdkit", &line);
    until("nbdkit answers", || UnixStream::connect(stage.path("far")).is_ok());
    server
}

fn agent(stage: &Stage, nbd: &str) -> (Agent, Client) {
    let disks = [("vm1", "nbd+unix:///?socket=far")];
    let text = config("host", "mode = \"off\"", &disks) + "[volume.disk.nbd]\n" + nbd;
    let agent = stage.agent("host", &text);
    let client = Client::connect(&stage.path("host"), "vm1");
    (agent, client)
}

fn block(byte: u8) -> Vec<u8> {
    vec![byte; LEN as usize]
}

#[test]
fn a_restart_under_an_idle_database_costs_it_nothing_and_one_under_load_is_confessed_once() {
    let stage = Stage::new();
    stage.sparse("data", 32 << 20);
    // One that ends in order answers ESHUTDOWN before it closes.
    for (connections, signal) in
        [1, 3].into_iter().flat_map(|n| [(n, Signal::KILL), (n, Signal::TERM)])
    {
        let mut server = nbdkit(&stage);
        let (agent, mut client) =
            agent(&stage, &format!("connections = {connections}\nhold = \"60s\""));
        let mut restart = |client: &mut Client| {
            server.signal(signal);
            // The first request finds out, and waits for the next nbdkit.
            client.send(read(0, LEN), &[]).unwrap();
            let old = std::mem::replace(&mut server, nbdkit(&stage));
            let answer = client.receive().unwrap().1.unwrap();
            old.kill();
            answer
        };
        for round in 1..4 {
            client.call(write(0, LEN), &block(round)).unwrap();
            client.call(Op::Flush, &[]).unwrap();
            assert_eq!(restart(&mut client), block(round));
            client.call(Op::Flush, &[]).expect("nothing was unflushed");
        }
        // Two writes that are not flushed, in whatever way they were spread.
        client.call(write(0, LEN), &block(9)).unwrap();
        client.call(write(u64::from(LEN), LEN), &block(9)).unwrap();
        restart(&mut client);
        assert_eq!(client.call(Op::Flush, &[]), Err(Errno::Io));
        client.call(Op::Flush, &[]).unwrap();
        agent.says("lost the NBD server");
        agent.says("the next flush will say so");
        drop(client);
        agent.stop();
    }
}

#[test]
fn a_server_that_comes_back_larger_is_used_and_one_that_comes_back_smaller_is_not() {
    let stage = Stage::new();
    stage.sparse("data", 8 << 20);
    let server = nbdkit(&stage);
    let (agent, mut client) = agent(&stage, "hold = \"2s\"");
    client.call(write(0, LEN), &block(1)).unwrap();
    client.call(Op::Flush, &[]).unwrap();
    let resize = |to: u64| {
        let data = std::fs::File::options().write(true).open(stage.path("data")).unwrap();
        data.set_len(to << 20).unwrap();
    };
    // As a disk is enlarged: the server is stopped, and started on more. The client has noticed nothing.
    server.kill();
    resize(16);
    let server = nbdkit(&stage);
    until("it is used", || client.call(read(0, LEN), &[]) == Ok(block(1)));
    client.call(Op::Flush, &[]).expect("nothing was unflushed");
    agent.says("the disk has grown");
    // It keeps the size that it was told. Who connects now has all of it.
    assert_eq!(client.call(write(8 << 20, LEN), &block(2)), Err(Errno::NoSpc));
    let mut next = Client::connect(&stage.path("host"), "vm1");
    next.call(write((16 << 20) - u64::from(LEN), LEN), &block(3)).unwrap();
    next.call(Op::Flush, &[]).unwrap();

    // Less than clients were told is no replacement.
    server.kill();
    resize(12);
    let server = nbdkit(&stage);
    assert_eq!(next.call(read(0, LEN), &[]), Err(Errno::Io));
    agent.says("it has 12582912 bytes where it had 16777216");
    server.kill();
    resize(16);
    let _server = nbdkit(&stage);
    until("it is used again", || next.call(read(0, LEN), &[]) == Ok(block(1)));
    drop((client, next));
    agent.stop();
}

#[test]
fn a_stopped_server_costs_an_error_in_time_and_holds_up_no_end() {
    let stage = Stage::new();
    stage.sparse("data", 32 << 20);
    let server = nbdkit(&stage);
    let (agent, mut client) = agent(&stage, "timeout = \"2s\"\nhold = \"2s\"");
    client.call(write(0, LEN), &block(1)).unwrap();
    client.call(Op::Flush, &[]).unwrap();
    stop(&server);
    let started = Instant::now();
    assert_eq!(client.call(read(0, LEN), &[]), Err(Errno::Io));
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
    server.signal(Signal::CONT);
    until("it is used again", || client.call(read(0, LEN), &[]) == Ok(block(1)));
    client.call(Op::Flush, &[]).expect("nothing was unflushed");
    // The next time nobody waits for it.
    stop(&server);
    client.send(write(0, LEN), &block(2)).unwrap();
    until("the write is on its way", || agent.volume().outstanding > 0.0);
    let started = Instant::now();
    agent.stop();
    // Not the 30 s that requests have which are answered.
    assert!(started.elapsed() < Duration::from_secs(28), "{:?}", started.elapsed());
    assert!(client.receive().is_none(), "unanswered, so that it is sent to the next agent");
    server.signal(Signal::CONT);
}
