//! An exchange that is damaged, lost or contested: IO goes on, the state says what is wrong, and
//! everything is as before once it is healed.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parda_agent::status::{ExchangeStatus, VolumeStatus};
use parda_control::Source;
use parda_exchange::Liveness;
use rustix::process::Signal;

use crate::fuse::FuseFile;
use crate::island::{ISLAND, Island};
use crate::stage::{Agent, Load, PARDA, Stage, config, noise, until, uri};

const CONTROL: &str = "period = \"100ms\"";
const SLOTS: u64 = 8;
const SLOT: u64 = 4096;
/// The header and the slots.
const WHOLE: u64 = SLOT + SLOTS * SLOT;

/// A host with one disk, an exchange and a fixed slot.
fn host(name: &str, exchange: &str, slot: usize) -> String {
    config(name, CONTROL, &[("vm", &format!("{name}.data"))]).replace(
        "[[volume.disk]]",
        &format!(
            "[volume.exchange]\nfile = \"{exchange}\"\nslots = {SLOTS}\nslot = {slot}\n\
             [[volume.disk]]"
        ),
    )
}

/// Hosts that share a volume, each with a load.
struct Cluster {
    agents: Vec<Agent>,
    loads: Vec<Load>,
}

impl Cluster {
    fn start(stage: &Stage, wrapper: &[&str], exchange: &str, hosts: &[(&str, String)]) -> Cluster {
        let mut cluster = Cluster { agents: Vec::new(), loads: Vec::new() };
        stage.ok(&[wrapper, &[PARDA, "exchange", "init", exchange, "--slots", "8"]].concat());
        for (name, text) in hosts {
            stage.sparse(&format!("{name}.data"), 16 << 20);
            cluster.agents.push(stage.agent_within(wrapper, name, text));
            // Slow enough that all hosts find a processor.
            let options =
                ["--rw=randrw", "--bs=4k", "--size=16m", "--iodepth=4", "--rate_iops=400"];
            cluster.loads.push(stage.load(&format!("fio-{name}"), &uri(name, "vm"), &options));
        }
        cluster.is_well(&format!("{exchange} works"));
        cluster
    }

    fn volumes(&self) -> Vec<VolumeStatus> {
        self.agents.iter().map(Agent::volume).collect()
    }

    /// Waits until something is true of every host.
    fn until(&self, what: &str, of: impl Fn(&VolumeStatus, &ExchangeStatus) -> bool) {
        let now = |v: &VolumeStatus| v.exchange.as_ref().is_some_and(|e| of(v, e));
        until(what, || self.volumes().iter().all(now));
    }

    /// Waits until every host hears all others and says that nothing is wrong.
    fn is_well(&self, what: &str) {
        let others = self.agents.len() - 1;
        self.until(what, |volume, exchange| {
            let live = exchange.peers.iter().filter(|p| p.liveness == Liveness::Live).count();
            volume.source == Source::Cluster && exchange.fault.is_none() && live == others
        });
    }

    /// IO of every host goes on.
    fn goes_on(&self) {
        let ios = |v: &VolumeStatus| v.disks[0].reads.ios + v.disks[0].writes.ios;
        let before: Vec<_> = self.volumes().iter().map(ios).collect();
        until("IO goes on", || {
            self.volumes().iter().zip(&before).all(|(v, before)| ios(v) > before + 50)
        });
    }

    /// No client met an error, and every agent ends in order.
    fn finish(self) {
        for load in self.loads {
            load.finish();
        }
        self.agents.into_iter().for_each(Agent::stop);
    }
}

fn pair(stage: &Stage) -> (Cluster, PathBuf) {
    let hosts = [("a", host("a", "exchange", 1)), ("b", host("b", "exchange", 2))];
    (Cluster::start(stage, &[], "exchange", &hosts), stage.path("exchange"))
}

/// A count of every host.
fn counts(count: impl Fn(&ExchangeStatus) -> u64, cluster: &Cluster) -> Vec<u64> {
    cluster.volumes().iter().map(|v| count(v.exchange.as_ref().unwrap())).collect()
}

#[test]
fn damage_that_heals_itself() {
    let stage = Stage::new();
    let (cluster, file) = pair(&stage);
    let open = |file: &Path| fs::OpenOptions::new().write(true).open(file).unwrap();
    let zeros = vec![0; (SLOTS * SLOT) as usize];
    let damages: [(&str, &dyn Fn()); 3] = [
        ("truncated to its header", &|| open(&file).set_len(SLOT).unwrap()),
        ("truncated in a slot", &|| open(&file).set_len(5000).unwrap()),
        ("zeroed in its slots", &|| open(&file).write_all_at(&zeros, SLOT).unwrap()),
    ];
    let mut cuts = 0;
    for (what, damage) in damages {
        damage();
        cluster.goes_on();
        if what.starts_with("truncated") {
            let mut cut = Instant::now();
            until(&format!("it is said that it was {what}"), || {
                // A write that came before the next read has made it whole.
                if cut.elapsed() > Duration::from_secs(5) {
                    damage();
                    cut = Instant::now();
                }
                let said = |agent: &Agent| agent.process.log().matches("was cut to").count();
                cluster.agents.iter().map(said).sum::<usize>() > cuts
            });
            cuts =
                cluster.agents.iter().map(|a| a.process.log().matches("was cut to").count()).sum();
        }
        until(&format!("it is whole when it was {what}"), || {
            fs::metadata(&file).unwrap().len() == WHOLE
        });
        cluster.is_well(&format!("the exchange heals when it was {what}"));
    }
    let copy = stage.path("copy");
    fs::copy(&file, &copy).unwrap();
    fs::rename(&copy, &file).unwrap();
    for agent in &cluster.agents {
        agent.says("the path of the exchange leads to another file");
    }
    cluster.is_well("hosts meet in the copy");
    cluster.finish();
}

/// Without its header nobody knows what it is. It is made anew on purpose, and then used. One that is older is not.
#[test]
fn damage_that_needs_a_hand() {
    let stage = Stage::new();
    let (cluster, file) = pair(&stage);
    let says = |what: &str| {
        cluster.until(&format!("they say {what}"), |_, e| {
            e.fault.as_ref().is_some_and(|fault| fault.contains(what))
        });
    };
    let make = "parda exchange init exchange --slots 8 --volume array";
    let replace = |with: &dyn Fn(&Path)| {
        let new = stage.path("new");
        with(&new);
        fs::rename(&new, &file).unwrap();
    };
    let first = stage.path("first");
    fs::copy(&file, &first).unwrap();
    let damages: [(&str, &str, &dyn Fn()); 3] = [
        ("deleted", "it is not there", &|| fs::remove_file(&file).unwrap()),
        ("emptied", "it was cut to 0 bytes", &|| replace(&|new| fs::write(new, []).unwrap())),
        ("zeroed", "its header is gone", &|| {
            replace(&|new| fs::write(new, vec![0; WHOLE as usize]).unwrap());
        }),
    ];
    for (what, fault, damage) in damages {
        damage();
        says(fault);
        says(make);
        cluster.goes_on();
        match fs::read(&file) {
            Ok(bytes) => assert!(bytes.iter().all(|byte| *byte == 0), "{what}"),
            Err(_) => assert_eq!(what, "deleted"),
        }
        stage.exchange("exchange", 8);
        cluster.is_well(&format!("the exchange works when it was {what} and made anew"));
    }
    let older = fs::read(&first).unwrap();
    fs::rename(&first, &file).unwrap();
    says("it was replaced");
    cluster.goes_on();
    assert!(fs::read(&file).unwrap() == older, "it is not written unasked");
    cluster.agents.iter().for_each(|agent| agent.process.signal(Signal::HUP));
    cluster.is_well("the exchange works when an older one is meant");
    // Somebody moves his own file there.
    replace(&|new| fs::write(new, noise(1 << 20)).unwrap());
    let theirs = fs::read(&file).unwrap();
    says("it is no exchange: it holds other data");
    cluster.goes_on();
    cluster.finish();
    assert!(fs::read(&file).unwrap() == theirs, "not even by a farewell");
}

#[test]
fn noise_is_counted_and_not_overwritten_until_it_is_cleared() {
    let stage = Stage::new();
    let (cluster, file) = pair(&stage);
    let before = counts(|e| e.ignored, &cluster);
    let noise = noise((SLOTS * SLOT) as usize);
    let write = |bytes: &[u8]| {
        fs::OpenOptions::new().write(true).open(&file).unwrap().write_all_at(bytes, SLOT).unwrap();
    };
    // A host may be about to publish over it.
    until("noise in both slots is noticed", || {
        write(&noise);
        cluster.volumes().iter().zip(&before).all(|(v, before)| {
            let exchange = v.exchange.as_ref().unwrap();
            exchange.ignored > *before && exchange.fault.is_some()
        })
    });
    cluster.until("what is wrong is said", |_, exchange| {
        exchange.fault.as_ref().is_some_and(|f| f.contains("fill it with zeros"))
    });
    cluster.agents.iter().for_each(|agent| agent.says("fill it with zeros"));
    // Said once, not once per period.
    let said = |agent: &Agent| agent.process.log().matches("fill it with zeros").count();
    let (before, failures) =
        (cluster.agents.iter().map(said).collect::<Vec<_>>(), counts(|e| e.failures, &cluster));
    until("ten periods have failed", || {
        counts(|e| e.failures, &cluster)
            .iter()
            .zip(&failures)
            .all(|(now, then)| now >= &(then + 10))
    });
    assert_eq!(cluster.agents.iter().map(said).collect::<Vec<_>>(), before);
    cluster.goes_on();
    let now = fs::read(&file).unwrap();
    assert!(now[SLOT as usize..] == noise, "what is not ours is not overwritten");
    write(&vec![0; noise.len()]);
    cluster.is_well("the exchange works when it was cleared");
    cluster.finish();
}

#[test]
fn an_exchange_that_cannot_be_read_leaves_each_host_to_itself() {
    let stage = Stage::new();
    let (cluster, file) = pair(&stage);
    let aside = stage.path("aside");
    fs::rename(&file, &aside).unwrap();
    fs::create_dir(&file).unwrap();
    cluster.until("the fault is shown", |_, e| e.fault.is_some() && e.failures > 0);
    cluster.until("the hosts go on by themselves", |v, _| v.source == Source::LastGood);
    cluster.goes_on();
    fs::remove_dir(&file).unwrap();
    fs::rename(&aside, &file).unwrap();
    cluster.is_well("the exchange works again");
    for agent in &cluster.agents {
        agent.says("IO goes on, control falls back");
        agent.says("the exchange works again");
    }
    cluster.finish();
}

/// A file whose reads and writes do not return, as on a path to an array that is down.
#[test]
fn an_exchange_on_a_disk_that_hangs_leaves_each_host_to_itself() {
    let stage = Stage::new();
    let file = FuseFile::new(&stage, "exchange", &["memory", &WHOLE.to_string()]);
    let hosts = [("a", host("a", "exchange", 1)), ("b", host("b", "exchange", 2))];
    let cluster = Cluster::start(&stage, &[], "exchange", &hosts);
    file.server().signal(Signal::STOP);
    cluster.until("the hosts go on by themselves", |v, _| v.source == Source::LastGood);
    cluster.goes_on();
    cluster.until("the fault is named", |_, e| {
        e.fault.as_ref().is_some_and(|fault| fault.contains("no answer within"))
    });
    cluster.goes_on();
    file.server().signal(Signal::CONT);
    cluster.is_well("the exchange works again");
    cluster.finish();
}

#[test]
fn a_file_system_that_is_read_only_or_full_is_named() {
    let stage = Stage::new();
    let island = Island::new(&stage, "1m");
    let place = format!("{ISLAND}/exchange");
    let hosts = [("a", host("a", &place, 1)), ("b", host("b", &place, 2))];
    let cluster = Cluster::start(&stage, &island.enter(), &place, &hosts);

    island.remount(&stage, "ro");
    cluster.until("it is read-only, and they say so", |_, e| {
        e.fault.as_ref().is_some_and(|f| f.contains("read-only"))
    });
    cluster.goes_on();
    island.remount(&stage, "rw");
    cluster.is_well("the exchange can be written again");

    // A file that is complete needs no more room; one that must grow does.
    island.fill();
    cluster.is_well("the exchange goes on in a full file system");
    until("the slots are cut off and their room is taken", || {
        let file = island.path("exchange");
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(SLOT).unwrap();
        island.fill();
        fs::metadata(&file).unwrap().len() == SLOT
    });
    cluster.until("there is no room, and they say so", |_, e| {
        e.fault.as_ref().is_some_and(|f| f.contains("full") || f.contains("space"))
    });
    cluster.goes_on();
    fs::remove_file(island.path("filler")).unwrap();
    cluster.is_well("the exchange grows when there is room");
    cluster.finish();
}

#[test]
fn two_hosts_in_one_slot_both_complain() {
    let stage = Stage::new();
    let hosts = [("a", host("a", "exchange", 1)), ("b", host("b", "exchange", 1))];
    contested(
        &stage,
        &hosts,
        |e| e.slots.unwrap().slot_conflicts,
        "exchange slot 1 is also written by",
    );
}

#[test]
fn two_hosts_of_one_name_both_complain() {
    let stage = Stage::new();
    let twin = |name: &str, slot| {
        host(name, "exchange", slot).replace(&format!("host = \"{name}\""), "host = \"twin\"")
    };
    let hosts = [("a", twin("a", 1)), ("b", twin("b", 2))];
    contested(&stage, &hosts, |e| e.duplicate_hosts, "give every host a name of its own");
}

#[test]
fn a_name_that_two_hosts_have_is_a_fault_until_one_of_them_is_gone() {
    let stage = Stage::new();
    stage.exchange("exchange", SLOTS as u32);
    let [a, b] = [("a", 1), ("b", 2)].map(|(name, slot)| {
        let text = host(name, "exchange", slot);
        stage.sparse(&format!("{name}.data"), 1 << 20);
        stage.agent(name, &text.replace(&format!("host = \"{name}\""), "host = \"twin\""))
    });
    let faulty = |name: &str| {
        let socket = format!("{name}.status");
        let said = stage.ok(&[PARDA, "status", "--socket", &socket, "--over", "100ms"]);
        let api = format!("{socket}.api");
        let state = stage.ok(&["curl", "-sS", "--unix-socket", &api, "http://a/api/v1/state"]);
        let fault = "another live host has this host's name";
        let [said, state] = [said.contains(&format!("  FAULT: {fault}")), state.contains(fault)];
        (said == state).then_some(said)
    };
    until("both show the fault", || ["a", "b"].map(faulty) == [Some(true); 2]);
    b.process.kill();
    until("the fault is gone with the other host", || faulty("a") == Some(false));
    a.stop();
}

fn contested(
    stage: &Stage,
    hosts: &[(&str, String); 2],
    count: impl Fn(&ExchangeStatus) -> u64,
    says: &str,
) {
    let mut cluster = Cluster { agents: Vec::new(), loads: Vec::new() };
    stage.exchange("exchange", 8);
    for (name, text) in hosts {
        stage.sparse(&format!("{name}.data"), 16 << 20);
        cluster.agents.push(stage.agent(name, text));
        let options = ["--rw=randrw", "--bs=4k", "--size=16m", "--iodepth=4", "--rate_iops=400"];
        cluster.loads.push(stage.load(&format!("fio-{name}"), &uri(name, "vm"), &options));
    }
    cluster.until("both count it", |_, exchange| count(exchange) > 0);
    cluster.agents.iter().for_each(|agent| agent.says(says));
    cluster.goes_on();
    cluster.finish();
}
