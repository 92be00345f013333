//! TLS with the NBD servers behind disks: what a configuration may say, and what is wrong with it.
use std::path::Path;

use parda_address::{Certificates, UriTls};
use parda_agent::config::{Config, Place};
use parda_config::Document;
use rcgen::{CertificateParams, KeyPair};

const HEAD: &str = "host = \"a\"\n[[volume]]\nname = \"v\"\n[[volume.disk]]\nname = \"vm1\"\n\
                    listen = \"unix:/s\"\n";

/// A disk of that path, and with those lines about its server from line 9 on.
fn text(path: &str, nbd: &str) -> String {
    format!("{HEAD}path = \"{path}\"\n[volume.disk.nbd]\n{nbd}\n")
}

fn tls(text: &str) -> Result<Option<UriTls>, String> {
    let config = Config::check(&Document::new("parda.toml", text)).map_err(|e| e.to_string())?;
    match config.volumes[0].disks()[0].backend.place() {
        Place::Nbd(uri) => Ok(uri.tls),
        Place::Path(_) => panic!("not a server"),
    }
}

fn files(ca: &str, identity: Option<(&str, &str)>) -> Certificates {
    let identity = identity.map(|(certificate, key)| (certificate.into(), key.into()));
    Certificates::Files { ca: ca.into(), identity }
}

#[test]
fn the_uri_or_the_table_says_whom_to_trust_and_who_we_are() {
    let uri = "nbds://array.example/vm1";
    let named = |certificates, name: &str| Some(UriTls { certificates, name: name.to_owned() });
    assert_eq!(
        tls(&text(uri, "tls = { ca = \"/ca\" }")),
        Ok(named(files("/ca", None), "array.example"))
    );
    let all = "tls = { ca = \"/ca\", certificate = \"/c\", key = \"/k\", name = \"10.0.0.1\" }";
    let identity = files("/ca", Some(("/c", "/k")));
    assert_eq!(tls(&text(uri, all)), Ok(named(identity.clone(), "10.0.0.1")));
    let unix = "nbds+unix:///vm1?socket=/s";
    assert_eq!(tls(&text(unix, all)), Ok(named(identity, "10.0.0.1")));
    assert_eq!(
        tls(&text(unix, "tls = { ca = \"/ca\" }")),
        Ok(named(files("/ca", None), "localhost"))
    );
    let directory = Certificates::Directory("/pki".into());
    let in_uri = "nbds://array.example/vm1?tls-certificates=/pki";
    assert_eq!(tls(&text(in_uri, "")), Ok(named(directory.clone(), "array.example")));
    assert_eq!(tls(&text(in_uri, "tls.name = \"b\"")), Ok(named(directory, "b")));
    assert_eq!(tls(&text("nbd://array.example/vm1", "")), Ok(None));
}

#[test]
fn what_is_missing_or_too_much_is_pointed_at() {
    let uri = "nbds://array.example/vm1";
    for (path, nbd, at, says) in [
        (uri, "", "7 path", "nothing says which CA"),
        (uri, "hold = \"1s\"", "7 path", "nothing says which CA"),
        (uri, "tls.name = \"x\"", "7 path", "nothing says which CA"),
        (uri, "tls = { certificate = \"/c\", key = \"/k\" }", "9 tls", "has no ca"),
        (uri, "tls = { ca = \"/a\", key = \"/k\" }", "9 key = \"/k\"", "add certificate"),
        (uri, "tls = { ca = \"/a\", certificate = \"/c\" }", "9 certificate", "add key"),
        (uri, "tls = { ca = \"/a\", name = \"a b\" }", "9 name = \"a b\"", "is no name"),
        (uri, "tls = { cafile = \"/a\" }", "9 tls", "unknown field `cafile`"),
        ("nbd://array.example/vm1", "tls = { ca = \"/a\" }", "9 tls", "would be used without"),
        ("nbds://a/x?tls-certificates=/p", "tls = { ca = \"/a\" }", "9 tls", "one is enough"),
        ("nbd://a/x?tls-certificates=/p", "", "7 path", "write nbds://"),
        ("nbds://a%20b/x?tls-certificates=/p", "", "7 path", "is no name"),
    ] {
        let error = tls(&text(path, nbd)).expect_err(nbd);
        let (line, key) = at.split_once(" ").unwrap();
        let at = error.starts_with(&format!("parda.toml:{line}:"));
        assert!(at && error.contains(&format!(": {key}")), "{path} {nbd}: {error}");
        assert!(error.contains(says), "{path} {nbd}: {error}");
    }
    let error = tls(&text("/a/file", "tls = { ca = \"/a\" }")).unwrap_err();
    assert!(error.contains("is only for a disk whose path is an NBD URI"), "{error}");
}

fn pair(dir: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    std::fs::write(dir.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem())
        .unwrap();
    std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// An agent starts without, and waits for them: its other disks do not need them.
#[test]
fn files_that_cannot_be_used_are_found_by_who_looks() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    pair(dir.path(), "one");
    pair(dir.path(), "two");
    let look = |path: &str, nbd: &str| {
        std::fs::write(dir.path().join("parda.toml"), text(path, nbd)).unwrap();
        Config::read(&dir.path().join("parda.toml")).unwrap();
        Config::look_into(&Document::read(&dir.path().join("parda.toml")).unwrap())
            .map_err(|e| e.to_string())
    };
    let table = |ca: &str, certificate: &str, key: &str| {
        let (ca, certificate, key) = (at(ca), at(certificate), at(key));
        format!("tls.ca = \"{ca}\"\ntls.certificate = \"{certificate}\"\ntls.key = \"{key}\"")
    };
    let uri = "nbds://array.example/vm1";
    look(uri, &table("one.pem", "two.pem", "two.key")).unwrap();
    for (nbd, line, says) in [
        (table("none.pem", "two.pem", "two.key"), "9:10: ca = ", "cannot be read"),
        (table("one.key", "two.pem", "two.key"), "9:10: ca = ", "there is no certificate in it"),
        (table("one.pem", "none", "two.key"), "10:19: certificate = ", "cannot be read"),
        (table("one.pem", "two.pem", "one.key"), "11:11: key = ", "the key of another"),
        (table("one.pem", "two.pem", "two.pem"), "11:11: key = ", "there is no private key"),
    ] {
        let error = look(uri, &nbd).expect_err(&nbd);
        assert!(error.contains(&format!("parda.toml:{line}")), "{error}");
        assert!(error.contains(says), "{error}");
    }
    let error = look(&format!("{uri}?tls-certificates={}", at("")), "").unwrap_err();
    assert!(error.contains(":7:8: path = ") && error.contains("ca-cert.pem: cannot"), "{error}");
}
