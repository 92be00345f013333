//! Each alert of the shipped rules: fired by its fault, cleared by its mending, as a real Prometheus sees it.
//!
//! Conditions of the rules hold for 2 s in place of minutes ([`Prometheus::start`]). Alerts on counters look back 5 minutes, as they are shipped, so that
//! each of these stories takes up to 7.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use parda_control::{Bounded, Governed, Report, Shares, Source, Span, Tuning, Window};
use parda_exchange::region::FileRegion;
use parda_exchange::udp::{KeySource, PeerAddress, UdpExchange, UdpReach, UdpSettings};
use parda_exchange::{
    Exchange, HostName, Identity, Incarnation, Liveness, Publication, SlotChoice, SlotCount,
    SlotExchange, SlotIndex, SlotSettings, VolumeId,
};
use parda_testkit::{Client, TestEtcd, read};
use rustix::process::Signal;

use crate::metrics::{free_port, with_metrics};
use crate::prometheus::Prometheus;
use crate::stage::{Agent, LAB, Load, PARDA, Stage, config, until, uri};
use parda_testkit::disk::AttachedDisk;

/// A host with metrics at a port, in the exchange `exchange`.
fn host(name: &str, control: &str, disks: &[(&str, &str)], port: u16) -> String {
    let text = config(name, &format!("period = \"200ms\"\n{control}"), disks);
    with_metrics(&text, port).replacen(
        "[[volume.disk]]",
        "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]",
        1,
    )
}

/// Gives an agent another configuration.
fn reload(stage: &Stage, agent: &Agent, host: &str, text: &str) {
    let applied = |agent: &Agent| agent.process.log().matches("reload_applied").count();
    let before = applied(agent);
    stage.write(&format!("{host}.toml"), text);
    agent.process.signal(Signal::HUP);
    until("the configuration is in force", || applied(agent) > before);
}

/// Random reads over so much of a disk, until they are told to end.
fn load(stage: &Stage, who: &str, uri: &str, size: &str, depth: u32) -> Load {
    let [size, depth] = [format!("--size={size}"), format!("--iodepth={depth}")];
    let line = ["--rw=randread", "--bs=16k", "--runtime=3600", &size, &depth];
    stage.load(who, uri, &line)
}

/// An array of four drives, with its LUNs and its control socket in the stage.
fn drives(stage: &Stage) -> crate::stage::Process {
    let line = [LAB, "array", "--preset", "cx3-40-raid0-vms", "--drives", "4"];
    let line = [&line[..], &["--listen", "unix:array", "--control", "array.control"]].concat();
    let array = stage.start("array", &line);
    until("the array listens", || {
        stage.path("array").exists() && stage.path("array.control").exists()
    });
    array
}

fn lun(n: u32) -> String {
    format!("nbd+unix:///lun{n}?socket=array")
}

/// Makes each IO of the array take so many times as long.
fn slow(stage: &Stage, factor: f64) {
    let mut control = UnixStream::connect(stage.path("array.control")).unwrap();
    writeln!(control, "{{\"slow\":{factor}}}").unwrap();
    let mut answer = String::new();
    BufReader::new(control).read_line(&mut answer).unwrap();
    assert!(answer.contains("\"error\":null"), "{answer}");
}

/// Configuration of a host that meets others over UDP. `peers`: those it sends to, by their numbers.
fn over_udp(stage: &Stage, n: u8, peers: &[u8], meet: u16, port: u16) -> String {
    let name = ["a", "b", "c"][usize::from(n)];
    stage.sparse(&format!("{name}.img"), 1 << 20);
    let text = host(name, "latency_threshold = \"30ms\"", &[("vm", &format!("{name}.img"))], port);
    let peers: Vec<_> = peers.iter().map(|peer| format!("\"127.0.0.{}\"", peer + 1)).collect();
    let udp = format!("udp = \"127.0.0.{}:{meet}\"\npeers = [{}]", n + 1, peers.join(", "));
    text.replace("file = \"exchange\"", &udp)
}

#[test]
fn agents_that_are_not_heard_refuse_their_file_or_are_killed() {
    let (stage, meet) = (Stage::new(), free_port());
    let ports = [free_port(), free_port(), free_port()];
    let at = |n: usize| format!("127.0.0.1:{}", ports[n]);
    let text = |n: u8, peers: &[u8]| over_udp(&stage, n, peers, meet, ports[usize::from(n)]);
    let [a, b, c] = [(0, &[1][..]), (1, &[0]), (2, &[0, 1])]
        .map(|(n, peers)| stage.agent(["a", "b", "c"][usize::from(n)], &text(n, peers)));
    let prometheus = Prometheus::start(&stage, &ports);
    // The third host is in nobody's peers.
    prometheus.until_fires("PardaExchangeDown", &[("instance", &at(2))]);
    for n in [0, 1] {
        prometheus.until_fires("PardaOneWay", &[("instance", &at(n))]);
        assert!(!prometheus.fires("PardaExchangeDown", &[("instance", &at(n))]));
    }
    reload(&stage, &a, "a", &text(0, &[1, 2]));
    reload(&stage, &b, "b", &text(1, &[0, 2]));
    prometheus.until_all_cleared();

    stage.write("b.toml", "host = 5");
    b.process.signal(Signal::HUP);
    prometheus.until_fires("PardaReloadRefused", &[("instance", &at(1))]);
    reload(&stage, &b, "b", &text(1, &[0, 2]));
    prometheus.until_all_cleared();

    c.process.kill();
    prometheus.until_fires("PardaAgentDown", &[("instance", &at(2)), ("severity", "critical")]);
    let _c = stage.restart(&[], "c");
    prometheus.until_all_cleared();
    prometheus.look_at(&stage, &ports[..2]);
    prometheus.until_fires("PardaAgentGone", &[("instance", &at(2)), ("host", "c")]);
    prometheus.look_at(&stage, &[]);
    prometheus.until_fires("PardaNoAgent", &[]);
    prometheus.look_at(&stage, &ports);
    prometheus.until_all_cleared();
}

#[test]
fn a_disk_whose_ios_are_held_for_many_seconds() {
    let (stage, port) = (Stage::new(), free_port());
    stage.exchange("exchange", 64);
    stage.sparse("data", 1 << 20);
    let text = host("a", "", &[("vm", "data")], port) + "limit = { iops = 1 }\n";
    let _agent = stage.agent("a", &text);
    let prometheus = Prometheus::start(&stage, &[port]);
    assert!(!prometheus.fires("PardaDiskStarved", &[]));
    let load = load(&stage, "fio", &uri("a", "vm"), "1m", 41);
    prometheus.until_fires("PardaDiskStarved", &[("disk", "vm")]);
    load.finish();
}

#[test]
#[ignore = "make nightly: 6 min; rules_are_right_and_each_alert_fires_and_is_cleared (metrics.rs) has the rules, by promtool"]
fn disks_that_are_lost_and_ios_that_fail() {
    let (stage, port) = (Stage::new(), free_port());
    stage.exchange("exchange", 64);
    stage.sparse("shrinks", 1 << 20);
    let failing = stage.path("failing").display().to_string();
    let flag = format!("error-file={failing}");
    let line = ["nbdkit", "-f", "-U", "errs", "--filter=error", "memory", "16M", &flag];
    let _server = stage.start("errs", &[&line[..], &["error-rate=100%", "error=EIO"]].concat());
    until("nbdkit listens", || stage.path("errs").exists());
    let disks = [("shrinks", "shrinks"), ("errs", "nbd+unix:///?socket=errs")];
    let _agent = stage.agent("a", &host("a", "", &disks, port));
    let prometheus = Prometheus::start(&stage, &[port]);
    assert!(prometheus.firing().is_empty(), "{:?}", prometheus.firing());

    stage.sparse("shrinks", 1 << 19);
    prometheus.until_fires("PardaDiskDown", &[("disk", "shrinks")]);
    stage.sparse("shrinks", 1 << 20);
    prometheus.until_cleared("PardaDiskDown");

    let mut client = Client::connect(&stage.path("a"), "errs");
    client.call(read(0, 4096), &[]).unwrap();
    stage.write("failing", "");
    client.call(read(0, 4096), &[]).unwrap_err();
    prometheus.until_fires("PardaIoErrors", &[("disk", "errs")]);
    fs::remove_file(&failing).unwrap();
    client.call(read(0, 4096), &[]).unwrap();
    prometheus.until_all_cleared();
}

#[test]
#[ignore = "make nightly: 7 min; a_prometheus_scrapes_two_hosts_and_says_when_one_is_lost (metrics.rs) has the lost host"]
fn hosts_that_are_lost_or_differ_and_an_exchange_that_is_away() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let ports = [free_port(), free_port()];
    let text = |n: usize, control: &str| {
        let name = ["a", "b"][n];
        stage.sparse(&format!("{name}.img"), 1 << 20);
        host(name, control, &[("vm", &format!("{name}.img"))], ports[n])
    };
    let [a, mut b] =
        [0, 1].map(|n| stage.agent(["a", "b"][n], &text(n, "latency_threshold = \"30ms\"")));
    let prometheus = Prometheus::start(&stage, &ports);
    until("they hear each other", || {
        prometheus.query("parda_peer_up == 1").is_some_and(|found| found.len() == 2)
    });
    assert!(prometheus.firing().is_empty(), "{:?}", prometheus.firing());

    b.process.kill();
    prometheus.until_fires("PardaHostLost", &[("instance", &format!("127.0.0.1:{}", ports[0]))]);
    b = stage.restart(&[], "b");
    prometheus.until_all_cleared();

    reload(&stage, &b, "b", &text(1, "latency_threshold = \"20ms\""));
    prometheus.until_fires("PardaSettingsDiffer", &[]);
    reload(&stage, &b, "b", &text(1, "latency_threshold = \"30ms\""));
    prometheus.until_all_cleared();

    let [file, aside] = ["exchange", "aside"].map(|name| stage.path(name));
    fs::rename(&file, &aside).unwrap();
    prometheus.until_fires("PardaExchangeDown", &[]);
    // Longer than the rules wait here. That the others are not heard then says nothing of them.
    sleep(Duration::from_secs(5));
    assert!(!prometheus.fires("PardaHostLost", &[]), "{:?}", prometheus.firing());
    fs::rename(&aside, &file).unwrap();
    prometheus.until_all_cleared();

    let twin = text(1, "").replacen("host = \"b\"", "host = \"a\"", 1);
    b.stop();
    let twin = stage.agent("b", &twin);
    prometheus.until_fires("PardaDuplicateHost", &[]);
    twin.stop();
    let b = stage.agent("b", &text(1, ""));
    prometheus.until_all_cleared();
    a.stop();
    b.stop();
}

#[test]
#[ignore = "make nightly: half a minute; crates/cli/tests/stories/policy.rs has the same faults by parda status"]
fn a_policy_that_cannot_be_read_or_is_refused() {
    let (stage, port) = (Stage::new(), free_port());
    stage.exchange("exchange", 64);
    stage.sparse("data", 1 << 20);
    let mut etcd = TestEtcd::start(&stage.path(""), 1);
    let policy =
        format!("[policy]\netcd = [\"{}\"]\nperiod = \"200ms\"\n[[volume]]", etcd.urls()[0]);
    let text = host("a", "window_min = 4", &[("vm", "data")], port);
    let text = format!("state = \"a.state\"\n{}", text.replacen("[[volume]]", &policy, 1));
    let _agent = stage.agent("a", &text);
    let apply = |window_max: u32| {
        let control = format!("[volume.control]\nwindow_max = {window_max}\n");
        stage.write("policy.toml", format!("[[volume]]\nname = \"array\"\n{control}"));
        stage.ok(&[PARDA, "policy", "apply", "policy.toml", "-c", "a.toml"]);
    };
    apply(8);
    let prometheus = Prometheus::start(&stage, &[port]);
    assert!(prometheus.firing().is_empty(), "{:?}", prometheus.firing());

    // Below the host's own window_min.
    apply(2);
    prometheus.until_fires("PardaPolicyRefused", &[("volume", "array")]);
    apply(8);
    prometheus.until_all_cleared();

    etcd.kill(0);
    prometheus.until_fires("PardaPolicyUnreachable", &[]);
    etcd.restart(0);
    prometheus.until_all_cleared();
}

#[test]
#[ignore = "make nightly: 7 min; few_shares.rs and latency_targets.rs have the same faults by parda status"]
fn an_array_that_is_too_slow_and_a_disk_of_too_few_shares() {
    let (stage, port) = (Stage::new(), free_port());
    stage.exchange("exchange", 64);
    let _array = drives(&stage);
    let text = |shares: u32| {
        let law = "latency_threshold = \"20ms\"\nhold_max = \"2s\"";
        let small = format!("name = \"small\"\nshares = {shares}\nlatency_target = \"100ms\"");
        host("a", law, &[("small", &lun(0)), ("large", &lun(1))], port)
            .replace("name = \"small\"", &small)
            .replace("name = \"large\"", "name = \"large\"\nshares = 10000")
    };
    let agent = stage.agent("a", &text(10_000));
    let loads = [("small", 16), ("large", 32)]
        .map(|(disk, depth)| load(&stage, &format!("fio-{disk}"), &uri("a", disk), "8g", depth));
    let prometheus = Prometheus::start(&stage, &[port]);
    until("the law has settled", || agent.volume().ticks > 50);
    prometheus.until_all_cleared();

    reload(&stage, &agent, "a", &text(500));
    prometheus.until_fires("PardaObjectiveMissed", &[("disk", "small")]);
    reload(&stage, &agent, "a", &text(10_000));
    prometheus.until_cleared("PardaObjectiveMissed");

    reload(&stage, &agent, "a", &text(1));
    prometheus.until_fires("PardaDiskHeldTooLong", &[("disk", "small")]);
    reload(&stage, &agent, "a", &text(10_000));

    // One IO takes longer than the threshold, so that no window meets it.
    slow(&stage, 20.0);
    prometheus.until_fires("PardaThresholdNotMet", &[("volume", "array")]);
    slow(&stage, 1.0);
    prometheus.until_cleared("PardaThresholdNotMet");
    prometheus.until_all_cleared();
    loads.into_iter().for_each(|load| _ = load.finish());
    agent.stop();
}

/// Publishes as the host `liar` five times a second until `ends`: that it does nothing, or while `lies` a million active shares.
fn publish(exchange: &mut dyn Exchange, lies: &AtomicBool, ends: &AtomicBool) {
    let period = Span::from_millis(200);
    let mut report = Report {
        elapsed: period,
        window: Window(4.0),
        beta: 1.0,
        shares: Shares(1000),
        bounded: Bounded::Slices,
        governed: Governed::Yes,
        source: Source::Cluster,
        threshold: Span::from_millis(30),
        tuning: Tuning::Pinned,
        ..Report::default()
    };
    let mut now = 0;
    while !ends.load(Ordering::Relaxed) {
        if lies.load(Ordering::Relaxed) {
            report.active = 1e6;
        }
        now += period.0;
        // As an agent does, the liar goes on after a round that fails.
        let _ = exchange.collect(parda_control::Instant(now));
        let (slowed, leaving, tenants) = (false, false, Vec::new());
        let _ = exchange.publish(&Publication { period, slowed, leaving, report, tenants });
        sleep(Duration::from_millis(200));
    }
}

/// Set at the end of a scope, also by a panic: the scope waits for its threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two agents and a host that is idle at first and then lies, in an exchange of these lines of each.
fn lied_to(stage: &Stage, exchange: [String; 2], liar: &mut (dyn Exchange + Send)) {
    let ports = [free_port(), free_port()];
    let agents = [0, 1].map(|n| {
        let name = ["a", "b"][n];
        stage.sparse(&format!("{name}.img"), 1 << 20);
        let disk = format!("{name}.img");
        let text = host(name, "latency_threshold = \"30ms\"", &[("vm", &disk)], ports[n]);
        stage.agent(name, &text.replace("file = \"exchange\"", &exchange[n]))
    });
    let loads = ["a", "b"].map(|host| load(stage, host, &uri(host, "vm"), "1m", 4));
    let prometheus = Prometheus::start(stage, &ports);
    let (lies, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let heard = || {
        let all = agents.iter().map(|agent| agent.volume().exchange.unwrap_or_default().peers);
        all.flatten().filter(|peer| peer.name == "liar" && peer.liveness == Liveness::Live).count()
    };
    // What others say while an agent is new is what is usual for them: it is new for twenty rounds, which are fewer where they load the
    // array.
    until("no agent is new", || agents.iter().all(|agent| agent.volume().ticks > 30));
    std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        scope.spawn(|| publish(liar, &lies, &ends));
        until("the liar is heard", || heard() == 2);
        sleep(Duration::from_secs(3));
        assert!(!prometheus.fires("PardaHostDoubted", &[]), "it tells the truth");
        lies.store(true, Ordering::Relaxed);
        prometheus.until_fires("PardaHostDoubted", &[("volume", "array")]);
        agents.iter().for_each(|agent| agent.says("liar is not believed: "));
    });
    prometheus.until_cleared("PardaHostDoubted");
    loads.into_iter().for_each(|load| _ = load.finish());
    agents.into_iter().for_each(Agent::stop);
}

#[test]
fn a_host_that_lies_in_the_exchange_s_file() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let region = FileRegion::new(&stage.path("exchange"), None, SlotCount::new(64).unwrap());
    let settings = SlotSettings {
        me: Identity { host: HostName::new("liar").unwrap(), incarnation: Incarnation(1) },
        volume: VolumeId::of("array"),
        choice: SlotChoice::Fixed(SlotIndex(9)),
        period: Span::from_millis(200),
        make: "parda exchange init".to_owned(),
    };
    let mut liar = SlotExchange::new(region.unwrap(), settings).unwrap();
    let file = "file = \"exchange\"".to_owned();
    lied_to(&stage, [file.clone(), file], &mut liar);
}

#[test]
fn a_host_that_lies_over_udp() {
    let (stage, meet) = (Stage::new(), free_port());
    let at = |n: u8| format!("127.0.0.{n}:{meet}").parse().unwrap();
    let lines = |own: u8, other: u8| {
        format!("udp = \"127.0.0.{own}:{meet}\"\npeers = [\"127.0.0.{other}\", \"127.0.0.3\"]")
    };
    let peers = [1, 2].map(|n| PeerAddress::Address(at(n)));
    let mut liar = UdpExchange::new(UdpSettings {
        host: HostName::new("liar").unwrap(),
        volume: VolumeId::of("array"),
        address: at(3),
        reach: UdpReach::Peers(peers.into()),
        keys: KeySource::Loopback,
    });
    lied_to(&stage, [lines(1, 2), lines(2, 1)], &mut liar);
}

#[test]
#[ignore = "make nightly: 3 to 8 min; the same in virtual time: scenarios/studies/outsider.toml"]
fn load_that_is_not_under_control() {
    let stage = Stage::new();
    let _array = drives(&stage);
    let (ports, meet) = ([free_port(), free_port()], free_port());
    let agents = [0, 1].map(|n| {
        let name = ["a", "b"][n];
        let text = host(name, "latency_threshold = \"50ms\"", &[("vm", &lun(n as u32))], ports[n]);
        // Rounds over UDP are no IOs of the array, and are not fewer as the outsider takes it.
        let [own, other] = [n + 1, 2 - n];
        let udp = format!("udp = \"127.0.0.{own}:{meet}\"\npeers = [\"127.0.0.{other}\"]");
        stage.agent(name, &text.replace("200ms", "1s").replace("file = \"exchange\"", &udp))
    });
    let prometheus = Prometheus::start(&stage, &ports);
    let periods = |n: u64| {
        let before = agents[0].volume().ticks;
        until("periods pass", || agents[0].volume().ticks > before + n);
    };
    let loads = |depth: u32| {
        ["a", "b"]
            .map(|host| load(&stage, &format!("fio-{host}-{depth}"), &uri(host, "vm"), "8g", depth))
    };
    // The usual latency is learned at few and at many outstanding IOs: what an outsider leaves of the array is between them.
    for depth in [4, 8, 12, 20, 32] {
        let few = loads(depth);
        periods(12);
        few.into_iter().for_each(|load| _ = load.finish());
    }
    let many = loads(64);
    periods(40);
    assert!(!prometheus.fires("PardaOutsider", &[]), "nobody is there yet");

    // Where nothing says more, an outsider is a slower array (docs/control.md): it comes up to five times.
    let called = (0..5).any(|time| {
        let outsider = load(&stage, &format!("fio-outsider-{time}"), &lun(2), "8g", 48);
        let came = Instant::now();
        while !prometheus.fires("PardaOutsider", &[]) && came.elapsed() < Duration::from_secs(45) {
            sleep(Duration::from_millis(200));
        }
        let called = prometheus.fires("PardaOutsider", &[("volume", "array")]);
        outsider.finish();
        periods(if called { 0 } else { 40 });
        called
    });
    assert!(called, "no outsider was seen: {}", agents[0].process.log());
    prometheus.until_cleared("PardaOutsider");
    many.into_iter().for_each(|load| _ = load.finish());
    agents.into_iter().for_each(Agent::stop);
}

#[test]
#[ignore = "make nightly: half a minute, as root; steering.rs has the same faults by parda status"]
fn a_device_that_cannot_be_steered() {
    let Some(disk) = AttachedDisk::fast() else { return };
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let ports = [free_port(), free_port()];
    let device = disk.device.display().to_string();
    let steer = |control: &str| {
        format!(
            "[[volume]]\nname = \"lun\"\n[volume.control]\nperiod = \"200ms\"\n{control}\n\
             [volume.steer]\ndevice = \"{device}\"\n"
        )
    };
    let text = |n: usize, control: &str| {
        let served = config(["a", "b"][n], "mode = \"off\"", &[("vm", "data")]);
        with_metrics(&served, ports[n]) + "read_only = true\n" + &steer(control)
    };
    let fixed = |window: u32| format!("mode = \"static\"\nwindow_max = {window}");
    let a = stage.agent("a", &text(0, &fixed(16)));
    let b_alone = text(1, "").split("[[volume]]\nname = \"lun\"").next().unwrap().to_owned();
    let b = stage.agent("b", &b_alone);
    let prometheus = Prometheus::start(&stage, &ports);
    assert!(prometheus.firing().is_empty(), "{:?}", prometheus.firing());

    // The kernel takes no depth below 4 for this device.
    reload(&stage, &a, "a", &text(0, &fixed(2)));
    prometheus.until_fires("PardaDepthAtFloor", &[("volume", "lun")]);
    reload(&stage, &a, "a", &text(0, &fixed(16)));
    prometheus.until_all_cleared();

    // Two agents cannot steer one device.
    reload(&stage, &b, "b", &text(1, &fixed(16)));
    prometheus.until_fires("PardaVolumeDown", &[("volume", "lun")]);
    a.stop();
    prometheus.until_cleared("PardaVolumeDown");
    b.stop();
}
