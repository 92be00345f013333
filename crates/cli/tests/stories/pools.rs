//! Two LUNs on the same drives, as a pool: shares hold from LUN to LUN, also for a host that uses only one of them.

use parda_agent::status::VolumeStatus;
use parda_control::Source;
use parda_exchange::Liveness;
use rustix::process::Signal;

use crate::stage::{Agent, LAB, PARDA, Stage, until};

/// A volume of the pool on the LUN with this number, for a VM of so many shares in its part of the LUN. It listens
/// on `unix:HOST-LUN`.
fn volume(host: &str, lun: u8, part: u8, shares: u32, pool: &str) -> String {
    format!(
        "[[volume]]\nname = \"lun{lun}\"\n{pool}\n[volume.control]\nperiod = \"250ms\"\nlatency_threshold = \"30ms\"\n\
         [volume.exchange]\nfile = \"exchange\"\n\
         [[volume.disk]]\nname = \"vm\"\npath = \"nbd+unix:///lun{lun}?socket=array\"\n\
         offset = \"{part}GiB\"\nsize = \"1GiB\"\nlisten = \"unix:{host}-{lun}\"\nshares = {shares}\n"
    )
}

fn host(name: &str, volumes: &[String]) -> String {
    format!("host = \"{name}\"\nstatus = \"unix:{name}.status\"\n{}", volumes.concat())
}

fn volumes(agents: &[Agent]) -> Vec<VolumeStatus> {
    agents.iter().flat_map(|agent| agent.status().volumes).collect()
}

fn live(volume: &VolumeStatus) -> Vec<&str> {
    let peers = volume.exchange.iter().flat_map(|exchange| &exchange.peers);
    let mut names: Vec<_> =
        peers.filter(|peer| peer.liveness == Liveness::Live).map(|peer| &*peer.name).collect();
    names.sort_unstable();
    names
}

fn reads(agents: &[Agent]) -> Vec<u64> {
    volumes(agents).iter().map(|volume| volume.disks[0].reads.ios).collect()
}

#[test]
fn shares_hold_across_the_luns_of_a_pool() {
    let stage = Stage::new();
    let array = ["--preset", "cx3-40-raid0-vms", "--drives", "4", "--listen", "unix:array"];
    let _array = stage.start("array", &[&[LAB, "array"], &array[..]].concat());
    until("the array answers", || stage.path("array").exists());
    stage.ok(&[PARDA, "exchange", "init", "exchange", "--volume", "array"]);

    // Host a uses both LUNs, host b the second one alone. Both LUNs of a are in one exchange, which needs a pool.
    let pool = "pool = \"array\"";
    let a = |pool: &str| host("a", &[volume("a", 0, 0, 2000, pool), volume("a", 1, 0, 1000, pool)]);
    stage.write("a.toml", a(""));
    let says = stage.fails(&[PARDA, "check", "a.toml"]);
    assert!(says.contains("each volume needs its own, but volumes of one `pool`"), "{says}");
    let agents = [
        stage.agent("a", &a(pool)),
        stage.agent("b", &host("b", &[volume("b", 1, 1, 1000, pool)])),
    ];
    let loads = ["a-0", "a-1", "b-1"].map(|socket| {
        let options = ["--rw=randread", "--bs=16k", "--size=1g", "--iodepth=64"];
        stage.load(&format!("fio-{socket}"), &format!("nbd+unix:///vm?socket={socket}"), &options)
    });

    let names = ["a/lun0", "a/lun1", "b/lun1"];
    until("each LUN of each host hears the others of the pool", || {
        let all = volumes(&agents);
        all.iter().zip(names).all(|(volume, own)| {
            let others: Vec<_> = names.into_iter().filter(|name| *name != own).collect();
            live(volume) == others && volume.source == Source::Cluster
        })
    });
    let hold = |what: &str| {
        until(&format!("shares hold {what}"), || {
            let before = reads(&agents);
            std::thread::sleep(std::time::Duration::from_secs(2));
            let done = reads(&agents);
            let done: Vec<_> =
                done.iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
            let ratio = |other: usize| done[0] / done[other].max(1.0);
            (1.6..2.5).contains(&ratio(1)) && (1.6..2.5).contains(&ratio(2))
        });
    };
    hold("from LUN to LUN and from host to host");
    until("all have one latency, near the threshold", || {
        let all = volumes(&agents);
        let ms = |volume: &VolumeStatus| volume.cluster_latency_ms.unwrap_or_default();
        all.iter().all(|volume| (24.0..36.0).contains(&ms(volume)))
    });
    let says = stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(says.contains("volume lun0 of pool array: mode parda"), "{says}");
    assert!(says.contains("b/lun1"), "{says}");

    // Who has the rest of the pool: the other LUN of this host, and the other host.
    let line = ["explain", "vm", "--volume", "lun0", "-c", "a.toml", "--over", "2s"];
    let whats = [
        "VM vm of volume lun0 of pool array,",
        ": 50 % of all shares.",
        "volume lun1 of this host  ",
        "host b/lun1  ",
    ];
    // Who has done nothing in these two seconds has no line.
    until("all of the pool are named", || {
        let said = stage.parda(&line).out;
        let all = whats.iter().all(|what| said.contains(what));
        if !all {
            eprintln!("{said}");
        }
        all
    });

    // A volume leaves the pool by a change of the file, and comes back.
    let alone =
        a(pool).replacen(pool, "", 1).replacen("file = \"exchange\"", "file = \"other\"", 1);
    stage.exchange("other", 8);
    stage.write("a.toml", alone);
    agents[0].process.signal(Signal::HUP);
    let heard =
        |counts: [usize; 3]| volumes(&agents).iter().zip(counts).all(|(v, n)| live(v).len() == n);
    until("it is alone, and the others are two", || heard([0, 1, 1]));
    stage.write("a.toml", a(pool));
    agents[0].process.signal(Signal::HUP);
    until("they are three again", || heard([2, 2, 2]));
    for load in loads {
        load.finish();
    }
    agents.into_iter().for_each(Agent::stop);
}
