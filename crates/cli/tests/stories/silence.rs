//! Faults that would go unnoticed: a host that nobody hears, a configuration that is refused, and IOs that fail, each where an operator looks.

use parda_agent::status::ExchangeStatus;
use parda_control::Source;
use parda_exchange::Liveness;
use parda_testkit::{Client, read};
use rustix::process::Signal;
use serde_json::Value;

use crate::metrics::{free_port, get, with_metrics};
use crate::stage::{Agent, Done, PARDA, Stage, config, until};

/// An agent that meets others over UDP at 127.0.Y.N, with metrics at a port.
fn host(stage: &Stage, name: &str, exchange: &str, port: u16) -> Agent {
    stage.sparse(&format!("{name}.img"), 1 << 20);
    let text = config(name, "period = \"100ms\"", &[("vm", &format!("{name}.img"))]);
    let exchange = format!("[volume.exchange]\n{exchange}\n[[volume.disk]]");
    stage.agent(name, &with_metrics(&text, port).replacen("[[volume.disk]]", &exchange, 1))
}

fn exchange(agent: &Agent) -> ExchangeStatus {
    agent.volume().exchange.unwrap_or_default()
}

fn metric(port: u16, sample: &str) -> bool {
    get(port, "/metrics").is_some_and(|(_, text)| text.lines().any(|line| line == sample))
}

fn state(port: u16) -> Value {
    serde_json::from_str(&get(port, "/api/v1/state").unwrap().1).unwrap()
}

#[test]
fn a_host_that_others_do_not_have_in_their_peers_is_seen_there_and_named_by_them() {
    let stage = Stage::new();
    let (y, meet) = (fastrand::u8(1..), free_port());
    let udp = |n: u8, peers: &[u8]| {
        let peers: Vec<_> = peers.iter().map(|peer| format!("\"127.0.{y}.{peer}\"")).collect();
        format!("udp = \"127.0.{y}.{n}:{meet}\"\npeers = [{}]", peers.join(", "))
    };
    let ports = [free_port(), free_port(), free_port()];
    let a = host(&stage, "a", &udp(1, &[2]), ports[0]);
    let b = host(&stage, "b", &udp(2, &[1]), ports[1]);
    let c = host(&stage, "c", &udp(3, &[1, 2]), ports[2]);
    until("a and b hear each other", || {
        [&a, &b]
            .iter()
            .all(|host| exchange(host).peers.iter().any(|p| p.liveness == Liveness::Live))
    });

    // There: not up, in status, metric, page, log; and nothing is said of a cluster.
    let why = format!("do not have 127.0.{y}.3:{meet} in their `peers`");
    until("c says that nobody hears it", || exchange(&c).silence.is_some_and(|s| s.contains(&why)));
    assert_eq!(c.volume().source, Source::Local);
    let said = stage.ok(&[PARDA, "status", "-c", "c.toml", "--over", "100ms"]);
    assert!(said.contains("FAULT: nobody hears this host"), "{said}");
    assert!(said.contains("(local)"), "{said}");
    let said = stage.ok(&[PARDA, "peers", "-c", "c.toml"]);
    assert!(said.contains("\nFAULT: array: nobody hears this host"), "{said}");
    until("the metric has it", || metric(ports[2], "parda_exchange_up{volume=\"array\"} 0.0"));
    let shown = &state(ports[2])["volumes"][0]["exchange"];
    assert!(shown["silence"].as_str().unwrap().contains(&why), "{shown}");
    c.says("nobody hears this host, and none of its 2 peers is heard");

    // The others go on, and name the host and its address.
    for (agent, port) in [(&a, ports[0]), (&b, ports[1])] {
        let address = format!("127.0.{y}.3:{meet}");
        let line = format!("host c sends from {address}, which is not in this host's `peers`");
        agent.says(&line);
        let name = if port == ports[0] { "a.toml" } else { "b.toml" };
        let said = stage.ok(&[PARDA, "status", "-c", name, "--over", "100ms"]);
        assert!(said.contains(&format!("ONE WAY: {line}")), "{said}");
        let said = stage.ok(&[PARDA, "peers", "-c", name]);
        assert!(said.contains(&format!("ONE WAY: array: {line}")), "{said}");
        until("the metric has it", || {
            metric(port, "parda_exchange_one_way_hosts{volume=\"array\"} 1.0")
                && metric(port, "parda_exchange_up{volume=\"array\"} 1.0")
        });
        let shown = &state(port)["volumes"][0]["exchange"];
        assert!(shown["one_way"][0].as_str().unwrap().starts_with(&line), "{shown}");
    }

    // Mended on one of them: it is heard, and the other still names it.
    let text = String::from_utf8(stage.read("a.toml")).unwrap();
    stage.write("a.toml", text.replace(&udp(1, &[2]), &udp(1, &[2, 3])));
    stage.ok(&[PARDA, "reload", "-c", "a.toml"]);
    until("c is heard", || exchange(&c).silence.is_none() && exchange(&a).peers.len() == 2);
    c.says("other hosts are heard now");
    until("it is in the cluster", || c.volume().source == Source::Cluster);
    assert_eq!(exchange(&b).udp.unwrap().one_way_hosts, 1);
}

#[test]
fn a_host_whose_peers_are_itself_or_that_has_another_key_or_volume_is_not_well() {
    let stage = Stage::new();
    let (y, meet) = (fastrand::u8(1..), free_port());
    let ports = [free_port(), free_port(), free_port()];
    let at = |n: u8| format!("udp = \"127.0.{y}.{n}:{meet}\"");
    let peers = |list: &str| list.replace('@', &format!("127.0.{y}"));
    let one = host(&stage, "a", &(at(1) + &peers("\npeers = [\"@.1\"]")), ports[0]);
    until("it says so", || {
        exchange(&one).silence.is_some_and(|why| why.contains("no address but this host's own"))
    });
    assert!(metric(ports[0], "parda_exchange_up{volume=\"array\"} 0.0"));
    one.stop();
    let both = peers("\npeers = [\"@.2\", \"@.3\"]");
    let b = host(&stage, "b", &(at(2) + &both), ports[1]);
    stage.sparse("c.img", 1 << 20);
    let other =
        config("c", "period = \"100ms\"", &[("vm", "c.img")]).replace("\"array\"", "\"aray\"");
    let exchanged = format!("[volume.exchange]\n{}{both}\n[[volume.disk]]", at(3));
    let _c = stage.agent("c", &other.replacen("[[volume.disk]]", &exchanged, 1));
    until("the cause is said", || {
        exchange(&b).silence.is_some_and(|why| why.contains("about another volume"))
    });
}

#[test]
fn a_reload_that_is_refused_fails_and_is_shown_until_it_is_mended() {
    let (stage, port) = (Stage::new(), free_port());
    stage.sparse("data", 1 << 20);
    let text = with_metrics(&config("a", "mode = \"off\"", &[("vm", "data")]), port);
    let agent = stage.agent("a", &text);
    let reload = || stage.parda(&["reload", "-c", "a.toml"]);
    let status = || stage.ok(&[PARDA, "status", "--socket", "a.status", "--over", "100ms"]);
    let refused = |sample: &str| {
        until("the metric has it", || metric(port, &format!("parda_reload_refused {sample}")))
    };
    assert!(reload().status.success());
    refused("0.0");

    let wrong = [
        text.replace("mode = \"off\"", "mode = \"of\""),
        format!("{text}\nnonsense"),
        text.replace("path = \"data\"", "path = \"data\"\nshares = 0"),
    ];
    for wrong in &wrong {
        stage.write("a.toml", wrong);
        let Done { status: ended, err, .. } = reload();
        assert_eq!(ended.code(), Some(2), "{err}");
        assert!(err.contains("configuration not changed") && err.contains("a.toml:"), "{err}");
        assert!(
            status().contains("RELOAD REFUSED: the configuration from before is in force. a.toml:")
        );
        refused("1.0");
        assert!(state(port)["reload_refused"].as_str().unwrap().starts_with("a.toml:"));
    }
    // By its signal alone the same is shown.
    stage.write("a.toml", &text);
    assert!(reload().status.success());
    stage.write("a.toml", &wrong[0]);
    agent.process.signal(Signal::HUP);
    until("it is shown", || status().contains("RELOAD REFUSED"));
    // Without the line of the socket the process alone is known.
    stage.write("a.toml", &text);
    assert!(reload().status.success());
    stage.write("a.toml", "nonsense");
    let pid = agent.process.pid().to_string();
    let Done { status: ended, err, .. } = stage.parda(&["reload", "-c", "a.toml", "--pid", &pid]);
    assert!(!ended.success() && err.contains("a.toml:1:"), "{err}");
    until("the agent has it as well", || status().contains("RELOAD REFUSED"));

    stage.write("a.toml", text.replace("host = \"a\"", "host = \"z\""));
    let Done { status: ended, out, .. } = reload();
    assert!(ended.success() && out.contains("host is not changed to z"), "{out}");
    assert!(status().contains("NOT TAKEN OVER: host is not changed to z"));
    stage.write("a.toml", text.replace("unix:a.status", "unix:b.status"));
    let done = stage.parda(&["reload", "-c", "a.toml", "--pid", &pid]);
    assert!(done.status.success(), "{}", done.err);
    refused("0.0");
    let said = stage.ok(&[PARDA, "status", "--socket", "b.status", "--over", "100ms"]);
    assert!(!said.contains("REFUSED") && !said.contains("NOT TAKEN"), "{said}");
    agent.process.signal(Signal::TERM);
    let gone = stage.parda(&["reload", "--socket", "nowhere"]);
    assert!(!gone.status.success());
}

#[test]
fn the_first_io_that_fails_is_in_the_log_with_errno_offset_and_path() {
    let stage = Stage::new();
    let flag = format!("error-file={}", stage.path("failing").display());
    let line = ["nbdkit", "-f", "-U", "errs", "--filter=error", "memory", "16M", &flag];
    let _server = stage.start("errs", &[&line[..], &["error-rate=100%", "error=EIO"]].concat());
    until("nbdkit listens", || stage.path("errs").exists());
    stage.sparse("cut", 1 << 20);
    let disks = [("errs", "nbd+unix:///?socket=errs"), ("cut", "cut")];
    let agent = stage.agent("a", &config("a", "mode = \"off\"", &disks));
    let mut client = Client::connect(&stage.path("a"), "errs");
    client.call(read(0, 4096), &[]).unwrap();
    stage.write("failing", "");
    for _ in 0..20 {
        client.call(read(8192, 4096), &[]).unwrap_err();
    }
    let line = "a read of 4096 bytes at byte 8192 of NBD export \"\" of unix:errs failed with EIO";
    agent.says(line);
    assert_eq!(agent.process.log().matches("io_failed").count(), 1, "one line a minute");
    stage.sparse("cut", 1 << 19);
    let mut client = Client::connect(&stage.path("a"), "cut");
    client.call(read(3 << 18, 512), &[]).unwrap_err();
    agent.says("a read of 512 bytes at byte 786432 of cut failed with EIO");
}

#[test]
fn shares_that_are_set_say_what_part_of_all_they_are() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let text = |name: &str| {
        stage.sparse(&format!("{name}.img"), 1 << 20);
        let text = config(name, "period = \"100ms\"", &[("vm", &format!("{name}.img"))]);
        text.replacen(
            "[[volume.disk]]",
            "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]",
            1,
        )
    };
    let [a, _b] = ["a", "b"].map(|name| stage.agent(name, &text(name)));
    until("b is heard", || exchange(&a).peers.iter().any(|p| p.liveness == Liveness::Live));
    let said = stage.ok(&[PARDA, "set", "vm", "shares=1000000", "-c", "a.toml"]);
    assert!(said.contains("99.9 % of the 1001000 shares of all hosts"), "{said}");
    let said = stage.ok(&[PARDA, "set", "vm", "shares=3000", "-c", "a.toml"]);
    assert!(said.contains("75 % of the 4000 shares of all hosts"), "{said}");
}

#[test]
fn last_good_names_the_silent_host_and_what_it_counts() {
    let stage = Stage::new();
    stage.exchange("exchange", 64);
    let text = |name: &str, shares: u32| {
        stage.sparse(&format!("{name}.img"), 1 << 20);
        let text = config(name, "period = \"100ms\"", &[("vm", &format!("{name}.img"))]);
        let exchange = "[volume.exchange]\nfile = \"exchange\"\n[[volume.disk]]";
        text.replacen("[[volume.disk]]", exchange, 1) + &format!("shares = {shares}\n")
    };
    let a = stage.agent("a", &text("a", 1000));
    let b = stage.agent("b", &text("b", 7000));
    until("b is heard", || exchange(&a).peers.iter().any(|p| p.liveness == Liveness::Live));
    until("both are one cluster", || a.volume().source == Source::Cluster);
    std::thread::sleep(std::time::Duration::from_secs(1));
    b.process.kill();
    until("b is missed", || a.volume().source == Source::LastGood);
    let said = stage.ok(&[PARDA, "status", "-c", "a.toml", "--over", "100ms"]);
    assert!(said.contains("LAST GOOD: b is silent for "), "{said}");
    assert!(said.contains("its 7000 shares count, with the 0.0 IOs"), "{said}");
}

#[test]
fn a_setting_that_does_not_exist_is_answered_with_the_one_that_was_meant() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let _agent = stage.agent("a", &config("a", "mode = \"off\"", &[("vm2", "data")]));
    for (line, says) in [
        (&["vm2", "share=5"][..], "share: did you mean `shares`?"),
        (&["vm2", "lattency_target=5ms"], "did you mean `latency_target`?"),
        (&["vm2", "weight=5"], "weight: is no setting. Of a disk or VM can be set: shares, burst"),
        (&["vm2", "latency_threshold=5ms"], "is a setting of the volume, and not of a disk or VM"),
        (&["vm2", "path=x"], "path: cannot be changed while the disk is served"),
        (&["shares=5"], "shares: is a setting of a disk or VM, and not of the volume"),
        (&["thresold=5ms"], "did you mean `latency_threshold`?"),
    ] {
        let error = stage.fails(&[&[PARDA, "set", "-c", "a.toml"], line].concat());
        assert!(error.contains(says), "{error}");
    }
}
