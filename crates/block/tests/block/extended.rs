//! Requests of more than 32 bits of length, by clients with extended headers.

use crate::common;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::hostile::{self, Hostile};
use common::{Client, config, disk, file, file_as, name, read, spawn, spawn_timed, write};
use parda_address::{Address, Uri};
use parda_block::{BackendConfig, Direct, Lock, NbdOptions, Timed, TimedId, Volume};
use parda_control::{Bytes, Instant, IoKind, Span};
use parda_disk::status::{Descriptor, ExtentStatus};
use parda_disk::{Errno, Extent, Op};
use parda_nbd::server::{Handshake, Incoming, ReplyTo, Session, Step};
use parda_nbd::wire::{RequestHeader, command, command_flag};
use parda_nbd::{Cookie, Framing};

const G: u64 = 1 << 30;
const BLOCK: u64 = 4096;
/// More than 32 bits.
const SIZE: u64 = 6 * G;

fn range(offset: u64, len: u64) -> Extent {
    Extent { offset, len }
}

fn trim(offset: u64, len: u64) -> Op {
    Op::Trim { extent: range(offset, len), fua: false }
}

fn zeroes(offset: u64, len: u64, fua: bool) -> Op {
    let extent = range(offset, len);
    Op::WriteZeroes { extent, fua, no_hole: false, fast: false }
}

fn status(offset: u64, len: u64) -> Op {
    Op::BlockStatus { extent: range(offset, len), one: false }
}

/// What a reply to BLOCK_STATUS says: each length, and whether it is a hole.
fn told(reply: Result<Vec<u8>, Errno>) -> Vec<(u64, bool)> {
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let extent = |bytes: &[u8]| (word(&bytes[..8]), word(&bytes[8..]) == 3);
    reply.unwrap().chunks_exact(16).map(extent).collect()
}

fn memory(size: u64) -> BackendConfig {
    BackendConfig::Memory { size: Bytes(size) }
}

fn nbd(socket: &Path, export: &str) -> BackendConfig {
    let (address, export) = (Address::Unix(socket.into()), name(export));
    let uri = Uri { address, export, tls: None };
    BackendConfig::Nbd { uri, options: NbdOptions::default() }
}

/// Every kind of backend, with a disk of `SIZE` that is a hole.
fn backends(test: impl Fn(&str, &mut Client)) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let create = |name: &str| {
        std::fs::File::create(path(name)).unwrap().set_len(SIZE).unwrap();
        path(name)
    };
    let far = path("far");
    let behind = spawn(vec![disk("behind", file(&create("behind")), &far)]);
    for (what, backend) in [
        ("memory", memory(SIZE)),
        ("file", file(&create("direct"))),
        ("cached", file_as(&create("cached"), Direct::Off, Lock::On)),
        ("nbd", nbd(&far, "behind")),
    ] {
        let socket = path(what);
        let volume = spawn(vec![disk("d", backend, &path(&format!("{what}.sock")))]);
        test(what, &mut Client::connect_extended(&path(&format!("{what}.sock")), "d"));
        drop((volume, socket));
    }
    drop(behind);
}

#[test]
fn all_of_a_large_disk_is_trimmed_zeroed_and_told_of_at_once() {
    backends(|what, client| {
        let places = [0, 2 * G, 4 * G - BLOCK, 4 * G, SIZE - BLOCK];
        let fill = |client: &mut Client| {
            for place in places {
                client.call(write(place, BLOCK as u32), &[7; BLOCK as usize]).unwrap();
            }
            let map = told(client.call(status(0, SIZE), &[]));
            assert_eq!(map.iter().map(|e| e.0).sum::<u64>(), SIZE, "{what}: {map:?}");
            assert_eq!(map.iter().filter(|e| !e.1).count(), 4, "{what}: {map:?}");
        };
        let is_empty = |client: &mut Client| {
            assert_eq!(told(client.call(status(0, SIZE), &[])), [(SIZE, true)], "{what}");
            for place in places {
                let data = client.call(read(place, BLOCK as u32), &[]).unwrap();
                assert!(data.iter().all(|b| *b == 0), "{what}: {place}");
            }
        };
        for op in [trim(0, SIZE), zeroes(0, SIZE, false), zeroes(0, SIZE, true)] {
            fill(client);
            client.call(op, &[]).unwrap();
            is_empty(client);
        }
        // Not a byte beside what was asked for.
        fill(client);
        client.call(zeroes(1, SIZE - 2, true), &[]).unwrap();
        for (place, at) in [(0, 0), (SIZE - BLOCK, BLOCK as usize - 1)] {
            let mut expected = vec![0; BLOCK as usize];
            expected[at] = 7;
            assert_eq!(client.call(read(place, BLOCK as u32), &[]).unwrap(), expected, "{what}");
        }
        client.call(trim(0, SIZE), &[]).unwrap();
        is_empty(client);
    });
}

#[test]
fn lengths_at_every_edge_are_taken_or_refused() {
    backends(|what, client| {
        let u32_max = u64::from(u32::MAX);
        for len in [1, u32_max, 1 << 32, (1 << 32) + 1, SIZE] {
            for op in [trim(0, len), zeroes(SIZE - len, len, false), status(0, len)] {
                assert!(client.call(op, &[]).is_ok(), "{what}: {op:?}");
            }
        }
        for (offset, len) in [
            (0, 0),
            (0, SIZE + 1),
            (1, SIZE),
            (SIZE, 1),
            (0, 1 << 63),
            (1 << 63, 1 << 63),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            let fills = if len == 0 { Errno::Inval } else { Errno::NoSpc };
            assert_eq!(client.call(trim(offset, len), &[]), Err(Errno::Inval), "{what}");
            assert_eq!(client.call(zeroes(offset, len, false), &[]), Err(fills), "{what}");
            assert_eq!(client.call(status(offset, len), &[]), Err(Errno::Inval), "{what}");
        }
        let too_long = client.call(Op::Read(range(0, 1 << 32)), &[]);
        assert_eq!(too_long, Err(Errno::Inval), "{what}");
        if what == "cached" {
            for len in [1 << 32, SIZE] {
                assert_eq!(client.call(Op::Cache(range(0, len)), &[]), Ok(vec![]));
            }
        }
    });
}

#[test]
fn the_largest_disk_there_is_gives_bounded_answers() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let size = 1 << 62;
    let _volume = spawn(vec![disk("d", memory(size), &socket)]);
    let mut client = Client::connect_extended(&socket, "d");
    assert_eq!(told(client.call(status(0, size), &[])), [(size, true)]);
    for block in 0..1200 {
        client.call(write((1 << 61) + 2 * block * BLOCK, 1), &[1]).unwrap();
    }
    let map = told(client.call(status(0, size), &[]));
    // Fewer, if the search took too long.
    assert!(map.len() <= parda_disk::status::MAX_EXTENTS, "{}", map.len());
    assert_eq!(map[0], (1 << 61, true));
    assert_eq!(client.call(status(0, 1 << 63), &[]), Err(Errno::Inval));
    // Again and again: nothing that is counted overflows.
    for _ in 0..5 {
        client.call(trim(0, size), &[]).unwrap();
    }
    assert_eq!(told(client.call(status(0, size), &[])), [(size, true)]);
}

/// An array that takes a millisecond for each IO, and takes note of it.
#[derive(Default)]
struct Notes {
    taken: Arc<Mutex<Vec<(IoKind, Extent)>>>,
    under_way: VecDeque<(Instant, TimedId)>,
}

impl Timed for Notes {
    fn submit(&mut self, now: Instant, id: TimedId, kind: IoKind, extent: Extent) {
        self.taken.lock().unwrap().push((kind, extent));
        self.under_way.push_back((now + Span::from_millis(1), id));
    }

    fn next(&self) -> Option<Instant> {
        self.under_way.front().map(|(at, _)| *at)
    }

    fn pop(&mut self, now: Instant) -> Option<TimedId> {
        self.under_way.front().filter(|(at, _)| *at <= now)?;
        self.under_way.pop_front().map(|(_, id)| id)
    }
}

/// With a window of one IO, a read has to wait for all that was dispatched before it: here for a
/// piece of a trim, and not for all of it.
#[test]
fn others_have_their_turn_between_the_pieces_of_a_long_trim() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let model = Notes::default();
    let notes = Arc::clone(&model.taken);
    let mut disks = Vec::new();
    for export in ["large", "small"] {
        disks.push(disk(export, memory(8 * G), &path(export)));
    }
    let _volume = spawn_timed(disks, 1.0, model);
    let (mut large, mut small) = (
        Client::connect_extended(&path("large"), "large"),
        Client::connect(&path("small"), "small"),
    );
    large.send(trim(5, 8 * G - 5), &[]);
    let reads = 20;
    (0..reads).for_each(|_| drop(small.call(read(0, 4096), &[]).unwrap()));
    large.receive().unwrap().1.unwrap();
    let notes = notes.lock().unwrap();
    let pieces: Vec<Extent> =
        notes.iter().filter(|(kind, _)| *kind == IoKind::Discard).map(|(_, e)| *e).collect();
    assert_eq!(pieces[0].offset, 5);
    assert!(pieces.windows(2).all(|w| w[0].end() == Some(w[1].offset)), "{pieces:?}");
    assert_eq!(pieces.last().unwrap().end(), Some(8 * G));
    assert!(pieces.iter().all(|piece| piece.len <= 256 << 20), "{pieces:?}");
    let last = notes.iter().rposition(|(kind, _)| *kind == IoKind::Discard).unwrap();
    let before = notes[..last].iter().filter(|(kind, _)| *kind == IoKind::Read).count();
    assert!(before > 0, "the reads waited for all of the trim");
}

fn encoded(header: RequestHeader) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.put(Framing::Extended, &mut bytes);
    bytes
}

/// Sends a header, and says whether the server closed the connection, having said nothing.
fn is_given_up(client: &mut Client, header: RequestHeader) -> bool {
    client.socket.write_all(&encoded(header)).unwrap();
    client.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut byte = [0; 1];
    matches!(client.socket.read(&mut byte), Ok(0))
}

#[test]
fn a_payload_that_no_request_has_ends_the_connection_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let mut config = config(vec![disk("d", memory(G), &socket)]);
    // Were a payload waited for or given memory, others would get none.
    config.limits.memory = 64 << 20;
    let _volume = Volume::spawn(config).unwrap();
    let mut other = Client::connect(&socket, "d");
    let header = |command, flags, len| RequestHeader {
        flags,
        command,
        cookie: Cookie(1),
        extent: range(0, len),
    };
    let flag = command_flag::PAYLOAD_LEN;
    for (command, flags, len) in [
        (command::WRITE, flag, 1 << 40),
        (command::WRITE, flag, (32 << 20) + 1),
        (command::WRITE, flag, u64::MAX),
        (command::TRIM, flag, 1 << 40),
        (command::BLOCK_STATUS, flag, 1 << 32),
        (command::WRITE, 0, 1 << 40),
    ] {
        let mut client = Client::connect_extended(&socket, "d");
        assert!(is_given_up(&mut client, header(command, flags, len)), "{command} {len}");
        assert_eq!(other.call(write(0, 4096), &[9; 4096]), Ok(vec![]));
    }
    // One that is short enough is thrown away, and the connection goes on.
    let mut client = Client::connect_extended(&socket, "d");
    let mut bytes = encoded(header(command::TRIM, flag, 8192));
    bytes.resize(bytes.len() + 8192, 0x21);
    client.socket.write_all(&bytes).unwrap();
    client.expect(Cookie(1), Op::Flush);
    let cookie = client.send(read(0, 4096), &[]).unwrap();
    assert_eq!(client.receive(), Some((Cookie(1), Err(Errno::Inval))));
    assert_eq!(client.receive(), Some((cookie, Ok(vec![9; 4096]))));
    // The data of a write is its data, even if its header lacks the flag, as with QEMU.
    let mut bytes = encoded(header(command::WRITE, 0, 4096));
    let trap = encoded(header(command::TRIM, 0, G));
    bytes.extend(trap.repeat(4096 / trap.len()));
    client.socket.write_all(&bytes).unwrap();
    client.expect(Cookie(1), Op::Flush);
    assert_eq!(client.receive(), Some((Cookie(1), Ok(vec![]))));
    assert_eq!(client.call(read(0, 4096), &[]), Ok(bytes[32..].to_vec()));
}

#[test]
fn clients_of_old_are_served_beside() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let _volume = spawn(vec![disk("d", memory(SIZE), &socket)]);
    let mut old = Client::connect(&socket, "d");
    let mut new = Client::connect_extended(&socket, "d");
    new.call(write(5 * G, 4096), &[7; 4096]).unwrap();
    assert_eq!(old.call(read(5 * G, 4096), &[]), Ok(vec![7; 4096]));
    old.call(zeroes(2 * G, u64::from(u32::MAX), true), &[]).unwrap();
    assert_eq!(told(new.call(status(0, SIZE), &[])), [(SIZE, true)]);
}

/// What an NBD server was asked for, one request after the other.
type Asked = Arc<Mutex<Vec<Op>>>;

/// A server with extended headers that does nothing, well.
fn recorder(socket: PathBuf) -> Asked {
    let asked = Asked::default();
    let listener = UnixListener::bind(socket).unwrap();
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            record(stream, &notes);
        }
    });
    asked
}

fn record(mut stream: UnixStream, asked: &Asked) -> Option<()> {
    let mut export = hostile::export(SIZE);
    export.geometry.cache = true;
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut handshake = Handshake::start(&mut out);
    let mut session: Option<Session> = None;
    loop {
        stream.write_all(&out).ok()?;
        out.clear();
        let taken = match session {
            None => {
                match handshake.advance(&input, std::slice::from_ref(&export), &mut out).ok()? {
                    Step::Incomplete => None,
                    Step::Taken(n) => Some(n),
                    Step::Closed => return None,
                    Step::Transmission { taken, session: agreed, .. } => {
                        session = Some(agreed);
                        Some(taken)
                    }
                }
            }
            Some(session) => match session.request(&input, &export).unwrap() {
                None => None,
                Some(Incoming::Request { cookie, op }) => {
                    asked.lock().unwrap().push(op);
                    let to = ReplyTo::new(cookie, op);
                    if let Op::BlockStatus { extent, .. } = op {
                        let all = Descriptor { len: extent.len, status: ExtentStatus::ZERO };
                        session.put_status(&mut out, to, &[all]);
                    } else {
                        session.put_done(&mut out, to);
                    }
                    Some(session.request_len())
                }
                Some(other) => panic!("{other:?}"),
            },
        };
        match taken {
            Some(n) => drop(input.drain(..n)),
            None => {
                stream.write_all(&out).ok()?;
                out.clear();
                let mut chunk = [0; 4096];
                let n = stream.read(&mut chunk).ok().filter(|n| *n > 0)?;
                input.extend_from_slice(&chunk[..n]);
            }
        }
    }
}

#[test]
fn a_server_with_extended_headers_is_asked_once() {
    let dir = tempfile::tempdir().unwrap();
    let (far, near) = (dir.path().join("far"), dir.path().join("near"));
    let asked = recorder(far.clone());
    let _volume = spawn(vec![disk("d", nbd(&far, ""), &near)]);
    let mut client = Client::connect_extended(&near, "d");
    let durable = Op::Trim { extent: range(0, SIZE), fua: true };
    for op in [trim(0, SIZE), durable, status(7, SIZE - 7)] {
        assert!(client.call(op, &[]).is_ok(), "{op:?}");
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), [op]);
    }
    assert_eq!(client.call(status(0, SIZE), &[]).unwrap()[..8], SIZE.to_be_bytes());
    asked.lock().unwrap().clear();
    let near = [Op::Cache(range(G, 4096)), Op::Cache(range(G, 32 << 20))];
    for (len, fetched) in [(4096, near[0]), (64 << 20, near[1]), (5 * G, near[1])] {
        assert_eq!(client.call(Op::Cache(range(G, len)), &[]), Ok(vec![]));
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), [fetched]);
    }
    // It may have to write these, and has a time-out for each request.
    client.call(zeroes(G, 5 * G, true), &[]).unwrap();
    let pieces = [zeroes(G, G, true), zeroes(2 * G, 2 * G, true), zeroes(4 * G, 2 * G, true)];
    assert_eq!(*asked.lock().unwrap(), pieces);
}

#[test]
fn a_server_without_them_is_asked_for_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let (far, near) = (dir.path().join("far"), dir.path().join("near"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    let server = Hostile::start(&far, hostile::export(SIZE), move |peer| {
        while let Some(request) = peer.next() {
            let RequestHeader { command, flags, extent, cookie } = request.header;
            notes.lock().unwrap().push((command, flags, extent));
            if command == command::BLOCK_STATUS {
                let told = [1, extent.len as u32, 0].map(u32::to_be_bytes).concat();
                peer.send(&hostile::chunk_of(1, 5, cookie, &told))?;
            } else if extent.offset == 4 * G && flags == 0 {
                peer.send(&hostile::simple(cookie, 5))?;
            } else {
                peer.answer(&request.header, &[])?;
            }
        }
        None
    });
    let _volume = spawn(vec![disk("d", nbd(&server.socket, ""), &near)]);
    let mut client = Client::connect_extended(&near, "d");
    let taken = || std::mem::take(&mut *asked.lock().unwrap());
    let (trims, fua) = (command::TRIM, command_flag::FUA);
    client.call(Op::Trim { extent: range(4096, SIZE - 4096), fua: true }, &[]).unwrap();
    assert_eq!(
        taken(),
        [
            (trims, fua, range(4096, 2 * G - 4096)),
            (trims, fua, range(2 * G, 2 * G)),
            (trims, fua, range(4 * G, 2 * G))
        ]
    );
    // What fails in the middle fails.
    assert_eq!(client.call(trim(0, SIZE), &[]), Err(Errno::Io));
    assert_eq!(taken().len(), 3);
    let told = told(client.call(status(0, SIZE), &[]));
    assert_eq!(told, [(2 * G, false)], "the client asks again from there");
    assert_eq!(taken(), [(command::BLOCK_STATUS, 0, range(0, 2 * G))]);
}
