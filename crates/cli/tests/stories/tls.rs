//! Clients with TLS: those that people use, with certificates of all kinds.

use std::net::TcpListener;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustix::process::Signal;

use crate::stage::{Agent, PARDA, Stage, config, noise, until, uri};

const OFF: &str = "mode = \"off\"";

/// A CA, which makes directories as GnuTLS's clients want them.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "parda's CA");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer }
    }

    /// Writes `NAME-cert.pem` and `NAME-key.pem`.
    pub(crate) fn issue(&self, dir: &Path, name: &str) {
        self.issue_as(dir, name, &|_| ());
    }

    /// The same, changed before it is signed.
    pub(crate) fn issue_as(&self, dir: &Path, name: &str, change: &dyn Fn(&mut CertificateParams)) {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(dir.join(format!("{name}-cert.pem")), certificate.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    }

    /// Makes the directory `name` of a client of this CA.
    pub(crate) fn directory(&self, stage: &Stage, name: &str, identity: bool) {
        let dir = stage.path(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("ca-cert.pem"), self.issuer.pem()).unwrap();
        if identity {
            self.issue(&dir, "client");
        }
    }
}

/// An agent that requires TLS with client certificates, over TCP.
struct Served {
    agent: Agent,
    port: u16,
    ca: Authority,
    stage: Stage,
}

fn serve(size: u64) -> Served {
    let (stage, ca) = (Stage::new(), Authority::new());
    stage.sparse("data", size);
    ca.directory(&stage, "pki", true);
    ca.issue(&stage.path("pki"), "server");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("tcp:127.0.0.1:{port}");
    let text = config("host", OFF, &[("vm1", "data")])
        .replace("unix:host\"", &format!("{address}\""))
        + &format!(
            "[[listener]]\naddress = \"{address}\"\n[listener.tls]\n\
             certificate = \"pki/server-cert.pem\"\nkey = \"pki/server-key.pem\"\n\
             clients = \"pki/ca-cert.pem\"\n"
        );
    let agent = stage.agent("host", &text);
    Served { agent, port, ca, stage }
}

/// For QEMU: where its certificates are.
const CREDENTIALS: &str = "tls-creds-x509,id=tls0,endpoint=client,dir=pki";

impl Served {
    /// For QEMU: the export with those certificates.
    fn image(&self) -> String {
        format!(
            "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host=localhost,\
             file.server.port={},file.export=vm1,file.tls-creds=tls0",
            self.port
        )
    }

    fn uri(&self, directory: &str) -> String {
        let dir = self.stage.path(directory);
        format!("nbds://localhost:{}/vm1?tls-certificates={}", self.port, dir.display())
    }
}

#[test]
fn libnbd_and_qemu_read_and_write_with_tls() {
    let served = serve(24 << 20);
    let stage = &served.stage;
    let content = noise(24 << 20);
    stage.write("in", &content);
    let uri = served.uri("pki");
    let info = stage.ok(&["nbdinfo", "--json", &uri]);
    assert!(info.contains("\"TLS\": true"), "{info}");
    stage.ok(&["nbdcopy", "--connections=4", "--requests=16", "--flush", "in", &uri]);
    assert!(stage.read("data") == content);
    stage.ok(&["nbdcopy", "--connections=4", "--requests=16", &uri, "out"]);
    assert!(stage.read("out") == content);
    let image = served.image();
    let line = ["qemu-io", "--object", CREDENTIALS, "--image-opts", &image];
    let commands = ["-c", "write -P 7 1M 3M", "-c", "flush", "-c", "read -P 7 1M 3M"];
    let said = stage.ok(&[&line[..], &commands].concat());
    assert!(!said.contains("failed"), "{said}");
    assert!(stage.read("data")[1 << 20..4 << 20].iter().all(|b| *b == 7));
    served.agent.stop();
}

/// Who is not to be trusted gets nothing, and hears why in its own words.
#[test]
fn certificates_decide_who_is_served() {
    let served = serve(1 << 20);
    let stage = &served.stage;
    stage.ok(&["nbdinfo", &served.uri("pki")]);
    // No certificate, one of another CA, and a server that is another's.
    served.ca.directory(stage, "none", false);
    let other = Authority::new();
    other.directory(stage, "both", true);
    other.directory(stage, "other", true);
    std::fs::copy(stage.path("pki/ca-cert.pem"), stage.path("other/ca-cert.pem")).unwrap();
    for directory in ["none", "other", "both"] {
        stage.fails(&["nbdinfo", &served.uri(directory)]);
    }
    // Without TLS nothing is told, not even the names.
    let plain = format!("nbd://localhost:{}/vm1", served.port);
    stage.fails(&["nbdinfo", &plain]);
    let list = stage.run(&["nbdinfo", "--list", &plain]);
    assert!(!list.out.contains("vm1"), "{}", list.out);
    stage.fails(&["qemu-img", "info", &plain]);
    stage.ok(&["nbdinfo", &served.uri("pki")]);
    served.agent.stop();
}

/// A renewed CA holds from SIGHUP on for those who connect; who is connected stays so.
#[test]
fn certificates_are_read_again_on_sighup() {
    let served = serve(32 << 20);
    let stage = &served.stage;
    let image = served.image();
    let line = ["qemu-io", "--object", CREDENTIALS, "--image-opts", &image];
    let commands = ["-c", "write -P 5 0 64k", "-c", "sleep 5000", "-c", "read -P 5 0 64k"];
    let mut connected = stage.start("connected", &[&line[..], &commands].concat());
    until("its write is there", || stage.read("data")[0] == 5);
    let next = Authority::new();
    next.directory(stage, "next", true);
    next.issue(&stage.path("next"), "server");
    stage.fails(&["nbdinfo", &served.uri("next")]);
    std::fs::create_dir(stage.path("old")).unwrap();
    for name in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
        std::fs::copy(stage.path(&format!("pki/{name}")), stage.path(&format!("old/{name}")))
            .unwrap();
    }
    for name in ["ca-cert.pem", "server-cert.pem", "server-key.pem"] {
        std::fs::copy(stage.path(&format!("next/{name}")), stage.path(&format!("pki/{name}")))
            .unwrap();
    }
    served.agent.process.signal(Signal::HUP);
    until("the next certificate is shown", || {
        stage.run(&["nbdinfo", &served.uri("next")]).status.success()
    });
    stage.fails(&["nbdinfo", &served.uri("old")]);
    assert!(connected.wait().success(), "{}", connected.log());
    served.agent.stop();
}

/// One address of two has a certificate that has expired: it is the only one that is not served, and is served once the file is right.
#[test]
fn a_certificate_that_cannot_be_used_closes_its_address_alone() {
    let (stage, ca) = (Stage::new(), Authority::new());
    stage.sparse("data", 1 << 20);
    stage.sparse("data2", 1 << 20);
    ca.directory(&stage, "pki", true);
    ca.issue_as(&stage.path("pki"), "server", &|params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("tcp:127.0.0.1:{port}");
    let text = config("host", OFF, &[("vm1", "data"), ("vm2", "data2")]).replacen(
        "unix:host\"",
        &format!("{address}\""),
        1,
    );
    let tls = "certificate = \"pki/server-cert.pem\"\nkey = \"pki/server-key.pem\"\n";
    let text = format!("{text}[[listener]]\naddress = \"{address}\"\n[listener.tls]\n{tls}");
    stage.write("host.toml", &text);
    let wrong = stage.fails(&[PARDA, "check", "host.toml"]);
    assert!(wrong.contains("certificate = ") && wrong.contains("expired"), "{wrong}");
    let agent = stage.agent("host", &text);
    agent.says("no TLS: pki/server-cert.pem: ");
    stage.ok(&["nbdinfo", &uri("host", "vm2")]);
    let status = || stage.ok(&[PARDA, "status", "--since-start", "--socket", "host.status"]);
    assert!(status().contains("nobody can connect for"), "{}", status());
    // Live changes do not stumble over the file either.
    stage.ok(&[PARDA, "set", "-c", "host.toml", "vm2", "shares=2000", "--temporary"]);

    ca.issue(&stage.path("pki"), "server");
    let secure =
        format!("nbds://localhost:{port}/vm1?tls-certificates={}", stage.path("pki").display());
    until("the address is served", || stage.run(&["nbdinfo", &secure]).status.success());
    assert!(!status().contains("nobody can connect"), "{}", status());
    stage.write("pki/server-key.pem", "no key");
    agent.process.signal(Signal::HUP);
    agent.says("the certificate from before is shown");
    stage.ok(&["nbdinfo", &secure]);
    assert!(status().contains("there is no private key in it"), "{}", status());
    agent.stop();
}

#[test]
fn a_key_of_a_kind_that_cannot_be_used_is_refused_with_those_that_can() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let text = |certificate: &str, ca: &str| {
        let text = config("host", OFF, &[("vm1", "data")]);
        let text = text.replacen("unix:host\"", "tcp:127.0.0.1:1\"", 1);
        let clients =
            if ca.is_empty() { String::new() } else { format!("clients = \"{ca}.pem\"\n") };
        format!(
            "{text}[[listener]]\naddress = \"tcp:127.0.0.1:1\"\n[listener.tls]\n\
             certificate = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\n{clients}"
        )
    };
    let known = "RSA of 2048, 3072 or 4096 bits, ECDSA on P-256 or P-384, and Ed25519 can";
    for (name, algorithm, option, fault) in [
        ("p256", "EC", "ec_paramgen_curve:P-256", None),
        ("p384", "EC", "ec_paramgen_curve:P-384", None),
        ("ed25519", "ED25519", "", None),
        ("rsa2048", "RSA", "rsa_keygen_bits:2048", None),
        ("rsa3072", "RSA", "rsa_keygen_bits:3072", None),
        ("rsa1024", "RSA", "rsa_keygen_bits:1024", Some("RSA of 1024 bits")),
        ("rsa2432", "RSA", "rsa_keygen_bits:2432", Some("RSA of 2432 bits")),
        ("rsa2560", "RSA", "rsa_keygen_bits:2560", Some("RSA of 2560 bits")),
        ("pss", "RSA-PSS", "rsa_keygen_bits:2048", Some("RSA-PSS")),
        ("p521", "EC", "ec_paramgen_curve:P-521", Some("ECDSA on P-521")),
        ("k1", "EC", "ec_paramgen_curve:secp256k1", Some("ECDSA on secp256k1")),
        ("ed448", "ED448", "", Some("Ed448")),
    ] {
        let mut line = format!("openssl genpkey -algorithm {algorithm} -out {name}.key");
        if !option.is_empty() {
            line += &format!(" -pkeyopt {option}");
        }
        stage.ok(&line.split_whitespace().collect::<Vec<_>>());
        let line = format!("openssl req -x509 -key {name}.key -subj /CN=localhost -out {name}.pem");
        stage.ok(&line.split_whitespace().collect::<Vec<_>>());
        stage.write("host.toml", text(name, ""));
        match fault {
            None => drop(stage.ok(&[PARDA, "check", "host.toml"])),
            Some(fault) => {
                let error = stage.fails(&[PARDA, "check", "host.toml"]);
                assert!(error.contains(fault) && error.contains(known), "{name}: {error}");
            }
        }
        // As the CA of clients.
        stage.write("host.toml", text("p256", name));
        match fault {
            // Signatures of any length can be checked.
            None | Some("RSA of 2432 bits" | "RSA of 2560 bits") => {
                stage.ok(&[PARDA, "check", "host.toml"]);
            }
            Some(fault) => {
                let error = stage.fails(&[PARDA, "check", "host.toml"]);
                assert!(error.contains(fault) && error.contains("RSA of 2048 to 8192"), "{error}");
            }
        }
    }
    stage.ok(&[
        "openssl",
        "pkey",
        "-in",
        "p256.key",
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        "locked.key",
    ]);
    stage.ok(&["cp", "p256.pem", "locked.pem"]);
    stage.write("host.toml", text("locked", ""));
    let error = stage.fails(&[PARDA, "check", "host.toml"]);
    assert!(error.contains("the key is encrypted"), "{error}");
}
