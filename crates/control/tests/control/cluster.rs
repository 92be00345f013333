//! The whole law among hosts, in virtual time: it lands on the threshold with every host at its
//! share, and survives what clusters do.

use crate::common;

use common::{Cluster, VmSpec};
use parda_control::law::{LawConfig, Mode};
use parda_control::{Config, Source, Span, Window};

const PERIOD: Span = Span::from_millis(1000);

fn config() -> Config {
    Config {
        law: LawConfig {
            threshold: Span::from_millis(30),
            window_max: Window(256.0),
            ..LawConfig::default()
        },
        ..Config::default()
    }
}

fn mode(mode: Mode) -> Config {
    Config { law: LawConfig { mode, ..config().law }, ..config() }
}

fn vm(shares: u32, outstanding: usize) -> VmSpec {
    VmSpec { shares, outstanding }
}

fn secs(s: u64) -> Span {
    Span::from_millis(1000 * s)
}

fn near(measured: f64, want: f64, tolerance: f64, what: &str) {
    let off = (measured / want - 1.0).abs();
    assert!(off <= tolerance, "{what}: {measured:.3}, not {want:.3} ({:.1} % off)", off * 100.0);
}

#[test]
fn latency_lands_on_the_threshold_and_hosts_at_their_shares() {
    for n in [1usize, 2, 4, 16, 64] {
        let mut cluster = Cluster::new(7, 8, Span::from_millis(5), PERIOD);
        let shares: Vec<u32> = (0..n).map(|i| [2000, 1000, 500, 500][i % 4]).collect();
        for &s in &shares {
            cluster.add_host(config(), &[vm(s, 128)]);
        }
        cluster.run(secs(30));
        // The smallest host of 64 completes 11 IO/s: long enough that chance is 1 %.
        let (iops, latency) = cluster.run(secs(900));
        near(latency, 0.030, 0.02, &format!("latency of {n} hosts"));
        let total: f64 = iops.iter().flatten().sum();
        let all: u32 = shares.iter().sum();
        for (host, &s) in iops.iter().zip(&shares) {
            let want = total * f64::from(s) / f64::from(all);
            near(host[0], want, 0.05, &format!("IOPS of one of {n} hosts"));
        }
        assert!(cluster.most_over_window() <= 1.0);
    }
}

#[test]
fn windows_below_one_stay_live_and_fair() {
    let mut cluster = Cluster::new(3, 8, Span::from_millis(5), PERIOD);
    for i in 0..200 {
        cluster.add_host(config(), &[vm(if i % 2 == 0 { 1000 } else { 500 }, 8)]);
    }
    cluster.run(secs(60));
    let (iops, latency) = cluster.run(secs(240));
    assert!(cluster.window(1) < 0.5);
    near(latency, 0.030, 0.05, "latency");
    let mean =
        |parity: usize| iops.iter().skip(parity).step_by(2).map(|h| h[0]).sum::<f64>() / 100.0;
    near(mean(0) / mean(1), 2.0, 0.05, "ratio");
    for host in &iops {
        assert!(host[0] > 0.7 * mean(1), "a host starves: {}", host[0]);
    }
}

#[test]
fn an_idle_vm_does_not_enrich_its_neighbour() {
    let mut cluster = Cluster::new(5, 8, Span::from_millis(5), PERIOD);
    let shared = cluster.add_host(config(), &[vm(1000, 64), vm(1000, 0)]);
    let other = cluster.add_host(config(), &[vm(1000, 64)]);
    cluster.run(secs(30));
    let (iops, latency) = cluster.run(secs(60));
    near(iops[shared][0] / iops[other][0], 1.0, 0.04, "ratio beside an idle VM");
    near(latency, 0.030, 0.03, "latency");
    // It wakes and has its share within a few periods.
    cluster.set_outstanding(shared, 1, 64);
    cluster.run(secs(5));
    let (iops, _) = cluster.run(secs(60));
    near(iops[shared][1] / iops[other][0], 1.0, 0.04, "ratio after waking");
    near(iops[shared][0] / iops[other][0], 1.0, 0.04, "ratio of the neighbour");
}

#[test]
fn what_a_half_idle_vm_leaves_is_everybodys() {
    for outstanding in [4, 8, 12, 20] {
        let mut cluster = Cluster::new(37, 8, Span::from_millis(5), PERIOD);
        let shared = cluster.add_host(config(), &[vm(1000, 128), vm(1000, outstanding)]);
        let other = cluster.add_host(config(), &[vm(1000, 128)]);
        cluster.run(secs(30));
        let (iops, latency) = cluster.run(secs(120));
        let what = format!("beside a VM with {outstanding} outstanding");
        near(iops[shared][0] / iops[other][0], 1.0, 0.04, &what);
        near(latency, 0.030, 0.04, &what);
    }
}

#[test]
fn a_fraction_is_a_fraction_for_clients_that_keep_one_io_pending() {
    let mut cluster = Cluster::new(61, 8, Span::from_millis(5), PERIOD);
    for _ in 0..150 {
        cluster.add_host(config(), &[vm(1000, 1)]);
    }
    let large = cluster.add_host(config(), &[vm(4000, 32)]);
    cluster.run(secs(60));
    let (iops, latency) = cluster.run(secs(240));
    near(latency, 0.030, 0.04, "latency");
    let mean = iops[..150].iter().map(|h| h[0]).sum::<f64>() / 150.0;
    near(iops[large][0] / mean, 4.0, 0.08, "four times the shares");
}

#[test]
fn a_heavy_vm_has_its_share_beside_many_light_ones() {
    let mut cluster = Cluster::new(67, 8, Span::from_millis(5), PERIOD);
    // Fifty VMs that want less than their slices, of which each is less than one IO.
    let mut vms = vec![vm(1000, 96)];
    vms.extend((0..50).map(|_| vm(100, 0)));
    let host = cluster.add_host(config(), &vms);
    let other = cluster.add_host(config(), &[vm(1000, 96)]);
    (1..=50).for_each(|light| cluster.arrive(host, light, Span::from_millis(200)));
    cluster.run(secs(60));
    let (iops, latency) = cluster.run(secs(120));
    near(latency, 0.030, 0.05, "latency");
    near(iops[host][0] / iops[other][0], 1.0, 0.07, "the heavy VM against its equal elsewhere");
    for light in &iops[host][1..] {
        near(*light, 5.0, 0.2, "what a light VM asks for");
    }
}

#[test]
fn what_a_host_cannot_have_outstanding_is_the_others() {
    let mut cluster = Cluster::new(71, 8, Span::from_millis(5), PERIOD);
    let mut capped = config();
    capped.law.window_max = Window(24.0);
    cluster.add_host(capped, &[vm(10_000, 128)]);
    cluster.add_host(config(), &[vm(1000, 128)]);
    cluster.run(secs(40));
    let (iops, latency) = cluster.run(secs(60));
    near(latency, 0.030, 0.03, "latency");
    near(iops[0][0] * latency, 24.0, 0.03, "the largest window");
}

#[test]
fn where_window_max_is_the_bound_the_vms_of_a_host_share_it() {
    for most in [2.0, 3.0, 24.0] {
        let mut cluster = Cluster::new(74, 8, Span::from_millis(1), Span::from_millis(100));
        // At first there is room for all, so slices grow beyond what the VMs have pending.
        let host = cluster.add_host(config(), &[vm(3000, 32), vm(1000, 32)]);
        cluster.run(secs(5));
        let mut capped = config();
        capped.law.window_max = Window(most);
        cluster.set_config(host, capped);
        cluster.run(secs(5));
        let (iops, latency) = cluster.run(secs(10));
        near(iops[0][0] / iops[0][1], 3.0, 0.03, "three to one");
        near((iops[0][0] + iops[0][1]) * latency, most, 0.03, "the largest window");
    }
}

#[test]
fn no_vm_is_held_without_bound() {
    let mut cluster = Cluster::new(73, 8, Span::from_millis(5), PERIOD);
    let mut config = config();
    config.law.hold_max = secs(4);
    cluster.add_host(config.clone(), &[vm(1_000_000, 64), vm(1, 4)]);
    cluster.add_host(config, &[vm(1_000_000, 64)]);
    cluster.run(secs(40));
    let (iops, latency) = cluster.run(secs(200));
    // It alone would have 0.001 a second.
    near(iops[0][1], 0.25, 0.03, "one in four seconds");
    near(latency, 0.030, 0.03, "latency");
    assert!(cluster.overdue(0) >= 55 && cluster.overdue(1) == 0, "{}", cluster.overdue(0));
}

#[test]
fn periods_of_any_length_are_added_up_as_rates() {
    let mut cluster = Cluster::new(79, 8, Span::from_millis(5), PERIOD);
    let slow = cluster.add_host(config(), &[vm(1000, 64)]);
    cluster.set_period(slow, secs(8));
    for _ in 0..3 {
        let quick = cluster.add_host(config(), &[vm(1000, 64)]);
        cluster.set_period(quick, Span::from_millis(250));
    }
    cluster.run(secs(60));
    let (iops, latency) = cluster.run(secs(120));
    near(latency, 0.030, 0.05, "latency");
    for host in &iops[1..] {
        near(host[0] / iops[slow][0], 1.0, 0.05, "equal shares");
    }
}

#[test]
fn light_hosts_get_what_they_ask_and_the_rest_is_shared() {
    let mut cluster = Cluster::new(11, 8, Span::from_millis(5), PERIOD);
    let light = cluster.add_host(config(), &[vm(4000, 2)]);
    let a = cluster.add_host(config(), &[vm(1000, 128)]);
    let b = cluster.add_host(config(), &[vm(500, 128)]);
    cluster.run(secs(30));
    let (iops, latency) = cluster.run(secs(120));
    near(latency, 0.030, 0.04, "latency");
    near(iops[a][0] / iops[b][0], 2.0, 0.05, "ratio");
    // Two outstanding at the threshold, whatever its shares allow.
    near(iops[light][0], 2.0 / 0.030, 0.05, "light host");
}

#[test]
fn an_idle_host_wakes_without_a_storm() {
    let mut cluster = Cluster::new(13, 8, Span::from_millis(5), PERIOD);
    let hosts: Vec<usize> = (0..4).map(|_| cluster.add_host(config(), &[vm(1000, 64)])).collect();
    cluster.run(secs(20));
    cluster.set_outstanding(hosts[0], 0, 0);
    cluster.run(secs(60));
    assert!(cluster.window(hosts[0]) < 25.0, "an idle host's window: {}", cluster.window(hosts[0]));
    cluster.set_outstanding(hosts[0], 0, 64);
    let (_, latency) = cluster.run(secs(3));
    assert!(latency < 0.045, "latency while it wakes: {latency}");
    cluster.run(secs(5));
    let (iops, _) = cluster.run(secs(60));
    near(iops[hosts[0]][0] / iops[hosts[1]][0], 1.0, 0.04, "ratio after waking");
}

#[test]
fn a_cluster_that_was_idle_or_nearly_so_wakes_at_its_shares_without_a_storm() {
    for trickle in [0, 1] {
        let mut cluster = Cluster::new(14, 8, Span::from_millis(5), PERIOD);
        let shares = [2000, 1000, 1000, 500];
        for s in shares {
            cluster.add_host(config(), &[vm(s, 64)]);
        }
        cluster.run(secs(20));
        for host in 0..4 {
            cluster.set_outstanding(host, 0, trickle);
        }
        // Long enough for windows to grow to their maximum, if nothing kept them.
        cluster.run(secs(60));
        for host in 0..4 {
            cluster.set_outstanding(host, 0, 64);
        }
        let (_, latency) = cluster.run(secs(10));
        assert!(latency < 0.036, "after a load of {trickle}: {latency}");
        let (iops, _) = cluster.run(secs(10));
        let ratio = iops[0][0] / iops[3][0];
        assert!((3.2..4.8).contains(&ratio), "after a load of {trickle}: {ratio}");
    }
}

#[test]
fn windows_at_their_maximum_give_way_at_once_when_there_is_more_load() {
    // Two hosts at their maximum leave 8 drives at 30 ms; eight of them would bring 120.
    let mut config = config();
    config.law.threshold = Span::from_millis(80);
    config.law.window_max = Window(24.0);
    let mut cluster = Cluster::new(15, 8, Span::from_millis(5), PERIOD);
    let load = |host| vm(500, if host < 2 { 32 } else { 0 });
    let hosts: Vec<usize> =
        (0..8).map(|host| cluster.add_host(config.clone(), &[load(host)])).collect();
    cluster.run(secs(120));
    assert!(cluster.window(hosts[0]) > 23.9, "{}", cluster.window(hosts[0]));
    for &host in &hosts {
        cluster.set_outstanding(host, 0, 32);
    }
    let ten_periods = secs(10);
    cluster.run(ten_periods);
    let (_, latency) = cluster.run(secs(6));
    near(latency, 0.080, 0.05, "latency soon after");
}

#[test]
fn a_threshold_that_cannot_be_met_leaves_the_cluster_its_least_by_shares() {
    // One IO alone takes 5 ms.
    for least in [1.0, 4.0] {
        let mut cluster = Cluster::new(16, 8, Span::from_millis(5), PERIOD);
        for s in [2000, 1000, 1000] {
            let mut config = config();
            config.law.threshold = Span::from_millis(2);
            config.law.cluster_min = least;
            cluster.add_host(config, &[vm(s, 16)]);
        }
        cluster.run(secs(60));
        let (iops, latency) = cluster.run(secs(300));
        let outstanding = iops.iter().flatten().sum::<f64>() * latency;
        near(outstanding, least, 0.1, "outstanding in all");
        near(iops[0][0] / iops[1][0], 2.0, 0.06, "ratio");
    }
}

#[test]
fn survivors_take_up_a_dead_hosts_share_and_give_it_back() {
    let mut cluster = Cluster::new(17, 8, Span::from_millis(5), PERIOD);
    let dead = cluster.add_host(config(), &[vm(2000, 64)]);
    let a = cluster.add_host(config(), &[vm(1000, 64)]);
    let b = cluster.add_host(config(), &[vm(1000, 64)]);
    cluster.run(secs(30));
    cluster.kill(dead);
    cluster.run(secs(10));
    let (iops, latency) = cluster.run(secs(30));
    near(latency, 0.030, 0.03, "latency of the survivors");
    near(iops[a][0] / iops[b][0], 1.0, 0.04, "ratio of the survivors");
    let back = cluster.add_host(config(), &[vm(2000, 64)]);
    cluster.run(secs(10));
    let (iops, latency) = cluster.run(secs(30));
    near(latency, 0.030, 0.03, "latency after it came back");
    near(iops[back][0] / iops[a][0], 2.0, 0.05, "its share");
}

#[test]
fn a_silent_exchange_is_survived() {
    let mut cluster = Cluster::new(19, 8, Span::from_millis(5), PERIOD);
    let hosts: Vec<usize> =
        [2000, 1000].iter().map(|&s| cluster.add_host(config(), &[vm(s, 64)])).collect();
    cluster.run(secs(30));
    hosts.iter().for_each(|&h| cluster.silence(h, true));
    cluster.run(secs(30));
    assert_eq!(cluster.report(hosts[0]).unwrap().source, Source::LastGood);
    let (iops, latency) = cluster.run(secs(30));
    near(latency, 0.030, 0.10, "latency in silence");
    near(iops[0][0] / iops[1][0], 2.0, 0.15, "ratio in silence");
    hosts.iter().for_each(|&h| cluster.silence(h, false));
    cluster.run(secs(15));
    assert_eq!(cluster.report(hosts[0]).unwrap().source, Source::Cluster);
    let (iops, latency) = cluster.run(secs(60));
    near(latency, 0.030, 0.02, "latency after healing");
    near(iops[0][0] / iops[1][0], 2.0, 0.04, "ratio after healing");
}

#[test]
fn vms_on_one_host_follow_their_shares() {
    let mut cluster = Cluster::new(23, 8, Span::from_millis(5), PERIOD);
    cluster.add_host(config(), &[vm(1500, 32), vm(500, 64)]);
    cluster.add_host(config(), &[vm(1000, 64)]);
    cluster.run(secs(30));
    let (iops, _) = cluster.run(secs(60));
    near(iops[0][0] / iops[0][1], 3.0, 0.03, "VMs on one host");
    near(iops[0][0] / iops[1][0], 1.5, 0.05, "VMs across hosts");
}

#[test]
fn the_published_law_settles_above_the_threshold_by_sum_beta_over_throughput() {
    let mut cluster = Cluster::new(29, 8, Span::from_millis(5), PERIOD);
    let mut config = config();
    config.law.mode = Mode::Published { beta_per_share: 0.003 };
    for _ in 0..4 {
        cluster.add_host(config.clone(), &[vm(1000, 128)]);
    }
    cluster.run(secs(120));
    let (iops, latency) = cluster.run(secs(120));
    let total: f64 = iops.iter().flatten().sum();
    near(latency, 0.030 + 4.0 * 3.0 / total, 0.02, "latency");
}

#[test]
fn what_observers_foretell_is_what_comes_when_they_act() {
    let mut cluster = Cluster::new(37, 8, Span::from_millis(5), PERIOD);
    // A light VM, one that wants much on few shares, and two hosts at 2:1.
    let specs = [vec![vm(2000, 96), vm(500, 2)], vec![vm(1000, 64)], vec![vm(250, 128)]];
    let hosts = specs.map(|vms| cluster.add_host(mode(Mode::Observe), &vms));
    cluster.run(secs(60));
    let early: Vec<f64> = hosts.map(|h| cluster.report(h).unwrap().window.0).into();
    let (iops, latency) = cluster.run(secs(600));
    assert_eq!(cluster.held(), 0, "nothing is set, nothing waits");
    assert!(latency > 0.15, "290 IOs at 1600 a second: {latency}");
    let parts_of = |iops: &[Vec<f64>]| {
        let all: f64 = iops.iter().flatten().sum();
        iops.iter().flatten().map(|iops| iops / all).collect::<Vec<f64>>()
    };
    let now = parts_of(&iops);
    let foretold: Vec<_> = hosts.map(|h| cluster.outlook(h).unwrap().since.clone()).into();
    let windows: Vec<f64> = foretold.iter().map(|f| f.window().unwrap()).collect();
    for (early, window) in early.iter().zip(&windows) {
        near(*early, *window, 0.1, "the window that would be, after 1 minute and over 11");
    }
    let parts: Vec<_> = foretold.iter().flat_map(|f| f.parts()).collect();
    for (part, now) in parts.iter().zip(&now) {
        near(part.is, *now, 0.05, "a VM's part as it is");
    }
    near(foretold[0].latency().unwrap().is, latency, 0.05, "latency as it is");
    near(foretold[0].latency().unwrap().would_be, 0.030, 0.01, "latency that would be");

    hosts.iter().for_each(|&h| cluster.set_config(h, config()));
    cluster.run(secs(20));
    let (iops, latency) = cluster.run(secs(270));
    near(latency, 0.030, 0.03, "latency under control");
    for (part, now) in parts.iter().zip(&parts_of(&iops)) {
        near(part.would_be, *now, 0.1, "a VM's part under control");
    }
    // What a window is in one period depends on chance as well.
    let mut means = [0.0; 3];
    for _ in 0..30 {
        cluster.run(secs(1));
        means.iter_mut().zip(hosts).for_each(|(mean, h)| *mean += cluster.window(h) / 30.0);
    }
    for (mean, window) in means.iter().zip(&windows) {
        near(*window, *mean, 0.1, "the window");
    }
}

#[test]
fn a_light_load_foretells_windows_that_stop() {
    let mut cluster = Cluster::new(41, 8, Span::from_millis(5), PERIOD);
    let hosts = [2, 1].map(|n| cluster.add_host(mode(Mode::Observe), &[vm(1000, n)]));
    for _ in 0..10 {
        cluster.run(secs(60));
        let windows = hosts.map(|h| cluster.report(h).unwrap().window.0);
        assert!(windows.iter().all(|w| (2.0..=16.0).contains(w)), "{windows:?}");
    }
    let outlook = cluster.outlook(hosts[0]).unwrap();
    let latency = outlook.last.latency().unwrap();
    assert_eq!(latency.is, latency.would_be, "what nobody asks for is not foretold");
    let part = outlook.last.parts().next().unwrap();
    near(part.would_be, 2.0 / 3.0, 0.02, "all that it asks for");
}

#[test]
fn for_governed_hosts_an_observer_is_a_host_outside_control() {
    let beside = |outsider| {
        let mut cluster = Cluster::new(43, 8, Span::from_millis(5), PERIOD);
        cluster.add_host(config(), &[vm(1000, 64)]);
        cluster.add_host(config(), &[vm(500, 64)]);
        cluster.add_host(mode(outsider), &[vm(1000, 8)]);
        (cluster.run(secs(120)), cluster.window(0), cluster.window(2))
    };
    assert_eq!(beside(Mode::Observe), beside(Mode::Off));
}

#[test]
fn an_observer_that_hears_nobody_foretells_by_itself() {
    let mut cluster = Cluster::new(47, 8, Span::from_millis(5), PERIOD);
    let host = cluster.add_host(mode(Mode::Observe), &[vm(1000, 96), vm(500, 96)]);
    cluster.silence(host, true);
    cluster.run(secs(60));
    let last = cluster.report(host).unwrap();
    assert_eq!(last.source, Source::Local);
    near(last.window.0, 48.0, 0.1, "30 ms of 1600 a second");
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let run = || {
        let mut cluster = Cluster::new(31, 4, Span::from_millis(5), PERIOD);
        for s in [100, 200, 300] {
            cluster.add_host(config(), &[vm(s, 16), vm(s, 1)]);
        }
        let result = cluster.run(secs(30));
        (format!("{result:?}"), format!("{:?}", cluster.latency_trace))
    };
    assert_eq!(run(), run());
}
