//! A volume in front of a simulated array whose faults are drawn from one seed: replies in pieces and out of order, short reads,
//! errors before and after the deed, silence, shutdowns, lost connections, power cuts. Several clients write at once, and each knows
//! what it may read: what was acknowledged, as long as the power stays; after that, what a flush covered, or something newer.
//!
//! `PARDA_SEED` repeats a run, as far as the scheduling of threads does.
use crate::common;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use common::hostile::{Asked, Hostile, Peer, data_chunk, error_chunk, export, hole_chunk, simple};
use common::{Client, at, disk, read, spawn};
use parda_block::{BackendConfig, NbdOptions};
use parda_disk::{Errno, Op};
use parda_nbd::wire::{RequestHeader, chunk, command, command_flag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const BLOCK: u32 = 4096;
/// Blocks that one client writes.
const BLOCKS: u64 = 24;
const CLIENTS: u64 = 3;
const CONNECTIONS: usize = 3;

/// One of so many requests meets each fault.
struct Odds {
    error: u32,
    short: u32,
    silence: u32,
    shutdown: u32,
    loss: u32,
    power_cut: u32,
}

const FAULTS: Odds =
    Odds { error: 60, short: 40, silence: 900, shutdown: 300, loss: 120, power_cut: 250 };

#[derive(Clone)]
struct Array {
    seed: u64,
    /// `None`: replies in pieces and out of order are all that is unusual.
    odds: Option<&'static Odds>,
    cells: Arc<Mutex<Cells>>,
}

#[derive(Default)]
struct Cells {
    medium: BTreeMap<u64, u8>,
    cache: BTreeMap<u64, u8>,
    connections: BTreeMap<usize, UnixStream>,
    cuts: u64,
    /// Replies with an error, and reads that were answered in part.
    errors: u64,
    /// All faults, and ends of connections.
    troubles: u64,
}

enum Fault {
    ErrorBefore,
    ErrorAfter,
    Short,
    Silence,
    Shutdown,
    LossBefore,
    LossAfter,
    PowerCut,
}

impl Odds {
    fn draw(&self, random: &mut fastrand::Rng) -> Option<Fault> {
        let mut one_of = |n: u32| random.u32(..n) == 0;
        match () {
            () if one_of(2 * self.error) => Some(Fault::ErrorBefore),
            () if one_of(2 * self.error) => Some(Fault::ErrorAfter),
            () if one_of(self.short) => Some(Fault::Short),
            () if one_of(self.silence) => Some(Fault::Silence),
            () if one_of(self.shutdown) => Some(Fault::Shutdown),
            () if one_of(2 * self.loss) => Some(Fault::LossBefore),
            () if one_of(2 * self.loss) => Some(Fault::LossAfter),
            () if one_of(self.power_cut) => Some(Fault::PowerCut),
            () => None,
        }
    }
}

impl Cells {
    fn value(&self, block: u64) -> u8 {
        self.cache.get(&block).or(self.medium.get(&block)).copied().unwrap_or(0)
    }

    fn perform(&mut self, asked: &Asked) {
        let header = &asked.header;
        let block = header.extent.offset / u64::from(BLOCK);
        match header.command {
            command::READ => {}
            command::WRITE | command::WRITE_ZEROES => {
                let byte = asked.payload.first().copied().unwrap_or(0);
                self.cache.insert(block, byte);
                if header.flags & command_flag::FUA != 0 {
                    self.cache.remove(&block);
                    self.medium.insert(block, byte);
                }
            }
            command::FLUSH => self.medium.append(&mut self.cache),
            other => panic!("command {other}"),
        }
    }

    /// Any part of the cache is lost, and so are all connections.
    fn cut_power(&mut self, random: &mut fastrand::Rng) {
        self.cuts += 1;
        let cache = std::mem::take(&mut self.cache);
        self.medium.extend(cache.into_iter().filter(|_| random.bool()));
        for stream in std::mem::take(&mut self.connections).into_values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Array {
    fn new(seed: u64, odds: Option<&'static Odds>) -> Array {
        Array { seed, odds, cells: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap()
    }

    fn behave(&self, peer: &mut Peer) -> Option<()> {
        let mut random =
            fastrand::Rng::with_seed(self.seed.wrapping_add(1000 + peer.number as u64));
        let power = {
            let mut cells = self.lock();
            cells.connections.insert(peer.number, peer.stream.try_clone().unwrap());
            cells.cuts
        };
        let end = self.serve(peer, power, &mut random);
        let mut cells = self.lock();
        cells.troubles += 1;
        // The client sees the end when nobody has the socket any more.
        cells.connections.remove(&peer.number);
        end
    }

    fn serve(&self, peer: &mut Peer, power: u64, random: &mut fastrand::Rng) -> Option<()> {
        loop {
            let mut batch = vec![peer.next()?];
            while batch.len() < 8 && is_readable(&peer.stream) {
                batch.push(peer.next()?);
            }
            random.shuffle(&mut batch);
            for asked in batch {
                let reply = self.reply(peer, power, random, &asked)?;
                send_in_pieces(peer, random, &reply)?;
            }
        }
    }

    /// Performs a request and puts its reply together; `None` ends the connection.
    fn reply(
        &self,
        peer: &mut Peer,
        power: u64,
        random: &mut fastrand::Rng,
        asked: &Asked,
    ) -> Option<Vec<u8>> {
        let fault = self.odds.and_then(|odds| odds.draw(random));
        let mut cells = self.lock();
        if cells.cuts != power {
            return None;
        }
        cells.troubles += u64::from(fault.is_some());
        let header = &asked.header;
        match fault {
            Some(Fault::LossBefore) => return None,
            Some(Fault::LossAfter) => {
                cells.perform(asked);
                return None;
            }
            Some(Fault::PowerCut) => {
                if random.bool() {
                    cells.perform(asked);
                }
                cells.cut_power(random);
                return None;
            }
            Some(fault @ (Fault::Silence | Fault::Shutdown)) => {
                drop(cells);
                if matches!(fault, Fault::Shutdown) {
                    let code = Errno::Shutdown.code();
                    peer.send(&error_chunk(chunk::FLAG_DONE, header.cookie, code))?;
                }
                self.be_silent(peer, power, random, asked);
                return None;
            }
            Some(fault @ (Fault::ErrorBefore | Fault::ErrorAfter)) => {
                cells.errors += 1;
                if matches!(fault, Fault::ErrorAfter) {
                    cells.perform(asked);
                }
                return Some(error_chunk(chunk::FLAG_DONE, header.cookie, Errno::Io.code()));
            }
            Some(Fault::Short) | None => {}
        }
        cells.perform(asked);
        if header.command != command::READ {
            return Some(simple(header.cookie, 0));
        }
        let short = fault.is_some();
        cells.errors += u64::from(short);
        let byte = cells.value(header.extent.offset / u64::from(BLOCK));
        Some(read_reply(random, header, byte, short))
    }

    /// Says nothing until the client has given up, and does then what it was asked for, or does not.
    fn be_silent(&self, peer: &mut Peer, power: u64, random: &mut fastrand::Rng, asked: &Asked) {
        let _ = peer.stream.read_to_end(&mut Vec::new());
        let mut cells = self.lock();
        if cells.cuts == power && random.bool() {
            cells.perform(asked);
        }
    }
}

fn is_readable(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let soon = Timespec { tv_sec: 0, tv_nsec: 200_000 };
    poll(&mut fds, Some(&soon)).is_ok_and(|n| n > 0)
}

/// The data of a block in chunks of any number and order; without the last one of them if it is `short`.
fn read_reply(
    random: &mut fastrand::Rng,
    header: &RequestHeader,
    byte: u8,
    short: bool,
) -> Vec<u8> {
    let mut borders: Vec<u64> = (0..random.usize(..4)).map(|_| 512 * random.u64(1..8)).collect();
    borders.extend([0, u64::from(BLOCK)]);
    borders.sort_unstable();
    borders.dedup();
    let mut parts: Vec<(u64, u64)> = borders.windows(2).map(|w| (w[0], w[1])).collect();
    random.shuffle(&mut parts);
    if short {
        parts.pop();
    }
    let mut reply = Vec::new();
    for (from, to) in parts {
        let offset = header.extent.offset + from;
        let len = (to - from) as usize;
        reply.extend(if byte == 0 && random.bool() {
            hole_chunk(0, header.cookie, offset, len as u32)
        } else {
            data_chunk(0, header.cookie, offset, &vec![byte; len])
        });
    }
    reply.extend(common::hostile::chunk_of(chunk::FLAG_DONE, chunk::NONE, header.cookie, &[]));
    reply
}

fn send_in_pieces(peer: &mut Peer, random: &mut fastrand::Rng, mut bytes: &[u8]) -> Option<()> {
    while random.bool() && bytes.len() > 1 {
        let (piece, rest) = bytes.split_at(random.usize(1..bytes.len()));
        peer.send(piece)?;
        bytes = rest;
        if random.u32(..8) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    peer.send(bytes)
}

/// Contents that a block may have.
#[derive(Default)]
struct Block {
    /// What is durable, unless something newer is.
    durable: u8,
    /// Later writes in their order, and whether each was acknowledged and no flush has failed since.
    later: Vec<(u8, bool)>,
    /// The acknowledged write that was the last, and how often the power had been cut when it was sent.
    last: Option<(u8, u64)>,
    /// The last of the later writes was not answered yet.
    in_flight: bool,
}

impl Block {
    fn may_be(&self, byte: u8, cuts: u64) -> bool {
        match self.last {
            Some((last, before)) if before == cuts => byte == last,
            _ => byte == self.durable || self.later.iter().any(|(later, _)| *later == byte),
        }
    }

    /// The first `n` of the later writes were acknowledged, or failed, before a flush which succeeded.
    fn flushed(&mut self, n: usize) {
        if let Some(i) = self.later[..n].iter().rposition(|(_, acknowledged)| *acknowledged) {
            self.durable = self.later[i].0;
            self.later.drain(..=i);
        }
    }
}

/// A request in flight, with what has to be known of the time when it was sent.
struct Sent {
    op: Op,
    block: u64,
    byte: u8,
    cuts: u64,
    /// Of a flush: how many later writes of each block were answered.
    covers: Vec<usize>,
}

struct Writer {
    client: Client,
    array: Array,
    random: fastrand::Rng,
    first: u64,
    blocks: Vec<Block>,
    next_byte: u8,
    /// Faults that were known when the last flush was sent, and the one before.
    troubles: [u64; 2],
    errors: u64,
    what: String,
}

impl Writer {
    /// Some requests at once, each for another block, and perhaps a flush in their midst.
    fn batch(&mut self) {
        let mut blocks: Vec<u64> = (0..BLOCKS).collect();
        self.random.shuffle(&mut blocks);
        blocks.truncate(self.random.usize(1..12));
        let mut in_flight = BTreeMap::new();
        let flush_at = self.random.usize(..24);
        for (i, block) in blocks.into_iter().enumerate() {
            if i == flush_at {
                let cookie = self.send(Op::Flush, 0, 0);
                in_flight.insert(cookie.0, cookie.1);
            }
            let extent = at((self.first + block) * u64::from(BLOCK), BLOCK);
            let fua = self.random.u32(..6) == 0;
            let op = match self.random.u32(..8) {
                0..4 => Op::Write { extent, fua },
                4 => Op::WriteZeroes { extent, fua, no_hole: true, fast: false },
                _ => read(extent.offset, BLOCK),
            };
            self.next_byte = self.next_byte % 250 + 1;
            let byte = if matches!(op, Op::Write { .. }) { self.next_byte } else { 0 };
            let (cookie, sent) = self.send(op, block, byte);
            in_flight.insert(cookie, sent);
        }
        while !in_flight.is_empty() {
            let (cookie, outcome) = self.client.receive().expect("the volume is gone");
            let sent = in_flight.remove(&cookie.0).unwrap();
            self.take(sent, outcome);
        }
    }

    fn send(&mut self, op: Op, block: u64, byte: u8) -> (u64, Sent) {
        let (cuts, troubles) = {
            let cells = self.array.lock();
            (cells.cuts, cells.troubles)
        };
        let mut covers = Vec::new();
        match op {
            Op::Flush => {
                // What is answered while the flush is in flight may have been written after it.
                let answered = |block: &Block| block.later.len() - usize::from(block.in_flight);
                covers = self.blocks.iter().map(answered).collect();
                self.troubles = [troubles, self.troubles[0]];
            }
            Op::Read(_) => {}
            // Not acknowledged yet.
            _ => {
                let block = &mut self.blocks[block as usize];
                block.later.push((byte, false));
                (block.last, block.in_flight) = (None, true);
            }
        }
        let len = if matches!(op, Op::Write { .. }) { BLOCK as usize } else { 0 };
        let cookie = self.client.send(op, &vec![byte; len]).expect("the volume is gone");
        (cookie.0, Sent { op, block, byte, cuts, covers })
    }

    fn take(&mut self, sent: Sent, outcome: common::Answer) {
        let Sent { op, block, byte, cuts, covers } = sent;
        let what = format!("{}, block {block}, {op:?}", self.what);
        if let Err(errno) = outcome {
            assert_eq!(errno, Errno::Io, "{what}");
        }
        if matches!(op, Op::Write { .. } | Op::WriteZeroes { .. }) {
            self.blocks[block as usize].in_flight = false;
        }
        match (op, outcome) {
            (Op::Flush, Ok(_)) => {
                for (block, n) in self.blocks.iter_mut().zip(covers) {
                    block.flushed(n.min(block.later.len()));
                }
            }
            (Op::Flush, Err(_)) => {
                self.expect_trouble(&what);
                for block in &mut self.blocks {
                    block.later.iter_mut().for_each(|(_, acknowledged)| *acknowledged = false);
                }
            }
            (_, Err(_)) => self.errors += 1,
            (Op::Read(_), Ok(data)) => {
                let byte = data[0];
                assert!(data.iter().all(|b| *b == byte), "{what}: a mixture");
                let now = self.array.lock().cuts;
                let state = &self.blocks[block as usize];
                let Block { durable, later, last, .. } = state;
                assert!(
                    // The power may have been cut since the block was read.
                    state.may_be(byte, now) || state.may_be(byte, cuts),
                    "{what}: {byte} is not {durable}, {later:?} or {last:?} at cut {now}"
                );
            }
            (Op::Write { fua, .. } | Op::WriteZeroes { fua, .. }, Ok(_)) => {
                let state = &mut self.blocks[block as usize];
                // The last of its block, as there is one at a time.
                state.later.last_mut().unwrap().1 = true;
                state.last = Some((byte, cuts));
                if fua {
                    state.flushed(state.later.len());
                }
            }
            other => panic!("{what}: {other:?}"),
        }
    }

    /// A flush fails only if something was wrong since the one before. The volume may know that before the array does.
    fn expect_trouble(&self, what: &str) {
        let started = Instant::now();
        while self.array.lock().troubles <= self.troubles[1] {
            assert!(started.elapsed() < Duration::from_secs(60), "{what}: nothing was wrong");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Writes, reads and flushes of all clients. Returns the array in its last state.
fn run(seed: u64, odds: Option<&'static Odds>, batches: usize) -> Array {
    eprintln!("PARDA_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let array = Array::new(seed, odds);
    let (serving, size) = (array.clone(), CLIENTS * BLOCKS * u64::from(BLOCK));
    let far =
        Hostile::start(&dir.path().join("far"), export(size), move |peer| serving.behave(peer));
    // Requests wait for the array as long as it takes, so that none is given up.
    let hold = Duration::from_secs(600);
    let timeout = Duration::from_millis(if odds.is_some() { 700 } else { 60_000 });
    let options = NbdOptions { connections: CONNECTIONS, hold, timeout };
    let backend = BackendConfig::Nbd { uri: far.uri(), options };
    let socket = dir.path().join("near");
    let volume = spawn(vec![disk("vm1", backend, &socket)]);
    let errors: u64 = thread::scope(|scope| {
        let writers = (0..CLIENTS).map(|i| {
            let mut writer = Writer {
                client: Client::connect(&socket, "vm1"),
                array: array.clone(),
                random: fastrand::Rng::with_seed(seed.wrapping_add(i)),
                first: i * BLOCKS,
                blocks: (0..BLOCKS).map(|_| Block::default()).collect(),
                next_byte: 0,
                troubles: [0, 0],
                errors: 0,
                what: format!("PARDA_SEED={seed}, client {i}"),
            };
            scope.spawn(move || {
                (0..batches).for_each(|_| writer.batch());
                writer.errors
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert!(errors <= array.lock().errors, "PARDA_SEED={seed}: an error that nobody made");
    let started = Instant::now();
    loop {
        let stats = volume.stats().unwrap();
        if (stats.outstanding, stats.memory.granted, stats.connections) == (0, 0, 0) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "PARDA_SEED={seed}: {stats:?}");
        thread::sleep(Duration::from_millis(5));
    }
    array
}

/// The seed that was asked for, or a new one for each run.
fn seeds() -> Vec<u64> {
    if let Some(seed) = std::env::var("PARDA_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let runs = if std::env::var_os("PARDA_LONG").is_some() { 30 } else { 1 };
    (0..runs).map(|_| fastrand::u64(..1 << 32)).collect()
}

#[test]
fn clients_read_what_they_were_promised_whatever_fails_behind_the_volume() {
    for seed in seeds() {
        let array = run(seed, Some(&FAULTS), 150);
        let cells = array.lock();
        assert!(cells.cuts > 0 && cells.errors > 0, "PARDA_SEED={seed}: {} faults", cells.troubles);
    }
}

#[test]
fn replies_in_pieces_and_out_of_order_cost_no_error() {
    for seed in seeds() {
        let array = run(seed, None, 150);
        let cells = array.lock();
        assert_eq!((cells.cuts, cells.errors), (0, 0), "PARDA_SEED={seed}");
    }
}
