//! An array with a volatile cache: an NBD server that forgets, at a power cut, every write that was
//! neither flushed nor sent with FUA.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{sleep, spawn};
use std::time::Duration;

use parda_address::ExportName;
use parda_disk::{BlockSizes, Extent, Geometry, Op};
use parda_nbd::Export;
use parda_nbd::server::{Handshake, Incoming, ReplyTo, Session, Step};

/// The array's only block size, in bytes: what is written is written whole.
pub(crate) const BLOCK: u32 = 4096;

/// How long the array takes for what it answers. Every connection is served in order.
#[derive(Clone, Copy)]
pub(crate) struct Delays {
    pub(crate) io: Duration,
    pub(crate) flush: Duration,
}

/// The array. Its power is never off for long: it can be connected to at once after a cut.
#[derive(Clone)]
pub(crate) struct Array {
    cells: Arc<Mutex<Cells>>,
    export: Arc<Export>,
    delays: Delays,
    /// Whether all IO waits.
    halted: Arc<AtomicBool>,
}

#[derive(Default)]
struct Cells {
    medium: BTreeMap<u64, Vec<u8>>,
    cache: BTreeMap<u64, Vec<u8>>,
    sockets: Vec<UnixStream>,
    cuts: usize,
}

impl Array {
    /// Starts an array of that many blocks, at `nbd+unix:///?socket=SOCKET`.
    pub(crate) fn start(socket: &Path, blocks: u64, delays: Delays) -> Array {
        let export = Export {
            name: ExportName::default(),
            description: String::new(),
            geometry: Geometry::new(
                blocks * u64::from(BLOCK),
                BlockSizes::with_min(BLOCK).unwrap(),
            ),
        };
        let array = Array {
            cells: Arc::default(),
            export: Arc::new(export),
            delays,
            halted: Arc::default(),
        };
        let (listener, serving) = (UnixListener::bind(socket).unwrap(), array.clone());
        // Ends with the process.
        spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let array = serving.clone();
                let cuts = {
                    let mut cells = array.lock();
                    cells.sockets.push(stream.try_clone().unwrap());
                    cells.cuts
                };
                // `None` is the end of a connection, however it came.
                spawn(move || Connection { stream, input: Vec::new(), array, cuts }.serve());
            }
        });
        array
    }

    /// Loses what is not durable, and all connections with it.
    pub(crate) fn cut_power(&self) {
        let mut cells = self.lock();
        cells.cuts += 1;
        cells.cache.clear();
        for socket in cells.sockets.drain(..) {
            // It may be closed.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Has all IO wait, or go on.
    pub(crate) fn halt(&self, halted: bool) {
        self.halted.store(halted, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap()
    }
}

struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    array: Array,
    /// How often the power had been cut when this connection began.
    cuts: usize,
}

impl Connection {
    fn serve(&mut self) -> Option<()> {
        let export = Arc::clone(&self.array.export);
        let session = self.shake_hands()?;
        loop {
            let Some(event) = session.request(&self.input, &export).ok()? else {
                self.receive()?;
                continue;
            };
            let mut out = Vec::new();
            match event {
                Incoming::Disconnect => return None,
                Incoming::Refused { refusal, .. } => panic!("the agent sent {refusal}"),
                Incoming::Request { cookie, op } => {
                    let payload = self.payload(session, op)?;
                    let data = self.execute(op, payload)?;
                    match op {
                        Op::Read(extent) => session.put_read(&mut out, cookie, extent),
                        _ => session.put_done(&mut out, ReplyTo::new(cookie, op)),
                    }
                    out.extend_from_slice(&data);
                }
            }
            self.stream.write_all(&out).ok()?;
        }
    }

    fn shake_hands(&mut self) -> Option<Session> {
        let mut out = Vec::new();
        let mut handshake = Handshake::start(&mut out);
        let exports = [Export::clone(&self.array.export)];
        loop {
            self.stream.write_all(&out).ok()?;
            out.clear();
            match handshake.advance(&self.input, &exports, &mut out).ok()? {
                Step::Incomplete => self.receive()?,
                Step::Taken(n) => drop(self.input.drain(..n)),
                Step::Closed => return None,
                Step::Transmission { taken, session, .. } => {
                    self.stream.write_all(&out).ok()?;
                    self.input.drain(..taken);
                    return Some(session);
                }
            }
        }
    }

    fn receive(&mut self) -> Option<()> {
        let mut chunk = vec![0; 64 << 10];
        let n = self.stream.read(&mut chunk).ok().filter(|n| *n > 0)?;
        self.input.extend_from_slice(&chunk[..n]);
        Some(())
    }

    /// Takes a request off the input, with its payload if it has one.
    fn payload(&mut self, session: Session, op: Op) -> Option<Vec<u8>> {
        let len = match op {
            Op::Write { extent, .. } => extent.len as usize,
            _ => 0,
        };
        let head = session.request_len();
        while self.input.len() < head + len {
            self.receive()?;
        }
        Some(self.input.drain(..head + len).skip(head).collect())
    }

    /// Does it, unless the power was cut since the connection began.
    fn execute(&self, op: Op, payload: Vec<u8>) -> Option<Vec<u8>> {
        let Delays { io, flush } = self.array.delays;
        let durable = matches!(op, Op::Flush | Op::Write { fua: true, .. });
        sleep(if durable { flush } else { io });
        while self.array.halted.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(1));
        }
        let mut cells = self.array.lock();
        if cells.cuts != self.cuts {
            return None;
        }
        let Cells { medium, cache, .. } = &mut *cells;
        match op {
            Op::Read(extent) => {
                let block = |index| cache.get(&index).or(medium.get(&index)).cloned();
                let zeroes = || vec![0; BLOCK as usize];
                return Some(
                    blocks(extent).flat_map(|i| block(i).unwrap_or_else(zeroes)).collect(),
                );
            }
            Op::Write { extent, fua } => {
                for (index, data) in blocks(extent).zip(payload.chunks(BLOCK as usize)) {
                    if fua {
                        cache.remove(&index);
                        medium.insert(index, data.to_owned());
                    } else {
                        cache.insert(index, data.to_owned());
                    }
                }
            }
            Op::Flush => medium.append(cache),
            Op::Trim { .. } | Op::WriteZeroes { .. } | Op::Cache(_) | Op::BlockStatus { .. } => {
                panic!("{op:?} is not for this array")
            }
        }
        Some(Vec::new())
    }
}

fn blocks(extent: Extent) -> impl Iterator<Item = u64> {
    let first = extent.offset / u64::from(BLOCK);
    first..first + extent.len / u64::from(BLOCK)
}
