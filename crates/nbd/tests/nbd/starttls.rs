//! STARTTLS, both sides: what is answered before, and that nothing said before holds after.
use crate::drive;

use drive::exports;
use parda_address::ExportName;
use parda_nbd::Framing;
use parda_nbd::client;
use parda_nbd::server::{Handshake, Security, Step};
use parda_nbd::wire::{self, OptionReply, option, reply};

fn greeted(security: Security) -> Handshake {
    let mut out = Vec::new();
    let mut server = Handshake::start_with(security, &mut out);
    let step = server.advance(&3u32.to_be_bytes(), &exports(), &mut out);
    assert_eq!(step, Ok(Step::Taken(4)));
    server
}

/// Sends one option; returns the step and the kind of the first reply.
fn ask(server: &mut Handshake, option: u32, data: &[u8]) -> (Step, u32) {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    wire::put_option(&mut input, option, data);
    let step = server.advance(&input, &exports(), &mut out).unwrap();
    (step, u32::from_be_bytes(out[12..16].try_into().unwrap()))
}

const GO_A: &[u8] = b"\0\0\0\x01a\0\0";

#[test]
fn a_listener_that_requires_tls_answers_nothing_else_before_it() {
    let mut server = greeted(Security::Required);
    for (option, data) in [
        (option::LIST, &b""[..]),
        (option::INFO, GO_A),
        (option::GO, GO_A),
        (option::STRUCTURED_REPLY, b""),
        (option::LIST_META_CONTEXT, b"\0\0\0\x01a\0\0\0\0"),
        (option::SET_META_CONTEXT, b"\0\0\0\x01a\0\0\0\0"),
        (0x1234_5678, b"?"),
    ] {
        assert_eq!(ask(&mut server, option, data).1, reply::ERR_TLS_REQD, "option {option}");
    }
    assert_eq!(ask(&mut server, option::STARTTLS, b"now").1, reply::ERR_INVALID);
    assert!(!server.starts_tls());
    assert_eq!(ask(&mut server, option::STARTTLS, b"").1, reply::ACK);
    assert!(server.starts_tls());
    server.secured();
    let (step, _) = ask(&mut server, option::GO, GO_A);
    assert!(matches!(step, Step::Transmission { .. }));
    let (step, kind) = ask(&mut greeted(Security::Required), option::ABORT, b"");
    assert_eq!((step, kind), (Step::Closed, reply::ACK));
}

#[test]
fn an_export_name_without_tls_ends_the_connection() {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    wire::put_option(&mut input, option::EXPORT_NAME, b"a");
    let mut server = greeted(Security::Required);
    let error = server.advance(&input, &exports(), &mut out).unwrap_err();
    assert!(error.to_string().contains("without TLS"), "{error}");
    assert!(out.is_empty());
}

#[test]
fn nothing_that_was_agreed_before_tls_holds_after_it() {
    for (option, framing) in [
        (option::STRUCTURED_REPLY, Framing::Structured),
        (option::EXTENDED_HEADERS, Framing::Extended),
    ] {
        agreed_before_tls(option, framing);
    }
}

fn agreed_before_tls(option: u32, framing: Framing) {
    let found = |server: &mut Handshake| match ask(server, option::GO, GO_A).0 {
        Step::Transmission { session, .. } => session.framing(),
        step => panic!("{step:?}"),
    };
    let agree = |server: &mut Handshake| {
        assert_eq!(ask(server, option, b"").1, reply::ACK);
        let context = b"\0\0\0\x01a\0\0\0\x01\0\0\0\x0fbase:allocation";
        assert_eq!(ask(server, option::SET_META_CONTEXT, context).1, reply::META_CONTEXT);
    };
    let mut before = greeted(Security::Optional);
    agree(&mut before);
    assert_eq!(found(&mut before.clone()), framing, "without TLS it holds");
    assert_eq!(ask(&mut before, option::STARTTLS, b"").1, reply::ACK);
    before.secured();
    // Contexts need structured replies, which are not agreed on any more.
    let context = b"\0\0\0\x01a\0\0\0\x01\0\0\0\x0fbase:allocation";
    assert_eq!(ask(&mut before, option::SET_META_CONTEXT, context).1, reply::ERR_INVALID);
    assert_eq!(found(&mut before.clone()), Framing::Simple);
    agree(&mut before);
    assert_eq!(found(&mut before), framing);
}

/// What came in one piece with STARTTLS is never taken for options.
#[test]
fn nothing_is_taken_between_starttls_and_tls() {
    let mut server = greeted(Security::Required);
    assert_eq!(ask(&mut server, option::STARTTLS, b"").1, reply::ACK);
    let (mut injected, mut out) = (Vec::new(), Vec::new());
    wire::put_option(&mut injected, option::GO, GO_A);
    assert_eq!(server.advance(&injected, &exports(), &mut out), Ok(Step::Incomplete));
    assert!(out.is_empty() && server.starts_tls());
}

#[test]
fn starttls_where_there_is_none_and_twice() {
    assert_eq!(ask(&mut greeted(Security::Plain), option::STARTTLS, b"").1, reply::ERR_UNSUP);
    let mut server = greeted(Security::Optional);
    assert_eq!(ask(&mut server, option::STARTTLS, b"").1, reply::ACK);
    server.secured();
    assert_eq!(ask(&mut server, option::STARTTLS, b"").1, reply::ERR_INVALID);
    assert!(!server.starts_tls());
}

fn hello(flags: u16) -> Vec<u8> {
    let mut out = wire::GREETING_MAGIC.to_be_bytes().to_vec();
    out.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    out
}

#[test]
fn a_client_that_wants_tls_says_nothing_else_before_it() {
    let mut client = client::Handshake::new_with_tls(ExportName::new("a").unwrap());
    let mut out = Vec::new();
    client.advance(&hello(3), &mut out).unwrap();
    let mut starttls = Vec::new();
    wire::put_option(&mut starttls, option::STARTTLS, b"");
    assert_eq!(out[4..], starttls);
    out.clear();
    let mut ack = Vec::new();
    wire::put_option_reply(&mut ack, option::STARTTLS, OptionReply(reply::ACK), b"");
    assert_eq!(client.advance(&ack, &mut out), Ok(client::Step::Taken(ack.len())));
    assert!(client.starts_tls() && out.is_empty());
    // Somebody on the way adds an answer to a question that comes later.
    let mut injected = Vec::new();
    wire::put_option_reply(&mut injected, option::STRUCTURED_REPLY, OptionReply(reply::ACK), b"");
    assert_eq!(client.advance(&injected, &mut out), Ok(client::Step::Incomplete));
    client.secured(&mut out);
    assert!(!client.starts_tls());
    assert_eq!(out[8..12], option::STRUCTURED_REPLY.to_be_bytes());
}

/// Whoever stands between client and server can answer in the server's name: that is no way to
/// have a client go on without TLS.
#[test]
fn a_client_that_wants_tls_goes_nowhere_without_it() {
    for error in [reply::ERR_UNSUP, reply::ERR_INVALID, reply::ERR_TLS_REQD] {
        let mut client = client::Handshake::new_with_tls(ExportName::new("a").unwrap());
        let mut out = Vec::new();
        client.advance(&hello(3), &mut out).unwrap();
        let mut answer = Vec::new();
        wire::put_option_reply(&mut answer, option::STARTTLS, OptionReply(error), b"no");
        let error = client.advance(&answer, &mut out).unwrap_err().to_string();
        assert_eq!(error, "the server has no TLS, and nothing else is asked of it: no");
    }
    let mut client = client::Handshake::new_with_tls(ExportName::new("a").unwrap());
    let old = client.advance(&hello(0), &mut Vec::new()).unwrap_err().to_string();
    assert!(old.contains("it has no options"), "{old}");
}
