//! Hosts that meet over UDP: shares hold, hosts die and come back, and whoever is on the network without the key
//! changes nothing.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::{Duration, Instant};

use parda_agent::status::ExchangeStatus;
use parda_control::Source;
use parda_exchange::Liveness;
use parda_exchange::udp::DatagramStanding;
use rustix::process::Signal;

use crate::held::Held;
use crate::stage::{Agent, LAB, Load, PARDA, Process, Stage, config, until, uri};

/// Percent of datagrams that a door loses when the network is bad.
const LOSS: u8 = 30;

/// A network that each host reaches the others by: what is sent to a door comes to the host behind it, as long
/// as it is not lost. All of it is recorded.
pub(crate) struct Network {
    hosts: Vec<SocketAddr>,
    doors: Vec<SocketAddr>,
    pub(crate) lost: Arc<AtomicU8>,
    recorded: Arc<Mutex<Vec<Recorded>>>,
    over: Arc<AtomicBool>,
}

/// A datagram, and to whom it went.
type Recorded = (SocketAddr, Vec<u8>);

impl Network {
    pub(crate) fn new(hosts: u8) -> Network {
        // Addresses of loopback that no other story has.
        let (x, y) = (fastrand::u8(..), fastrand::u8(..));
        let hosts: Vec<SocketAddr> =
            (1..=hosts).map(|n| (Ipv4Addr::new(127, x, y, n), 7077).into()).collect();
        let lost = Arc::new(AtomicU8::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let doors = hosts.iter().map(|host| {
            let door = UdpSocket::bind((Ipv4Addr::new(127, x, y, 100), 0)).unwrap();
            door.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let address = door.local_addr().unwrap();
            let (host, lost, recorded) = (*host, Arc::clone(&lost), Arc::clone(&recorded));
            let over = Arc::clone(&over);
            spawn(move || {
                let mut buffer = [0; 2048];
                while !over.load(Ordering::Relaxed) {
                    let Ok((length, _)) = door.recv_from(&mut buffer) else { continue };
                    if fastrand::u8(..100) >= lost.load(Ordering::Relaxed) {
                        recorded.lock().unwrap().push((host, buffer[..length].to_vec()));
                        let _ = door.send_to(&buffer[..length], host);
                    }
                }
            });
            address
        });
        let doors = doors.collect();
        Network { hosts, doors, lost, recorded, over }
    }

    /// The exchange of the host with this number.
    pub(crate) fn exchange(&self, host: usize) -> String {
        let others = self.doors.iter().enumerate().filter(|(door, _)| *door != host);
        let others: Vec<_> = others.map(|(_, address)| format!("\"{address}\"")).collect();
        format!(
            "[volume.exchange]\nudp = \"{}\"\npeers = [{}]\nkey_file = \"key\"\n",
            self.hosts[host],
            others.join(", ")
        )
    }

    fn recorded(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap().clone()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn write_key(stage: &Stage, secrets: &[u8]) {
    let lines = secrets.iter().map(|secret| format!("{}{secret:02x}\n", "5a".repeat(31)));
    stage.write("key", lines.collect::<String>());
    std::fs::set_permissions(stage.path("key"), PermissionsExt::from_mode(0o600)).unwrap();
}

fn exchange(agent: &Agent) -> ExchangeStatus {
    agent.volume().exchange.unwrap_or_default()
}

fn udp(agent: &Agent) -> DatagramStanding {
    exchange(agent).udp.unwrap_or_default()
}

fn live(agent: &Agent) -> usize {
    exchange(agent).peers.iter().filter(|peer| peer.liveness == Liveness::Live).count()
}

fn ios(agent: &Agent) -> u64 {
    let disk = &agent.volume().disks[0];
    disk.reads.ios + disk.writes.ios
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three hosts on one modelled array, of 2000, 1000 and 1000 shares, each with more load than its share.
pub(crate) struct Cluster {
    pub(crate) stage: Stage,
    network: Network,
    pub(crate) agents: Vec<Agent>,
    pub(crate) loads: Vec<Load>,
    _array: Process,
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::start_within(Stage::new(), "4", &[])
    }

    /// The same with an array of so many drives, and the agent of the last host started by a command line that begins with `last`.
    pub(crate) fn start_within(stage: Stage, drives: &str, last: &[&str]) -> Cluster {
        let network = Network::new(3);
        write_key(&stage, &[1]);
        let array = stage.start(
            "array",
            &[
                LAB,
                "array",
                "--preset",
                "cx3-40-raid0",
                "--drives",
                drives,
                "--listen",
                "unix:array",
            ],
        );
        until("the array answers", || stage.path("array").exists());
        let mut cluster =
            Cluster { stage, network, agents: Vec::new(), loads: Vec::new(), _array: array };
        for (i, name) in NAMES.iter().enumerate() {
            let control = "period = \"250ms\"\nlatency_threshold = \"30ms\"";
            let shares = if i == 0 { 2000 } else { 1000 };
            // A part of the LUN for each.
            let vm =
                format!("name = \"vm\"\nshares = {shares}\noffset = \"{i}GiB\"\nsize = \"1GiB\"");
            let text = config(name, control, &[("vm", "nbd+unix:///lun0?socket=array")])
                .replace("name = \"vm\"", &vm)
                .replace(
                    "[[volume.disk]]",
                    &format!("{}[[volume.disk]]", cluster.network.exchange(i)),
                );
            let wrapper = if i + 1 == NAMES.len() { last } else { &[] };
            cluster.agents.push(cluster.stage.agent_within(wrapper, name, &text));
            cluster.loads.push(cluster.load(name));
        }
        cluster
    }

    pub(crate) fn load(&self, name: &str) -> Load {
        let options = ["--rw=randread", "--bs=16k", "--size=1g", "--iodepth=64"];
        self.stage.load(&format!("fio-{name}-{}", fastrand::u32(..)), &uri(name, "vm"), &options)
    }

    /// Waits until every host hears the two others and rests on what they say.
    pub(crate) fn is_well(&self, what: &str) {
        until(what, || {
            self.agents.iter().all(|a| live(a) == 2 && a.volume().source == Source::Cluster)
        });
    }

    /// Waits until IOs of some seconds are in proportion to shares.
    pub(crate) fn shares_hold(&self, what: &str) {
        until(&format!("shares hold {what}"), || {
            let count = || self.agents.iter().map(ios).collect::<Vec<_>>();
            let before = count();
            std::thread::sleep(Duration::from_secs(2));
            let done: Vec<_> =
                count().iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
            let ratio = |other: usize| done[0] / done[other].max(1.0);
            (1.6..2.5).contains(&ratio(1)) && (1.6..2.5).contains(&ratio(2))
        });
    }
}

#[test]
fn shares_hold_over_udp_whatever_the_network_does() {
    let mut cluster = Cluster::start();
    cluster.is_well("they hear each other");
    cluster.shares_hold("over UDP");
    let says = cluster.stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(says.contains(&format!("exchange udp {}, 2 peers, 1 key", cluster.network.hosts[0])));
    let answer = cluster.stage.parda(&["status", "--socket", "a.status", "--json", "-"]).out;
    let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let said = &json["volumes"][0]["exchange"];
    assert!(said.get("slot").is_none() && said["udp"]["sent"].as_u64() > Some(0));

    // Three of ten datagrams are lost.
    cluster.network.lost.store(LOSS, Ordering::Relaxed);
    cluster.shares_hold("with three of ten datagrams lost");
    cluster.network.lost.store(0, Ordering::Relaxed);

    // One is killed, and comes back as a run of its own, while its recordings are replayed.
    let recorded = cluster.network.recorded();
    cluster.agents.remove(1).process.kill();
    drop(cluster.loads.remove(1));
    let others = |peers: usize| cluster.agents.iter().all(|agent| live(agent) == peers);
    until("the others give it up", || others(1));
    let attacker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for (to, datagram) in &recorded {
        attacker.send_to(datagram, to).unwrap();
    }
    until("replays are counted", || {
        cluster.agents.iter().all(|agent| udp(agent).refused["replayed"] > 20)
    });
    let dead = |agent: &Agent| {
        exchange(agent).peers.iter().all(|p| p.name != "b" || p.liveness != Liveness::Live)
    };
    assert!(cluster.agents.iter().all(dead), "a dead host stays dead");
    cluster.agents.insert(1, cluster.stage.restart(&[], "b"));
    until("it listens", || udp(&cluster.agents[1]).sent > 0);
    for (to, datagram) in &recorded {
        attacker.send_to(datagram, to).unwrap();
    }
    let load = cluster.load("b");
    cluster.loads.insert(1, load);
    cluster.is_well("it is back");
    let log = cluster.agents[0].process.log();
    assert!(!log.contains("a name of its own"), "its run before is no twin: {log}");
    // Unproven before it has heard the peers themselves, replayed afterwards.
    until("the new run refuses what was said to the one before", || {
        let refused = udp(&cluster.agents[1]).refused;
        refused["unproven"] + refused["replayed"] > 20
    });
    cluster.shares_hold("after a restart");

    // Forged datagrams: real ones of which a bit was changed, at every place.
    let forged = udp(&cluster.agents[0]).refused["forged"];
    let (to, real) = recorded.iter().find(|(to, _)| *to == cluster.network.hosts[0]).unwrap();
    for at in (24..real.len()).step_by(7) {
        let mut datagram = real.clone();
        datagram[at] ^= 1 << (at % 8);
        attacker.send_to(&datagram, to).unwrap();
    }
    until("forgeries are counted", || udp(&cluster.agents[0]).refused["forged"] > forged + 50);
    cluster.agents[0].says("with a wrong signature");
    assert_eq!(cluster.agents[0].process.log().matches("with a wrong signature").count(), 1);
    flood(&cluster, &attacker, real);
    cluster.is_well("they hear each other after all of that");
    cluster.shares_hold("after all of that");
    for load in cluster.loads {
        load.finish();
    }
    cluster.agents.into_iter().for_each(Agent::stop);
}

/// As many datagrams as go out, of every kind, to one of the hosts.
fn flood(cluster: &Cluster, attacker: &UdpSocket, real: &[u8]) {
    let victim = &cluster.agents[0];
    let to = cluster.network.hosts[0];
    let before = (Held::of(victim), ios(victim));
    let mut forged = real.to_vec();
    forged[100] ^= 1;
    let mut sent = 0u64;
    until("IO goes on while datagrams come", || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            for datagram in [&forged, real, &real[..300], b"noise"] {
                // What the kernel does not take is lost.
                sent += u64::from(attacker.send_to(datagram, to).is_ok());
            }
        }
        ios(victim) > before.1 + 50
    });
    let held = Held::of(victim);
    let counted: u64 = udp(victim).refused.values().sum();
    assert!(counted > 1_000, "{counted} of {sent} were counted");
    let grown = held.resident_kib.saturating_sub(before.0.resident_kib);
    assert!(grown < 16 << 10, "{grown} KiB more for {sent} datagrams");
    assert_eq!(held.threads, before.0.threads);
}

/// Two hosts in a multicast group at the loopback interface, whose keys are replaced.
#[test]
fn a_group_goes_on_while_its_keys_are_replaced() {
    let stage = Stage::new();
    let group = Ipv4Addr::new(239, 77, fastrand::u8(..), fastrand::u8(..));
    let text = |name: &str| {
        stage.sparse(&format!("{name}.data"), 16 << 20);
        let exchange = format!(
            "[volume.exchange]\nudp = \"{group}:7077\"\ninterface = \"lo\"\nkey_file = \"key\"\n"
        );
        config(name, "period = \"100ms\"", &[("vm", &format!("{name}.data"))])
            .replace("[[volume.disk]]", &format!("{exchange}[[volume.disk]]"))
    };
    // Without its keys an agent starts, says so, and is heard when they are there.
    let agents = ["a", "b"].map(|name| stage.agent(name, &text(name)));
    agents[0].says("cannot read the key file");
    let hear = |what: &str| until(what, || agents.iter().all(|agent| live(agent) == 1));
    write_key(&stage, &[1]);
    hear("they hear each other");
    assert!(udp(&agents[0]).own > 0);
    let reload = || agents.iter().for_each(|agent| agent.process.signal(Signal::HUP));
    for secrets in [&[1, 2][..], &[2, 1], &[2]] {
        write_key(&stage, secrets);
        reload();
        until("the keys are in force", || {
            agents.iter().all(|agent| udp(agent).keys == secrets.len())
        });
        let heard = agents.each_ref().map(|agent| udp(agent).heard);
        until("they are heard on", || {
            agents.iter().zip(heard).all(|(agent, heard)| udp(agent).heard > heard + 3)
        });
        hear("they hear each other with the keys");
    }
    stage.write("key", "none");
    reload();
    for agent in &agents {
        agent.says("the exchange's keys from before stay in force");
        assert!(agent.process.log().contains("key:1: is no key"));
        assert_eq!(udp(agent).keys, 1);
    }
    hear("they hear each other with the keys from before");
    // Nor does another change of the exchange drop what works, as long as the file is wrong.
    stage.write("a.toml", text("a").replace(":7077", ":7079"));
    agents[0].process.signal(Signal::HUP);
    agents[0].says("exchange not changed: key:1: is no key");
    assert_eq!(udp(&agents[0]).keys, 1);
    hear("they hear each other with the exchange from before");
    stage.write("a.toml", text("a"));
    // A file with other keys is a change like any other.
    let says = stage.fails(&[PARDA, "check", "a.toml"]);
    assert!(says.contains("a.toml:") && says.contains("key:1: is no key"), "{says}");
    // One name twice is said on both sides.
    let twin = text("a").replace("a.status", "twin.status").replace("unix:a\"", "unix:twin\"");
    let twin = twin.replace("a.data", "twin.data");
    stage.sparse("twin.data", 16 << 20);
    write_key(&stage, &[2]);
    let twin = stage.agent("twin", &twin);
    for agent in [&agents[0], &twin] {
        agent.says("another host 'a'");
        until("it is counted", || exchange(agent).duplicate_hosts > 0);
        until("it is a fault", || exchange(agent).duplicate.is_some());
    }
    twin.stop();
    until("the fault is gone with it", || exchange(&agents[0]).duplicate.is_none());
    agents.into_iter().for_each(Agent::stop);
}
