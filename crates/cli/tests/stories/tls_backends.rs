//! NBD servers with TLS behind disks and exchanges: nbdkit and qemu-nbd, with certificates of all
//! kinds.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use rcgen::date_time_ymd;

use crate::stage::{Agent, LAB, PARDA, Process, Stage, config, noise, until, uri};
use crate::tls::Authority;
use parda_agent::status::DiskState;
use parda_exchange::Liveness;

const OFF: &str = "mode = \"off\"";

/// Our side of it: the CA, and a certificate that the servers ask for.
const TLS: &str = "[volume.disk.nbd.tls]\nca = \"pki/ca-cert.pem\"\n\
                   certificate = \"pki/client-cert.pem\"\nkey = \"pki/client-key.pem\"\n";

/// The directory `pki` for both sides.
fn stage() -> (Stage, Authority) {
    let (stage, ca) = (Stage::new(), Authority::new());
    ca.directory(&stage, "pki", true);
    ca.issue(&stage.path("pki"), "server");
    (stage, ca)
}

/// nbdkit on the socket `far`, which serves nobody without TLS and a certificate.
fn nbdkit(stage: &Stage, pki: &str) -> Process {
    // What a killed nbdkit leaves behind.
    let _ = std::fs::remove_file(stage.path("far"));
    let socket = stage.path("far").display().to_string();
    let certificates = format!("--tls-certificates={}", stage.path(pki).display());
    let line = ["nbdkit", "--foreground", "--unix", &socket, "--tls=require", "--tls-verify-peer"];
    let server = stage.start("nbdkit", &[&line[..], &[&certificates, "file", "data"]].concat());
    until("nbdkit answers", || UnixStream::connect(stage.path("far")).is_ok());
    server
}

const FAR: &str = "nbds+unix:///?socket=far";

fn agent(stage: &Stage, path: &str, nbd: &str) -> Agent {
    let text = config("host", OFF, &[("vm1", path)]) + "[volume.disk.nbd]\n" + nbd + TLS;
    stage.agent("host", &text)
}

#[test]
fn data_goes_to_nbdkit_and_qemu_nbd_and_back_within_tls() {
    let (stage, _ca) = stage();
    let content = noise(24 << 20);
    stage.write("in", &content);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    stage.sparse("data", 24 << 20);
    let copies = |path: &str, nbd: &str| {
        // In its place: a server has it open.
        let data = File::options().write(true).open(stage.path("data")).unwrap();
        data.write_all_at(&vec![0; content.len()], 0).unwrap();
        let agent = agent(&stage, path, nbd);
        let near = uri("host", "vm1");
        stage.ok(&["nbdcopy", "--connections=4", "--requests=16", "--flush", "in", &near]);
        assert!(stage.read("data") == content);
        stage.ok(&["nbdcopy", "--connections=4", "--requests=16", &near, "out"]);
        assert!(stage.read("out") == content);
        agent.stop();
    };
    let server = nbdkit(&stage, "pki");
    // It turns away who comes without TLS.
    let plain = config("plain", OFF, &[("vm1", "nbd+unix:///?socket=far")]);
    let refused = stage.agent("plain", &plain);
    refused.says("the server requires TLS: use nbds:// or nbds+unix://");
    refused.stop();
    copies(FAR, "connections = 4\n");
    server.kill();
    let port = port.to_string();
    let _qemu = stage.start(
        "qemu",
        &["qemu-nbd", "--persistent", "--shared=0", "--format=raw", "--bind=127.0.0.1", "--port"]
            .iter()
            .copied()
            .chain([
                &port,
                "--object=tls-creds-x509,id=tls0,endpoint=server,verify-peer=on,dir=pki",
                "--tls-creds=tls0",
                "data",
            ])
            .collect::<Vec<_>>(),
    );
    until("qemu-nbd listens", || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    copies(&format!("nbds://localhost:{port}"), "connections = 4\n");
    copies(&format!("nbds://127.0.0.1:{port}"), "");
}

#[test]
fn a_server_with_tls_that_is_killed_was_only_slow() {
    let (stage, _ca) = stage();
    stage.sparse("data", 32 << 20);
    let mut server = nbdkit(&stage, "pki");
    let agent = agent(&stage, FAR, "connections = 2\nhold = \"30s\"\n");
    let options = ["--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16", "--verify=crc32c"];
    let load = stage.load("fio", &uri("host", "vm1"), &options);
    let writes = || agent.volume().disks[0].writes.ios;
    until("it loads", || writes() > 100);
    for _ in 0..2 {
        server.kill();
        agent.says("lost the NBD server");
        let before = writes();
        server = nbdkit(&stage, "pki");
        until("the disk goes on", || writes() > before + 100);
    }
    load.finish();
    assert_eq!(agent.volume().disks[0].errors, 0);
    agent.stop();
}

/// Who serves a disk without being trusted does not serve it; why is to be read wherever somebody
/// looks, and the right server is used as soon as it is there.
#[test]
fn a_server_that_is_not_to_be_trusted_is_waited_for() {
    let (stage, ca) = stage();
    stage.sparse("data", 1 << 20);
    let other = Authority::new();
    other.directory(&stage, "other", false);
    other.issue(&stage.path("other"), "server");
    for (name, year) in [("expired", 1990), ("early", 2100)] {
        ca.directory(&stage, name, false);
        ca.issue_as(&stage.path(name), "server", &|params| {
            params.not_before = date_time_ymd(year, 1, 1);
            params.not_after = date_time_ymd(year + 1, 1, 1);
        });
    }
    ca.directory(&stage, "elsewhere", false);
    ca.issue_as(&stage.path("elsewhere"), "server", &|params| params.subject_alt_names.clear());
    let mut agent: Option<Agent> = None;
    for (pki, why) in [
        ("other", "TLS: its certificate comes from no CA in pki/ca-cert.pem"),
        ("expired", "TLS: the peer's certificate has expired at 1991-01-01T00:00:00Z"),
        ("early", "TLS: the peer's certificate is not valid yet, but from 2100-01-01T00:00:00Z on"),
        (
            "elsewhere",
            "TLS: invalid peer certificate: certificate not valid for name \"localhost\"",
        ),
    ] {
        let server = nbdkit(&stage, pki);
        match &agent {
            None => agent = Some(self::agent(&stage, FAR, "")),
            Some(agent) => agent.says(why),
        }
        let agent = agent.as_ref().unwrap();
        let fault = || agent.volume().disks[0].fault.clone().unwrap_or_default();
        until(&format!("its status says {why}"), || fault().contains(why));
        agent.says(why);
        assert_eq!(agent.volume().disks[0].state, DiskState::Waiting);
        let checked = stage.parda(&["check", "host.toml"]);
        assert!(checked.status.success() && checked.out.contains(why), "{}", checked.out);
        let shown = stage.parda(&["status", "--socket", "host.status"]).out;
        // A line may be broken to fit.
        assert!(shown.contains("disk vm1: waiting") && shown.contains("TLS: "), "{shown}");
        server.kill();
    }
    let _server = nbdkit(&stage, "pki");
    let agent = agent.unwrap();
    until("it is served", || agent.volume().disks[0].state == DiskState::Serving);
    stage.ok(&["nbdinfo", &uri("host", "vm1")]);
    let checked = stage.parda(&["check", "host.toml"]);
    assert!(checked.status.success() && !checked.out.contains("note:"), "{}", checked.out);
    agent.stop();
}

/// Two hosts meet on an export with TLS; the load generator takes it, too.
#[test]
fn an_exchange_and_a_benchmark_are_within_tls() {
    let (stage, _ca) = stage();
    stage.sparse("data", 1 << 20);
    ["disk-a", "disk-b"].iter().for_each(|disk| stage.sparse(disk, 1 << 20));
    let _server = nbdkit(&stage, "pki");
    let place = format!("{FAR}&tls-certificates=pki");
    stage.ok(&[PARDA, "exchange", "init", &place, "--slots", "8"]);
    assert!(stage.ok(&[PARDA, "exchange", "show", &place]).contains("8 slots"));
    let host = |name: &str| {
        config(name, "mode = \"parda\"\nperiod = \"100ms\"", &[("vm1", &format!("disk-{name}"))])
            .replace(
                "[[volume.disk]]",
                &format!("[volume.exchange]\nfile = \"{place}\"\nslots = 8\n[[volume.disk]]"),
            )
    };
    let agents = ["a", "b"].map(|name| stage.agent(name, &host(name)));
    for agent in &agents {
        until("it hears the other", || {
            // None before its first period.
            agent.volume().exchange.is_some_and(|exchange| {
                let live = exchange.peers.iter().any(|peer| peer.liveness == Liveness::Live);
                live && exchange.fault.is_none()
            })
        });
    }
    let checked = stage.parda(&["check", "a.toml"]);
    assert!(checked.status.success() && !checked.out.contains("note:"), "{}", checked.out);
    // Certificates that are missing are said before anything is started.
    let missing =
        stage.fails(&[PARDA, "exchange", "show", &format!("{FAR}&tls-certificates=none")]);
    assert!(missing.contains("none/ca-cert.pem: cannot be read"), "{missing}");
    let unsaid = stage.fails(&[PARDA, "exchange", "show", FAR]);
    assert!(unsaid.contains("TLS needs the CA"), "{unsaid}");
    let line = [LAB, "bench", "nbd", &place, "--depth", "16", "--time", "200ms"];
    let report = stage.ok(&[&line[..], &["--connections", "2", "--json", "-"]].concat());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["reads"].as_u64() > Some(0), "{report}");
    agents.into_iter().for_each(Agent::stop);
}
