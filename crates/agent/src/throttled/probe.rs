//! Reads of the array beside its VMs. Their latency is that of the array alone, while QEMU's includes the wait for its throttle.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use parda_awake::Instant;
use parda_control::Span;
use parda_exchange::region::NbdConnection;
use rustix::fs::OFlags;

use crate::config::Place;
use crate::locked::locked;
use crate::news::is_news;

/// Time between the beginnings of two reads.
const EVERY: Duration = Duration::from_millis(50);
/// Time after which a place that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Time limit of an NBD server for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Alignment of reads, and the least of them, in bytes.
const ALIGNED: u64 = 4096;
/// The largest read, in bytes.
const LARGEST: u64 = 256 << 10;

/// A thread that reads.
pub(super) struct Probe(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Bytes of a read; `None` while no reads are due.
    size: Option<u64>,
    done: Reads,
    fault: Option<String>,
}

/// Sums over the reads that completed.
#[derive(Clone, Copy, Default)]
pub(super) struct Reads {
    pub(super) ios: u64,
    pub(super) bytes: u64,
    /// Sum of their latencies.
    pub(super) latency: Span,
}

impl Probe {
    pub(super) fn start(volume: &str, place: Place) -> io::Result<Probe> {
        let state = Arc::new(Mutex::default());
        let (own, volume) = (Arc::downgrade(&state), volume.to_owned());
        // Not joined: a read of a file may hang.
        let thread = std::thread::Builder::new().name(format!("probe-{volume}"));
        thread.spawn(move || run(&own, &volume, &place))?;
        Ok(Probe(state))
    }

    /// Reads of about this many bytes each from now on, or none.
    pub(super) fn read(&self, bytes: Option<u64>) {
        let whole = |bytes: u64| bytes.div_ceil(ALIGNED).max(1) * ALIGNED;
        locked(&self.0).size = bytes.map(|bytes| whole(bytes.min(LARGEST)));
    }

    /// Takes the reads since the last call.
    pub(super) fn take(&self) -> Reads {
        std::mem::take(&mut locked(&self.0).done)
    }

    pub(super) fn fault(&self) -> Option<String> {
        locked(&self.0).fault.clone()
    }
}

/// Reads until the probe is dropped.
fn run(probe: &Weak<Mutex<State>>, volume: &str, place: &Place) {
    let mut open = None;
    while let Some(state) = probe.upgrade() {
        let begun = Instant::now();
        let size = locked(&state).size;
        let read = size.map(|size| read(&mut open, place, size).map(|took| (size, took)));
        let mut pause = EVERY;
        let mut known = locked(&state);
        match read {
            None => {}
            Some(Ok((bytes, took))) => {
                known.done.ios += 1;
                known.done.bytes += bytes;
                known.done.latency += took;
                known.fault = None;
            }
            Some(Err(error)) => {
                open = None;
                pause = AGAIN;
                let fault = format!("{place}: the array cannot be measured: {error}");
                if is_news(&mut known.fault, &fault) {
                    tracing::error!(volume, "{fault}; limits of QEMUs stay as they are meanwhile");
                }
            }
        }
        drop(known);
        drop(state);
        std::thread::sleep(pause.saturating_sub(begun.elapsed()));
    }
}

/// A place that is open.
enum Open {
    File(File, u64),
    Nbd(Box<NbdConnection>),
}

/// One read at a random place. Answers with its latency.
fn read(open: &mut Option<Open>, place: &Place, bytes: u64) -> io::Result<Span> {
    let open = match open {
        Some(open) => open,
        none => none.insert(Open::new(place)?),
    };
    let size = match open {
        Open::File(_, size) => *size,
        Open::Nbd(connection) => connection.agreed().size,
    };
    let places = (size / ALIGNED).checked_sub(bytes / ALIGNED);
    let places = places.ok_or_else(|| io::Error::other("it is smaller than a read"))?;
    let at = ALIGNED * fastrand::u64(0..=places);
    let begun = Instant::now();
    match open {
        Open::File(file, _) => {
            let bytes = bytes as usize;
            let mut room = vec![0; bytes + ALIGNED as usize];
            let aligned = room.as_ptr().align_offset(ALIGNED as usize);
            file.read_exact_at(&mut room[aligned..aligned + bytes], at)?;
        }
        Open::Nbd(connection) => {
            connection.restart_clock(PATIENCE);
            connection.read(at, bytes as usize).map_err(io::Error::other)?;
        }
    }
    Ok(begun.elapsed().into())
}

impl Open {
    fn new(place: &Place) -> io::Result<Open> {
        match place {
            Place::Path(path) => {
                let direct = OFlags::DIRECT.bits().cast_signed();
                let mut file = OpenOptions::new().read(true).custom_flags(direct).open(path)?;
                let size = file.seek(SeekFrom::End(0))?;
                Ok(Open::File(file, size))
            }
            Place::Nbd(uri) => {
                let connection = NbdConnection::open(uri, PATIENCE).map_err(io::Error::other)?;
                Ok(Open::Nbd(Box::new(connection)))
            }
        }
    }
}
