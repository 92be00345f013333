//! Both sides of a connection in memory: which certificates are accepted and refused, and how
//! truncated, altered and dribbled bytes are handled.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use parda_tls::{
    Acceptor, Channel, ClientFiles, Connector, FileRole, ServerFiles, TlsError, TlsRelay,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use time::{Duration, OffsetDateTime};

/// A CA, with a directory for the certificates that it issues.
struct Authority {
    dir: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { dir, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A certificate and its key, valid from `from` to `to` in days from now.
    fn issue(&self, name: &str, from: i64, to: i64) -> (PathBuf, PathBuf) {
        let day = |days: i64| OffsetDateTime::now_utc() + Duration::days(days);
        self.issue_between(name, day(from), day(to))
    }

    fn issue_between(
        &self,
        name: &str,
        from: OffsetDateTime,
        to: OffsetDateTime,
    ) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (from, to);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (pem, key_pem) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&pem, certificate.pem()).unwrap();
        std::fs::write(&key_pem, key.serialize_pem()).unwrap();
        (pem, key_pem)
    }

    fn acceptor(&self, clients: Option<&Path>) -> Acceptor {
        let (certificate, key) = self.issue("array.example", -1, 1);
        let clients = clients.map(Path::to_owned);
        Acceptor::new(ServerFiles { certificate, key, clients }).unwrap()
    }

    fn connector(&self, identity: Option<(PathBuf, PathBuf)>, name: &str) -> Connector {
        Connector::new(&ClientFiles { ca: self.ca(), identity, name: name.into() }).unwrap()
    }
}

/// Completes the handshake, in pieces of at most `piece` bytes.
fn shake(server: &mut Channel, client: &mut Channel, piece: usize) -> Result<(), TlsError> {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    client.put_records(&mut to_server);
    let mut data = Vec::new();
    while !to_server.is_empty() || !to_client.is_empty() {
        let n = piece.min(to_server.len());
        let taken = server.receive(&to_server[..n], &mut data, &mut to_client)?;
        to_server.drain(..taken);
        let n = piece.min(to_client.len());
        let taken = client.receive(&to_client[..n], &mut data, &mut to_server)?;
        to_client.drain(..taken);
    }
    assert!(data.is_empty() && server.is_established() && client.is_established());
    Ok(())
}

/// Sends `plain` from one side and returns what the other side decrypts.
fn carry(from: &mut Channel, to: &mut Channel, plain: &[u8]) -> Vec<u8> {
    let (mut wire, mut heard, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    from.send(plain, &mut wire);
    let mut rest = wire.as_slice();
    while !rest.is_empty() {
        let taken = to.receive(rest, &mut heard, &mut answer).unwrap();
        assert!(taken > 0 && answer.is_empty());
        rest = &rest[taken..];
    }
    heard
}

#[test]
fn both_sides_agree_and_what_is_sent_arrives() {
    let ca = Authority::new();
    let acceptor = ca.acceptor(Some(&ca.ca()));
    let connector = ca.connector(Some(ca.issue("kvm-01", -1, 1)), "array.example");
    for piece in [1, 700, usize::MAX] {
        let (mut server, mut client) = (acceptor.accept().unwrap(), connector.connect().unwrap());
        shake(&mut server, &mut client, piece).unwrap();
        for len in [0, 1, 28, 16 << 10, (16 << 10) + 1, 100_000] {
            let plain: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            assert_eq!(carry(&mut client, &mut server, &plain), plain);
            assert_eq!(carry(&mut server, &mut client, &plain), plain);
        }
        let mut bye = Vec::new();
        client.close(&mut bye);
        assert!(!server.peer_has_closed());
        server.receive(&bye, &mut Vec::new(), &mut Vec::new()).unwrap();
        assert!(server.peer_has_closed());
    }
}

#[test]
fn who_may_connect_is_whoever_the_ca_says() {
    let (ca, other) = (Authority::new(), Authority::new());
    let demanding = ca.acceptor(Some(&ca.ca()));
    let open = ca.acceptor(None);
    let good = Some(ca.issue("kvm-01", -1, 1));
    let expired = {
        // An expired certificate is refused when it is read, so this one expires after it was read.
        let (pem, key) = ca.issue("kvm-02", -2, -1);
        std::fs::read(&pem).unwrap();
        (pem, key)
    };
    let refused =
        Connector::new(&ClientFiles { ca: ca.ca(), identity: Some(expired), name: "x.y".into() });
    assert_eq!(refused.unwrap_err().role, FileRole::Certificate);
    for (acceptor, ca_of_server, identity, name, works) in [
        (&demanding, &ca, good.clone(), "array.example", true),
        (&demanding, &ca, None, "array.example", false),
        (&demanding, &ca, Some(other.issue("kvm-01", -1, 1)), "array.example", false),
        (&open, &ca, None, "array.example", true),
        (&open, &ca, None, "another.example", false),
        (&open, &other, None, "array.example", false),
    ] {
        let mut server = acceptor.accept().unwrap();
        let mut client = ca_of_server.connector(identity, name).connect().unwrap();
        assert_eq!(shake(&mut server, &mut client, usize::MAX).is_ok(), works, "{name}");
    }
}

#[test]
fn a_certificate_that_is_shown_is_in_force_until_it_expires() {
    let ca = Authority::new();
    let acceptor = ca.acceptor(None);
    let day = std::time::Duration::from_secs(86400);
    for (ahead, in_force) in [(std::time::Duration::ZERO, true), (day / 2, true), (2 * day, false)]
    {
        assert_eq!(acceptor.is_in_force(ahead), in_force, "{ahead:?}");
    }
}

#[test]
fn what_is_not_tls_or_was_changed_ends_the_connection() {
    let ca = Authority::new();
    let acceptor = ca.acceptor(None);
    let (mut data, mut out) = (Vec::new(), Vec::new());
    let plain = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0 and so on";
    assert!(acceptor.accept().unwrap().receive(plain, &mut data, &mut out).is_err());
    assert!(!out.is_empty(), "an alert says so");

    let connector = ca.connector(None, "array.example");
    let (mut server, mut client) = (acceptor.accept().unwrap(), connector.connect().unwrap());
    shake(&mut server, &mut client, usize::MAX).unwrap();
    let mut record = Vec::new();
    client.send(&[7; 28], &mut record);
    let last = record.len() - 1;
    record[last] ^= 1;
    for byte in &record[..last] {
        assert_eq!(server.receive(&[*byte], &mut data, &mut out), Ok(1));
    }
    assert!(server.receive(&record[last..], &mut data, &mut out).is_err());
    assert!(data.is_empty());
}

/// A handshake message of 16 MiB is announced. The buffer never exceeds the largest accepted
/// message.
#[test]
fn a_message_without_end_is_given_up() {
    let ca = Authority::new();
    let mut server = ca.acceptor(None).accept().unwrap();
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([0x55; 0x4000]);
    record[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
    for _ in 0..16 {
        let mut rest = record.as_slice();
        while !rest.is_empty() {
            match server.receive(rest, &mut Vec::new(), &mut Vec::new()) {
                Ok(taken) => rest = &rest[taken..],
                Err(_) => return,
            }
        }
    }
    panic!("256 KiB of one message are kept");
}

#[test]
fn files_that_would_fail_every_handshake_are_named() {
    let ca = Authority::new();
    let (certificate, key) = ca.issue("array.example", -1, 1);
    let (other, other_key) = ca.issue("other.example", -1, 1);
    let (expired, expired_key) = ca.issue("expired.example", -2, -1);
    let (future, future_key) = ca.issue("future.example", 1, 2);
    let empty = ca.path("empty");
    std::fs::write(&empty, "").unwrap();
    let error = |certificate: &Path, key: &Path, clients: Option<&Path>| {
        let files = ServerFiles {
            certificate: certificate.into(),
            key: key.into(),
            clients: clients.map(Path::to_owned),
        };
        let error = Acceptor::new(files).unwrap_err();
        (error.role, error.to_string())
    };
    for ((which, message), wanted, says) in [
        (error(&certificate, &other_key, None), FileRole::Key, "the key of another certificate"),
        (error(&expired, &expired_key, None), FileRole::Certificate, "has expired at 2"),
        (error(&future, &future_key, None), FileRole::Certificate, "not valid yet, but from 2"),
        (error(&empty, &key, None), FileRole::Certificate, "there is no certificate in it"),
        (error(&key, &key, None), FileRole::Certificate, "there is no certificate in it"),
        (error(&certificate, &other, None), FileRole::Key, "there is no private key in it"),
        (error(&ca.path("none"), &key, None), FileRole::Certificate, "No such file"),
        (error(&certificate, ca.dir.path(), None), FileRole::Key, "is not a regular file"),
        (error(&certificate, Path::new("/dev/zero"), None), FileRole::Key, "is not a regular file"),
        (error(&certificate, &key, Some(&empty)), FileRole::Authorities, "there is no certificate"),
    ] {
        assert_eq!(which, wanted, "{message}");
        assert!(message.contains(says), "{says}: {message}");
    }
}

/// An agent logs a fault once: its text has no time but the certificate's.
#[test]
fn the_message_on_an_expired_certificate_is_the_same_at_any_time() {
    let ca = Authority::new();
    for (from, to, says) in [
        (2001, 2002, "the certificate has expired at 2002-01-01T00:00:00Z"),
        (3000, 9999, "the certificate is not valid yet, but from 3000-01-01T00:00:00Z on"),
    ] {
        let year = |year| rcgen::date_time_ymd(year, 1, 1);
        let (certificate, key) = ca.issue_between("x", year(from), year(to));
        let files = ServerFiles { certificate: certificate.clone(), key, clients: None };
        let said = Acceptor::new(files).unwrap_err().to_string();
        assert_eq!(said, format!("{}: {says}", certificate.display()));
    }
}

/// A renewed certificate holds for connections from then on.
#[test]
fn certificates_change_while_they_are_in_use() {
    let (ca, next) = (Authority::new(), Authority::new());
    let acceptor = ca.acceptor(None);
    let works = |authority: &Authority| {
        let connector = authority.connector(None, "array.example");
        let (mut server, mut client) = (acceptor.accept().unwrap(), connector.connect().unwrap());
        shake(&mut server, &mut client, usize::MAX).is_ok()
    };
    assert!(works(&ca) && !works(&next));
    let (certificate, key) = next.issue("array.example", -1, 1);
    std::fs::copy(&certificate, &acceptor.files().certificate).unwrap();
    let again = || Acceptor::new(acceptor.files().clone());
    assert!(again().is_err(), "the key is that of the old one");
    assert!(works(&ca));
    std::fs::copy(&key, &acceptor.files().key).unwrap();
    acceptor.renew(&again().unwrap());
    assert!(works(&next) && !works(&ca));
}

#[test]
fn the_alert_of_a_peer_that_has_closed_is_the_error_and_not_the_broken_pipe() {
    let authority = Authority::new();
    // A server whose refusal is there before we have sent anything, as after a long pause of ours.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let certificate_required = [0x15, 3, 3, 0, 2, 2, 116];
    (&theirs).write_all(&certificate_required).unwrap();
    drop(theirs);
    let (_plain, inside) = UnixStream::pair().unwrap();
    let channel = authority.connector(None, "array.example").connect().unwrap();
    let mut relay = TlsRelay::new(channel, ours.into(), inside.into());
    let error = relay.handshake(std::time::Duration::from_secs(5)).unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
}
