//! Sudden ends: nothing that was promised as durable is lost, and an orderly end answers everything.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use parda_disk::{Extent, Op};
use rustix::process::Signal;

use crate::array::{Array, BLOCK, Delays};
use crate::fuse::FuseFile;
use crate::journal::{Journal, Told};
use crate::page_cache::unwritten_pages;
use crate::stage::{PARDA, Stage, config, until, uri};
use parda_testkit::{Client, write};

const OFF: &str = "mode = \"off\"";
const BLOCKS: usize = 256;

/// Durable takes longer than volatile: whoever acknowledges too early is found out.
const DELAYS: Delays = Delays { io: Duration::ZERO, flush: Duration::from_millis(2) };

/// Promises of durability that are made before something happens.
const PROMISES: u64 = 50;

/// Ends the writer however its story ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until more promises are made than these.
fn until_promised(told: &Told, before: u64) {
    until("promises are made", || told.promises() > before);
}

/// Lets the journal write while something happens.
fn write_while(journal: &mut Journal, socket: &Path, happens: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let told = Arc::clone(&journal.told);
    let before = told.promises();
    scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| journal.write(socket, "vm1", &stop));
        until_promised(&told, before + PROMISES);
        happens();
    });
}

/// The kernel keeps every write that it has completed, flushed or not, so this does not test flushes: the power cuts below do.
#[test]
fn a_file_keeps_its_promises_when_its_agent_is_killed() {
    let stage = Stage::new();
    stage.sparse("data", (BLOCKS * BLOCK as usize) as u64);
    let text = config("host", OFF, &[("vm1", "data")]);
    let mut agent = stage.agent("host", &text);
    let socket = stage.path("host");
    let mut journal = Journal::new(BLOCKS);
    for _ in 0..3 {
        write_while(&mut journal, &socket, || agent.process.kill());
        agent = stage.restart(&[], "host");
        journal.verify(&socket, "vm1");
    }
}

#[test]
fn an_agent_waits_for_the_end_of_one_that_was_killed_while_linux_has_its_io() {
    let stage = Stage::new();
    let file = FuseFile::new(&stage, "img", &["--filter=delay", "memory", "16M", "wdelay=600"]);
    let text = config("host", OFF, &[("vm1", "img")]) + "direct = \"off\"\n";
    let mut killed = stage.agent("host", &text);
    let mut client = Client::connect(&stage.path("host"), "vm1");
    client.send(write(0, 4096), &[1; 4096]).unwrap();
    until("the write is under way", || killed.volume().outstanding > 0.0);
    killed.process.signal(Signal::KILL);
    until("nobody answers any more", || killed.threads(&["status"]) == 0);
    let next = stage.start("next", &[PARDA, "serve", "-c", "host.toml"]);
    until("it waits, and says so", || next.log().contains("waits up to 60s for its end"));
    assert!(killed.process.ended().is_none(), "it proves nothing: the killed agent is gone");
    assert!(!next.log().contains("agent_started"));
    drop(file);
    until("it has started", || next.log().contains("agent_started"));
    // A process closes its descriptors, by which the next one knows, before others can wait for its end.
    until("the killed agent is gone", || killed.process.ended().is_some());
}

#[test]
fn agent_and_array_that_die_together_lose_nothing_durable() {
    let stage = Stage::new();
    let array = Array::start(&stage.path("array"), BLOCKS as u64, DELAYS);
    let text = config("host", OFF, &[("vm1", "nbd+unix:///?socket=array")]);
    let mut agent = stage.agent("host", &text);
    let socket = stage.path("host");
    let mut journal = Journal::new(BLOCKS);
    for _ in 0..3 {
        write_while(&mut journal, &socket, || {
            // In this order: what is on its way to the array must not become durable by chance.
            array.cut_power();
            agent.process.kill();
        });
        agent = stage.restart(&[], "host");
        journal.verify(&socket, "vm1");
    }
}

#[test]
fn an_array_that_loses_power_under_a_living_agent_loses_nothing_durable() {
    let stage = Stage::new();
    let array = Array::start(&stage.path("array"), BLOCKS as u64, DELAYS);
    let text = config("host", OFF, &[("vm1", "nbd+unix:///?socket=array")]);
    let agent = stage.agent("host", &text);
    let socket = stage.path("host");
    let mut journal = Journal::new(BLOCKS);
    let told = Arc::clone(&journal.told);
    write_while(&mut journal, &socket, || {
        let mut cuts = 0;
        until("the loss is confessed", || {
            let before = told.promises();
            array.cut_power();
            cuts += 1;
            until_promised(&told, before + PROMISES);
            cuts >= 6 && told.failed_flushes() > 0
        });
    });
    array.cut_power();
    journal.verify(&socket, "vm1");
    agent.says("the NBD server is back");
    agent.stop();
}

#[test]
fn flush_and_fua_leave_nothing_in_the_page_cache() {
    let stage = Stage::new();
    stage.sparse("data", 4 << 20);
    let text = config("host", OFF, &[("vm1", "data")]) + "direct = \"off\"\n";
    let _agent = stage.agent("host", &text);
    let data = stage.path("data");
    let mut client = Client::connect(&stage.path("host"), "vm1");
    let payload = vec![5; 64 << 10];
    let extent = Extent { offset: 1 << 20, len: 64 << 10 };
    for (what, sync) in [
        ("a flush", Op::Flush),
        ("a write with FUA", Op::Write { extent, fua: true }),
        ("a zeroing with FUA", Op::WriteZeroes { extent, fua: true, no_hole: true, fast: false }),
    ] {
        // The kernel may happen to write it just then, on its own.
        until("a write stays in memory (is this a tmpfs? set TMPDIR)", || {
            client.call(write(extent.offset, 64 << 10), &payload).unwrap();
            unwritten_pages(&data) > 0
        });
        let payload = if matches!(sync, Op::Write { .. }) { &payload[..] } else { &[] };
        client.call(sync, payload).unwrap();
        assert_eq!(unwritten_pages(&data), 0, "after {what}");
    }
}

#[test]
fn an_orderly_end_answers_all_that_was_received() {
    let stage = Stage::new();
    let slow = Delays { io: Duration::from_millis(20), flush: Duration::from_millis(20) };
    let array = Array::start(&stage.path("array"), BLOCKS as u64, slow);
    let control = "mode = \"static\"\nwindow_max = 1";
    let text = config("host", control, &[("vm1", "nbd+unix:///?socket=array")]);
    let mut agent = stage.agent("host", &text);
    let mut client = Client::connect(&stage.path("host"), "vm1");
    const REQUESTS: u64 = 32;
    array.halt(true);
    for block in 0..REQUESTS {
        client.send(write(block * u64::from(BLOCK), BLOCK), &[9; BLOCK as usize]).unwrap();
    }
    until("the agent has received them all", || {
        // One is at the array.
        agent.volume().held + 1 == REQUESTS
    });
    agent.process.signal(Signal::TERM);
    until("the volume is being stopped", || agent.threads(&["stop"]) > 0);
    array.halt(false);
    for _ in 0..REQUESTS {
        let (_, outcome) = client.receive().expect("closed with requests unanswered");
        outcome.unwrap();
    }
    assert!(client.receive().is_none(), "then the connection is closed");
    assert_eq!(agent.process.wait().code(), Some(0));
    for socket in ["host", "host.status"] {
        assert!(!stage.path(socket).exists(), "{socket} is left behind");
    }
}

#[test]
fn an_orderly_end_comes_soon_under_a_load_that_does_not_end() {
    let stage = Stage::new();
    stage.sparse("data", 32 << 20);
    let agent = stage.agent("host", &config("host", "", &[("vm1", "data")]));
    let options = ["--rw=randrw", "--bs=4k", "--size=32m", "--iodepth=32", "--numjobs=2"];
    let _load = stage.load("fio", &uri("host", "vm1"), &options);
    until("the load is there", || agent.volume().disks[0].reads.ios > 100);
    agent.stop();
    assert!(!stage.path("host").exists() && !stage.path("host.status").exists());
}
