//! Feeds arbitrary bytes to either side, as the fuzz targets and a property test do, and checks
//! what must hold whatever the bytes are: no panic, progress, bounded output.

use std::ops::Range;
use std::sync::LazyLock;

use parda_address::ExportName;
use parda_disk::status::{ExtentStatus, Extents, MAX_EXTENTS};
use parda_disk::{BlockSizes, Extent, Geometry, Op};
use parda_nbd::answer::ReplyParts;
use parda_nbd::client::{self, Expected, Reply};
use parda_nbd::server::{self, Incoming, ReplyTo};
use parda_nbd::{Cookie, Export};

/// Two exports, one of which allows everything and one nothing but aligned reads.
pub(crate) fn exports() -> Vec<Export> {
    let export = |name: &str, size, min, read_only| Export {
        name: ExportName::new(name).unwrap(),
        description: format!("the disk {name}"),
        geometry: Geometry {
            size,
            blocks: BlockSizes::with_min(min).unwrap(),
            read_only,
            trim: !read_only,
            write_zeroes: !read_only,
            fast_zero: !read_only,
            cache: !read_only,
        },
    };
    // The first is so large that lengths need more than 32 bits.
    vec![export("a", 1 << 62, 1, false), export("b", 1 << 20, 512, true)]
}

/// Made once: a fuzzer runs more often than it can afford to make them.
static EXPORTS: LazyLock<Vec<Export>> = LazyLock::new(exports);

/// What one message may make a peer of ours hold, in bytes.
const OUTPUT_BOUND: usize = 16 << 10;

/// Parts of ranges that are told of one by one in a session, four full answers: a fuzzer finds sessions that ask
/// for nothing else.
const PARTS: usize = 2048;

/// A client sends `input`.
#[allow(dead_code, reason = "each fuzz target uses one of the two")]
pub(crate) fn server(mut input: &[u8]) {
    let exports = EXPORTS.as_slice();
    let mut out = Vec::new();
    let mut handshake = server::Handshake::start(&mut out);
    let (export, session) = loop {
        out.clear();
        let step = handshake.advance(input, exports, &mut out);
        assert!(out.len() <= OUTPUT_BOUND);
        match step {
            Ok(server::Step::Taken(n)) => {
                assert!(n > 0);
                input = &input[n..];
            }
            Ok(server::Step::Transmission { taken, export, session }) => {
                input = &input[taken..];
                break (&exports[export], session);
            }
            Ok(server::Step::Incomplete | server::Step::Closed) | Err(_) => return,
        }
    };
    let mut parts = PARTS;
    while let Ok(Some(event)) = session.request(input, export) {
        out.clear();
        let payload = match event {
            Incoming::Disconnect => return,
            Incoming::Refused { to, refusal, discard } => {
                session.put_error_at(&mut out, to, refusal.errno, refusal.reason, Some(7));
                discard
            }
            Incoming::Request { cookie, op: Op::Read(extent) } => {
                assert!(extent.end().is_some_and(|end| end <= export.geometry.size));
                // Every other block reads as zeroes.
                if session.can_put_hole() && extent.offset & 512 != 0 {
                    session.put_hole(&mut out, cookie, extent);
                } else {
                    session.put_read(&mut out, cookie, extent);
                }
                0
            }
            Incoming::Request { cookie, op: op @ Op::BlockStatus { extent, one } } => {
                assert!(extent.end().is_some_and(|end| end <= export.geometry.size));
                let mut extents = Extents::new(extent, export.geometry.blocks.min(), one);
                let mut status = ExtentStatus::DATA;
                while !extents.is_complete() {
                    // As odd as the request, so that the fuzzer chooses it.
                    let part = if parts > 0 { 1 + (cookie.0 & 1023) } else { extent.len };
                    parts = parts.saturating_sub(1);
                    extents.push(part, status);
                    status = if status == ExtentStatus::DATA {
                        ExtentStatus::HOLE_ZERO
                    } else {
                        ExtentStatus::DATA
                    };
                }
                let extents = extents.finish().unwrap();
                assert!(extents.len() <= if one { 1 } else { MAX_EXTENTS });
                let min = u64::from(export.geometry.blocks.min());
                assert!(extents.iter().all(|e| e.len > 0 && e.len % min == 0));
                assert!(extents.iter().map(|e| e.len).sum::<u64>() <= extent.len);
                session.put_status(&mut out, ReplyTo::new(cookie, op), &extents);
                0
            }
            Incoming::Request { cookie, op } => {
                assert!(!export.geometry.read_only || op == Op::Flush);
                session.put_done(&mut out, ReplyTo::new(cookie, op));
                // The header alone never announces more than is taken.
                let payload = if let Op::Write { extent, .. } = op { extent.len } else { 0 };
                u32::try_from(payload).unwrap()
            }
        };
        assert!(out.len() <= OUTPUT_BOUND);
        let head = session.request_len();
        let payload = (payload as usize).min(input.len() - head);
        input = &input[head + payload..];
    }
}

/// What a client has asked for and not been answered, and which bytes of it have come.
struct InFlight {
    answer: ReplyParts,
    come: Vec<Range<u64>>,
}

impl InFlight {
    fn new(expected: Expected) -> Self {
        Self { answer: ReplyParts::new(expected), come: Vec::new() }
    }

    fn comes(&mut self, extent: Extent) {
        let Expected::Data(asked) = self.answer.expected() else { panic!("no read") };
        let new = extent.offset..extent.end().expect("a range");
        assert!(asked.offset <= new.start && new.end <= asked.end().expect("a range"));
        let apart = |old: &Range<u64>| old.end <= new.start || new.end <= old.start;
        assert!(self.come.iter().all(apart), "a byte came twice");
        self.come.push(new);
    }

    /// As no byte came twice, it is enough to count them.
    fn is_whole(&self) -> bool {
        let Expected::Data(asked) = self.answer.expected() else { return true };
        self.come.iter().map(|range| range.end - range.start).sum::<u64>() == asked.len
    }
}

/// Cookies of the requests in flight.
const COOKIES: u64 = 7;

/// What a client asks under a cookie, over and over: reads of several sizes, flushes, block status.
fn asked(cookie: Cookie, context: Option<u32>) -> Option<Expected> {
    let extent = Extent { offset: 8192, len: 4096 };
    match cookie.0 {
        0 => Some(Expected::Data(extent)),
        1 => Some(Expected::Outcome),
        2 => Some(Expected::Status { extent, context: context? }),
        // Small enough for a fuzzer to cover them byte by byte.
        3..6 => Some(Expected::Data(Extent { offset: 64 * cookie.0, len: 8 })),
        6 => Some(Expected::Data(Extent { offset: u64::MAX - 512, len: 512 })),
        _ => None,
    }
}

/// A server sends `input`, a whole session of it, to a client that asks for extended headers and
/// to one that does not. Every byte of a read that succeeds was sent, and sent once.
#[allow(dead_code, reason = "each fuzz target uses one of the two")]
pub(crate) fn client(input: &[u8]) {
    let handshake = || client::Handshake::new(ExportName::new("a").unwrap());
    a_client(handshake(), input);
    a_client(handshake().ask_extended_headers(), input);
}

fn a_client(mut handshake: client::Handshake, mut input: &[u8]) {
    let mut out = Vec::new();
    let agreed = loop {
        out.clear();
        let step = handshake.advance(input, &mut out);
        assert!(out.len() <= OUTPUT_BOUND);
        match step {
            Ok(client::Step::Taken(n)) => {
                assert!(n > 0);
                input = &input[n..];
            }
            Ok(client::Step::Transmission { taken, agreed }) => {
                input = &input[taken..];
                break agreed;
            }
            Ok(client::Step::Incomplete) | Err(_) => return,
        }
    };
    let expected = |cookie: Cookie| asked(cookie, agreed.allocation);
    let start = |cookie| expected(cookie).map(InFlight::new);
    let mut in_flight: Vec<Option<InFlight>> = (0..COOKIES).map(Cookie).map(start).collect();
    while let Ok(Some(head)) = client::reply(input, agreed.framing, expected) {
        assert!(head.taken > 0);
        input = &input[head.taken..];
        let place = &mut in_flight[usize::try_from(head.cookie.0).unwrap()];
        let request = place.as_mut().expect("a cookie that was never sent");
        // An error here ends the connection.
        if request.answer.take(&head.reply).is_err() {
            return;
        }
        let last = match head.reply {
            Reply::Data { extent, last } => {
                request.comes(extent);
                let Some(rest) = input.get(extent.len as usize..) else { return };
                input = rest;
                last
            }
            Reply::Hole { extent, last } => {
                request.comes(extent);
                last
            }
            Reply::Status { extents, discard, last } => {
                assert!((1..=MAX_EXTENTS).contains(&extents.len()));
                assert!(extents.iter().all(|e| e.len > 0));
                input = &input[(discard as usize).min(input.len())..];
                last
            }
            Reply::Error { message, last, .. } => {
                assert!(message.len() <= OUTPUT_BOUND);
                last
            }
            Reply::Done => true,
        };
        if last {
            let done = std::mem::replace(place, start(head.cookie)).expect("it is there");
            let whole = done.is_whole();
            assert!(done.answer.outcome().is_err() || whole, "a byte that was never sent");
        }
    }
}
