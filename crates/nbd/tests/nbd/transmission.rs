//! Properties of both sides: against each other over a stream that is cut anywhere, against an
//! oracle, and against garbage.

use crate::drive;

use std::collections::HashMap;

use parda_address::ExportName;
use parda_disk::status::{ExtentStatus, Extents, MAX_EXTENTS};
use parda_disk::{BlockSizes, Errno, Extent, Geometry, Op};
use parda_nbd::client::{self, Expected, Reply};
use parda_nbd::server::{self, Incoming, ReplyTo, Session, Step};
use parda_nbd::wire::{self, RequestHeader, option};
use parda_nbd::{Cookie, Export, Framing, RequestRefusal, Terms, meta, validate};
use proptest::prelude::*;

const SIZE: usize = 4096;

fn export() -> Export {
    let mut export = drive::exports().remove(0);
    export.geometry.size = SIZE as u64;
    export
}

/// A pipe that delivers in pieces of the given lengths, over and over.
struct Cutter<'a> {
    cuts: &'a [usize],
    next: usize,
}

impl Cutter<'_> {
    fn deliver(&mut self, from: &mut Vec<u8>, to: &mut Vec<u8>) {
        let n = self.cuts[self.next % self.cuts.len()].min(from.len());
        self.next += 1;
        to.extend(from.drain(..n));
    }
}

/// A server over a byte array.
struct Server {
    handshake: server::Handshake,
    session: Option<Session>,
    disk: Vec<u8>,
    input: Vec<u8>,
    out: Vec<u8>,
}

impl Server {
    fn new() -> Self {
        let mut out = Vec::new();
        let handshake = server::Handshake::start(&mut out);
        Self { handshake, session: None, disk: vec![0; SIZE], input: Vec::new(), out }
    }

    fn run(&mut self) {
        let exports = [export()];
        while self.session.is_none() {
            match self.handshake.advance(&self.input, &exports, &mut self.out).unwrap() {
                Step::Incomplete => return,
                Step::Taken(n) => drop(self.input.drain(..n)),
                Step::Transmission { taken, session, .. } => {
                    self.input.drain(..taken);
                    self.session = Some(session);
                }
                Step::Closed => panic!("nobody asked to close"),
            }
        }
        let session = self.session.unwrap();
        while let Some(event) = session.request(&self.input, &exports[0]).unwrap() {
            let payload = match event {
                Incoming::Request { op: Op::Write { extent, .. }, .. } => extent.len as usize,
                Incoming::Refused { discard, .. } => discard as usize,
                _ => 0,
            };
            let head = session.request_len();
            if self.input.len() < head + payload {
                return;
            }
            let payload: Vec<u8> = self.input.drain(..head + payload).collect();
            self.answer(session, event, &payload[head..]);
        }
    }

    fn answer(&mut self, session: Session, event: Incoming, payload: &[u8]) {
        match event {
            Incoming::Refused { to, refusal, .. } => {
                session.put_error(&mut self.out, to, refusal.errno, refusal.reason);
            }
            Incoming::Request { cookie, op: Op::Read(extent) } => {
                session.put_read(&mut self.out, cookie, extent);
                self.out.extend_from_slice(&self.disk[range(extent)]);
            }
            Incoming::Request { cookie, op } => {
                match op {
                    Op::Write { extent, .. } => self.disk[range(extent)].copy_from_slice(payload),
                    Op::Trim { extent, .. } | Op::WriteZeroes { extent, .. } => {
                        self.disk[range(extent)].fill(0);
                    }
                    Op::Flush | Op::Read(_) | Op::Cache(_) | Op::BlockStatus { .. } => {}
                }
                session.put_done(&mut self.out, ReplyTo::new(cookie, op));
            }
            Incoming::Disconnect => panic!("nobody disconnected"),
        }
    }
}

fn range(extent: Extent) -> std::ops::Range<usize> {
    extent.offset as usize..extent.end().unwrap() as usize
}

fn any_op() -> impl Strategy<Value = Op> {
    let extent = (0..SIZE as u64 + 64, 0u64..256).prop_map(|(offset, len)| Extent { offset, len });
    (0..5, extent, any::<bool>()).prop_map(|(kind, extent, fua)| match kind {
        0 => Op::Read(extent),
        1 => Op::Write { extent, fua },
        2 => Op::Flush,
        3 => Op::Trim { extent, fua },
        _ => Op::WriteZeroes { extent, fua, no_hole: fua, fast: fua },
    })
}

/// What the requests must be answered with: the data read, or the error.
fn oracle(ops: &[Op]) -> Vec<Result<Vec<u8>, Errno>> {
    let mut disk = vec![0; SIZE];
    let fits = |e: Extent| e.len > 0 && e.offset + e.len <= SIZE as u64;
    let too_far = |e: Extent| if e.len == 0 { Errno::Inval } else { Errno::NoSpc };
    ops.iter()
        .enumerate()
        .map(|(i, op)| match *op {
            Op::Read(e) if fits(e) => Ok(disk[range(e)].to_vec()),
            Op::Read(_) => Err(Errno::Inval),
            Op::Write { extent: e, .. } if fits(e) => {
                disk[range(e)].fill(i as u8);
                Ok(vec![])
            }
            Op::WriteZeroes { extent: e, .. } | Op::Trim { extent: e, .. } if fits(e) => {
                disk[range(e)].fill(0);
                Ok(vec![])
            }
            Op::Write { extent: e, .. } | Op::WriteZeroes { extent: e, .. } => Err(too_far(e)),
            Op::Trim { .. } => Err(Errno::Inval),
            Op::Flush => Ok(vec![]),
            Op::Cache(_) | Op::BlockStatus { .. } => unreachable!("not in these scripts"),
        })
        .collect()
}

/// A client that sends all of `ops` and gathers what comes back.
fn run(ops: &[Op], cuts: &[usize], framing: Framing) -> Vec<Result<Vec<u8>, Errno>> {
    let mut server = Server::new();
    let mut cutter = Cutter { cuts, next: 0 };
    let (mut input, mut out) = (Vec::new(), Vec::new());
    if framing.has_chunks() {
        let mut handshake = client::Handshake::new(ExportName::default());
        if framing == Framing::Extended {
            handshake = handshake.ask_extended_headers();
        }
        loop {
            cutter.deliver(&mut server.out, &mut input);
            match handshake.advance(&input, &mut out).unwrap() {
                client::Step::Incomplete => {}
                client::Step::Taken(n) => drop(input.drain(..n)),
                client::Step::Transmission { taken, agreed } => {
                    input.drain(..taken);
                    assert_eq!(agreed.framing, framing);
                    assert_eq!(agreed.size, SIZE as u64);
                    assert_eq!(agreed.flags, export().flags(framing));
                    assert_eq!(agreed.blocks, export().geometry.blocks);
                    break;
                }
            }
            cutter.deliver(&mut out, &mut server.input);
            server.run();
        }
    } else {
        out.extend_from_slice(&3u32.to_be_bytes());
        wire::put_option(&mut out, option::EXPORT_NAME, b"");
        server.input.append(&mut out);
        server.run();
        assert_eq!(server.out.len(), wire::GREETING_LEN + wire::EXPORT_NAME_REPLY_LEN);
        server.out.clear();
    }

    let mut pending = HashMap::new();
    for (i, &op) in ops.iter().enumerate() {
        let cookie = Cookie(i as u64);
        client::put_request_in(framing, &mut out, cookie, op);
        if let Op::Write { extent, .. } = op {
            out.resize(out.len() + extent.len as usize, i as u8);
        }
        let expected = if let Op::Read(e) = op { Expected::Data(e) } else { Expected::Outcome };
        pending.insert(cookie, expected);
    }
    let mut results = vec![Ok(vec![]); ops.len()];
    while !pending.is_empty() {
        cutter.deliver(&mut out, &mut server.input);
        server.run();
        cutter.deliver(&mut server.out, &mut input);
        while let Some(head) = client::reply(&input, framing, |c| pending.get(&c).copied()).unwrap()
        {
            let data_len =
                if let Reply::Data { extent, .. } = head.reply { extent.len as usize } else { 0 };
            if input.len() < head.taken + data_len {
                break;
            }
            let bytes: Vec<u8> = input.drain(..head.taken + data_len).collect();
            let result = &mut results[head.cookie.0 as usize];
            match head.reply {
                Reply::Done => {}
                Reply::Data { last, .. } => {
                    assert!(last);
                    *result = Ok(bytes[head.taken..].to_vec());
                }
                Reply::Error { errno, message, last, .. } => {
                    assert!(last);
                    assert_eq!(message.is_empty(), !framing.has_chunks());
                    *result = Err(errno);
                }
                Reply::Hole { .. } | Reply::Status { .. } => panic!("not from this server"),
            }
            pending.remove(&head.cookie);
        }
    }
    results
}

/// What a server says up to transmission with block status.
fn session_of_a_server(framing: Framing) -> Vec<u8> {
    let mut out = Vec::new();
    server::Handshake::start(&mut out);
    let reply = |out: &mut Vec<u8>, option, kind, data: &[u8]| {
        wire::put_option_reply(out, option, wire::OptionReply(kind), data);
    };
    if framing == Framing::Extended {
        reply(&mut out, option::EXTENDED_HEADERS, wire::reply::ACK, b"");
    } else {
        reply(&mut out, option::STRUCTURED_REPLY, wire::reply::ACK, b"");
    }
    let context = [&1u32.to_be_bytes()[..], b"base:allocation"].concat();
    reply(&mut out, option::SET_META_CONTEXT, wire::reply::META_CONTEXT, &context);
    reply(&mut out, option::SET_META_CONTEXT, wire::reply::ACK, b"");
    let info = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[1, 0xff]].concat();
    reply(&mut out, option::GO, wire::reply::INFO, &info);
    reply(&mut out, option::GO, wire::reply::ACK, b"");
    out
}

/// The validator as the spec's sentences read, in arithmetic that cannot overflow.
fn judge(h: &RequestHeader, e: &Geometry, terms: Terms) -> Result<(), Errno> {
    let (start, len) = (u128::from(h.extent.offset), u128::from(h.extent.len));
    let (fua, no_hole, df) = (h.flags & 1 != 0, h.flags & 2 != 0, h.flags & 4 != 0);
    let (one, fast) = (h.flags & 8 != 0, h.flags & 16 != 0);
    let payload = h.flags & 32 != 0;
    let _ = fua;
    let known = [0, 1, 3].contains(&h.command)
        || (h.command == 4 && e.trim)
        || (h.command == 5 && e.cache)
        || (h.command == 6 && e.write_zeroes)
        || (h.command == 7 && terms.allocation);
    if !known
        || h.flags >= 64
        || (no_hole && h.command != 6)
        || (df && !(h.command == 0 && terms.framing != Framing::Simple))
        || (payload && !(h.command == 1 && terms.framing == Framing::Extended))
        || (one && h.command != 7)
        || (fast && !(h.command == 6 && e.fast_zero))
    {
        return Err(Errno::Inval);
    }
    if [1, 4, 6].contains(&h.command) && e.read_only {
        return Err(Errno::Perm);
    }
    if h.command == 3 {
        return Ok(());
    }
    if len == 0 {
        return Err(Errno::Inval);
    }
    if h.command <= 1 && len > u128::from(e.blocks.max()) {
        return Err(if df { Errno::Overflow } else { Errno::Inval });
    }
    if start + len > u128::from(e.size) {
        return Err(if h.command == 1 || h.command == 6 { Errno::NoSpc } else { Errno::Inval });
    }
    let min = u128::from(e.blocks.min());
    if start % min != 0 || len % min != 0 { Err(Errno::Inval) } else { Ok(()) }
}

fn any_framing() -> impl Strategy<Value = Framing> {
    prop::sample::select(vec![Framing::Simple, Framing::Structured, Framing::Extended])
}

/// Numbers near everything that matters, and any other.
fn edgy() -> impl Strategy<Value = u64> {
    let edges =
        prop::sample::select(vec![0, 512, 4096, 1 << 20, 32 << 20, 1 << 32, 1 << 63, u64::MAX]);
    prop_oneof![(edges, -2i64..3).prop_map(|(e, d)| e.wrapping_add_signed(d)), any::<u64>()]
}

proptest! {
    #[test]
    fn client_and_server_agree(
        ops in prop::collection::vec(any_op(), 1..24),
        cuts in prop::collection::vec(1usize..700, 1..12),
        framing in any_framing(),
    ) {
        prop_assert_eq!(run(&ops, &cuts, framing), oracle(&ops));
    }

    #[test]
    fn one_byte_at_a_time(
        ops in prop::collection::vec(any_op(), 1..4),
        framing in any_framing(),
    ) {
        prop_assert_eq!(run(&ops, &[1], framing), oracle(&ops));
    }

    #[test]
    fn validator_agrees_with_the_spec(
        (flags, command) in (0u16..67, 0u16..9),
        (offset, len, size) in (edgy(), edgy(), edgy()),
        (min, framing, allocation) in (0u32..13, any_framing(), any::<bool>()),
        (read_only, trim, write_zeroes) in any::<(bool, bool, bool)>(),
        (cache, fast_zero) in any::<(bool, bool)>(),
    ) {
        prop_assume!(command != wire::command::DISC);
        let blocks = BlockSizes::with_min(1 << min).unwrap();
        let disk = Geometry { size, blocks, read_only, trim, write_zeroes, fast_zero, cache };
        let terms = Terms { framing, allocation };
        let extent = Extent { offset, len };
        let header = RequestHeader { flags, command, cookie: Cookie(1), extent };
        let verdict = validate::check(&header, &disk, terms);
        let errno = verdict.map(drop).map_err(|RequestRefusal { errno, .. }| errno);
        prop_assert_eq!(errno, judge(&header, &disk, terms));
    }

    #[test]
    fn headers_survive_the_wire(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) {
        let extent = Extent { offset, len: len.into() };
        let header = RequestHeader { flags, command, cookie: Cookie(cookie), extent };
        let mut bytes = Vec::new();
        header.put(Framing::Simple, &mut bytes);
        prop_assert_eq!(RequestHeader::decode(Framing::Simple, &bytes), Ok(Some(header)));
        let extent = Extent { offset, len: cookie };
        let header = RequestHeader { extent, ..header };
        bytes.clear();
        header.put(Framing::Extended, &mut bytes);
        prop_assert_eq!(RequestHeader::decode(Framing::Extended, &bytes), Ok(Some(header)));
    }

    /// Well-formed chunks of a server that lies: pieces of reads over each other and outside of
    /// them, with and without an end.
    #[test]
    fn servers_that_lie_are_found_out(
        chunks in prop::collection::vec((0u64..8, 0u16..6, 0u64..10, 1u32..9, any::<bool>()), 0..60),
        extended: bool,
    ) {
        let framing = if extended { Framing::Extended } else { Framing::Structured };
        let mut input = session_of_a_server(framing);
        for (cookie, kind, from, len, last) in chunks {
            // Where the reads are of which `drive` knows.
            let offset = (if cookie == 0 { 8192 } else { 64 * cookie }) + from;
            let payload = match kind {
                0..3 => [&offset.to_be_bytes()[..], &vec![1; len as usize]].concat(),
                3 => [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat(),
                4 => vec![],
                _ => vec![0, 0, 0, 5, 0, 0],
            };
            let kind = match kind {
                0..3 => wire::chunk::OFFSET_DATA,
                3 => wire::chunk::OFFSET_HOLE,
                4 => wire::chunk::NONE,
                _ => wire::chunk::ERROR,
            };
            let last = last || kind == wire::chunk::NONE;
            let (flags, len) = (u16::from(last), payload.len() as u32);
            let cookie = Cookie(cookie);
            let header = wire::ChunkHeader { flags, kind, cookie, len };
            // Sometimes of the wrong request.
            let of = extended.then_some(offset - from);
            wire::put_chunk_header(&mut input, header, of);
            input.extend_from_slice(&payload);
        }
        drive::client(&input);
    }

    #[test]
    fn garbage_does_no_harm(garbage in prop::collection::vec(any::<u8>(), 0..2000)) {
        drive::server(&garbage);
        drive::client(&garbage);
        // Past the handshake, where there is more to break.
        let mut input = 3u32.to_be_bytes().to_vec();
        wire::put_option(&mut input, option::STRUCTURED_REPLY, b"");
        wire::put_option(&mut input, option::EXPORT_NAME, b"a");
        for chunk in garbage.chunks(24) {
            input.extend_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
            input.extend_from_slice(chunk);
        }
        drive::server(&input);
        let mut input = 3u32.to_be_bytes().to_vec();
        wire::put_option(&mut input, option::EXTENDED_HEADERS, b"");
        wire::put_option(&mut input, option::GO, b"\0\0\0\x01a\0\0");
        for chunk in garbage.chunks(28) {
            input.extend_from_slice(&wire::EXTENDED_REQUEST_MAGIC.to_be_bytes());
            input.extend_from_slice(chunk);
        }
        drive::server(&input);
        let mut input = Vec::new();
        server::Handshake::start(&mut input);
        input.extend_from_slice(&garbage);
        drive::client(&input);
    }
}

#[test]
fn a_wrong_magic_ends_the_session() {
    let mut server = Server::new();
    server.input.extend_from_slice(&3u32.to_be_bytes());
    wire::put_option(&mut server.input, option::EXPORT_NAME, b"");
    server.run();
    let error = server.session.unwrap().request(&[0x47; 28], &export()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a request begins with 0x47474747 in place of the magic 0x25609513"
    );
}

/// A structured chunk as a server may send it.
fn chunk(flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let len = payload.len() as u32;
    wire::put_chunk_header(
        &mut out,
        wire::ChunkHeader { flags, kind, cookie: Cookie(7), len },
        None,
    );
    out.extend_from_slice(payload);
    out
}

#[test]
fn chunks_of_a_read_are_held_to_its_range() {
    let asked = Extent { offset: 100, len: 50 };
    let parse =
        |bytes: &[u8]| client::reply(bytes, Framing::Structured, |_| Some(Expected::Data(asked)));
    let hole = |offset: u64, len: u32| [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
    let head = parse(&chunk(0, wire::chunk::OFFSET_HOLE, &hole(100, 50))).unwrap().unwrap();
    assert_eq!(head.reply, Reply::Hole { extent: asked, last: false });
    for (offset, len) in [(99, 10), (140, 11), (u64::MAX, 2), (0, 50)] {
        let error = parse(&chunk(1, wire::chunk::OFFSET_HOLE, &hole(offset, len)));
        assert_eq!(error, Err(client::ReplyError::OutsideRequest));
    }
    for (flags, kind, payload) in [(0, 0, 0), (1, 0, 1), (1, 1, 8), (1, 2, 11), (1, 5, 12)] {
        let error = parse(&chunk(flags, kind, &vec![0; payload]));
        assert!(matches!(error, Err(client::ReplyError::BadChunk { .. })), "{kind}");
    }
    // An unknown kind of error is an error all the same.
    let unknown_error = chunk(1, wire::chunk::ERROR_BIT | 99, &[0, 0, 0, 28, 0, 2, b'n', b'o', 9]);
    let head = parse(&unknown_error).unwrap().unwrap();
    let (errno, message) = (Errno::NoSpc, "no".to_owned());
    let expected = Reply::Error { errno, message, at: None, last: true };
    assert_eq!((head.taken, head.reply), (unknown_error.len(), expected));
}

const TO: ReplyTo = ReplyTo { cookie: Cookie(7), offset: 4096 };

/// What a server of ours writes, as a client of ours reads it.
fn heard(write: impl FnOnce(Session, &mut Vec<u8>), expected: Expected) -> Reply {
    let mut server = Server::new();
    server.input.extend_from_slice(&3u32.to_be_bytes());
    wire::put_option(&mut server.input, option::STRUCTURED_REPLY, b"");
    wire::put_option(&mut server.input, option::EXPORT_NAME, b"");
    server.run();
    let mut out = Vec::new();
    write(server.session.unwrap(), &mut out);
    for cut in 0..out.len() {
        assert_eq!(
            client::reply(&out[..cut], Framing::Structured, |_| Some(expected)),
            Ok(None),
            "{cut}"
        );
    }
    let head = client::reply(&out, Framing::Structured, |_| Some(expected)).unwrap().unwrap();
    assert_eq!((head.taken, head.cookie), (out.len(), Cookie(7)));
    head.reply
}

#[test]
fn holes_status_and_the_place_of_an_error_are_understood() {
    let asked = Extent { offset: 4096, len: 8192 };
    let data = Expected::Data(asked);
    let hole = heard(|session, out| session.put_hole(out, Cookie(7), asked), data);
    assert_eq!(hole, Reply::Hole { extent: asked, last: true });

    let mut extents = Extents::new(asked, 512, false);
    extents.push(4096, ExtentStatus::HOLE_ZERO);
    extents.push(4096, ExtentStatus::DATA);
    let extents = extents.finish().unwrap();
    let expected = Expected::Status { extent: asked, context: meta::ALLOCATION_ID };
    let status = heard(|session, out| session.put_status(out, TO, &extents), expected);
    assert_eq!(status, Reply::Status { extents, discard: 0, last: true });

    for (at, understood) in [(5000, Some(5000)), (12288, None), (0, None)] {
        let error = heard(
            |session, out| session.put_error_at(out, TO, Errno::Io, "worn out", Some(at)),
            data,
        );
        let message = "worn out".to_owned();
        assert_eq!(error, Reply::Error { errno: Errno::Io, message, at: understood, last: true });
    }
}

#[test]
fn extents_of_a_server_are_not_trusted() {
    let asked = Extent { offset: 0, len: 4096 };
    let expected = Some(Expected::Status { extent: asked, context: 9 });
    let parse = |bytes: &[u8]| client::reply(bytes, Framing::Structured, |_| expected);
    let payload = |context: u32, lens: &[u32]| {
        let extents = lens.iter().flat_map(|len| [len.to_be_bytes(), [0xff; 4]].concat());
        context.to_be_bytes().into_iter().chain(extents).collect::<Vec<u8>>()
    };
    let kind = wire::chunk::BLOCK_STATUS;
    for (context, lens) in [(9, &[][..]), (8, &[512]), (9, &[512, 0])] {
        let error = parse(&chunk(1, kind, &payload(context, lens)));
        assert!(matches!(error, Err(client::ReplyError::BadChunk { .. })), "{lens:?}");
    }
    assert!(parse(&chunk(1, kind, &payload(9, &[512])[..11])).is_err());
    // More extents than we keep: the rest is announced, to be thrown away unread.
    let many = chunk(1, kind, &payload(9, &[512; MAX_EXTENTS + 3]));
    let head = parse(&many).unwrap().unwrap();
    assert_eq!(head.taken + 24, many.len());
    let Reply::Status { extents, discard: 24, last: true } = head.reply else { panic!() };
    assert_eq!(extents.len(), MAX_EXTENTS);
    assert_eq!(extents[0].status, ExtentStatus::HOLE_ZERO, "flags of other meanings are dropped");
    // A reply to another kind of request.
    assert!(client::reply(&many, Framing::Structured, |_| Some(Expected::Outcome)).is_err());
    assert!(client::reply(&chunk(1, 1, &[0; 10]), Framing::Structured, |_| expected).is_err());
    let mut simple = Vec::new();
    wire::put_simple_reply(&mut simple, Cookie(7), None);
    assert_eq!(parse(&simple), Err(client::ReplyError::WrongKind));
}

/// What fuzzing begins with is tried by every test run, wherever there is no fuzzer.
#[test]
fn the_seeds_of_the_fuzzer_do_no_harm() {
    let seeds = |side: &str| {
        let dir = format!("{}/../../fuzz/seeds/nbd_{side}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path());
        let seeds: Vec<Vec<u8>> = files.map(|file| std::fs::read(file).unwrap()).collect();
        assert!(seeds.len() >= 7, "{dir}");
        seeds
    };
    for (side, drive) in [("server", drive::server as fn(&[u8])), ("client", drive::client)] {
        for seed in seeds(side) {
            (0..=seed.len()).for_each(|cut| drive(&seed[..cut]));
        }
    }
}
