//! Hosts that all hear the same, and hosts of which each listens for itself: the same run.
use crate::common::parse;

use parda_scenario::{Answer, Scenario};
use parda_sim::{Keep, SimOptions, run};

/// Transports, with delays that are longer and shorter than a period.
const TRANSPORTS: [&str; 4] = [
    "transport = \"file\"",
    "transport = \"udp\"\ndelay = \"3ms\"",
    "transport = \"udp\"\ndelay = \"2500ms\"",
    "transport = \"etcd\"\nmembers = 3\ndelay = \"100ms\"",
];

/// Hosts of different periods, of which one is killed, one hangs for a while, and one finds its threshold by itself. `each`: they
/// are told something of the exchange that changes nothing, so that each of them listens for itself.
fn cluster(exchange: &str, hosts: usize, seconds: u64, each: bool) -> Scenario {
    let event = |percent: u64, what: &str| {
        format!("[[event]]\nat = \"{}ms\"\n{what}\n", percent * seconds * 10)
    };
    let workload = "workload = { size = \"16KiB\", read = 70, random = 80, outstanding = 4 }";
    let group = |name: &str, count: usize, control: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\ncount = {count}\n{control}\n\
             [[host.vm]]\nname = \"{name}-vm\"\nshares = {}\ndisk = \"1GiB\"\n{workload}\n",
            100 * name.len()
        )
    };
    let mut text = format!(
        "name = \"alike\"\nduration = \"{seconds}s\"\n\
         [array]\npreset = \"cx3-40-raid5-vms\"\nextent = \"16MiB\"\n\
         [exchange]\n{exchange}\n[control]\nlatency_threshold = \"40ms\"\n\
         [[phase]]\nname = \"all\"\nfrom = \"0s\"\nto = \"{seconds}s\"\n",
    );
    text += &group("seldom", 3, "control = { period = \"1700ms\" }");
    text += &group("often", hosts - 4, "");
    text += &group("auto", 1, "control = { latency_threshold = \"auto\" }");
    text += &event(15, "host = \"seldom-002\"\ndo = \"kill\"");
    text += &event(20, "host = \"often-001\"\ndo = \"hang\"");
    text += &event(75, "host = \"often-001\"\ndo = \"resume\"");
    if each {
        text += &event(98, "exchange = {}");
    }
    parse(&text)
}

fn answered(scenario: &Scenario) -> (Answer, String) {
    let options = SimOptions { series: Keep::All, ..SimOptions::default() };
    let outcome = run(scenario, &options, |_| ()).unwrap();
    let series = serde_json::to_string(&outcome.series).unwrap();
    (outcome.answer, series)
}

#[test]
fn hosts_that_hear_the_same_find_to_the_bit_what_each_would_find_by_itself() {
    for exchange in TRANSPORTS {
        let (alike, series) = answered(&cluster(exchange, 12, 60, false));
        let (each, own) = answered(&cluster(exchange, 12, 60, true));
        assert!(series == own, "{exchange}: windows differ");
        assert_eq!(alike.phases, each.phases, "{exchange}");
        let total = &alike.phases[0].total;
        assert!(total.iops > 100.0, "{exchange}: {total:?}");
    }
}

#[test]
fn many_hosts_find_it_but_for_the_rounding_of_sums() {
    let exchange = TRANSPORTS[1];
    let windows = |each| {
        let (answer, _) = answered(&cluster(exchange, 270, 20, each));
        let hosts = answer.phases[0].hosts.iter();
        hosts.map(|host| host.window.unwrap_or_default()).collect::<Vec<_>>()
    };
    let (alike, each) = (windows(false), windows(true));
    assert_eq!(alike.len(), 270);
    for (one, other) in alike.iter().zip(&each) {
        assert!((one / other - 1.0).abs() < 0.01, "{one} and {other}");
    }
}
