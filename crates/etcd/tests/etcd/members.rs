//! A real etcd: leases, compaction, users and passwords, TLS, members that die.
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parda_etcd::{
    Endpoint, EtcdAccess, EtcdClient, EtcdError, EtcdFault, EtcdKeys, Login, Tls, Write,
};
use parda_testkit::{TestEtcd, TestEtcdTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use time::OffsetDateTime;

/// How long a call may take on a busy machine.
const PATIENT: Duration = Duration::from_secs(30);

const LEASE: Duration = Duration::from_secs(60);

fn settings(etcd: &TestEtcd) -> EtcdAccess {
    let endpoints = etcd.urls().iter().map(|url| Endpoint::parse(url).unwrap()).collect();
    EtcdAccess { endpoints, tls: None, login: None }
}

/// Until it works, as long as members elect a leader.
fn until<T>(what: &str, mut call: impl FnMut() -> Result<T, EtcdError>) -> T {
    let begun = Instant::now();
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(error) => assert!(begun.elapsed() < PATIENT * 2, "{what}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn values(client: &mut EtcdClient) -> Vec<String> {
    let pairs = client.range(b"/t/", 100, PATIENT).unwrap();
    pairs.into_iter().map(|pair| String::from_utf8(pair.value).unwrap()).collect()
}

#[test]
fn keys_hang_on_leases_and_compaction_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = TestEtcd::start(dir.path(), 1);
    let mut client = EtcdClient::new(settings(&etcd), 7);
    let long = client.grant(LEASE, PATIENT).unwrap();
    assert_eq!(long.ttl, LEASE);
    for value in ["1", "2", "3"] {
        client.put(b"/t/long\xff", value.as_bytes(), &long, PATIENT).unwrap();
    }
    client.put(b"/u/other", b"other", &long, PATIENT).unwrap();
    // On a busy machine it may run out before anybody has looked.
    let short = (0..10).find_map(|_| {
        let short = client.grant(Duration::from_secs(1), PATIENT).unwrap();
        // What ran out was put with an error.
        let put = client.put(b"/t/short", b"short", &short, PATIENT);
        (values(&mut client) == ["3", "short"]).then_some((short, put.unwrap()))
    });
    let (short, ()) = short.expect("ten leases ran out at once");
    assert!(matches!(
        client.range(b"/", 1, PATIENT).unwrap_err().fault,
        EtcdFault::Refused(text) if text.contains("more than 1 keys")
    ));
    // All history but the last revision goes.
    let answer = etcd.post(0, "/v3/kv/compaction", "{\"revision\":\"5\"}").unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
    client.renew(&long, PATIENT).unwrap();
    let begun = Instant::now();
    while values(&mut client) != ["3"] {
        assert!(begun.elapsed() < PATIENT * 2, "the lease runs out");
        std::thread::sleep(Duration::from_millis(100));
    }
    let gone = client.renew(&short, PATIENT).unwrap_err();
    assert!(matches!(gone.fault, EtcdFault::NoLease), "{gone}");
    let gone = client.put(b"/t/short", b"again", &short, PATIENT).unwrap_err();
    assert!(matches!(gone.fault, EtcdFault::NoLease), "{gone}");
    assert!(client.traffic().calls > 10 && client.traffic().received_bytes > 500);
}

#[test]
fn one_of_two_writers_is_told_and_a_look_for_news_finds_what_was_written_since() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = TestEtcd::start(dir.path(), 1);
    let mut client = EtcdClient::new(settings(&etcd), 0);
    let (key, big) = (b"/t/head".as_slice(), vec![b'x'; 1000]);
    let put = |value| [Write::Put(key, value), Write::Put(b"/t/other", &big)];
    assert!(client.write_if((key, 0), &put(b"1"), PATIENT).unwrap());
    assert!(!client.write_if((key, 0), &put(b"2"), PATIENT).unwrap(), "it is there already");
    let read = client.read(&[EtcdKeys::One(key), EtcdKeys::Prefix(b"/t/o")], PATIENT).unwrap();
    let values: Vec<_> = read.entries.iter().map(|entry| &entry.value[..]).collect();
    assert_eq!(values, [b"1", &big[..]]);
    let mark = read.entries[0].revision;

    let before = client.traffic();
    let found = client.changed_since(key, mark + 1, PATIENT).unwrap();
    assert_eq!((found.entries.len(), found.revision), (0, mark));
    let bytes = client.traffic().received_bytes - before.received_bytes;
    assert!(bytes < 200, "{bytes} bytes say that nothing is new");
    assert!(client.write_if((key, mark), &put(b"2"), PATIENT).unwrap());
    assert!(!client.write_if((key, mark), &put(b"3"), PATIENT).unwrap(), "somebody was faster");
    let found = client.changed_since(key, mark + 1, PATIENT).unwrap();
    assert_eq!(found.entries[0].value, b"2");

    let gone = [Write::Delete(EtcdKeys::Between(b"/t/a", b"/t/i")), Write::Put(b"/t/z/1", b"1")];
    assert!(client.write_if((key, found.entries[0].revision), &gone, PATIENT).unwrap());
    for n in 2..=7 {
        assert!(
            client
                .write_if((key, 0), &[Write::Put(format!("/t/z/{n}").as_bytes(), b"")], PATIENT)
                .unwrap()
        );
    }
    let keys: Vec<_> =
        client.list(b"/t/", 3, PATIENT).unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(
        (keys.len(), &keys[0][..], &keys[7][..]),
        (8, b"/t/other".as_slice(), b"/t/z/7".as_slice())
    );

    let lease = client.grant(LEASE, PATIENT).unwrap();
    client.put(b"/t/held", b"", &lease, PATIENT).unwrap();
    let held = client
        .read(&[EtcdKeys::One(b"/t/held")], PATIENT)
        .unwrap()
        .entries
        .remove(0)
        .lease
        .unwrap();
    let time = client.time_of(&held, PATIENT).unwrap().unwrap();
    assert!(time.granted == LEASE && time.left <= LEASE && time.left > LEASE / 2, "{time:?}");
    assert_eq!(client.time_of("7", PATIENT).unwrap(), None);
}

/// Gives etcd a user with rights to all that begins with `/t/`, and a root, and turns users on.
fn enable_users(etcd: &TestEtcd) {
    for (path, body) in [
        ("auth/user/add", r#"{"name":"root","password":"r"}"#),
        ("auth/role/add", r#"{"name":"root"}"#),
        ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("auth/user/add", r#"{"name":"parda","password":"secret"}"#),
        ("auth/role/add", r#"{"name":"parda"}"#),
        (
            "auth/role/grant",
            r#"{"name":"parda","perm":{"permType":"READWRITE","key":"L3Qv","range_end":"L3Qw"}}"#,
        ),
        ("auth/user/grant", r#"{"user":"parda","role":"parda"}"#),
        ("auth/enable", "{}"),
    ] {
        let answer = etcd.post(0, &format!("/v3/{path}"), body).unwrap();
        assert!(answer.contains("200 OK"), "{path}: {answer}");
    }
}

#[test]
fn a_user_logs_in_and_does_so_again_when_its_token_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut etcd = TestEtcd::start(dir.path(), 1);
    let password_file = dir.path().join("password");
    let password = |text: &str| {
        std::fs::write(&password_file, text).unwrap();
        std::fs::set_permissions(&password_file, PermissionsExt::from_mode(0o600)).unwrap();
    };
    let login = Login { user: "parda".to_owned(), password_file: password_file.clone() };
    let mut client = EtcdClient::new(EtcdAccess { login: Some(login), ..settings(&etcd) }, 0);
    let missing = client.range(b"/t/", 9, PATIENT).unwrap_err();
    assert!(matches!(missing.fault, EtcdFault::Password(_)), "{missing}");
    password("secret\n");
    client.range(b"/t/", 9, PATIENT).expect("etcd has no users yet, so none is needed");
    enable_users(&etcd);
    let first = client.range(b"/t/", 9, PATIENT);
    assert!(first.is_err(), "it had no token, and gets one with the next call");
    let lease = client.grant(LEASE, PATIENT).unwrap();
    client.put(b"/t/a", b"1", &lease, PATIENT).unwrap();
    let denied = client.put(b"/u/a", b"1", &lease, PATIENT).unwrap_err();
    assert!(denied.to_string().contains("permission denied"), "{denied}");
    let mut nobody = EtcdClient::new(settings(&etcd), 0);
    let denied = nobody.range(b"/t/", 9, PATIENT).unwrap_err();
    assert!(denied.to_string().contains("add user and password_file"), "{denied}");
    // A member that starts anew knows no token of before.
    etcd.kill(0);
    etcd.restart(0);
    until("it logs in again", || client.put(b"/t/a", b"2", &lease, PATIENT));
    assert_eq!(values(&mut client), ["2"]);
    password("wrong");
    client.reload();
    let denied = client.range(b"/t/", 9, PATIENT).unwrap_err();
    assert!(denied.to_string().contains("refuses the user or the password"), "{denied}");
    assert!(!denied.to_string().contains("wrong"));
    password("secret");
    assert_eq!(values(&mut client), ["2"]);
}

/// A CA and what it issues.
struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(dir: &Path) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Authority { dir: dir.to_owned(), issuer }
    }

    /// A certificate and its key, valid from yesterday for so many days.
    fn issue(&self, file: &str, names: &[String], days: i64) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = OffsetDateTime::now_utc() - time::Duration::days(1);
        params.not_after = params.not_before + time::Duration::days(days);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |kind: &str| self.dir.join(format!("{file}.{kind}"));
        std::fs::write(path("pem"), certificate.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        (path("pem"), path("key"))
    }
}

#[test]
fn three_members_with_tls_serve_while_two_live_and_whoever_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let mut etcd = TestEtcd::new(dir.path(), 3);
    let authority = Authority::new(dir.path());
    let (certificate, key) = authority.issue("server", &etcd.addresses(), 9);
    let ca = dir.path().join("ca.pem");
    etcd.secure(TestEtcdTls { certificate: &certificate, key: &key, clients: &ca });
    etcd.launch();
    let host = ["kvm-01".to_owned()];
    let identity = authority.issue("client", &host, 9);
    let with = |tls: Tls| EtcdAccess { tls: Some(tls), ..settings(&etcd) };
    let good = Tls { ca: ca.clone(), identity: Some(identity.clone()) };
    let mut client = EtcdClient::new(with(good.clone()), 1);
    let lease = until("they have a leader", || client.grant(LEASE, PATIENT));
    client.put(b"/t/a", b"1", &lease, PATIENT).unwrap();

    let mut stranger = EtcdClient::new(with(Tls { ca: ca.clone(), identity: None }), 0);
    let refused = stranger.range(b"/t/", 9, PATIENT).unwrap_err();
    assert!(matches!(&refused.fault, EtcdFault::Connection(_) | EtcdFault::Lost(_)), "{refused}");
    let other = tempfile::tempdir().unwrap();
    Authority::new(other.path());
    let tls = Tls { ca: other.path().join("ca.pem"), ..good.clone() };
    let refused = EtcdClient::new(with(tls), 0).range(b"/t/", 9, PATIENT).unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");

    // Our certificate runs out, and is renewed under the same name.
    authority.issue("client", &host, 0);
    client.reload();
    let expired = client.range(b"/t/", 9, PATIENT).unwrap_err();
    assert!(
        matches!(&expired.fault, EtcdFault::Files(file) if file.path == identity.0),
        "{expired}"
    );
    authority.issue("client", &host, 9);
    assert_eq!(values(&mut client), ["1"], "it is read again without being told");

    // Members die, one after the other. Two serve; one alone still answers reads.
    etcd.kill(1);
    until("two elect a leader", || client.put(b"/t/a", b"2", &lease, Duration::from_secs(3)));
    etcd.kill(2);
    let alone = client.put(b"/t/a", b"3", &lease, Duration::from_secs(1));
    assert!(alone.is_err(), "no quorum");
    assert_eq!(values(&mut client), ["2"]);
    // The members' own certificate runs out.
    authority.issue("server", &etcd.addresses(), 0);
    etcd.kill(0);
    etcd.launch();
    let begun = Instant::now();
    loop {
        let error = client.range(b"/t/", 9, PATIENT).unwrap_err().to_string();
        if error.contains("xpired") {
            break;
        }
        assert!(begun.elapsed() < PATIENT * 2, "{error}");
    }
    authority.issue("server", &etcd.addresses(), 9);
    for member in 0..3 {
        etcd.kill(member);
        etcd.restart(member);
    }
    until("all is well again", || client.put(b"/t/a", b"4", &lease, Duration::from_secs(3)));
}
