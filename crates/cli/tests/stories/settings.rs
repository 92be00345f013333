//! Hosts that were told different things: what is in force is the same on all, and each says so once.

use std::time::Duration;

use parda_agent::settings::Difference;
use rustix::process::Signal;

use crate::array::{Array, Delays};
use crate::stage::{Agent, PARDA, Stage, config, until, uri, wait_for};

/// A host that shares divide between as `control` says, with a disk of so many shares.
fn text(name: &str, shares: u32, control: &str) -> String {
    let control = format!("period = \"100ms\"\n{control}");
    config(name, &control, &[("vm", &format!("{name}.data"))])
        .replace("name = \"vm\"", &format!("name = \"vm\"\nshares = {shares}"))
        .replace("[[volume.disk]]", "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]")
}

/// What an agent says when no difference is left.
const ALIKE: &str = "all live hosts have the same settings now";

fn differ(agent: &Agent) -> Vec<Difference> {
    agent.volume().settings.map_or(Vec::new(), |settings| settings.differ)
}

fn in_force(agent: &Agent) -> (String, f64) {
    let volume = agent.volume();
    (volume.settings.unwrap().fairness, volume.latency_threshold_ms)
}

#[test]
fn a_difference_is_said_once_on_each_host_and_one_setting_is_in_force() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let start = |name: &str, shares, control: &str| {
        stage.sparse(&format!("{name}.data"), 16 << 20);
        stage.agent(name, &text(name, shares, control))
    };
    let a = start("a", 1000, "fairness = \"bytes\"\nlatency_threshold = \"20ms\"");
    let b = start("b", 2000, "latency_threshold = \"30ms\"");
    let both = |what: &str, of: &dyn Fn(&Agent) -> bool| until(what, || of(&a) && of(&b));
    both("both say what differs", &|agent| differ(agent).len() == 2);
    both("b's are in force on both", &|agent| in_force(agent) == ("outstanding".to_owned(), 30.0));
    // A host that is not heard for a while differs in nothing.
    let both_differ = || differ(&a).try_into().ok();
    let [fairness, threshold]: [_; 2] = wait_for("two settings differ", both_differ);
    assert_eq!(fairness.own, "bytes");
    assert_eq!(fairness.in_force.as_deref(), Some("outstanding"));
    let told: Vec<_> = threshold.told.iter().map(|t| (&*t.value, &*t.hosts[0], t.shares)).collect();
    assert_eq!(told, [("20ms", "a", 1000), ("30ms", "b", 2000)]);
    until("the status says it", || {
        let says = stage.parda(&["status", "--socket", "b.status"]).out;
        says.contains("DIFFERENT SETTINGS: fairness is not the same on all hosts: ")
    });

    // For many periods more nothing is said again, unless the other host was not heard in between.
    let ticks = a.volume().ticks;
    until("20 periods pass", || a.volume().ticks > ticks + 20);
    for agent in [&a, &b] {
        for setting in ["fairness", "latency_threshold"] {
            let log = agent.process.log();
            let times = log.matches(&format!("{setting} is not the same on all hosts")).count();
            let ends = log.matches(ALIKE).count();
            assert!((1..=1 + ends).contains(&times), "{log}");
        }
    }

    // An operator makes them alike.
    stage.write("b.toml", text("b", 2000, "fairness = \"bytes\"\nlatency_threshold = \"20ms\""));
    b.process.signal(Signal::HUP);
    both("nothing differs", &|agent| differ(agent).is_empty());
    both("it is what both were told", &|agent| in_force(agent) == ("bytes".to_owned(), 20.0));
    for agent in [&a, &b] {
        agent.says(ALIKE);
    }

    // Who is left alone does as it is told.
    stage.write("a.toml", text("a", 1000, "latency_threshold = \"25ms\""));
    a.process.signal(Signal::HUP);
    until("a is outvoted", || differ(&a).len() == 2 && in_force(&a).1 == 20.0);
    b.stop();
    until("a has its own", || in_force(&a) == ("outstanding".to_owned(), 25.0));
    a.stop();
}

#[test]
fn what_shares_divide_is_changed_while_clients_work() {
    let stage = Stage::new();
    let delays = Delays { io: Duration::from_millis(1), flush: Duration::ZERO };
    let disks = ["small", "large"].map(|disk| (disk, format!("nbd+unix:///?socket={disk}.array")));
    for (disk, _) in &disks {
        Array::start(&stage.path(&format!("{disk}.array")), 4096, delays);
    }
    let disks = disks.each_ref().map(|(disk, array)| (*disk, array.as_str()));
    let a = stage.agent("a", &config("a", "period = \"100ms\"\nwindow_max = 2", &disks));
    let loads = [("small", "--bs=4k"), ("large", "--bs=64k")].map(|(disk, size)| {
        let options = ["--rw=randread", size, "--size=16m", "--iodepth=16"];
        stage.load(disk, &uri("a", disk), &options)
    });
    until("both load", || a.volume().disks.iter().all(|disk| disk.reads.ios > 50));
    a.until_ratio("as many IOs", 0.75..1.33);
    let set = |change: &[&str]| stage.ok(&[&[PARDA, "set"], change, &["-c", "a.toml"]].concat());
    assert_eq!(
        set(&["fairness=bytes"]).trim(),
        "volume array: fairness = \"bytes\" (before: not set), until the agent ends"
    );
    a.until_ratio("as many bytes", 8.0..32.0);
    set(&[
        "fairness={ iops_reads = 1000, bandwidth_reads = \"20MiB\", iops_writes = 1000, bandwidth_writes = \"20MiB\" }",
    ]);
    // A read of 4 KiB takes 1 ms of the time, one of 64 KiB 3.9 ms.
    a.until_ratio("as much time", 2.7..5.5);
    let status = stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(status.contains("shares divide the array's time"), "{status}");
    set(&["--reset", "fairness"]);
    a.until_ratio("as many IOs again", 0.75..1.33);
    let said = stage.fails(&[
        PARDA,
        "set",
        "latency_threshold={ probe = \"/etc/passwd\" }",
        "-c",
        "a.toml",
    ]);
    assert!(said.contains("as a table only in parda.toml"), "{said}");
    for load in loads {
        load.finish();
    }
    a.stop();
}
