//! Extended headers, side by side: what is agreed, what lengths are taken, what ends a connection.

use crate::drive;

use drive::exports;
use parda_address::ExportName;
use parda_disk::status::{Descriptor, ExtentStatus, Extents, MAX_EXTENTS};
use parda_disk::{Errno, Extent, Op};
use parda_nbd::client::{self, Expected, Reply, ReplyError};
use parda_nbd::server::{Handshake, Incoming, ReplyTo, Session, Step};
use parda_nbd::wire::{
    self, ChunkHeader, OptionReply, RequestHeader, chunk, command, command_flag, option, reply,
};
use parda_nbd::{Cookie, Export, Framing, ProtocolError, TransmissionFlags};

const GO_A: &[u8] = b"\0\0\0\x01a\0\0";
const CONTEXT_A: &[u8] = b"\0\0\0\x01a\0\0\0\x01\0\0\0\x0fbase:allocation";
const G: u64 = 1 << 30;
/// What a write may carry.
const MAX: u64 = 32 << 20;

fn greeted() -> Handshake {
    let mut out = Vec::new();
    let mut server = Handshake::start(&mut out);
    server.advance(&3u32.to_be_bytes(), &exports(), &mut out).unwrap();
    server
}

/// Sends one option; returns the step and the kind of the last reply.
fn ask(server: &mut Handshake, option: u32, data: &[u8]) -> (Step, u32) {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    wire::put_option(&mut input, option, data);
    let step = server.advance(&input, &exports(), &mut out).unwrap();
    let (mut rest, mut kind) = (out.as_slice(), 0);
    while !rest.is_empty() {
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        kind = word(12);
        rest = &rest[20 + word(16) as usize..];
    }
    (step, kind)
}

/// A session with extended headers and block status on the large export.
fn session() -> (Session, Export) {
    let mut server = greeted();
    assert_eq!(ask(&mut server, option::EXTENDED_HEADERS, b"").1, reply::ACK);
    assert_eq!(ask(&mut server, option::SET_META_CONTEXT, CONTEXT_A).1, reply::ACK);
    let (step, _) = ask(&mut server, option::GO, GO_A);
    let Step::Transmission { session, .. } = step else { panic!("{step:?}") };
    assert_eq!((session.framing(), session.request_len()), (Framing::Extended, 32));
    (session, exports().remove(0))
}

fn header(command: u16, flags: u16, offset: u64, len: u64) -> RequestHeader {
    RequestHeader { flags, command, cookie: Cookie(9), extent: Extent { offset, len } }
}

fn encoded(header: RequestHeader, framing: Framing) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.put(framing, &mut bytes);
    bytes
}

/// What a session makes of a request.
fn judge(header: RequestHeader) -> Result<Incoming, ProtocolError> {
    let (session, export) = session();
    let bytes = encoded(header, Framing::Extended);
    for cut in 0..bytes.len() {
        assert_eq!(session.request(&bytes[..cut], &export), Ok(None), "{cut}");
    }
    session.request(&bytes, &export).map(Option::unwrap)
}

/// The error that a request is refused with, and how much of what follows is thrown away.
fn refused(header: RequestHeader) -> (Errno, u32) {
    match judge(header).unwrap() {
        Incoming::Refused { to, refusal, discard } => {
            assert_eq!(to, ReplyTo { cookie: Cookie(9), offset: header.extent.offset });
            (refusal.errno, discard)
        }
        other => panic!("{header:?}: {other:?}"),
    }
}

#[test]
fn extended_headers_take_the_place_of_structured_replies() {
    let mut server = greeted();
    assert_eq!(ask(&mut server, option::EXTENDED_HEADERS, b"x").1, reply::ERR_INVALID);
    assert_eq!(ask(&mut server, option::STRUCTURED_REPLY, b"").1, reply::ACK);
    assert_eq!(ask(&mut server, option::EXTENDED_HEADERS, b"").1, reply::ACK);
    assert_eq!(ask(&mut server, option::STRUCTURED_REPLY, b"").1, reply::ERR_EXT_HEADER_REQD);
    assert_eq!(ask(&mut server, option::EXTENDED_HEADERS, b"").1, reply::ACK);
    let (step, _) = ask(&mut server, option::GO, GO_A);
    let Step::Transmission { session, .. } = step else { panic!("{step:?}") };
    assert_eq!(session.framing(), Framing::Extended);
    let df = TransmissionFlags::SEND_DF;
    assert!(exports()[0].flags(Framing::Extended).contains(df), "without structured replies too");

    // EXPORT_NAME cannot say what goes with them.
    let mut server = greeted();
    ask(&mut server, option::EXTENDED_HEADERS, b"");
    let (mut input, mut out) = (Vec::new(), Vec::new());
    wire::put_option(&mut input, option::EXPORT_NAME, b"a");
    let end = server.advance(&input, &exports(), &mut out);
    assert!(end.unwrap_err().to_string().contains("by EXPORT_NAME"));
    assert!(out.is_empty());
}

#[test]
fn every_length_up_to_the_end_is_taken_where_nothing_is_carried() {
    let size = exports()[0].geometry.size;
    for (command, beyond) in [
        (command::TRIM, Errno::Inval),
        (command::WRITE_ZEROES, Errno::NoSpc),
        (command::CACHE, Errno::Inval),
        (command::BLOCK_STATUS, Errno::Inval),
    ] {
        for len in [1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, 1 << 40, size] {
            for offset in [0, size - len] {
                let event = judge(header(command, 0, offset, len)).unwrap();
                let Incoming::Request { op, .. } = event else {
                    panic!("{command} {len}: {event:?}")
                };
                assert_eq!(op.extent(), Extent { offset, len });
            }
            assert_eq!(refused(header(command, 0, size - len + 1, len)), (beyond, 0), "{len}");
        }
        assert_eq!(refused(header(command, 0, 0, 0)), (Errno::Inval, 0));
        for (offset, len) in [
            (0, size + 1),
            (0, 1 << 63),
            (1, u64::MAX),
            (u64::MAX, 1),
            (u64::MAX, u64::MAX),
            (1 << 63, 1 << 63),
        ] {
            assert_eq!(refused(header(command, 0, offset, len)), (beyond, 0), "{offset} {len}");
        }
    }
    // A read brings its length back.
    assert_eq!(refused(header(command::READ, 0, 0, MAX + 1)), (Errno::Inval, 0));
    assert_eq!(refused(header(command::READ, 0, 0, 1 << 32)), (Errno::Inval, 0));
    let df = command_flag::DF;
    assert_eq!(refused(header(command::READ, df, 0, 1 << 40)), (Errno::Overflow, 0));
}

#[test]
fn a_payload_is_announced_taken_or_thrown_away_or_ends_the_connection() {
    let flag = command_flag::PAYLOAD_LEN;
    // QEMU leaves out the flag.
    for (flag, len) in [(flag, 1), (flag, 4096), (flag, MAX), (0, 1), (0, MAX)] {
        let event = judge(header(command::WRITE, flag, 0, len)).unwrap();
        let expected = Op::Write { extent: Extent { offset: 0, len }, fua: false };
        assert_eq!(event, Incoming::Request { cookie: Cookie(9), op: expected });
    }
    assert_eq!(
        refused(header(command::WRITE, 0, exports()[0].geometry.size, 512)),
        (Errno::NoSpc, 512)
    );
    assert_eq!(refused(header(command::WRITE, flag, 0, 0)), (Errno::Inval, 0));
    let end = exports()[0].geometry.size;
    assert_eq!(refused(header(command::WRITE, flag, end, 512)), (Errno::NoSpc, 512));
    // On commands that take none it is thrown away, so that the next request is found.
    for command in [command::READ, command::FLUSH, command::TRIM, command::BLOCK_STATUS, 77] {
        assert_eq!(refused(header(command, flag, 0, 12)), (Errno::Inval, 12), "{command}");
    }
    // Nobody waits for a terabyte to pass by.
    let too_long = |len: u64| {
        format!("a request announces a payload of {len} bytes, at most {MAX} are accepted")
    };
    for command in [command::WRITE, command::READ, command::TRIM, command::BLOCK_STATUS, 77] {
        for len in [MAX + 1, 1 << 32, 1 << 40, 1 << 63, u64::MAX] {
            let error = judge(header(command, flag, 0, len)).unwrap_err();
            assert_eq!(error.to_string(), too_long(len));
        }
    }
    let error = judge(header(command::WRITE, 0, 0, 1 << 40)).unwrap_err();
    assert_eq!(error.to_string(), too_long(1 << 40));
    let disconnect = judge(header(command::DISC, flag, 0, u64::MAX)).unwrap();
    assert_eq!(disconnect, Incoming::Disconnect);
}

#[test]
fn compact_and_extended_headers_do_not_mix() {
    let (session, export) = session();
    let flush = header(command::FLUSH, 0, 0, 0);
    let compact = [&encoded(flush, Framing::Simple)[..], &[0; 4]].concat();
    let error = session.request(&compact, &export).unwrap_err();
    let begins = |got: u32, magic: u32| {
        format!("a request begins with {got:#010x} in place of the magic {magic:#010x}")
    };
    let (compact, extended) = (wire::REQUEST_MAGIC, wire::EXTENDED_REQUEST_MAGIC);
    assert_eq!(error.to_string(), begins(compact, extended));
    let mut server = greeted();
    let (Step::Transmission { session, .. }, _) = ask(&mut server, option::GO, GO_A) else {
        panic!("no transmission")
    };
    let error = session.request(&encoded(flush, Framing::Extended), &export).unwrap_err();
    assert_eq!(error.to_string(), begins(extended, compact));
    // Nor does the flag without the header.
    let write = header(command::WRITE, command_flag::PAYLOAD_LEN, 0, 512);
    let Ok(Some(Incoming::Refused { refusal, discard, .. })) =
        session.request(&encoded(write, Framing::Simple), &export)
    else {
        panic!("taken")
    };
    assert_eq!((refusal.errno, discard), (Errno::Inval, 512));
}

/// What our server writes, as our client reads it.
fn heard(
    to: ReplyTo,
    expected: Expected,
    write: impl FnOnce(Session, &mut Vec<u8>),
) -> Result<Reply, ReplyError> {
    let mut out = Vec::new();
    write(session().0, &mut out);
    let parse = |bytes: &[u8]| client::reply(bytes, Framing::Extended, |_| Some(expected));
    for cut in 0..out.len() {
        assert_eq!(parse(&out[..cut])?, None, "{cut}");
    }
    let head = parse(&out)?.unwrap();
    assert_eq!((head.taken, head.cookie), (out.len(), to.cookie));
    Ok(head.reply)
}

#[test]
fn replies_of_every_kind_are_understood() {
    let to = ReplyTo { cookie: Cookie(7), offset: 4096 };
    let read = Extent { offset: 4096, len: 8192 };
    let data = Expected::Data(read);
    let done = heard(to, Expected::Outcome, |s, out| s.put_done(out, to));
    assert_eq!(done, Ok(Reply::Done));
    let hole = heard(to, data, |s, out| s.put_hole(out, to.cookie, read));
    assert_eq!(hole, Ok(Reply::Hole { extent: read, last: true }));
    let head = heard(to, data, |s, out| s.put_read(out, to.cookie, read));
    assert_eq!(head, Ok(Reply::Data { extent: read, last: true }));
    let error =
        heard(to, data, |s, out| s.put_error_at(out, to, Errno::Io, "worn out", Some(5000)));
    let message = "worn out".to_owned();
    assert_eq!(error, Ok(Reply::Error { errno: Errno::Io, message, at: Some(5000), last: true }));

    // Extents longer than 32 bits can say, and as many as there may be.
    let asked = Extent { offset: 4096, len: 1 << 61 };
    let mut extents = Extents::new(asked, 1, false);
    let mut status = ExtentStatus::DATA;
    while !extents.is_complete() {
        extents.push(5 * G, status);
        status =
            if status == ExtentStatus::DATA { ExtentStatus::HOLE_ZERO } else { ExtentStatus::DATA };
    }
    let extents = extents.finish().unwrap();
    assert_eq!(extents.len(), MAX_EXTENTS);
    assert_eq!(extents[0], Descriptor { len: 5 * G, status: ExtentStatus::DATA });
    let expected = Expected::Status { extent: asked, context: 1 };
    let status = heard(to, expected, |s, out| s.put_status(out, to, &extents));
    assert_eq!(status, Ok(Reply::Status { extents, discard: 0, last: true }));

    // The offset of another request.
    let wrong = Err(ReplyError::WrongOffset { asked: 4096, got: 4097 });
    let elsewhere = ReplyTo { offset: 4097, ..to };
    assert_eq!(heard(to, data, |s, out| s.put_error(out, elsewhere, Errno::Io, "")), wrong);
}

#[test]
fn replies_of_a_server_are_not_trusted() {
    let asked = Extent { offset: 0, len: 1 << 40 };
    let parse = |bytes: &[u8], expected| {
        client::reply(bytes, Framing::Extended, |_| Some(expected)).map(|head| head.unwrap())
    };
    let status = Expected::Status { extent: asked, context: 9 };
    let extended = |kind: u16, payload: &[u8]| {
        let mut out = Vec::new();
        let (flags, cookie, len) = (chunk::FLAG_DONE, Cookie(7), payload.len() as u32);
        wire::put_chunk_header(&mut out, ChunkHeader { flags, kind, cookie, len }, Some(0));
        out.extend_from_slice(payload);
        out
    };
    let extents = |context: u32, count: u32, list: &[(u64, u64)]| {
        let list = list.iter().flat_map(|(len, flags)| [len.to_be_bytes(), flags.to_be_bytes()]);
        let head = [context.to_be_bytes(), count.to_be_bytes()].concat();
        let payload = [head, list.flatten().collect()].concat();
        extended(chunk::BLOCK_STATUS_EXT, &payload)
    };
    let good = parse(&extents(9, 2, &[(1 << 33, 3), (1 << 63, 4)]), status).unwrap().reply;
    let told = [(1 << 33, ExtentStatus::HOLE_ZERO), (1 << 63, ExtentStatus::DATA)];
    let told = told.map(|(len, status)| Descriptor { len, status }).to_vec();
    assert_eq!(good, Reply::Status { extents: told, discard: 0, last: true });
    for bad in [
        extents(8, 1, &[(512, 0)]),
        extents(9, 0, &[]),
        extents(9, 2, &[(512, 0)]),
        extents(9, 1, &[(0, 0)]),
        // None of the flags of base:allocation is there.
        extents(9, 1, &[(512, 1 << 32)]),
        extended(chunk::BLOCK_STATUS, &[0, 0, 0, 9, 0, 0, 2, 0, 0, 0, 0, 0]),
        extended(chunk::NONE, &[0; 16]),
    ] {
        let error = parse(&bad, status);
        assert!(matches!(error, Err(ReplyError::BadChunk { .. })), "{error:?}");
    }
    // More than are kept, the rest to be thrown away.
    let many = extents(9, MAX_EXTENTS as u32 + 2, &[(512, 0); MAX_EXTENTS + 2]);
    let Reply::Status { discard: 32, .. } = parse(&many, status).unwrap().reply else { panic!() };

    // A payload of more than 32 bits, and replies of other layouts.
    let mut long = extended(chunk::OFFSET_DATA, &[0; 24]);
    long[24] = 1;
    let error = parse(&long, Expected::Data(Extent { offset: 0, len: 16 })).unwrap_err();
    assert_eq!(error, ReplyError::BadChunk { kind: 1, len: (1 << 56) + 24 });
    let (mut simple, mut structured) = (Vec::new(), Vec::new());
    wire::put_simple_reply(&mut simple, Cookie(7), None);
    let (flags, kind, cookie) = (chunk::FLAG_DONE, chunk::NONE, Cookie(7));
    wire::put_chunk_header(&mut structured, ChunkHeader { flags, kind, cookie, len: 0 }, None);
    for other in [simple, structured] {
        let padded = [&other[..], &[0; 16]].concat();
        assert_eq!(parse(&padded, Expected::Outcome), Err(ReplyError::WrongKind));
    }
    let done = extended(chunk::NONE, &[]);
    for framing in [Framing::Simple, Framing::Structured] {
        let read = client::reply(&done, framing, |_| Some(Expected::Outcome));
        assert_eq!(read, Err(ReplyError::WrongKind));
    }
}

/// Answers a client that asks for extended headers from a script.
fn client_against(script: &[u8]) -> Result<client::Agreed, client::HandshakeError> {
    let name = ExportName::new("a").unwrap();
    let mut client = client::Handshake::new(name).ask_extended_headers();
    let (mut input, mut out) = (script.to_vec(), Vec::new());
    loop {
        match client.advance(&input, &mut out)? {
            client::Step::Incomplete => panic!("the script is too short"),
            client::Step::Taken(n) => drop(input.drain(..n)),
            client::Step::Transmission { agreed, .. } => return Ok(agreed),
        }
    }
}

#[test]
fn a_client_takes_what_the_server_has() {
    let mut greeting = Vec::new();
    Handshake::start(&mut greeting);
    let answer = |option: u32, kind: u32, data: &[u8]| {
        let mut out = Vec::new();
        wire::put_option_reply(&mut out, option, OptionReply(kind), data);
        out
    };
    let info = [&[0, 0][..], &(1u64 << 50).to_be_bytes(), &5u16.to_be_bytes()].concat();
    let no_meta = answer(option::SET_META_CONTEXT, reply::ERR_UNSUP, b"");
    let go = [
        no_meta.clone(),
        answer(option::GO, reply::INFO, &info),
        answer(option::GO, reply::ACK, b""),
    ]
    .concat();
    let extended = answer(option::EXTENDED_HEADERS, reply::ACK, b"");
    let agreed = client_against(&[&greeting[..], &extended, &go].concat()).unwrap();
    assert_eq!((agreed.framing, agreed.size), (Framing::Extended, 1 << 50));
    for kind in [reply::ERR_UNSUP, reply::ERR_POLICY, reply::ERR_INVALID] {
        let no = answer(option::EXTENDED_HEADERS, kind, b"no");
        let structured = answer(option::STRUCTURED_REPLY, reply::ACK, b"");
        let agreed = client_against(&[&greeting[..], &no, &structured, &go].concat()).unwrap();
        assert_eq!(agreed.framing, Framing::Structured);
    }
    let tls = answer(option::EXTENDED_HEADERS, reply::ERR_TLS_REQD, b"");
    let error = client_against(&[&greeting[..], &tls].concat()).unwrap_err();
    assert!(error.to_string().contains("requires TLS"), "{error}");
    // No EXPORT_NAME with them.
    let no_go = answer(option::GO, reply::ERR_UNSUP, b"");
    let error = client_against(&[&greeting[..], &extended, &no_meta, &no_go].concat()).unwrap_err();
    assert!(error.to_string().contains("refused NBD_OPT_GO"), "{error}");
}

#[test]
fn a_client_writes_what_a_server_reads() {
    let (session, export) = session();
    let extent = Extent { offset: 3 << 40, len: 1 << 41 };
    let small = Extent { offset: 4096, len: 512 };
    for op in [
        Op::Read(small),
        Op::Write { extent: small, fua: true },
        Op::Flush,
        Op::Trim { extent, fua: true },
        Op::WriteZeroes { extent, fua: false, no_hole: true, fast: true },
        Op::Cache(extent),
        Op::BlockStatus { extent, one: true },
    ] {
        let mut out = Vec::new();
        client::put_request_in(Framing::Extended, &mut out, Cookie(5), op);
        let event = session.request(&out, &export);
        assert_eq!(event, Ok(Some(Incoming::Request { cookie: Cookie(5), op })));
    }
    let mut out = Vec::new();
    client::put_disconnect(&mut out, Framing::Extended);
    assert_eq!(session.request(&out, &export), Ok(Some(Incoming::Disconnect)));
}
