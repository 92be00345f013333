//! Hostile connections of all kinds, held up by one thread.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parda_nbd::{Cookie, client, wire};

use parda_testkit::{read, write};

const LARGEST: u32 = 32 << 20;

/// What a connection does to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The header of the largest write, and then nothing.
    Header,
    /// A part of the largest write, and then a byte now and then.
    Dribble,
    /// Reads whose replies it never takes.
    Greedy,
    /// The same, but it takes a little now and then.
    Slow,
    /// Half of a handshake.
    Half,
    /// A whole handshake, and it comes again.
    Flood,
    /// It goes in the middle of a write, and comes again.
    Abort,
    /// Anything but NBD, again and again.
    Noise,
}

const KINDS: [Kind; 8] = [
    Kind::Header,
    Kind::Dribble,
    Kind::Greedy,
    Kind::Slow,
    Kind::Half,
    Kind::Flood,
    Kind::Abort,
    Kind::Noise,
];

/// What a slow reader takes at a time, in bytes, and hence in a second.
const SIP: usize = 4 << 10;

/// How often each connection does something. Whoever comes again costs the agent a handshake, which
/// no limit on memory makes cheaper: 192 a second of 512.
const PERIOD: Duration = Duration::from_secs(1);

impl Kind {
    /// Whether it connects again when the agent has closed it, or by itself.
    fn comes_again(self) -> bool {
        matches!(self, Self::Flood | Self::Abort | Self::Noise)
    }

    /// What it says to begin with. `place` is where it would write.
    fn opening(self, place: u64) -> Vec<u8> {
        let mut bytes = 3u32.to_be_bytes().to_vec();
        wire::put_option(&mut bytes, wire::option::EXPORT_NAME, b"vm1");
        match self {
            Self::Header => client::put_request(&mut bytes, Cookie(1), write(place, LARGEST)),
            Self::Dribble | Self::Abort => {
                client::put_request(&mut bytes, Cookie(1), write(place, LARGEST));
                bytes.extend(vec![0x66; 128 << 10]);
            }
            Self::Greedy | Self::Slow => (0..64).for_each(|n| {
                client::put_request(&mut bytes, Cookie(n), read(place, LARGEST));
            }),
            Self::Half => bytes.truncate(13),
            Self::Flood => {}
            Self::Noise => {
                bytes.truncate(4);
                bytes.extend(std::iter::repeat_with(|| fastrand::u8(..)).take(100));
            }
        }
        bytes
    }
}

struct Hostile {
    kind: Kind,
    place: u64,
    stream: Option<UnixStream>,
    /// What it has not said yet.
    rest: Vec<u8>,
}

impl Hostile {
    fn connect(&mut self, socket: &Path) {
        self.stream = None;
        // The agent may have as many connections as it takes.
        let Ok(stream) = UnixStream::connect(socket) else { return };
        stream.set_nonblocking(true).unwrap();
        self.stream = Some(stream);
        self.rest = self.kind.opening(self.place);
        self.push();
    }

    /// Says as much of the rest as is taken.
    fn push(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        match stream.write(&self.rest) {
            Ok(n) => drop(self.rest.drain(..n)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.stream = None,
        }
    }

    fn act(&mut self, socket: &Path) {
        if self.kind.comes_again() {
            return self.connect(socket);
        }
        if self.rest.is_empty() && self.kind == Kind::Dribble {
            self.rest.push(0x66);
        }
        self.push();
        if self.kind == Kind::Slow
            && let Some(stream) = &mut self.stream
            && matches!(stream.read(&mut [0; SIP]), Ok(0))
        {
            self.stream = None;
        }
    }
}

/// An attack that goes on until it is dropped.
pub(super) struct Attack {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attack {
    /// Begins with so many connections, the same number of each kind. None of them writes anywhere
    /// but at `place`.
    pub(super) fn begin(socket: PathBuf, connections: usize, place: u64) -> Attack {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let kinds = KINDS.iter().cycle().take(connections);
            let mut all: Vec<_> = kinds
                .map(|kind| Hostile { kind: *kind, place, stream: None, rest: Vec::new() })
                .collect();
            all.iter_mut().for_each(|hostile| hostile.connect(&socket));
            // Each has its turn in the period, so that there is always something going on.
            let mut turns = (0..all.len()).cycle();
            let (begun, mut done) = (Instant::now(), 0);
            while !told.load(Ordering::Relaxed) {
                let due = begun.elapsed().as_nanos() * all.len() as u128 / PERIOD.as_nanos();
                while done < due {
                    done += 1;
                    all[turns.next().unwrap()].act(&socket);
                }
                std::thread::sleep(PERIOD / 100);
            }
        });
        Attack { over, thread: Some(thread) }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the attack failed");
    }
}
