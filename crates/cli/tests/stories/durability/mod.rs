//! Sudden ends at random points: agent, backend or client killed under writes, trims and zeroes
//! that overlap, on several connections. What was promised as durable is there afterwards, what
//! was never written is not, and nothing changes once it was read.
//!
//! `PARDA_CRASH_ROUNDS` sets the number of kills in each story (20 unless it is set), and
//! `PARDA_SEED` where their random choices begin.

mod history;
mod writers;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use parda_disk::Op;

use self::history::{BLOCK, History};
use self::writers::{lock, read_all, write};
use crate::array::{Array, Delays};
use crate::clients::qemu_nbd;
use crate::stage::{Agent, Stage, config};
use parda_testkit::Client;

const OFF: &str = "mode = \"off\"";
const BLOCKS: usize = 256;
const CONNECTIONS: u64 = 3;

/// So many promises at least are made in each round, or waited for so long.
const PROMISES: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(10);

/// How many kills a story has.
fn rounds() -> u64 {
    number("PARDA_CRASH_ROUNDS").unwrap_or(20)
}

/// Where the random choices begin; new on every run unless it is given.
fn seed(story: &str) -> u64 {
    let seed = number("PARDA_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    eprintln!("{story}: PARDA_SEED={seed}");
    seed
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a whole number")))
}

/// Lets clients write, and does something to them after a random time below a fifth of a second.
fn disturb<T>(
    history: &Mutex<History>,
    socket: &Path,
    random: &mut fastrand::Rng,
    rude: bool,
    what: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let seeds: Vec<u64> = (0..CONNECTIONS).map(|_| random.u64(..)).collect();
    let after = Duration::from_micros(random.u64(20_000..200_000));
    let before = lock(history).promises;
    scope(|scope| {
        for seed in seeds {
            let stop = &stop;
            scope.spawn(move || write(history, socket, seed, stop, rude));
        }
        sleep(after);
        // A machine with much else to do may not get to a promise in this time.
        let waited = Instant::now();
        while lock(history).promises < before + PROMISES && waited.elapsed() < PATIENCE {
            sleep(Duration::from_millis(1));
        }
        let outcome = what();
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Reads all of the disk, twice with a flush between, and holds it against the history.
fn verify(history: &Mutex<History>, socket: &Path, round: u64) {
    let found = read_all(socket, BLOCKS);
    let mut client = Client::connect(socket, "vm1");
    // The first may report a loss that a connection of before was to be told of.
    let _ = client.call(Op::Flush, &[]);
    client.call(Op::Flush, &[]).unwrap();
    assert!(read_all(socket, BLOCKS) == found, "round {round}: the data changed after it was read");
    let wrong = lock(history).settle(&found);
    assert!(wrong.is_empty(), "round {round}:\n{}", wrong.join("\n"));
}

/// An agent on a file, killed over and over.
fn agent_is_killed(story: &str, extra: &str) {
    let (stage, mut random) = (Stage::new(), fastrand::Rng::with_seed(seed(story)));
    stage.sparse("data", (BLOCKS * BLOCK) as u64);
    let text = config("host", OFF, &[("vm1", "data")]) + extra;
    let mut agent = stage.agent("host", &text);
    let (socket, history) = (stage.path("host"), Mutex::new(History::new(BLOCKS)));
    for round in 0..rounds() {
        disturb(&history, &socket, &mut random, false, || agent.process.kill());
        agent = stage.restart(&[], "host");
        verify(&history, &socket, round);
    }
    finish(agent, &history);
}

fn finish(agent: Agent, history: &Mutex<History>) {
    let promises = lock(history).promises;
    assert!(promises > 2 * rounds(), "only {promises} promises were made");
    agent.stop();
}

#[test]
fn an_agent_killed_on_a_file_keeps_its_promises() {
    agent_is_killed("agent on a file", "");
}

#[test]
fn an_agent_killed_on_the_page_cache_keeps_its_promises() {
    agent_is_killed("agent on the page cache", "direct = \"off\"\n");
}

#[test]
fn clients_that_vanish_leave_what_they_were_promised() {
    let (stage, mut random) = (Stage::new(), fastrand::Rng::with_seed(seed("clients")));
    stage.sparse("data", (BLOCKS * BLOCK) as u64);
    let agent = stage.agent("host", &config("host", OFF, &[("vm1", "data")]));
    let (socket, history) = (stage.path("host"), Mutex::new(History::new(BLOCKS)));
    for round in 0..rounds() {
        disturb(&history, &socket, &mut random, true, || {});
        // What the clients had under way may still be done: wait until the volume has none of it.
        crate::stage::until("the volume is at rest", || {
            let volume = agent.volume();
            volume.connections == 0 && volume.held == 0
        });
        verify(&history, &socket, round);
    }
    finish(agent, &history);
}

#[test]
fn a_backend_killed_under_an_agent_keeps_its_promises() {
    let (stage, mut random) = (Stage::new(), fastrand::Rng::with_seed(seed("backend")));
    stage.sparse("data", (BLOCKS * BLOCK) as u64);
    let mut qemu = qemu_nbd(&stage);
    let agent = stage.agent("host", &config("host", OFF, &[("vm1", "nbd+unix:///?socket=qemu")]));
    let (socket, history) = (stage.path("host"), Mutex::new(History::new(BLOCKS)));
    for round in 0..rounds() {
        qemu = disturb(&history, &socket, &mut random, false, || {
            qemu.kill();
            qemu_nbd(&stage)
        });
        verify(&history, &socket, round);
    }
    finish(agent, &history);
}

#[test]
fn an_array_that_loses_power_keeps_the_promises_of_the_agent() {
    let (stage, mut random) = (Stage::new(), fastrand::Rng::with_seed(seed("power")));
    let delays = Delays { io: Duration::ZERO, flush: Duration::from_millis(2) };
    let array = Array::start(&stage.path("array"), BLOCKS as u64, delays);
    let text = config("host", OFF, &[("vm1", "nbd+unix:///?socket=array")]);
    let mut agent = stage.agent("host", &text);
    let (socket, history) = (stage.path("host"), Mutex::new(History::new(BLOCKS)));
    for round in 0..rounds() {
        let both = round % 2 == 0;
        if both {
            disturb(&history, &socket, &mut random, false, || {
                // In this order: what is on its way to the array must not become durable by chance.
                array.cut_power();
                agent.process.kill();
            });
            agent = stage.restart(&[], "host");
        } else {
            disturb(&history, &socket, &mut random, false, || array.cut_power());
        }
        verify(&history, &socket, round);
    }
    finish(agent, &history);
}
