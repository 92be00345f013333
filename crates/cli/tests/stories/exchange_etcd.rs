//! Hosts that meet in a real etcd of three members: leaders die, the quorum goes and comes back, all members stop, all
//! data is wiped, certificates run out. IO goes on throughout, and control comes back.

use std::time::{Duration, Instant};

use parda_agent::status::ExchangeStatus;
use parda_control::Source;
use parda_exchange::Liveness;
use parda_testkit::{TestEtcd, TestEtcdTls};
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use time::OffsetDateTime;

use crate::stage::{Agent, LAB, Load, Process, Stage, config, until, uri, wait_for};
use crate::tls::Authority;

/// Longer than the leases of these hosts, which is 8 s.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(9);

fn exchange(agent: &Agent) -> ExchangeStatus {
    agent.volume().exchange.unwrap_or_default()
}

fn ios(agent: &Agent) -> u64 {
    let disk = &agent.volume().disks[0];
    disk.reads.ios + disk.writes.ios
}

/// Hosts on one modelled array, of 2000 and 1000 shares, each with more load than its share.
struct Cluster {
    agents: Vec<Agent>,
    loads: Vec<Load>,
    _array: Process,
}

impl Cluster {
    fn start(stage: &Stage, keys: &str) -> Cluster {
        let listen = "unix:array";
        let preset = ["--preset", "cx3-40-raid0", "--drives", "2"];
        let array =
            stage.start("array", &[&[LAB, "array", "--listen", listen], &preset[..]].concat());
        until("the array answers", || stage.path("array").exists());
        let start = |(i, name): (usize, &&str)| {
            let control = "period = \"800ms\"\nlatency_threshold = \"30ms\"";
            let shares = if i == 0 { 2000 } else { 1000 };
            let vm =
                format!("name = \"vm\"\nshares = {shares}\noffset = \"{i}GiB\"\nsize = \"1GiB\"");
            let text = config(name, control, &[("vm", "nbd+unix:///lun0?socket=array")])
                .replace("name = \"vm\"", &vm)
                .replace("[[volume.disk]]", &format!("{keys}[[volume.disk]]"));
            let agent = stage.agent(name, &text);
            let options = ["--rw=randread", "--bs=16k", "--size=1g", "--iodepth=32"];
            (agent, stage.load(&format!("fio-{name}"), &uri(name, "vm"), &options))
        };
        let (agents, loads) = ["a", "b"].iter().enumerate().map(start).unzip();
        Cluster { agents, loads, _array: array }
    }

    /// Waits until each host hears the other, and rests on what it says.
    fn is_well(&self, what: &str) {
        until(what, || {
            self.agents.iter().all(|agent| {
                let live = |peer: &&_| peer_is_live(peer);
                let exchange = exchange(agent);
                exchange.peers.iter().filter(live).count() == 1
                    && exchange.fault.is_none()
                    && agent.volume().source == Source::Cluster
            })
        });
    }

    /// Waits until each host has fallen back.
    fn falls_back(&self, what: &str) {
        until(what, || self.agents.iter().all(|agent| agent.volume().source != Source::Cluster));
        self.goes_on(what);
    }

    /// Waits until each host has done more IOs.
    fn goes_on(&self, what: &str) {
        let before: Vec<_> = self.agents.iter().map(ios).collect();
        until(&format!("IO goes on: {what}"), || {
            self.agents.iter().zip(&before).all(|(agent, before)| ios(agent) > before + 50)
        });
    }

    fn end(self) {
        self.loads.into_iter().for_each(|load| assert!(load.finish() > 0));
        for agent in &self.agents {
            let log = agent.process.log();
            assert!(!log.contains("a name of its own"), "nobody is a twin: {log}");
        }
        self.agents.into_iter().for_each(Agent::stop);
    }
}

fn peer_is_live(peer: &parda_api::Host) -> bool {
    peer.liveness == Liveness::Live
}

fn quoted(urls: &[String]) -> String {
    urls.iter().map(|url| format!("\"{url}\"")).collect::<Vec<_>>().join(", ")
}

#[test]
fn io_goes_on_whatever_happens_to_etcd() {
    let stage = Stage::new();
    let mut etcd = TestEtcd::start(&stage.path(""), 3);
    let keys = format!("[volume.exchange]\netcd = [{}]\n", quoted(&etcd.urls()));
    let cluster = Cluster::start(&stage, &keys);
    cluster.is_well("they hear each other");
    let says = stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(says.contains("exchange etcd http://127.") && says.contains(" and 2 others"), "{says}");
    let keys = etcd.post(0, "/v3/kv/range", r#"{"key":"AA==","range_end":"AA=="}"#).unwrap();
    assert!(keys.contains("\"count\":\"2\""), "one key for each host: {keys}");

    let leader = wait_for("a member leads", || etcd.leader());
    etcd.kill(leader);
    cluster.goes_on("the leader was killed");
    cluster.is_well("another member leads");

    let other = (leader + 1) % 3;
    etcd.kill(other);
    cluster.falls_back("there is no quorum");
    cluster.agents[0].says("IO goes on, control falls back");
    etcd.restart(other);
    cluster.is_well("there is a quorum again");
    etcd.restart(leader);

    (0..3).for_each(|member| etcd.pause(member, true));
    let stopped = Instant::now();
    cluster.falls_back("all members are stopped");
    until("leases would have run out", || stopped.elapsed() > LONGER_THAN_A_LEASE);
    cluster.goes_on("all members were stopped for long");
    (0..3).for_each(|member| etcd.pause(member, false));
    cluster.is_well("all members go on");

    let leases = exchange(&cluster.agents[0]).etcd.unwrap().leases;
    etcd.wipe();
    cluster.goes_on("all data is wiped");
    until("new leases are made", || {
        exchange(&cluster.agents[0]).etcd.is_some_and(|etcd| etcd.leases > leases)
    });
    cluster.is_well("all data was wiped");
    let log = cluster.agents[0].process.log();
    let faults = log.matches("control falls back").count();
    assert!(faults < 20, "a row of faults is logged as one: {log}");
    cluster.end();
}

/// 99th percentile of a host's IOs over some seconds, in milliseconds.
fn p99(stage: &Stage) -> f64 {
    let load = ["--op", "randread", "--bs", "16k", "--depth", "32", "--time", "5s", "--json", "-"];
    let answer = stage.ok(&[&[LAB, "bench", "nbd", &uri("a", "vm")], &load[..]].concat());
    let (_, rest) = answer.split_once("\"p99_us\": ").unwrap();
    rest.split([',', '\n']).next().unwrap().parse::<f64>().unwrap() / 1e3
}

#[test]
#[ignore = "a measurement, which docs/performance.md quotes: cargo test --workspace --test stories -- p99_of_ios --ignored --nocapture"]
fn p99_of_ios_beside_what_happens_to_etcd() {
    let stage = Stage::new();
    let mut etcd = TestEtcd::start(&stage.path(""), 3);
    let keys = format!("[volume.exchange]\netcd = [{}]\n", quoted(&etcd.urls()));
    let mut cluster = Cluster::start(&stage, &keys);
    drop(cluster.loads.remove(0));
    let mut ratios = Vec::new();
    for round in 0..3 {
        for fault in ["leader killed", "no quorum", "all stopped", "all wiped"] {
            cluster.is_well("before a pair");
            etcd.wait();
            // The pair's two parts take turns at being first.
            let before = (round % 2 == 0).then(|| p99(&stage));
            let leader = etcd.leader().unwrap();
            let killed = match fault {
                "leader killed" => vec![leader],
                "no quorum" => vec![leader, (leader + 1) % 3],
                _ => Vec::new(),
            };
            killed.iter().for_each(|member| etcd.kill(*member));
            match fault {
                "all stopped" => (0..3).for_each(|member| etcd.pause(member, true)),
                "all wiped" => etcd.wipe(),
                _ => {}
            }
            let beside = p99(&stage);
            killed.iter().for_each(|member| etcd.restart(*member));
            (0..3).for_each(|member| etcd.pause(member, false));
            cluster.is_well("after a pair");
            let before = before.unwrap_or_else(|| p99(&stage));
            ratios.push(beside / before);
            println!("{fault}: {beside:.1} ms beside it, {before:.1} ms undisturbed");
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratio: {ratios:.3?}, median {:.3}", ratios[ratios.len() / 2]);
}

#[test]
fn certificates_that_run_out_are_renewed_without_a_reload() {
    let stage = Stage::new();
    let dir = stage.path("");
    let mut etcd = TestEtcd::new(&dir, 1);
    let ca = Authority::new();
    ca.directory(&stage, "pki", false);
    let addresses: Vec<_> =
        etcd.addresses().iter().map(|ip| SanType::IpAddress(ip.parse().unwrap())).collect();
    let issue = |name: &str, days: i64| {
        ca.issue_as(&stage.path("pki"), name, &|params| {
            params.subject_alt_names.clone_from(&addresses);
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            params.not_before = OffsetDateTime::now_utc() - time::Duration::days(2);
            params.not_after = OffsetDateTime::now_utc() + time::Duration::days(days);
        });
    };
    issue("etcd", 1);
    issue("host", 1);
    let pki = |name: &str| stage.path("pki").join(name);
    etcd.secure(TestEtcdTls {
        certificate: &pki("etcd-cert.pem"),
        key: &pki("etcd-key.pem"),
        clients: &pki("ca-cert.pem"),
    });
    etcd.launch();
    let keys = format!(
        "[volume.exchange]\netcd = [{}]\ntls = {{ ca = \"pki/ca-cert.pem\", \
         certificate = \"pki/host-cert.pem\", key = \"pki/host-key.pem\" }}\n",
        quoted(&etcd.urls())
    );
    let cluster = Cluster::start(&stage, &keys);
    cluster.is_well("they hear each other with TLS");
    for (whose, says) in [
        ("host", "host-cert.pem: the certificate has expired"),
        ("etcd", ": the peer's certificate has expired"),
    ] {
        issue(whose, -1);
        // Connections that are there go on, and a host reads its certificate again after a call that failed.
        etcd.kill(0);
        cluster.falls_back("etcd is gone");
        etcd.restart(0);
        until("the fault is named", || {
            cluster.agents.iter().all(|agent| agent.process.log().contains(says))
        });
        cluster.falls_back("a certificate has expired");
        issue(whose, 1);
        etcd.kill(0);
        etcd.restart(0);
        cluster.is_well("the certificate is renewed");
    }
    cluster.end();
}
