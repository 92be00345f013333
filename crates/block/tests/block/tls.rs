//! TLS on a listener: who is served, and what an attacker comes to.
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use parda_address::Address;
use parda_block::{
    BackendConfig, Handle, Limits, ListenerConfig, ListenerTls, Volume, VolumeConfig,
};
use parda_control::Bytes;
use parda_disk::{Extent, Op};
use parda_nbd::Cookie;
use parda_nbd::client::{self, Expected, Handshake, Reply, Step};
use parda_nbd::wire::{self, option, reply};
use parda_tls::{Acceptor, Channel, ClientFiles, Connector, ServerFiles, TlsRelay};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::common;

/// A volume of one disk whose listener has TLS, and the CA of all its certificates.
struct Stage {
    dir: tempfile::TempDir,
    handle: Handle,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Lets other tests run beside this one, but for one that counts what is open.
    _beside: Option<RwLockReadGuard<'static, ()>>,
}

static BESIDE: RwLock<()> = RwLock::new(());

impl Stage {
    fn new(required: bool, limit: Duration) -> Stage {
        let beside = BESIDE.read().unwrap_or_else(PoisonError::into_inner);
        Stage { _beside: Some(beside), ..Stage::alone(required, limit) }
    }

    fn alone(required: bool, limit: Duration) -> Stage {
        Stage::limited(required, |limits| limits.handshake_timeout = limit)
    }

    fn limited(required: bool, limit: impl FnOnce(&mut Limits)) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.path().join("ca"), issuer.pem()).unwrap();
        let (certificate, key) = issue(dir.path(), &issuer, "localhost");
        let clients = Some(dir.path().join("ca"));
        let acceptor = Acceptor::new(ServerFiles { certificate, key, clients }).unwrap();
        let tls = Some(ListenerTls { acceptor: Arc::new(acceptor), required });
        let socket = dir.path().join("s");
        let memory = BackendConfig::Memory { size: Bytes(8 << 20) };
        let mut config: VolumeConfig = common::config(vec![common::disk("a", memory, &socket)]);
        limit(&mut config.limits);
        config.listeners =
            vec![ListenerConfig { tls, ..ListenerConfig::new(Address::Unix(socket)) }];
        let handle = Volume::spawn(config).unwrap();
        Stage { dir, handle, issuer, _beside: None }
    }

    fn socket(&self) -> UnixStream {
        let socket = UnixStream::connect(self.dir.path().join("s")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    }

    fn channel(&self) -> Channel {
        let identity = Some(issue(self.dir.path(), &self.issuer, "client"));
        let files =
            ClientFiles { ca: self.dir.path().join("ca"), identity, name: "localhost".into() };
        Connector::new(&files).unwrap().connect().unwrap()
    }

    /// A socket with TLS begun, and the plaintext of it.
    fn secured(&self) -> (UnixStream, Handshake) {
        let mut socket = self.socket();
        let mut handshake = Handshake::new_with_tls(common::name("a"));
        let mut out = Vec::new();
        while !handshake.starts_tls() {
            step(&mut socket, &mut handshake, &mut out);
        }
        let (ours, inside) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut relay = TlsRelay::new(self.channel(), OwnedFd::from(socket), inside.into());
        relay.handshake(Duration::from_secs(30)).unwrap();
        std::thread::spawn(move || relay.run());
        (ours, handshake)
    }

    /// Waits until the volume has nothing more of its clients.
    fn forgets_its_clients(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.handle.stats().unwrap().connections > 0 {
            assert!(Instant::now() < until, "clients are left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn issue(dir: &Path, issuer: &CertifiedIssuer<'static, KeyPair>, name: &str) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let (pem, key_pem) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    std::fs::write(&pem, params.signed_by(&key, issuer).unwrap().pem()).unwrap();
    std::fs::write(&key_pem, key.serialize_pem()).unwrap();
    (pem, key_pem)
}

/// One step of a client's handshake, byte by byte so that none is taken that is not its own.
fn step(socket: &mut UnixStream, handshake: &mut Handshake, out: &mut Vec<u8>) {
    let mut input = Vec::new();
    loop {
        match handshake.advance(&input, out).unwrap() {
            Step::Incomplete => {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                input.push(byte[0]);
            }
            Step::Taken(n) => {
                assert_eq!(n, input.len());
                socket.write_all(out).unwrap();
                out.clear();
                return;
            }
            Step::Transmission { .. } => return,
        }
    }
}

/// What a peer that gave up sends before it closes: anything but data.
fn closes(mut socket: UnixStream) -> Vec<u8> {
    let mut heard = Vec::new();
    match socket.read_to_end(&mut heard) {
        Ok(_) => heard,
        Err(e) if e.kind() == ErrorKind::ConnectionReset => heard,
        Err(e) => panic!("the connection stays open: {e}"),
    }
}

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_option(&mut out, code, data);
    out
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn data_goes_both_ways_inside_of_tls() {
    let stage = Stage::new(true, LONG);
    let (mut socket, mut handshake) = stage.secured();
    let mut out = Vec::new();
    handshake.secured(&mut out);
    socket.write_all(&out).unwrap();
    out.clear();
    let mut input = Vec::new();
    let agreed = loop {
        match handshake.advance(&input, &mut out).unwrap() {
            Step::Taken(n) => drop(input.drain(..n)),
            Step::Transmission { agreed, .. } => break agreed,
            Step::Incomplete => {
                socket.write_all(&out).unwrap();
                out.clear();
                let mut chunk = [0; 4096];
                let n = socket.read(&mut chunk).unwrap();
                assert!(n > 0);
                input.extend_from_slice(&chunk[..n]);
            }
        }
    };
    let content: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8 + 1).collect();
    let extent = Extent { offset: 4096, len: content.len() as u64 };
    let mut request = Vec::new();
    client::put_request(&mut request, Cookie(1), Op::Write { extent, fua: true });
    request.extend_from_slice(&content);
    client::put_request(&mut request, Cookie(2), Op::Read(extent));
    let mut sender = socket.try_clone().unwrap();
    let sends = std::thread::spawn(move || sender.write_all(&request).unwrap());
    let (mut input, mut read, mut written) = (Vec::new(), vec![0; content.len()], false);
    let mut chunk = vec![0; 1 << 20];
    'replies: loop {
        let expected = |cookie: Cookie| {
            Some(if cookie.0 == 2 { Expected::Data(extent) } else { Expected::Outcome })
        };
        while let Some(head) = client::reply(&input, agreed.framing, expected).unwrap() {
            match head.reply {
                Reply::Done => written = true,
                Reply::Data { extent: part, last } => {
                    if input.len() < head.taken + part.len as usize {
                        break;
                    }
                    let from = (part.offset - extent.offset) as usize;
                    let data = &input[head.taken..head.taken + part.len as usize];
                    read[from..from + data.len()].copy_from_slice(data);
                    input.drain(..head.taken + part.len as usize);
                    if last {
                        break 'replies;
                    }
                    continue;
                }
                other => panic!("{other:?}"),
            }
            input.drain(..head.taken);
        }
        let n = socket.read(&mut chunk).unwrap();
        assert!(n > 0, "closed");
        input.extend_from_slice(&chunk[..n]);
    }
    // The two may be done in any order, but here the write was read before the read.
    sends.join().unwrap();
    assert!(written);
    let zeroes_or_content = read == content || read.iter().all(|b| *b == 0);
    assert!(zeroes_or_content, "a read beside a write sees one or the other");
    drop(socket);
    stage.forgets_its_clients();
}

/// Options that somebody on the way put behind STARTTLS are not carried over into TLS.
#[test]
fn plaintext_behind_starttls_ends_the_connection() {
    for required in [true, false] {
        let stage = Stage::new(required, LONG);
        let mut socket = stage.socket();
        let mut greeting = [0; wire::GREETING_LEN];
        socket.read_exact(&mut greeting).unwrap();
        let mut bytes = 3u32.to_be_bytes().to_vec();
        bytes.extend(option(option::STARTTLS, b""));
        bytes.extend(option(option::STRUCTURED_REPLY, b""));
        bytes.extend(option(option::GO, b"\0\0\0\x01a\0\0"));
        socket.write_all(&bytes).unwrap();
        let heard = closes(socket);
        // At most the answer to STARTTLS: nothing of the other options.
        assert!(heard.len() <= wire::OPTION_REPLY_HEADER_LEN, "{heard:?}");
        stage.forgets_its_clients();
    }
}

/// As above, a moment later: it is taken for TLS, which it is not.
#[test]
fn plaintext_after_starttls_was_answered_ends_the_connection() {
    let stage = Stage::new(true, LONG);
    let mut socket = stage.socket();
    let mut handshake = Handshake::new_with_tls(common::name("a"));
    let mut out = Vec::new();
    while !handshake.starts_tls() {
        step(&mut socket, &mut handshake, &mut out);
    }
    socket.write_all(&option(option::GO, b"\0\0\0\x01a\0\0")).unwrap();
    let alert = closes(socket);
    assert!(alert.first().is_none_or(|kind| *kind == 21), "{alert:?}");
    stage.forgets_its_clients();
}

#[test]
fn without_tls_nothing_is_served_where_it_is_required() {
    let stage = Stage::new(true, LONG);
    for (code, data) in [
        (option::GO, &b"\0\0\0\x01a\0\0"[..]),
        (option::LIST, b""),
        (option::INFO, b"\0\0\0\x01a\0\0"),
    ] {
        let mut socket = stage.socket();
        socket.read_exact(&mut [0; wire::GREETING_LEN]).unwrap();
        socket.write_all(&3u32.to_be_bytes()).unwrap();
        socket.write_all(&option(code, data)).unwrap();
        let mut answer = [0; wire::OPTION_REPLY_HEADER_LEN];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[12..16], reply::ERR_TLS_REQD.to_be_bytes());
    }
    let mut socket = stage.socket();
    socket.read_exact(&mut [0; wire::GREETING_LEN]).unwrap();
    socket.write_all(&3u32.to_be_bytes()).unwrap();
    socket.write_all(&option(option::EXPORT_NAME, b"a")).unwrap();
    assert!(closes(socket).is_empty());
}

/// Inside of TLS as outside: STARTTLS again is refused, and the connection lives.
#[test]
fn starttls_twice_is_refused() {
    let stage = Stage::new(true, LONG);
    let (mut socket, _) = stage.secured();
    socket.write_all(&option(option::STARTTLS, b"")).unwrap();
    let mut header = [0; wire::OPTION_REPLY_HEADER_LEN];
    socket.read_exact(&mut header).unwrap();
    assert_eq!(header[12..16], reply::ERR_INVALID.to_be_bytes());
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Clients that go away in mid-handshake, that dribble, and that say nothing: all that they had is
/// given back. `PARDA_ABORTS=10000` for the long form.
#[test]
fn handshakes_that_end_early_leave_nothing_behind() {
    let rounds =
        std::env::var("PARDA_ABORTS").ok().and_then(|n| n.parse().ok()).unwrap_or(300_usize);
    let _alone = BESIDE.write().unwrap_or_else(PoisonError::into_inner);
    let stage = Stage::alone(true, Duration::from_secs(2));
    stage.forgets_its_clients();
    let before = (descriptors(), threads());
    let mut hello = Vec::new();
    stage.channel().put_records(&mut hello);
    for round in 0..rounds {
        let mut socket = stage.socket();
        let mut handshake = Handshake::new_with_tls(common::name("a"));
        let mut out = Vec::new();
        while !handshake.starts_tls() {
            step(&mut socket, &mut handshake, &mut out);
        }
        socket.write_all(&hello[..hello.len() * (round % 5) / 4]).unwrap();
    }
    // One sends nothing at all, one a byte now and then: the handshake's time ends both.
    let silent = stage.socket();
    let mut slow = stage.socket();
    let mut handshake = Handshake::new_with_tls(common::name("a"));
    let mut out = Vec::new();
    while !handshake.starts_tls() {
        step(&mut slow, &mut handshake, &mut out);
    }
    for byte in &hello {
        std::thread::sleep(Duration::from_millis(20));
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
    }
    closes(silent);
    stage.forgets_its_clients();
    drop(slow);
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let now = (descriptors(), threads());
        if now.0 <= before.0 && now.1 <= before.1 {
            break;
        }
        assert!(
            Instant::now() < until,
            "descriptors and threads: {before:?} before, {now:?} after"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Of 64 MiB, 32 are the reserve, 16 the clients' own, and of the 16 that they share a quarter is left
/// to requests: 48 relays. The others are turned away, and the memory is there for the next.
#[test]
fn clients_with_tls_take_no_more_memory_than_there_is() {
    const RELAYS: usize = 48;
    let _alone = BESIDE.write().unwrap_or_else(PoisonError::into_inner);
    let stage = Stage::limited(true, |limits| {
        (limits.memory, limits.connections) = (64 << 20, 256);
        limits.handshake_timeout = LONG;
    });
    let stats = || stage.handle.stats().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    for _ in 0..2 {
        let turned_away = stats().dropped.turned_away;
        let sockets: Vec<UnixStream> = (0..RELAYS + 10)
            .map(|_| {
                let mut socket = stage.socket();
                let mut handshake = Handshake::new_with_tls(common::name("a"));
                while !handshake.starts_tls() {
                    step(&mut socket, &mut handshake, &mut Vec::new());
                }
                socket
            })
            .collect();
        while stats().dropped.turned_away < turned_away + 10 {
            assert!(Instant::now() < until, "{:?}", stats());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(stats().memory.tls, RELAYS * (256 << 10));
        assert_eq!(stats().connections, RELAYS);
        drop(sockets);
        stage.forgets_its_clients();
        while stats().memory.tls > 0 {
            assert!(Instant::now() < until, "{:?}", stats().memory);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
