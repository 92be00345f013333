//! The handshake, option by option and side by side.

use crate::drive;

use drive::exports;
use parda_address::ExportName;
use parda_disk::{Errno, Extent, Op};
use parda_nbd::client::{self, HandshakeError as ClientError};
use parda_nbd::server::{Handshake, Incoming, MAX_OPTIONS, Step};
use parda_nbd::wire::{self, OptionReply, info, option, reply};
use parda_nbd::{Cookie, Framing, TransmissionFlags as Flags, meta};

/// A server that has taken the client's flags.
fn greeted(client_flags: u32) -> Handshake {
    let mut out = Vec::new();
    let mut server = Handshake::start(&mut out);
    assert_eq!(out.len(), wire::GREETING_LEN);
    let step = server.advance(&client_flags.to_be_bytes(), &exports(), &mut out);
    assert_eq!(step, Ok(Step::Taken(4)));
    server
}

/// Sends one option, which must not break the handshake; returns the step and the replies.
fn ask(server: &mut Handshake, option: u32, data: &[u8]) -> (Step, Vec<(u32, Vec<u8>)>) {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    wire::put_option(&mut input, option, data);
    let step = server.advance(&input, &exports(), &mut out).unwrap();
    let replies = option_replies(&out).into_iter().map(|(to, kind, data)| {
        assert_eq!(to, option);
        (kind, data)
    });
    (step, replies.collect())
}

/// The option that each reply is to, its type and its data.
fn option_replies(mut out: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !out.is_empty() {
        let word = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(out[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
        let len = word(16) as usize;
        replies.push((word(8), word(12), out[20..20 + len].to_vec()));
        out = &out[20 + len..];
    }
    replies
}

fn info_request(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(kinds.len() as u16).to_be_bytes());
    kinds.iter().for_each(|k| data.extend_from_slice(&k.to_be_bytes()));
    data
}

#[test]
fn list_names_every_export() {
    let (_, replies) = ask(&mut greeted(3), option::LIST, b"");
    let entry = |name: &[u8]| [&1u32.to_be_bytes()[..], name, b"the disk ", name].concat();
    assert_eq!(
        replies,
        [(reply::SERVER, entry(b"a")), (reply::SERVER, entry(b"b")), (reply::ACK, vec![])]
    );
    assert_eq!(ask(&mut greeted(3), option::LIST, b"x").1[0].0, reply::ERR_INVALID);
}

#[test]
fn info_tells_what_was_asked_and_does_not_start_transmission() {
    let data = info_request("b", &[info::NAME, info::DESCRIPTION, 999]);
    let (step, replies) = ask(&mut greeted(3), option::INFO, &data);
    assert!(matches!(step, Step::Taken(_)));
    let kinds: Vec<u16> = replies
        .iter()
        .filter(|r| r.0 == reply::INFO)
        .map(|r| u16::from_be_bytes([r.1[0], r.1[1]]))
        .collect();
    assert_eq!(kinds, [info::EXPORT, info::BLOCK_SIZE, info::NAME, info::DESCRIPTION]);
    assert_eq!(replies.last().unwrap().0, reply::ACK);
    assert_eq!(replies[3].1[2..], *b"the disk b");
}

#[test]
fn unknown_exports_and_malformed_requests_are_told_apart() {
    let mut server = greeted(3);
    assert_eq!(ask(&mut server, option::GO, &info_request("c", &[])).1[0].0, reply::ERR_UNKNOWN);
    // With two exports the empty name means neither.
    assert_eq!(ask(&mut server, option::GO, &info_request("", &[])).1[0].0, reply::ERR_UNKNOWN);
    for cut in 0..7 {
        let data = &info_request("a", &[3])[..cut];
        assert_eq!(ask(&mut server, option::GO, data).1[0].0, reply::ERR_INVALID, "{cut}");
    }
    // The handshake is none the worse for it.
    let (step, _) = ask(&mut server, option::GO, &info_request("a", &[]));
    assert!(matches!(step, Step::Transmission { export: 0, .. }));
}

#[test]
fn what_is_not_supported_is_refused_politely() {
    const STARTTLS: u32 = 5;
    let mut server = greeted(3);
    for option in [STARTTLS, 4, 77] {
        let (step, replies) = ask(&mut server, option, b"data");
        assert!(matches!(step, Step::Taken(20)));
        assert_eq!(replies[0].0, reply::ERR_UNSUP);
    }
    let (step, replies) = ask(&mut server, option::ABORT, b"");
    assert_eq!((step, replies[0].0), (Step::Closed, reply::ACK));
}

#[test]
fn export_name_pads_with_zeroes_unless_agreed() {
    for (flags, len) in [(1, 134), (3, 10)] {
        let (mut input, mut out) = (Vec::new(), Vec::new());
        wire::put_option(&mut input, option::EXPORT_NAME, b"a");
        let step = greeted(flags).advance(&input, &exports(), &mut out);
        assert!(matches!(step, Ok(Step::Transmission { export: 0, .. })));
        assert_eq!(out.len(), len);
    }
}

#[test]
fn broken_clients_end_with_a_reason() {
    let (exports, mut out) = (exports(), Vec::new());
    let mut server = Handshake::start(&mut out);
    let error = server.advance(&8u32.to_be_bytes(), &exports, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "the client set unknown handshake flags 0x8");

    let error = greeted(3).advance(&[b'G'; 16], &exports, &mut out).unwrap_err();
    assert!(error.to_string().contains("in place of the magic IHAVEOPT"), "{error}");

    let mut input = Vec::new();
    wire::put_option(&mut input, option::EXPORT_NAME, b"c");
    let error = greeted(3).advance(&input, &exports, &mut out).unwrap_err();
    assert!(error.to_string().contains("export \"c\", which does not exist"), "{error}");

    // Refused by its header alone: no need to wait for, or keep, four gigabytes.
    input.clear();
    wire::put_option(&mut input, option::INFO, b"");
    input[12..16].fill(0xff);
    let error = greeted(3).advance(&input, &exports, &mut out).unwrap_err();
    assert!(error.to_string().starts_with("NBD_OPT_INFO announces 4294967295 bytes"), "{error}");
}

/// Two strings of the greatest length are allowed by the protocol in one option.
#[test]
fn an_option_that_is_too_long_is_refused_and_the_next_is_answered() {
    let long = "x".repeat(wire::MAX_STRING);
    let mut data = (long.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(long.as_bytes());
    data.extend_from_slice(&1u32.to_be_bytes());
    data.extend_from_slice(&(long.len() as u32).to_be_bytes());
    data.extend_from_slice(long.as_bytes());
    for option in [option::SET_META_CONTEXT, option::INFO, 77] {
        let mut input = Vec::new();
        wire::put_option(&mut input, option, &data);
        wire::put_option(&mut input, option::ABORT, b"");
        // In pieces, as they come from a socket.
        let (mut server, exports, mut out) = (greeted(3), exports(), Vec::new());
        let (mut start, mut end) = (0, 0);
        loop {
            match server.advance(&input[start..end], &exports, &mut out).unwrap() {
                Step::Incomplete => end = (end + 1000).min(input.len()),
                Step::Taken(n) => start += n,
                Step::Transmission { .. } => panic!("nothing was chosen"),
                Step::Closed => break,
            }
            assert!(end - start <= wire::OPTION_HEADER_LEN + wire::MAX_OPTION_DATA);
        }
        let replies: Vec<_> = option_replies(&out).into_iter().map(|(to, k, _)| (to, k)).collect();
        assert_eq!(replies, [(option, reply::ERR_TOO_BIG), (option::ABORT, reply::ACK)]);
    }
    // What has no answer ends the connection.
    let mut input = Vec::new();
    wire::put_option(&mut input, option::EXPORT_NAME, &data);
    let error = greeted(3).advance(&input, &exports(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("NBD_OPT_EXPORT_NAME announces"), "{error}");
}

/// Answers a client from a script: what it sends is taken as read.
fn client_against(answers: &[&[u8]]) -> Result<client::Agreed, ClientError> {
    let mut client = client::Handshake::new(ExportName::new("a").unwrap());
    let (mut input, mut out) = (answers.concat(), Vec::new());
    loop {
        match client.advance(&input, &mut out)? {
            client::Step::Incomplete => panic!("the script is too short"),
            client::Step::Taken(n) => drop(input.drain(..n)),
            client::Step::Transmission { agreed, .. } => return Ok(agreed),
        }
    }
}

fn greeting(flags: u16) -> Vec<u8> {
    [
        &wire::GREETING_MAGIC.to_be_bytes()[..],
        &wire::OPTION_MAGIC.to_be_bytes(),
        &flags.to_be_bytes(),
    ]
    .concat()
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_option_reply(&mut out, option, OptionReply(kind), data);
    out
}

#[test]
fn client_falls_back_to_export_name() {
    let answer = [&(1u64 << 30).to_be_bytes()[..], &5u16.to_be_bytes(), &[0; 124]].concat();
    let unsup = |option| option_reply(option, reply::ERR_UNSUP, b"");
    // A server without GO and structured replies, and one that is not even fixed newstyle.
    for script in [
        vec![greeting(1), unsup(option::STRUCTURED_REPLY), unsup(option::GO), answer.clone()],
        vec![greeting(0), answer.clone()],
    ] {
        let script: Vec<&[u8]> = script.iter().map(Vec::as_slice).collect();
        let agreed = client_against(&script).unwrap();
        assert_eq!((agreed.size, agreed.framing), (1 << 30, Framing::Simple));
        assert!(agreed.flags.contains(Flags::SEND_FLUSH));
    }
}

#[test]
fn client_names_what_is_wrong_with_a_server() {
    let structured = option_reply(option::STRUCTURED_REPLY, reply::ACK, b"");
    let go = |kind, data: &[u8]| option_reply(option::GO, kind, data);
    let no_meta = option_reply(option::SET_META_CONTEXT, reply::ERR_UNSUP, b"");
    let before = [greeting(3), structured, no_meta].concat();
    let with_go = |kind, data: &[u8]| client_against(&[&before, &go(kind, data)]);
    let message = |answer: Result<client::Agreed, ClientError>| answer.unwrap_err().to_string();
    let http = message(client_against(&[b"HTTP/1.1 400 Bad"]));
    assert!(http.contains("not an NBD server"), "{http}");
    let oldstyle =
        [wire::GREETING_MAGIC.to_be_bytes(), wire::OLDSTYLE_MAGIC.to_be_bytes()].concat();
    assert!(message(client_against(&[&oldstyle])).contains("oldstyle"));
    let gone = message(with_go(reply::ERR_UNKNOWN, b"gone"));
    assert_eq!(gone, "the server has no export \"a\": gone");
    let tls = message(with_go(reply::ERR_TLS_REQD, b""));
    assert_eq!(tls, "the server requires TLS: use nbds:// or nbds+unix://");
    for (kind, data) in [(reply::ACK, &b""[..]), (reply::INFO, &[0, 0, 1])] {
        let malformed = message(with_go(kind, data));
        assert_eq!(malformed, "the server sent a malformed reply to NBD_OPT_GO");
    }
    let refused = message(with_go(reply::ERR_POLICY, b"not today"));
    assert_eq!(refused, "the server refused NBD_OPT_GO with NBD_REP_ERR_POLICY: not today");
    let refused = message(with_go(reply::ERROR_BIT | 77, b"x"));
    assert_eq!(refused, "the server refused NBD_OPT_GO with reply 0x8000004d: x");
    let sizes = [&[0, 3][..], &[0; 12]].concat();
    assert!(message(with_go(reply::INFO, &sizes)).contains("impossible block sizes"));
    for (other, name) in [(option::GO, "NBD_OPT_GO"), (77, "option 77")] {
        let wrong = message(client_against(&[&greeting(3), &option_reply(other, reply::ACK, b"")]));
        let expected =
            format!("the server answers {name} where NBD_OPT_STRUCTURED_REPLY was asked");
        assert_eq!(wrong, expected);
    }
}

#[test]
fn client_chooses_block_status_where_it_is_to_be_had() {
    let ack = |option| option_reply(option, reply::ACK, b"");
    let size = [&[0, 0][..], &(1u64 << 30).to_be_bytes(), &5u16.to_be_bytes()].concat();
    let go = [option_reply(option::GO, reply::INFO, &size), ack(option::GO)].concat();
    let context = |name: &[u8]| {
        let data = [&9u32.to_be_bytes(), name].concat();
        option_reply(option::SET_META_CONTEXT, reply::META_CONTEXT, &data)
    };
    let (set, refused) = (option::SET_META_CONTEXT, |kind| option_reply(10, kind, b"no"));
    for (answers, allocation) in [
        (vec![context(b"base:allocation"), ack(set)], Some(9)),
        (vec![ack(set)], None),
        (vec![context(b"base:other"), ack(set)], None),
        (vec![refused(reply::ERR_UNSUP)], None),
        (vec![context(b"base:allocation"), refused(reply::ERR_POLICY)], None),
    ] {
        let script = [greeting(3), ack(option::STRUCTURED_REPLY), answers.concat(), go.clone()];
        let agreed = client_against(&[&script.concat()]).unwrap();
        assert_eq!((agreed.allocation, agreed.framing), (allocation, Framing::Structured));
    }
}

/// Chooses contexts, and says what came back.
fn set(server: &mut Handshake, export: &str, contexts: &[&str]) -> Vec<(u32, Vec<u8>)> {
    ask(server, option::SET_META_CONTEXT, &meta::queries(export, contexts)).1
}

/// Goes over to transmission, and tells whether BLOCK_STATUS is understood there.
fn status_after_go(server: &mut Handshake, export: &str) -> bool {
    let (step, _) = ask(server, option::GO, &info_request(export, &[]));
    let Step::Transmission { export, session, .. } = step else { panic!("{step:?}") };
    let extent = Extent { offset: 0, len: 4096 };
    let mut request = Vec::new();
    client::put_request(&mut request, Cookie(1), Op::BlockStatus { extent, one: true });
    match session.request(&request, &exports()[export]).unwrap().unwrap() {
        Incoming::Request { op: Op::BlockStatus { one: true, .. }, .. } => true,
        Incoming::Refused { refusal, .. } => {
            assert_eq!(refusal.errno, Errno::Inval);
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn block_status_is_for_those_who_chose_its_context() {
    let context = [&1u32.to_be_bytes()[..], b"base:allocation"].concat();
    let chosen = [(reply::META_CONTEXT, context), (reply::ACK, vec![])];
    let structured = || {
        let mut server = greeted(3);
        ask(&mut server, option::STRUCTURED_REPLY, b"");
        server
    };
    let mut server = structured();
    assert_eq!(set(&mut server, "a", &["x:y", "base:allocation", "base:allocation"]), chosen);
    assert!(status_after_go(&mut server, "a"));

    // The choice is for one export, and the last one counts, even if it fails.
    let mut server = structured();
    assert_eq!(set(&mut server, "b", &["base:allocation"]), chosen);
    assert!(!status_after_go(&mut server, "a"));
    for second in [("a", &[][..]), ("a", &["base:"]), ("c", &["base:allocation"])] {
        let mut server = structured();
        set(&mut server, "a", &["base:allocation"]);
        let replies = set(&mut server, second.0, second.1);
        let end = if second.0 == "c" { reply::ERR_UNKNOWN } else { reply::ACK };
        assert_eq!((replies.len(), replies[0].0), (1, end), "{second:?}");
        assert!(!status_after_go(&mut server, "a"), "{second:?}");
    }
    // A list chooses nothing, and its number is reserved.
    let mut server = structured();
    let list = ask(&mut server, option::LIST_META_CONTEXT, &meta::queries("a", &["base:"])).1;
    assert_eq!(list[0], (reply::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec()));
    assert!(!status_after_go(&mut server, "a"));
    // There are no extents without structured replies to carry them.
    for option in [option::LIST_META_CONTEXT, option::SET_META_CONTEXT] {
        let data = meta::queries("a", &["base:allocation"]);
        assert_eq!(ask(&mut greeted(3), option, &data).1[0].0, reply::ERR_INVALID);
        assert_eq!(ask(&mut structured(), option, &data[..9]).1[0].0, reply::ERR_INVALID);
    }
}

#[test]
fn a_flood_of_options_ends() {
    let (mut server, exports) = (greeted(3), exports());
    let (mut option, mut out) = (Vec::new(), Vec::new());
    wire::put_option(&mut option, option::LIST, b"");
    let mut answered = 0;
    let error = loop {
        out.clear();
        match server.advance(&option, &exports, &mut out) {
            Ok(_) => answered += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(answered, MAX_OPTIONS);
    assert_eq!(error.to_string(), "the client sent more than 4096 options");
}
