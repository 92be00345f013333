//! NBD servers with TLS behind disks: whom a volume trusts, what it hears of those that it does not,
//! and that nothing but STARTTLS is said outside of TLS.
use crate::common;
use crate::silent_server::{flushes, old_first};

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::hostile::{Hostile, Peer, export};
use common::{Client, config, disk, read, spawn, write};
use parda_address::{Certificates, Uri, UriTls};
use parda_block::{BackendConfig, Handle, NbdOptions, Volume};
use parda_disk::Errno;
use parda_nbd::wire::{self, command, option, reply};
use parda_tls::{Acceptor, ServerFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

const SIZE: u64 = 1 << 20;
const LEN: u32 = 4096;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// What a good server has.
fn good() -> CertificateParams {
    let mut params = CertificateParams::new(vec!["array.example".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

/// A directory with the CA that a volume trusts.
struct Stage {
    dir: tempfile::TempDir,
    issuer: Issuer,
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { dir: tempfile::tempdir().unwrap(), issuer: ca() };
        std::fs::write(stage.path("ca.pem"), stage.issuer.pem()).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A server's files: a certificate of that issuer, with `behind` in the same file.
    fn files(&self, params: &CertificateParams, issuer: &Issuer, behind: &str) -> ServerFiles {
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, issuer).unwrap().pem();
        std::fs::write(self.path("server.pem"), pem + behind).unwrap();
        std::fs::write(self.path("server.key"), key.serialize_pem()).unwrap();
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        ServerFiles { certificate, key, clients: None }
    }

    fn acceptor(&self) -> Acceptor {
        Acceptor::new(self.files(&good(), &self.issuer, "")).unwrap()
    }

    fn backend(&self, options: NbdOptions) -> BackendConfig {
        let text = format!("nbds+unix:///?socket={}", self.path("far").display());
        let mut uri = Uri::from_str(&text).unwrap();
        let certificates = Certificates::Files { ca: self.path("ca.pem"), identity: None };
        uri.tls = Some(UriTls { certificates, name: "array.example".to_owned() });
        BackendConfig::Nbd { uri, options }
    }

    /// Why a volume does not start on the server that there is.
    fn refusal(&self) -> String {
        let disk = disk("vm1", self.backend(NbdOptions::default()), &self.path("near"));
        let started = Instant::now();
        let error = Volume::spawn(config(vec![disk])).err().unwrap().to_string();
        assert!(started.elapsed() < Duration::from_secs(60), "{error}: {:?}", started.elapsed());
        error
    }

    fn near(&self, options: NbdOptions) -> (Handle, Client) {
        let volume = spawn(vec![disk("vm1", self.backend(options), &self.path("near"))]);
        (volume, Client::connect(&self.path("near"), "vm1"))
    }
}

/// Answers all requests as a server of zeroes does.
fn zeroes(peer: &mut Peer) -> Option<()> {
    loop {
        let asked = peer.next()?;
        let data = vec![0; asked.header.extent.len as usize];
        peer.answer(&asked.header, &data)?;
    }
}

/// A server that greets, waits for STARTTLS, says `answer`, and returns all that it hears then.
fn speaks(socket: &Path, answer: Vec<u8>, later: Vec<u8>) -> JoinHandle<Vec<u8>> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
        stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
        let mut asked = [0; 4 + 16];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(asked[12..16], option::STARTTLS.to_be_bytes(), "nothing else is asked first");
        stream.write_all(&answer).unwrap();
        let mut heard = vec![0; 5];
        if !later.is_empty() && stream.read_exact(&mut heard).is_ok() {
            // It may have hung up.
            let _ = stream.write_all(&later);
        } else {
            heard.clear();
        }
        // A client that closed with unread bytes resets the connection.
        let _ = stream.read_to_end(&mut heard);
        heard
    })
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = wire::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for word in [option, kind, data.len() as u32] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(data);
    out
}

/// Whether nothing of NBD was said in plaintext.
fn says_nothing(heard: &[u8]) {
    assert!(!heard.windows(8).any(|w| w == b"IHAVEOPT"), "{heard:?}");
}

#[test]
fn a_server_without_tls_is_not_asked_for_anything_else() {
    for (kind, message) in [
        (reply::ERR_UNSUP, &b"no such option"[..]),
        (reply::ERR_POLICY, b"the administrator says no"),
        (reply::ERR_INVALID, b""),
    ] {
        let stage = Stage::new();
        let answer = option_reply(option::STARTTLS, kind, message);
        let server = speaks(&stage.path("far"), answer, Vec::new());
        let error = stage.refusal();
        assert!(error.contains("the server has no TLS, and nothing else is asked"), "{error}");
        assert!(error.contains(std::str::from_utf8(message).unwrap()), "{error}");
        assert_eq!(server.join().unwrap(), b"");
    }
}

/// The answer to options that were never asked, put behind that to STARTTLS by somebody on the way:
/// carried over into TLS it would be taken for the server's.
#[test]
fn plaintext_behind_the_answer_to_starttls_ends_the_connection() {
    let stage = Stage::new();
    let mut answer = option_reply(option::STARTTLS, reply::ACK, b"");
    answer.extend(option_reply(option::STRUCTURED_REPLY, reply::ACK, b""));
    let server = speaks(&stage.path("far"), answer, Vec::new());
    let error = stage.refusal();
    assert!(error.contains("sent more in plaintext after it agreed to TLS"), "{error}");
    assert_eq!(server.join().unwrap(), b"");
    // As above, a moment later: it is taken for TLS, which it is not.
    let stage = Stage::new();
    let answer = option_reply(option::STARTTLS, reply::ACK, b"");
    let later = option_reply(option::STRUCTURED_REPLY, reply::ACK, b"");
    let server = speaks(&stage.path("far"), answer, later);
    let error = stage.refusal();
    assert!(error.contains("TLS: what answers there does not speak TLS"), "{error}");
    says_nothing(&server.join().unwrap());
}

/// A server of TLS and of good zeroes.
fn serve(stage: &Stage, acceptor: Acceptor) -> Hostile {
    Hostile::start_with(&stage.path("far"), export(SIZE), Some(Arc::new(acceptor)), zeroes)
}

#[test]
fn certificates_decide_which_server_is_used() {
    let stage = Stage::new();
    let _server = serve(&stage, stage.acceptor());
    let (_volume, mut client) = stage.near(NbdOptions::default());
    assert_eq!(client.call(read(0, LEN), &[]), Ok(vec![0; LEN as usize]));

    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = good();
        change(&mut params);
        params
    };
    let named = |name: &str| CertificateParams::new(vec![name.to_owned()]).unwrap();
    let nameless = with(&|p| {
        p.subject_alt_names.clear();
        p.distinguished_name.push(DnType::CommonName, "array.example");
    });
    let no_server = with(&|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    for (what, params, says) in [
        ("another name", named("other.example"), "not valid for name \"array.example\""),
        ("a wildcard too high", named("*.array.example"), "not valid for name"),
        ("a common name alone", nameless, "not valid for name"),
        ("a client's certificate", no_server, "extended key usage"),
    ] {
        let stage = Stage::new();
        let files = stage.files(&params, &stage.issuer, "");
        let _server = serve(&stage, Acceptor::new(files).unwrap());
        let error = stage.refusal();
        assert!(error.contains("TLS: invalid peer certificate"), "{what}: {error}");
        assert!(error.contains(says), "{what}: {error}");
    }
    // Another CA; and a server's certificate that was made a CA's by whoever has it.
    let stage = Stage::new();
    let other = ca();
    let _server = serve(&stage, Acceptor::new(stage.files(&good(), &other, "")).unwrap());
    let error = stage.refusal();
    assert!(error.contains("comes from no CA in") && error.contains("ca.pem"), "{error}");
    let stage = Stage::new();
    let leaf =
        CertifiedIssuer::signed_by(named("leaf"), KeyPair::generate().unwrap(), &stage.issuer);
    let leaf = leaf.unwrap();
    let files = stage.files(&good(), &leaf, &leaf.pem());
    let _server = serve(&stage, Acceptor::new(files).unwrap());
    let error = stage.refusal();
    assert!(error.contains("TLS: "), "{error}");
}

#[test]
fn a_server_that_wants_our_certificate_says_so() {
    let stage = Stage::new();
    let mut files = stage.files(&good(), &stage.issuer, "");
    files.clients = Some(stage.path("ca.pem"));
    let _server = serve(&stage, Acceptor::new(files).unwrap());
    let error = stage.refusal();
    assert!(error.contains("TLS: it asks for a client certificate"), "{error}");
}

/// The server is replaced by one that is not to be trusted, and by the right one again.
#[test]
fn a_server_is_looked_at_anew_with_every_connection() {
    let stage = Stage::new();
    let first = Arc::new(stage.acceptor());
    let served = Arc::clone(&first);
    // Each connection answers one request.
    let _server = Hostile::start_with(&stage.path("far"), export(SIZE), Some(served), |peer| {
        let asked = peer.next()?;
        peer.answer(&asked.header, &[0; LEN as usize])
    });
    let options = NbdOptions { hold: Duration::from_millis(300), ..NbdOptions::default() };
    let (volume, mut client) = stage.near(options);
    assert_eq!(client.call(read(0, LEN), &[]), Ok(vec![0; LEN as usize]));
    first.renew(&Acceptor::new(stage.files(&good(), &ca(), "")).unwrap());
    // The connection that was being made meanwhile may answer one more.
    let failed = (0..3).find_map(|_| client.call(read(0, LEN), &[]).err());
    assert_eq!(failed, Some(Errno::Io));
    let away = || volume.stats().unwrap().vms[0].away.clone();
    let until = Instant::now() + Duration::from_secs(60);
    while !away().is_some_and(|why| why.contains("comes from no CA in")) {
        assert!(Instant::now() < until, "{:?}", away());
        std::thread::sleep(Duration::from_millis(5));
    }
    first.renew(&stage.acceptor());
    while client.call(read(0, LEN), &[]).is_err() {
        assert!(Instant::now() < until, "{:?}", away());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As without TLS: the end of a connection shows that the server has let go of what it was sent, so
/// nobody may close it in the server's place.
#[test]
fn what_a_silent_server_was_sent_is_not_sent_again_before_it_let_go_of_it() {
    let stage = Stage::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&log);
    let acceptor = Some(Arc::new(stage.acceptor()));
    let server = Hostile::start_with(&stage.path("far"), export(SIZE), acceptor, move |peer| {
        if peer.number > 0 {
            let asked = peer.next()?;
            events.lock().unwrap().push("again");
            peer.answer(&asked.header, &[])?;
            return zeroes(peer);
        }
        // The first connection's write is slow, and is done before the server closes.
        let asked = peer.next()?;
        assert_eq!(asked.header.command, command::WRITE);
        let mut rest = Vec::new();
        peer.stream.read_to_end(&mut rest).ok()?;
        std::thread::sleep(Duration::from_millis(500));
        events.lock().unwrap().push("old");
        None
    });
    let options = NbdOptions {
        connections: 1,
        hold: Duration::from_secs(20),
        timeout: Duration::from_millis(200),
    };
    let (_volume, mut client) = stage.near(options);
    assert_eq!(client.call(write(0, LEN), &[1; LEN as usize]), Ok(vec![]));
    old_first(&log.lock().unwrap());
    flushes(&mut client, &server);
}
