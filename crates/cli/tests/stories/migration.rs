//! A VM that moves from one host to another: it keeps its data and its shares, and nobody else has more or less for it.

use std::time::Duration;

use crate::stage::{Agent, LAB, Load, Process, Stage, config, until, uri};

/// Name of a disk, its shares, and the GiB of the LUN at which it begins.
type Disk = (&'static str, u32, u32);

/// Disks of each host. Both hosts have the VM that moves.
const DISKS: [(&str, [Disk; 2]); 2] =
    [("a", [("db", 2000, 0), ("batch", 1000, 1)]), ("b", [("db", 2000, 0), ("mail", 1000, 2)])];

/// Two hosts on one modelled array.
struct Cluster {
    stage: Stage,
    agents: Vec<Agent>,
    _array: Process,
}

impl Cluster {
    fn start() -> Cluster {
        let stage = Stage::new();
        stage.exchange("exchange", 64);
        let line = ["array", "--preset", "cx3-40-raid0", "--drives", "4", "--listen", "unix:array"];
        let array = stage.start("array", &[&[LAB], &line[..]].concat());
        until("the array answers", || stage.path("array").exists());
        let agents = DISKS.map(|(host, disks)| {
            let control = "period = \"250ms\"\nlatency_threshold = \"30ms\"";
            let lun = "nbd+unix:///lun0?socket=array";
            let text = disks.iter().fold(
                config(host, control, &disks.map(|(name, ..)| (name, lun))),
                |text, (name, shares, offset)| {
                    let name = format!("name = \"{name}\"\n");
                    let more =
                        format!("shares = {shares}\noffset = \"{offset}GiB\"\nsize = \"1GiB\"\n");
                    text.replace(&name, &format!("{name}{more}"))
                },
            );
            let exchange = "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]";
            stage.agent(host, &text.replacen("[[volume.disk]]", exchange, 1))
        });
        Cluster { stage, agents: agents.into(), _array: array }
    }

    fn load(&self, host: &str, disk: &str) -> Load {
        let options = ["--rw=randread", "--bs=16k", "--size=1g", "--iodepth=64"];
        self.stage.load(&format!("fio-{host}-{disk}"), &uri(host, disk), &options)
    }

    fn ios(&self, host: usize, disk: &str) -> f64 {
        let disks = self.agents[host].volume().disks;
        let of = disks.iter().find(|of| of.name == disk).map(|of| of.reads.ios + of.writes.ios);
        of.unwrap_or_default() as f64
    }

    /// Waits until, over two seconds, the moving VM on a host has twice what each of its neighbours has.
    fn shares_hold(&self, host: usize) {
        until(&format!("shares hold with db on {}", DISKS[host].0), || {
            let count = || [self.ios(host, "db"), self.ios(0, "batch"), self.ios(1, "mail")];
            let before = count();
            std::thread::sleep(Duration::from_secs(2));
            let now = count();
            let [db, batch, mail] = [0, 1, 2].map(|i| (now[i] - before[i]).max(1.0));
            [db / batch, db / mail].iter().all(|ratio| (1.6..2.5).contains(ratio))
        });
    }

    /// Runs a command of qemu-io on the moving VM's disk, by one of the hosts.
    fn client(&self, host: &str, command: &str) {
        self.stage.ok(&["qemu-io", "--format=raw", "--cmd", command, &uri(host, "db")]);
    }
}

#[test]
fn a_vm_that_moves_keeps_its_data_and_its_shares_and_is_not_counted_as_two() {
    let cluster = Cluster::start();
    until("they hear each other", || {
        cluster.agents.iter().all(|a| a.volume().source == parda_control::Source::Cluster)
    });
    cluster.client("a", "write -f -P 0x5a 4096 8192");
    let (batch, mail) = (cluster.load("a", "batch"), cluster.load("b", "mail"));
    let db = cluster.load("a", "db");
    cluster.shares_hold(0);

    // The client goes, and comes to the other host.
    db.finish();
    cluster.client("b", "read -P 0x5a 4096 8192");
    let db = cluster.load("b", "db");
    cluster.shares_hold(1);
    let stays = cluster.ios(0, "db");
    // And back.
    db.finish();
    let db = cluster.load("a", "db");
    cluster.shares_hold(0);
    assert!(cluster.ios(0, "db") > stays);
    for load in [db, batch, mail] {
        load.finish();
    }
    cluster.agents.into_iter().for_each(Agent::stop);
}
