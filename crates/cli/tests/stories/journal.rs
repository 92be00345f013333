//! A writer that remembers what it was promised.
//!
//! Every block holds its own number and a version that only grows. A version is durable once it was
//! acknowledged with FUA, or acknowledged before a FLUSH was sent that succeeded. Whatever happens
//! to the server, a block may then hold that version or a later one that was sent, and no other.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use parda_disk::{Extent, Op};
use parda_nbd::Cookie;

use crate::array::BLOCK;
use parda_testkit::{self as testkit, Client};

/// Number of requests in flight.
const DEPTH: usize = 16;

/// What is known of one block.
#[derive(Clone, Default)]
struct Cell {
    sent: u64,
    /// The version that was acknowledged last, if a flush can still make it durable.
    acknowledged: Option<u64>,
    durable: u64,
}

/// What a request will mean when it succeeds.
enum Meaning {
    Write {
        block: usize,
        version: u64,
        fua: bool,
    },
    /// The version of each block that had been acknowledged when it was sent.
    Flush(Vec<Option<u64>>),
}

/// What the writer was told, to be read while it writes.
#[derive(Debug, Default)]
pub(crate) struct Told {
    promises: AtomicU64,
    failed_flushes: AtomicU64,
}

impl Told {
    /// Promises of durability that were made.
    pub(crate) fn promises(&self) -> u64 {
        self.promises.load(Ordering::Relaxed)
    }

    /// Number of flushes that failed.
    pub(crate) fn failed_flushes(&self) -> u64 {
        self.failed_flushes.load(Ordering::Relaxed)
    }
}

pub(crate) struct Journal {
    cells: Vec<Cell>,
    random: Rng,
    pub(crate) told: Arc<Told>,
}

impl Journal {
    pub(crate) fn new(blocks: usize) -> Journal {
        let random = Rng::with_seed(2008);
        Journal { cells: vec![Cell::default(); blocks], random, told: Arc::default() }
    }

    /// Writes until it is told to stop or the connection is gone.
    pub(crate) fn write(&mut self, socket: &Path, export: &str, stop: &AtomicBool) {
        let mut client = Client::connect(socket, export);
        let mut meanings = HashMap::new();
        // What an earlier connection left acknowledged and not flushed is not promised any more.
        self.forget();
        loop {
            while meanings.len() < DEPTH && !stop.load(Ordering::Relaxed) {
                if self.send(&mut client, &mut meanings).is_none() {
                    return;
                }
            }
            if meanings.is_empty() {
                return;
            }
            let Some((cookie, outcome)) = client.receive() else { return };
            match (meanings.remove(&cookie).unwrap(), outcome) {
                (Meaning::Write { block, version, fua: true }, Ok(_)) => {
                    self.cells[block].durable = version;
                    self.told.promises.fetch_add(1, Ordering::Relaxed);
                }
                (Meaning::Write { block, version, fua: false }, Ok(_)) => {
                    self.cells[block].acknowledged = Some(version);
                }
                (Meaning::Flush(versions), Ok(_)) => {
                    for (cell, version) in self.cells.iter_mut().zip(versions) {
                        cell.durable = cell.durable.max(version.unwrap_or(0));
                    }
                    self.told.promises.fetch_add(1, Ordering::Relaxed);
                }
                (Meaning::Flush(_), Err(_)) => {
                    self.forget();
                    self.told.failed_flushes.fetch_add(1, Ordering::Relaxed);
                    // Flushes that are under way may cover the same lost writes.
                    for meaning in meanings.values_mut() {
                        if let Meaning::Flush(versions) = meaning {
                            versions.clear();
                        }
                    }
                }
                (Meaning::Write { block, .. }, Err(errno)) => panic!("write {block}: {errno:?}"),
            }
        }
    }

    fn send(&mut self, client: &mut Client, meanings: &mut HashMap<Cookie, Meaning>) -> Option<()> {
        if self.random.u32(..40) == 0 {
            let cookie = client.send(Op::Flush, &[])?;
            let versions = self.cells.iter().map(|c| c.acknowledged).collect();
            meanings.insert(cookie, Meaning::Flush(versions));
            return Some(());
        }
        // Two writes of one block in flight would have no order.
        let busy = |meaning: &Meaning, this| matches!(meaning, Meaning::Write { block, .. } if *block == this);
        let block = loop {
            let block = self.random.usize(..self.cells.len());
            if !meanings.values().any(|m| busy(m, block)) {
                break block;
            }
        };
        let cell = &mut self.cells[block];
        cell.sent += 1;
        let (version, fua) = (cell.sent, self.random.u32(..8) == 0);
        let extent = Extent { offset: block as u64 * u64::from(BLOCK), len: BLOCK.into() };
        let cookie = client.send(Op::Write { extent, fua }, &content(block, version))?;
        meanings.insert(cookie, Meaning::Write { block, version, fua });
        Some(())
    }

    fn forget(&mut self) {
        self.cells.iter_mut().for_each(|cell| cell.acknowledged = None);
    }

    /// Reads everything back and holds the server to what it promised.
    pub(crate) fn verify(&self, socket: &Path, export: &str) {
        let promises = self.told.promises();
        assert!(promises > 20, "only {promises} promises were made");
        let mut client = Client::connect(socket, export);
        let mut lost = Vec::new();
        for (block, cell) in self.cells.iter().enumerate() {
            let data =
                client.call(testkit::read(block as u64 * u64::from(BLOCK), BLOCK), &[]).unwrap();
            let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
            let whole =
                data == content(block, version) || (version == 0 && data.iter().all(|b| *b == 0));
            assert!(whole, "block {block} holds what nobody wrote: {:?}…", &data[..32]);
            assert!(version <= cell.sent, "block {block} is ahead of its time");
            if version < cell.durable {
                lost.push(format!("block {block}: version {version} of {}", cell.durable));
            }
        }
        assert!(lost.is_empty(), "promised as durable, and lost: {}", lost.join(", "));
    }
}

/// A block: its number and version, over and over.
fn content(block: usize, version: u64) -> Vec<u8> {
    let one = [(block as u64).to_le_bytes(), version.to_le_bytes()].concat();
    one.repeat(BLOCK as usize / one.len())
}
