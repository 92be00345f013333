//! Clients without manners: each costs itself its connection or its request, and nobody else
//! notices.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use parda_disk::{Errno, Extent, Op};
use parda_nbd::wire::{self, RequestHeader, command, command_flag};
use parda_nbd::{Cookie, client};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};

use crate::held::Held;
use crate::stage::{Agent, Load, Stage, config, until, uri};
use parda_testkit::{Client, read, write};

const SIZE: u64 = 32 << 20;

/// An agent with a disk `vm1`, and a well-behaved client that writes and verifies.
fn begin(stage: &Stage) -> (Agent, Load) {
    stage.sparse("data", SIZE);
    let agent = stage.agent("host", &config("host", "", &[("vm1", "data")]));
    let options = ["--rw=randwrite", "--bs=4k", "--size=4m", "--offset=16m", "--verify=crc32c"];
    let load = stage.load("fio", &uri("host", "vm1"), &[&options[..], &["--iodepth=8"]].concat());
    until("the good client is there", || agent.volume().disks[0].writes.ios > 50);
    (agent, load)
}

/// The good client still gets on.
fn goes_on(agent: &Agent) {
    let done = || agent.volume().disks[0].reads.ios + agent.volume().disks[0].writes.ios;
    let before = done();
    until("the good client gets on", || done() > before + 50);
}

fn connect(stage: &Stage) -> UnixStream {
    let stream = UnixStream::connect(stage.path("host")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// The client's part of a handshake that ends on the disk.
fn handshake() -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    wire::put_option(&mut bytes, wire::option::EXPORT_NAME, b"vm1");
    bytes
}

#[test]
fn what_is_no_nbd_is_closed() {
    let stage = Stage::new();
    let (agent, load) = begin(&stage);
    let flags = |flags: u32| flags.to_be_bytes().to_vec();
    let option_header = |magic: u64, option: u32, len: u32| {
        [&flags(3)[..], &magic.to_be_bytes(), &option.to_be_bytes(), &len.to_be_bytes()].concat()
    };
    let mut unknown_export = flags(3);
    wire::put_option(&mut unknown_export, wire::option::EXPORT_NAME, b"nope");
    let after_handshake = |bytes: &[u8]| [&handshake(), bytes].concat();
    for (what, bytes) in [
        ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("noise", vec![0xa5; 4096]),
        ("unknown flags", flags(0x8000_0001)),
        ("an option without its magic", option_header(0x1234, 7, 0)),
        ("an oversized option", option_header(wire::OPTION_MAGIC, 7, 1 << 20)),
        ("an option of 4 GiB", option_header(wire::OPTION_MAGIC, 99, u32::MAX)),
        ("an unknown export", unknown_export),
        ("a request without its magic", after_handshake(&[0x47; 28])),
        ("a reply", after_handshake(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes().repeat(7))),
    ] {
        let mut stream = connect(&stage);
        // It may be closed before all is written.
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let closed = stream.read_to_end(&mut answer);
        // A close with bytes unread is a reset.
        let reset = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(closed.as_ref().err().is_none_or(reset), "{what}: {closed:?}");
        goes_on(&agent);
    }
    load.finish();
    agent.stop();
}

#[test]
fn requests_that_cannot_be_are_refused_and_the_next_one_works() {
    let stage = Stage::new();
    let (agent, load) = begin(&stage);
    let mut client = Client::connect(&stage.path("host"), "vm1");
    let too_long = (32 << 20) + 4096;
    for (i, (what, command, flags, offset, len, payload, errno)) in [
        ("out of range", command::READ, 0, SIZE, 4096, 0, Errno::Inval),
        ("out of range by half", command::WRITE, 0, SIZE - 4096, 8192, 8192, Errno::NoSpc),
        ("beyond 2^64", command::READ, 0, u64::MAX - 4095, 8192, 0, Errno::Inval),
        ("no length", command::READ, 0, 0, 0, 0, Errno::Inval),
        ("oversized read", command::READ, 0, 0, too_long, 0, Errno::Inval),
        ("oversized write", command::WRITE, 0, 0, too_long, too_long, Errno::Inval),
        ("unknown command", 77, 0, 0, 4096, 0, Errno::Inval),
        ("unknown flags", command::READ, 1 << 9, 0, 4096, 0, Errno::Inval),
        (
            "a flag of another command",
            command::WRITE,
            command_flag::NO_HOLE,
            0,
            512,
            512,
            Errno::Inval,
        ),
        ("trim out of range", command::TRIM, 0, SIZE, 4096, 0, Errno::Inval),
        ("zeroes out of range", command::WRITE_ZEROES, 0, 0, u32::MAX, 0, Errno::NoSpc),
    ]
    .into_iter()
    .enumerate()
    {
        let extent = Extent { offset, len: len.into() };
        let cookie = Cookie(1 << 32 | i as u64);
        let header = RequestHeader { flags, command, cookie, extent };
        assert_eq!(client.refused(header, &vec![7; payload as usize]), errno, "{what}");
        assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![0; 4096]), "after {what}");
    }
    goes_on(&agent);
    load.finish();
    agent.stop();
}

/// No queue holds refusals back, so they have a rate: 16,384 at once, and then 5,000 a second.
#[test]
fn a_flood_of_refused_requests_leaves_the_thread_to_others() {
    let stage = Stage::new();
    let (agent, load) = begin(&stage);
    let mut flood = connect(&stage);
    flood.write_all(&handshake()).unwrap();
    // The greeting; size and flags of the export.
    flood.read_exact(&mut [0; 18 + 10]).unwrap();
    let mut nothing = Vec::new();
    client::put_request(&mut nothing, Cookie(1), read(0, 0));
    let mut writer = flood.try_clone().unwrap();
    let begun = Instant::now();
    let writer = std::thread::spawn(move || while writer.write_all(&nothing.repeat(64)).is_ok() {});
    flood.read_exact(&mut vec![0; 16 * (16_384 + 5_000)]).unwrap();
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(950), "{took:?}");
    let mut other = Client::connect(&stage.path("host"), "vm1");
    let header = RequestHeader {
        flags: 0,
        command: command::READ,
        cookie: Cookie(2),
        extent: Extent { offset: SIZE, len: 1 },
    };
    assert_eq!(other.refused(header, &[]), Errno::Inval, "it has its turn");
    goes_on(&agent);
    flood.shutdown(std::net::Shutdown::Both).unwrap();
    writer.join().unwrap();
    load.finish();
    agent.stop();
}

#[test]
fn connections_that_break_off_are_forgotten() {
    let stage = Stage::new();
    let (agent, load) = begin(&stage);
    let connections = agent.volume().connections;
    let mut bytes = handshake();
    client::put_request(&mut bytes, Cookie(1), read(0, 1 << 20));
    let extent = Extent { offset: 0, len: 64 << 10 };
    client::put_request(&mut bytes, Cookie(2), Op::Write { extent, fua: true });
    bytes.extend([7; 60 << 10]);
    let heads = bytes.len() - (60 << 10);
    for cut in [0, 3, 4, 19, heads - 56, heads - 40, heads - 28, heads - 1, heads, bytes.len()] {
        connect(&stage).write_all(&bytes[..cut]).unwrap();
    }
    until("all are forgotten", || agent.volume().connections == connections);
    goes_on(&agent);
    load.finish();
    // The write never arrived whole.
    assert_eq!(stage.read("data")[..64 << 10], vec![0; 64 << 10]);
    agent.stop();
}

#[test]
fn a_client_that_never_reads_takes_a_bounded_amount_of_memory() {
    let stage = Stage::new();
    let (agent, load) = begin(&stage);
    let mut greedy = connect(&stage);
    let mut bytes = handshake();
    (0..1000).for_each(|i| client::put_request(&mut bytes, Cookie(i), read(0, 1 << 20)));
    greedy.write_all(&bytes).unwrap();
    until("it was served what it may have", || agent.volume().disks[0].reads.bytes > 50 << 20);
    goes_on(&agent);
    goes_on(&agent);
    let resident = Held::of(&agent).resident_kib / 1024;
    assert!(resident < 256, "the agent takes {resident} MiB");
    load.finish();
    agent.stop();
}

#[test]
fn a_hundred_silent_connections_disturb_nobody() {
    // Both ends are counted against somebody: ours against this process.
    setrlimit(Resource::Nofile, Rlimit { current: Some(1024), maximum: Some(4096) }).ok();
    let stage = Stage::new();
    let (agent, load) = begin(&stage);
    let before = agent.volume().connections;
    let silent: Vec<_> = (0..100).map(|_| connect(&stage)).collect();
    until("all are connected", || agent.volume().connections >= before + 100);
    goes_on(&agent);
    stage.ok(&["nbdinfo", &uri("host", "vm1")]);
    drop(silent);
    until("all are gone", || agent.volume().connections == before);
    load.finish();
    agent.stop();
}

#[test]
fn when_descriptors_run_out_newcomers_are_turned_away_and_the_agent_goes_on() {
    let stage = Stage::new();
    stage.sparse("disk", SIZE);
    let text = config("host", "mode = \"off\"", &[("vm1", "disk")]);
    let agent = stage.agent_within(&["prlimit", "--nofile=64:192"], "host", &text);
    agent.says("has room for fewer clients than limits.connections");
    let mut first = Client::connect(&stage.path("host"), "vm1");
    // More than the soft limit was, and than the hard limit leaves.
    let others: Vec<_> =
        (0..150).filter_map(|_| Client::try_connect(&stage.path("host"), "vm1").ok()).collect();
    assert!((65..129).contains(&others.len()), "{} clients are served", others.len());
    agent.says("the process has as many descriptors as its limit");
    // The reserve serves the status socket and the configuration.
    assert_eq!(agent.volume().connections, others.len() as u64 + 1);
    agent.process.signal(Signal::HUP);
    agent.says("in force");
    first.call(write(0, 4096), &[1; 4096]).unwrap();
    drop(others);
    until("descriptors are back", || Client::try_connect(&stage.path("host"), "vm1").is_ok());
    agent.stop();
}
