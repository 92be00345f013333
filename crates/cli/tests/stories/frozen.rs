//! Agents that are stopped (SIGSTOP) at random points and go on: no IO fails that a running agent had done, and nothing is lost.
//!
//! `PARDA_STOPS` and `PARDA_STOP_MOST` set how many stops each backend has, and the seconds of the longest (`make nightly`: 200 of up to
//! 120 s).

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parda_bench::driver::{Command, Driver, Shape};
use parda_disk::Op;
use parda_testkit::{Client, read, write};
use rustix::process::Signal;

use crate::stage::{Agent, Process, Stage, config, stop, until};
use crate::tls::Authority;

const LEN: u32 = 64 << 10;
/// Blocks that are written, each with one value.
const BLOCKS: u64 = 8;
/// Bytes of one of the reads that are in flight beside the writes.
const LONG_READ: u32 = 1 << 20;
const SIZE: u64 = 32 << 20;
/// Time for an answer, which comes when the agent goes on.
const LONG: Duration = Duration::from_secs(600);

/// Time limits of NBD backends. Each stop is longer.
const BRIEF: &str = "[volume.disk.nbd]\ntimeout = \"1s\"\nhold = \"1s\"\nconnections = 2\n";

/// Backends that a disk may have.
#[derive(Clone, Copy, Debug)]
enum Kind {
    File,
    Nbd,
    NbdTls,
}

/// Way in which the disk is used.
#[derive(Clone, Copy, Debug)]
enum By {
    Nbd,
    Guest,
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// A server whose requests take a while, so that many are in flight.
fn nbdkit(stage: &Stage, options: &[&str]) -> Process {
    let socket = stage.path("far").display().to_string();
    let slow = ["--filter=delay", "memory", "32M", "delay-read=20ms", "delay-write=5ms"];
    let line = ["nbdkit", "--foreground", "--unix", &socket];
    let server = stage.start("nbdkit", &[&line[..], options, &slow[..]].concat());
    until("nbdkit answers", || UnixStream::connect(stage.path("far")).is_ok());
    server
}

fn agent(stage: &Stage, kind: Kind, by: By) -> (Agent, Option<Process>) {
    let disk = |path: &str| {
        let text = config("host", "mode = \"off\"", &[("vm1", path)]);
        match by {
            By::Nbd => text,
            By::Guest => {
                text.replace("listen = \"unix:host\"\n", "listen = \"vhost-user:vhost\"\n")
            }
        }
    };
    let (text, server) = match kind {
        Kind::File => {
            stage.sparse("data", SIZE);
            (disk("data"), None)
        }
        Kind::Nbd => (disk("nbd+unix:///?socket=far") + BRIEF, Some(nbdkit(stage, &[]))),
        Kind::NbdTls => {
            let ca = Authority::new();
            ca.directory(stage, "pki", false);
            ca.issue(&stage.path("pki"), "server");
            let certificates = format!("--tls-certificates={}", stage.path("pki").display());
            let server = nbdkit(stage, &["--tls=require", &certificates]);
            let tls = "[volume.disk.nbd.tls]\nca = \"pki/ca-cert.pem\"\n";
            (disk("nbds+unix:///?socket=far") + BRIEF + tls, Some(server))
        }
    };
    (stage.agent("host", &text), server)
}

fn block(value: u8) -> Vec<u8> {
    vec![value; LEN as usize]
}

/// A program that uses the disk.
trait Load: Send {
    /// Reads and unflushed writes, all in flight at once; then some of what was written is read, and sometimes flushed.
    fn round(&mut self, value: u8);

    /// Checks that the data of the last round is there, and can be flushed.
    fn is_whole(&mut self, value: u8);
}

impl Load for Client {
    fn round(&mut self, value: u8) {
        for n in 0..BLOCKS {
            self.send(write(n * u64::from(LEN), LEN), &block(value)).unwrap();
            self.send(read((1 + n) << 20, LONG_READ), &[]).unwrap();
        }
        for _ in 0..2 * BLOCKS {
            self.receive().expect("the connection lives").1.expect("no IO fails");
        }
        let at = u64::from(value) % BLOCKS * u64::from(LEN);
        assert_eq!(self.call(read(at, LEN), &[]), Ok(block(value)), "what was written is there");
        if value.is_multiple_of(3) {
            self.call(Op::Flush, &[]).expect("no flush fails");
        }
    }

    fn is_whole(&mut self, value: u8) {
        self.call(Op::Flush, &[]).expect("no flush fails");
        for n in 0..BLOCKS {
            assert_eq!(self.call(read(n * u64::from(LEN), LEN), &[]), Ok(block(value)));
        }
    }
}

impl Load for Driver {
    fn round(&mut self, value: u8) {
        for slot in 0..BLOCKS as u16 {
            self.poke(self.data(0, slot), &block(value)).unwrap();
            let sector = u64::from(slot) * u64::from(LEN) / 512;
            self.submit(0, slot, Command::Write { sector, len: LEN }).unwrap();
        }
        self.kick(0).unwrap();
        for _ in 0..BLOCKS {
            assert_eq!(self.one(LONG).unwrap(), 0, "no IO fails");
        }
        if value.is_multiple_of(3) {
            assert_eq!(self.perform(Command::Flush, LONG).unwrap(), 0, "no flush fails");
        }
    }

    fn is_whole(&mut self, value: u8) {
        assert_eq!(self.perform(Command::Flush, LONG).unwrap(), 0, "no flush fails");
        for n in 0..BLOCKS {
            let sector = n * u64::from(LEN) / 512;
            assert_eq!(self.perform(Command::Read { sector, len: LEN }, LONG).unwrap(), 0);
            let mut bytes = block(0);
            self.peek(self.data(0, 0), &mut bytes).unwrap();
            assert!(bytes == block(value), "block {n}");
        }
    }
}

/// Connects to the disk, by NBD or as a guest.
fn load(stage: &Stage, by: By) -> Box<dyn Load> {
    match by {
        By::Nbd => {
            let client = Client::connect(&stage.path("host"), "vm1");
            client.socket.set_read_timeout(Some(LONG)).unwrap();
            Box::new(client)
        }
        By::Guest => {
            let slots = BLOCKS as u16;
            let shape = Shape { queues: 1, slots, data: LEN, indirect: true, event_idx: true };
            Box::new(Driver::connect(&stage.path("vhost"), shape).unwrap())
        }
    }
}

/// Stops an agent under load again and again.
fn survives(kind: Kind, by: By, stops: u64, most_s: u64, seed: u64) {
    let stage = Stage::new();
    let (agent, _server) = agent(&stage, kind, by);
    let mut client = load(&stage, by);
    let over = AtomicBool::new(false);
    let last = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut value = 0u8;
            while !over.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                client.round(value);
            }
            value
        });
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..stops {
            thread::sleep(Duration::from_millis(random.u64(..400)));
            if load.is_finished() {
                break;
            }
            stop(&agent.process);
            thread::sleep(Duration::from_millis(random.u64(1100..=1000 * most_s.max(2))));
            agent.process.signal(Signal::CONT);
        }
        over.store(true, Ordering::Relaxed);
        let log = || agent.process.log();
        load.join().unwrap_or_else(|_| panic!("{kind:?}, {by:?}, seed {seed}: {}", log()))
    });
    client.is_whole(last);
    let log = agent.process.log();
    assert!(!log.contains("lost the NBD server"), "{kind:?}, {by:?}, seed {seed}: {log}");
    drop(client);
    agent.stop();
}

#[test]
fn an_agent_that_was_stopped_fails_no_io_and_loses_no_flush() {
    let (stops, most_s) = (setting("PARDA_STOPS", 3), setting("PARDA_STOP_MOST", 2));
    let seed = setting("PARDA_SEED", fastrand::u64(..1 << 32));
    // Several agents at once: what takes long is that nothing runs.
    let agents = stops.div_ceil(10);
    thread::scope(|scope| {
        for (kind, by) in [
            (Kind::File, By::Nbd),
            (Kind::File, By::Guest),
            (Kind::Nbd, By::Nbd),
            (Kind::Nbd, By::Guest),
            (Kind::NbdTls, By::Nbd),
        ] {
            for n in 0..agents {
                let stops = stops.div_ceil(agents);
                scope.spawn(move || survives(kind, by, stops, most_s, seed + n));
            }
        }
    });
}
