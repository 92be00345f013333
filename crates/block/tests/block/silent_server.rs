//! An NBD server behind a disk that is there and does not answer: requests end in a bounded time,
//! nothing is done twice in the wrong order, and nothing is left behind.
use crate::common;

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::hostile::{Hostile, Peer, data_chunk, export};
use common::{Client, disk, read, spawn, write};
use parda_block::{BackendConfig, Handle, NbdOptions};
use parda_control::Measurement;
use parda_disk::{Errno, Op};
use parda_nbd::wire::command;

const SIZE: u64 = 1 << 20;
const LEN: u32 = 4096;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn near(dir: &Path, hostile: &Hostile, options: NbdOptions) -> (Handle, Client) {
    let backend = BackendConfig::Nbd { uri: hostile.uri(), options };
    let volume = spawn(vec![disk("vm1", backend, &dir.join("near"))]);
    (volume, Client::connect(&dir.join("near"), "vm1"))
}

/// Answers all requests as a server of zeroes does.
fn good(peer: &mut Peer) -> Option<()> {
    loop {
        let asked = peer.next()?;
        let data = vec![0; asked.header.extent.len as usize];
        peer.answer(&asked.header, &data)?;
    }
}

/// Takes requests and never says a word, not even when the client has closed.
fn silent(peer: &mut Peer) -> Option<()> {
    while peer.next().is_some() {}
    std::thread::sleep(Duration::from_secs(600));
    None
}

/// Waits until the volume has an IO at its backend.
fn until_outstanding(volume: &Handle) {
    let started = Instant::now();
    while volume.stats().unwrap().outstanding == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "no IO is outstanding");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_silent_server_costs_its_requests_an_error_in_time_and_is_used_when_it_speaks() {
    let dir = tempfile::tempdir().unwrap();
    let speaks = Arc::new(AtomicBool::new(false));
    let speaking = Arc::clone(&speaks);
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), move |peer| {
        if speaking.load(Ordering::SeqCst) { good(peer) } else { silent(peer) }
    });
    let options = NbdOptions { connections: 1, hold: millis(400), timeout: millis(400) };
    let (volume, mut client) = near(dir.path(), &hostile, options);
    let started = Instant::now();
    assert_eq!(client.call(read(0, LEN), &[]), Err(Errno::Io));
    let took = started.elapsed();
    assert!(took >= millis(700), "it had {took:?} where it may have 800 ms");
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(volume.stats().unwrap().outstanding, 0, "the window's slot came back");
    speaks.store(true, Ordering::SeqCst);
    let started = Instant::now();
    while client.call(write(0, LEN), &[1; LEN as usize]).is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "it is never used again");
    }
    // Nothing was ever acknowledged before, so nothing can have been lost.
    flushes(&mut client, &hostile);
}

/// What was sent first was done before it was sent again. It may be sent more than once: a peer that gets no processor for as long
/// as it has for an answer is silent, too.
pub(crate) fn old_first(log: &[&str]) {
    assert!(log.len() > 1 && log[0] == "old", "{log:?}");
    assert!(log[1..].iter().all(|event| *event == "again"), "{log:?}");
}

/// What was written is there, and a flush says so. It may say else only if the connection was lost meanwhile, on a busy machine
/// where a peer is silent for as long as it has for an answer.
pub(crate) fn flushes(client: &mut Client, server: &Hostile) {
    let before = server.connections();
    let outcome = client.call(Op::Flush, &[]);
    let started = Instant::now();
    while outcome.is_err() && server.connections() == before {
        assert!(started.elapsed() < Duration::from_secs(60), "no connection was lost");
        std::thread::sleep(millis(5));
    }
}

#[test]
fn what_a_silent_server_was_sent_is_not_sent_again_before_it_let_go_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&log);
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), move |peer| {
        if peer.number > 0 {
            let asked = peer.next()?;
            events.lock().unwrap().push("again");
            peer.answer(&asked.header, &[])?;
            return good(peer);
        }
        // The first connection's write is slow, and is done before the server closes.
        let asked = peer.next()?;
        assert_eq!(asked.header.command, command::WRITE);
        let mut rest = Vec::new();
        peer.stream.read_to_end(&mut rest).ok()?;
        std::thread::sleep(millis(300));
        events.lock().unwrap().push("old");
        None
    });
    let options =
        NbdOptions { connections: 1, hold: Duration::from_secs(20), timeout: millis(200) };
    let (volume, mut client) = near(dir.path(), &hostile, options);
    assert_eq!(client.call(write(0, LEN), &[1; LEN as usize]), Ok(vec![]));
    old_first(&log.lock().unwrap());
    // It took 500 ms at least, none of which is the array's.
    let latency = volume.measure(Measurement::default()).unwrap().interval.writes.mean();
    assert!(latency.is_none_or(|secs| secs < 0.45), "{latency:?}");
}

#[test]
fn a_server_that_takes_its_time_is_not_silent() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), |peer| {
        loop {
            let asked = peer.next()?;
            std::thread::sleep(millis(250));
            peer.answer(&asked.header, &[0; LEN as usize])?;
        }
    });
    let options = NbdOptions { connections: 1, hold: millis(100), timeout: millis(20_000) };
    let (_volume, mut client) = near(dir.path(), &hostile, options);
    for _ in 0..3 {
        assert_eq!(client.call(read(0, LEN), &[]), Ok(vec![0; LEN as usize]));
    }
    assert_eq!(hostile.connections(), 1);
}

#[test]
fn a_reply_of_a_byte_now_and_then_is_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), |peer| {
        let asked = peer.next()?;
        let reply = data_chunk(1, asked.header.cookie, 0, &[7; LEN as usize]);
        for byte in reply {
            peer.send(&[byte])?;
            std::thread::sleep(millis(20));
        }
        None
    });
    let options = NbdOptions { connections: 1, hold: millis(300), timeout: millis(300) };
    let (volume, mut client) = near(dir.path(), &hostile, options);
    let started = Instant::now();
    assert_eq!(client.call(read(0, LEN), &[]), Err(Errno::Io));
    // All bytes would take 80 s and more.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!(volume.stats().unwrap().outstanding, 0);
}

#[test]
fn a_volume_ends_soon_whose_server_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), silent);
    let (volume, mut client) = near(dir.path(), &hostile, NbdOptions::default());
    client.send(read(0, LEN), &[]);
    until_outstanding(&volume);
    let started = Instant::now();
    let drained = volume.shutdown(Duration::from_secs(30)).unwrap();
    assert_eq!(drained.unanswered, 1);
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
    // Not answered with an error: whoever connects to the next agent sends it again.
    assert_eq!(client.receive(), None);
}

#[test]
fn a_volume_that_ends_answers_what_a_slow_server_still_does() {
    let dir = tempfile::tempdir().unwrap();
    let (send_go, go) = std::sync::mpsc::channel();
    let go = Mutex::new(go);
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), move |peer| {
        let asked = peer.next()?;
        // So far nobody has ended the volume.
        go.lock().unwrap().recv().ok()?;
        std::thread::sleep(millis(500));
        peer.answer(&asked.header, &[5; LEN as usize])?;
        good(peer)
    });
    let (volume, mut client) = near(dir.path(), &hostile, NbdOptions::default());
    client.send(read(0, LEN), &[]);
    until_outstanding(&volume);
    send_go.send(()).unwrap();
    assert_eq!(volume.shutdown(Duration::from_secs(30)).unwrap().unanswered, 0);
    assert_eq!(client.receive().unwrap().1, Ok(vec![5; LEN as usize]));
}

/// Rounds of the test: `few`, or `many` with `PARDA_LONG=1`.
fn rounds(few: usize, many: usize) -> usize {
    if std::env::var_os("PARDA_LONG").is_some() { many } else { few }
}

#[test]
fn connections_that_break_again_and_again_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), move |peer| {
        let first = peer.next()?;
        peer.answer(&first.header, &[3; LEN as usize])?;
        count.fetch_add(1, Ordering::SeqCst);
        let second = peer.next()?;
        // In the middle of a reply.
        let reply = data_chunk(1, second.header.cookie, second.header.extent.offset, &[3; 4096]);
        peer.send(&reply[..2000 + peer.number % 48])
    });
    let (volume, mut client) = near(dir.path(), &hostile, NbdOptions::default());
    assert_eq!(client.call(read(0, LEN), &[]), Ok(vec![3; LEN as usize]));
    let before = descriptors();
    let rounds = rounds(40, 1_000);
    for _ in 0..rounds {
        assert_eq!(client.call(read(0, LEN), &[]), Ok(vec![3; LEN as usize]));
    }
    assert!(hostile.connections() >= rounds, "{} connections", hostile.connections());
    // The server's side is in this process as well, and other tests are.
    let started = Instant::now();
    while descriptors() >= before + 30 {
        let now = descriptors();
        assert!(started.elapsed() < Duration::from_secs(60), "{before} descriptors became {now}");
        std::thread::sleep(millis(20));
    }
    assert_eq!(volume.stats().unwrap().outstanding, 0);
}

#[test]
fn answers_in_any_order_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(&dir.path().join("far"), export(SIZE), |peer| {
        loop {
            let mut asked: Vec<_> = (0..16).map_while(|_| peer.next()).collect();
            asked.reverse();
            for asked in asked {
                let byte = (asked.header.extent.offset / u64::from(LEN)) as u8;
                peer.answer(&asked.header, &[byte; LEN as usize])?;
            }
        }
    });
    let (_volume, mut client) = near(dir.path(), &hostile, NbdOptions::default());
    let cookies: Vec<_> =
        (0..16).map(|i| client.send(read(i * u64::from(LEN), LEN), &[]).unwrap()).collect();
    for _ in 0..16 {
        let (cookie, outcome) = client.receive().unwrap();
        let i = cookies.iter().position(|c| *c == cookie).unwrap();
        assert_eq!(outcome, Ok(vec![i as u8; LEN as usize]));
    }
}

#[test]
fn a_server_that_comes_back_larger_is_used_and_a_smaller_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("far");
    let one_answer = |peer: &mut Peer| {
        let asked = peer.next()?;
        peer.answer(&asked.header, &[1; LEN as usize])
    };
    let first = Hostile::start(&path, export(SIZE), one_answer);
    let options = NbdOptions { connections: 1, hold: millis(700), timeout: millis(10_000) };
    let (_volume, mut client) = near(dir.path(), &first, options);
    let smaller = Hostile::start(&path, export(SIZE / 2), good);
    assert_eq!(client.call(read(0, LEN), &[]), Ok(vec![1; LEN as usize]));
    assert_eq!(client.call(read(0, LEN), &[]), Err(Errno::Io));
    let started = Instant::now();
    while smaller.connections() == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the smaller one is not looked at");
        std::thread::sleep(millis(5));
    }
    let _larger = Hostile::start(&path, export(2 * SIZE), good);
    let started = Instant::now();
    while client.call(read(SIZE - u64::from(LEN), LEN), &[]).is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "the larger one is never used");
    }
}
