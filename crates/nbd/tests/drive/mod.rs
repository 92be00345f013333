//! Feeds arbitrary bytes to either side, as the fuzz targets and a property test do, and checks
//! what must hold whatever the bytes are: no panic, progress, bounded output.

use parda_nbd::client::{self, Expected, Reply};
use parda_nbd::extents::{Extents, MAX_EXTENTS, Status};
use parda_nbd::server::{self, Event};
use parda_nbd::{BlockSizes, Export, ExportName, Extent, Op, wire};

/// Two exports, one of which allows everything and one nothing but aligned reads.
pub(crate) fn exports() -> Vec<Export> {
    let export = |name: &str, min, read_only| Export {
        name: ExportName::new(name).unwrap(),
        description: format!("the disk {name}"),
        size: 1 << 20,
        blocks: BlockSizes::with_min(min).unwrap(),
        read_only,
        trim: !read_only,
        write_zeroes: !read_only,
        fast_zero: !read_only,
        cache: !read_only,
        multi_conn: true,
    };
    vec![export("a", 1, false), export("b", 512, true)]
}

/// What one message may make a peer of ours hold, in bytes.
const OUTPUT_BOUND: usize = 16 << 10;

/// A client sends `input`.
#[allow(dead_code, reason = "each fuzz target uses one of the two")]
pub(crate) fn server(mut input: &[u8]) {
    let exports = exports();
    let mut out = Vec::new();
    let mut handshake = server::Handshake::start(&mut out);
    let (export, session) = loop {
        out.clear();
        let step = handshake.advance(input, &exports, &mut out);
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
    while let Ok(Some(event)) = session.request(input, export) {
        out.clear();
        let payload = match event {
            Event::Disconnect => return,
            Event::Refused { cookie, refusal, discard } => {
                session.put_error_at(&mut out, cookie, refusal.errno, refusal.reason, Some(7));
                discard
            }
            Event::Request { cookie, op: Op::Read(extent) } => {
                assert!(extent.end().is_some_and(|end| end <= export.size));
                // Every other block reads as zeroes.
                if session.can_put_hole() && extent.offset & 512 != 0 {
                    session.put_hole(&mut out, cookie, extent);
                } else {
                    session.put_read(&mut out, cookie, extent);
                }
                0
            }
            Event::Request { cookie, op: Op::BlockStatus { extent, one } } => {
                assert!(extent.end().is_some_and(|end| end <= export.size));
                let mut extents = Extents::new(extent, export.blocks.min(), one);
                let mut status = Status::DATA;
                while !extents.is_complete() {
                    // As odd as the request, so that the fuzzer chooses it.
                    extents.push(1 + (cookie.0 & 1023), status);
                    status = if status == Status::DATA { Status::HOLE_ZERO } else { Status::DATA };
                }
                let extents = extents.finish().unwrap();
                assert!(extents.len() <= if one { 1 } else { MAX_EXTENTS });
                assert!(extents.iter().all(|e| e.len > 0 && e.len % export.blocks.min() == 0));
                assert!(extents.iter().map(|e| u64::from(e.len)).sum::<u64>() <= extent.len.into());
                session.put_status(&mut out, cookie, &extents);
                0
            }
            Event::Request { cookie, op } => {
                assert!(!export.read_only || op == Op::Flush);
                session.put_done(&mut out, cookie);
                if let Op::Write { extent, .. } = op { extent.len } else { 0 }
            }
        };
        assert!(out.len() <= OUTPUT_BOUND);
        let payload = (payload as usize).min(input.len() - wire::REQUEST_LEN);
        input = &input[wire::REQUEST_LEN + payload..];
    }
}

/// A server sends `input`. What was asked are a read of 4 KiB, a flush and the status of 4 KiB, over
/// and over.
#[allow(dead_code, reason = "each fuzz target uses one of the two")]
pub(crate) fn client(mut input: &[u8]) {
    let mut out = Vec::new();
    let mut handshake = client::Handshake::new(ExportName::new("a").unwrap());
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
    let asked = Extent { offset: 8192, len: 4096 };
    let expected = |cookie: parda_nbd::Cookie| match cookie.0 {
        0 => Some(Expected::Data(asked)),
        1 => Some(Expected::Outcome),
        2 => Some(Expected::Status { extent: asked, context: agreed.allocation? }),
        _ => None,
    };
    while let Ok(Some(head)) = client::reply(input, agreed.structured, expected) {
        assert!(head.taken > 0);
        input = &input[head.taken..];
        match head.reply {
            Reply::Data { extent, .. } | Reply::Hole { extent, .. } => {
                assert!(extent.offset >= asked.offset && extent.end() <= asked.end());
                let data = matches!(head.reply, Reply::Data { .. });
                let len = if data { extent.len as usize } else { 0 };
                input = &input[len.min(input.len())..];
            }
            Reply::Status { extents, discard, .. } => {
                assert!((1..=MAX_EXTENTS).contains(&extents.len()));
                assert!(extents.iter().all(|e| e.len > 0));
                input = &input[(discard as usize).min(input.len())..];
            }
            Reply::Error { message, .. } => assert!(message.len() <= OUTPUT_BOUND),
            Reply::Done => {}
        }
    }
}
