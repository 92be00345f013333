//! A FLUSH after a lost NBD server fails exactly if acknowledged writes were not flushed, and what
//! it covers is there: against a server that forgets all that is in its volatile cache.
use crate::common;

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::guests::{OK, SHAPE, guest_disk};
use common::hostile::{Hostile, Peer, export};
use common::{Client, at, disk, spawn, write};
use parda_bench::driver::{Command, Driver};
use parda_block::{BackendConfig, Handle, NbdOptions, OpenDisk};
use parda_disk::{Errno, Op};
use parda_nbd::wire::{command, command_flag};

const BLOCK: u32 = 512;
const BLOCKS: u64 = 64;
const LONG: Duration = Duration::from_secs(60);

/// A server whose memory is lost when it dies. It is there again at once.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Cells>>);

#[derive(Default)]
struct Cells {
    medium: BTreeMap<u64, u8>,
    cache: BTreeMap<u64, u8>,
    /// The open connections, and how many requests each has had.
    peers: BTreeMap<usize, (UnixStream, usize)>,
    flushes: usize,
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.0.lock().unwrap()
    }

    fn behave(&self, peer: &mut Peer) -> Option<()> {
        let stream = peer.stream.try_clone().unwrap();
        self.lock().peers.insert(peer.number, (stream, 0));
        loop {
            let asked = peer.next()?;
            let header = asked.header;
            let mut cells = self.lock();
            // Whoever was cut off has died with all that was on its way.
            cells.peers.get_mut(&peer.number)?.1 += 1;
            let block = header.extent.offset / u64::from(BLOCK);
            match header.command {
                command::WRITE | command::TRIM => {
                    let byte = asked.payload.first().copied().unwrap_or(0);
                    cells.cache.insert(block, byte);
                    if header.flags & command_flag::FUA != 0 {
                        cells.cache.remove(&block);
                        cells.medium.insert(block, byte);
                    }
                }
                command::FLUSH => {
                    cells.flushes += 1;
                    let Cells { medium, cache, .. } = &mut *cells;
                    medium.append(cache);
                }
                other => panic!("command {other}"),
            }
            peer.answer(&header, &[])?;
        }
    }

    /// Forgets its cache and loses all connections.
    fn die(&self) {
        let mut cells = self.lock();
        cells.cache.clear();
        for (stream, _) in std::mem::take(&mut cells.peers).into_values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Loses one connection, and nothing else.
    fn lose_one(&self, which: usize) {
        let mut cells = self.lock();
        let key = cells.peers.keys().nth(which % cells.peers.len().max(1)).copied();
        if let Some((stream, _)) = key.and_then(|key| cells.peers.remove(&key)) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

struct Chain {
    server: Server,
    client: Client,
    volume: Handle,
    backend: BackendConfig,
    dir: tempfile::TempDir,
}

fn chain(connections: usize) -> Chain {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::default();
    let serving = server.clone();
    let far = export(BLOCKS * u64::from(BLOCK));
    let hostile = Hostile::start(&dir.path().join("far"), far, move |peer| serving.behave(peer));
    let options = NbdOptions { connections, hold: Duration::from_secs(60), ..Default::default() };
    let backend = BackendConfig::Nbd { uri: hostile.uri(), options };
    let volume = spawn(vec![disk("vm1", backend.clone(), &dir.path().join("near"))]);
    let client = Client::connect(&dir.path().join("near"), "vm1");
    let chain = Chain { server, client, volume, backend, dir };
    chain.all_connected(connections);
    chain
}

impl Chain {
    fn all_connected(&self, connections: usize) {
        let started = std::time::Instant::now();
        while self.server.lock().peers.len() < connections {
            assert!(started.elapsed() < Duration::from_secs(60), "not all connections are open");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes the disk and adds it again; its client connects anew.
    fn reopen(&mut self) {
        let id = self.volume.stats().unwrap().disks[0];
        assert_eq!(self.volume.remove_disk(id, LONG), Ok(true));
        let near = self.dir.path().join("near");
        let opened = OpenDisk::open(disk("vm1", self.backend.clone(), &near)).unwrap();
        self.volume.add_disk(opened).unwrap();
        self.client = Client::connect(&near, "vm1");
    }

    /// Some writes at once, and their blocks.
    fn write_some(&mut self, random: &mut fastrand::Rng, byte: u8) -> Vec<u64> {
        let first = random.u64(..BLOCKS - 8);
        let blocks: Vec<u64> = (first..first + random.u64(1..8)).collect();
        for block in &blocks {
            self.client.send(write(block * u64::from(BLOCK), BLOCK), &[byte; BLOCK as usize]);
        }
        blocks.iter().for_each(|_| assert_eq!(self.client.receive().unwrap().1, Ok(vec![])));
        blocks
    }
}

fn random_rounds(connections: usize, seed: u64, rounds: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut chain = chain(connections);
    // What the client was told of each block and may count on after a flush that succeeds.
    let mut promised = BTreeMap::new();
    let mut unflushed = BTreeMap::new();
    // What a flush must say: nothing, an error because of lost writes, or either.
    let (mut must_fail, mut may_fail) = (false, false);
    for round in 0..rounds {
        let byte = (round % 250) as u8 + 1;
        match random.u32(..12) {
            0..4 => {
                let blocks = chain.write_some(&mut random, byte);
                unflushed.extend(blocks.into_iter().map(|block| (block, byte)));
            }
            4 => {
                let block = random.u64(..BLOCKS);
                let op = Op::Write { extent: at(block * u64::from(BLOCK), BLOCK), fua: true };
                assert_eq!(chain.client.call(op, &[byte; BLOCK as usize]), Ok(vec![]));
                promised.insert(block, byte);
                unflushed.remove(&block);
            }
            5 => {
                let block = random.u64(..BLOCKS);
                let op = Op::Trim { extent: at(block * u64::from(BLOCK), BLOCK), fua: false };
                assert_eq!(chain.client.call(op, &[]), Ok(vec![]));
                unflushed.insert(block, 0);
            }
            6..9 => {
                let outcome = chain.client.call(Op::Flush, &[]);
                let what = format!("seed {seed}, round {round}, {connections} connections");
                match outcome {
                    Ok(_) => assert!(!must_fail, "{what}: a loss was not confessed"),
                    Err(errno) => {
                        assert_eq!(errno, Errno::Io);
                        assert!(must_fail || may_fail, "{what}: nothing was unflushed");
                        // What it was about is not promised.
                        promised.retain(|block, _| !unflushed.contains_key(block));
                        unflushed.clear();
                    }
                }
                (must_fail, may_fail) = (false, false);
                promised.append(&mut unflushed);
                let medium = chain.server.lock().medium.clone();
                for (block, byte) in &promised {
                    assert_eq!(medium.get(block), Some(byte), "{what}: block {block}");
                }
            }
            9 | 10 => {
                must_fail |= !unflushed.is_empty();
                chain.server.die();
                chain.all_connected(connections);
                let lost = std::mem::take(&mut unflushed);
                promised.retain(|block, _| !lost.contains_key(block));
            }
            _ => {
                // The server lives, but whoever loses a connection cannot know that.
                may_fail |= !unflushed.is_empty();
                chain.server.lose_one(random.usize(..8));
                chain.all_connected(connections);
            }
        }
    }
}

/// Seeds of the test: a few, or many with `PARDA_LONG=1`.
fn seeds() -> std::ops::Range<u64> {
    if std::env::var_os("PARDA_LONG").is_some() { 0..100 } else { 0..2 }
}

#[test]
fn a_flush_fails_exactly_if_acknowledged_writes_were_lost() {
    for seed in seeds() {
        random_rounds(1, seed, 60);
    }
}

#[test]
fn several_connections_change_nothing_about_that() {
    for seed in seeds() {
        random_rounds(3, 100 + seed, 60);
    }
}

#[test]
fn a_loss_that_nobody_was_told_of_is_told_by_the_disk_that_is_opened_next() {
    let mut chain = chain(1);
    chain.write_some(&mut fastrand::Rng::with_seed(1), 1);
    chain.server.die();
    chain.all_connected(1);
    chain.reopen();
    chain.reopen();
    assert_eq!(chain.client.call(Op::Flush, &[]), Err(Errno::Io));
    assert_eq!(chain.client.call(Op::Flush, &[]), Ok(vec![]));
    chain.reopen();
    assert_eq!(chain.client.call(Op::Flush, &[]), Ok(vec![]), "it has been told");
}

#[test]
fn a_server_is_flushed_before_its_disk_is_closed() {
    let mut chain = chain(3);
    let blocks = chain.write_some(&mut fastrand::Rng::with_seed(1), 1);
    chain.reopen();
    chain.server.die();
    chain.all_connected(3);
    assert_eq!(chain.client.call(Op::Flush, &[]), Ok(vec![]), "nothing was lost");
    let written = |chain: &Chain, blocks: &[u64]| {
        let medium = &chain.server.lock().medium;
        assert!(blocks.iter().all(|block| medium.contains_key(block)));
    };
    written(&chain, &blocks);
    let blocks = chain.write_some(&mut fastrand::Rng::with_seed(2), 2);
    drop(std::mem::replace(
        &mut chain.client,
        Client::connect(&chain.dir.path().join("near"), "vm1"),
    ));
    chain.volume.stop(LONG).unwrap();
    written(&chain, &blocks);
}

#[test]
fn requests_are_spread_and_a_flush_goes_where_something_was_written() {
    let mut chain = chain(4);
    for _ in 0..40 {
        for block in 0..8 {
            chain.client.send(write(block * u64::from(BLOCK), BLOCK), &[1; BLOCK as usize]);
        }
        (0..8).for_each(|_| assert_eq!(chain.client.receive().unwrap().1, Ok(vec![])));
    }
    let counts: Vec<usize> = chain.server.lock().peers.values().map(|(_, n)| *n).collect();
    assert!(counts.iter().all(|n| *n > 20), "{counts:?}");
    assert_eq!(chain.client.call(Op::Flush, &[]), Ok(vec![]));
    assert_eq!(chain.server.lock().flushes, 4, "each connection had something to flush");
    assert_eq!(chain.client.call(Op::Flush, &[]), Ok(vec![]));
    assert_eq!(chain.server.lock().flushes, 5, "none had: the server is asked once all the same");
}

#[test]
fn a_write_of_a_guest_that_knows_no_flushes_is_durable_when_it_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::default();
    let serving = server.clone();
    let far = export(BLOCKS * u64::from(BLOCK));
    let hostile = Hostile::start(&dir.path().join("far"), far, move |peer| serving.behave(peer));
    let backend = BackendConfig::Nbd { uri: hostile.uri(), options: NbdOptions::default() };
    let socket = dir.path().join("vhost");
    let volume = spawn(vec![guest_disk("vm1", backend, &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    // One that does know them has to ask.
    for (sector, knows_flushes) in [(0, true), (1, false)] {
        if !knows_flushes {
            driver.forget_flushes().unwrap();
        }
        driver.poke(driver.data(0, 0), &[7; BLOCK as usize]).unwrap();
        let write = Command::Write { sector, len: BLOCK };
        assert_eq!(driver.perform(write, LONG).unwrap(), OK);
        assert_eq!(server.lock().medium.contains_key(&sector), !knows_flushes, "sector {sector}");
    }
    drop(driver);
    volume.shutdown(LONG).unwrap();
}
