//! Exchanges over real sockets on loopback addresses.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::datagram::{LEAST_BYTES, MOST_BYTES};
use super::*;
use crate::testing::{at, publication};

/// A port that nobody has now. Addresses of tests differ in the host part, too.
pub(super) fn free_port(ip: std::net::IpAddr) -> u16 {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap().port()
}

fn settings(host: &str, address: SocketAddr, peers: &[SocketAddr], keys: KeySource) -> UdpSettings {
    UdpSettings {
        host: HostName::new(host).unwrap(),
        volume: VolumeId::of("array-a"),
        address,
        reach: UdpReach::Peers(peers.iter().copied().map(PeerAddress::Address).collect()),
        keys,
    }
}

fn addresses<const N: usize>() -> [SocketAddr; N] {
    std::array::from_fn(|i| {
        let ip = Ipv4Addr::new(127, 9, 0, 1 + i as u8).into();
        SocketAddr::new(ip, free_port(ip))
    })
}

fn write_keys(path: &Path, secrets: &[u8]) {
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::File::options();
    let mut file = file.create(true).write(true).mode(0o600).open(path).unwrap();
    for secret in secrets {
        writeln!(file, "{}{secret:02x}", "00".repeat(31)).unwrap();
    }
}

/// Waits until something is so, with periods of all hosts.
fn until(
    hosts: &mut [UdpExchange],
    what: &str,
    mut so: impl FnMut(&[Vec<ExchangeEvent>], &[Vec<u64>]) -> bool,
) {
    let begun = std::time::Instant::now();
    let mut events = vec![Vec::new(); hosts.len()];
    for now in 0.. {
        let mut heard = Vec::new();
        for (host, events) in hosts.iter_mut().zip(&mut events) {
            let collected = host.collect(at(now)).unwrap();
            events.extend(collected.events);
            heard.push(collected.messages.iter().map(|m| m.sequence.0).collect());
            host.publish(&publication(16.0)).unwrap();
        }
        if so(&events, &heard) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn standing(host: &UdpExchange) -> DatagramStanding {
    match host.standing() {
        Standing::Datagrams(standing) => standing,
        _ => unreachable!("these are datagrams"),
    }
}

#[test]
fn keys_are_replaced_while_hosts_hear_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let all = addresses::<2>();
    let files = ["a", "b"].map(|name| dir.path().join(name));
    files.iter().for_each(|file| write_keys(file, &[1]));
    let mut hosts: Vec<_> = (["a", "b"].iter().zip(all).zip(&files))
        .map(|((host, address), file)| {
            UdpExchange::new(settings(host, address, &all, KeySource::File(file.clone())))
        })
        .collect();
    let both = |_: &[Vec<ExchangeEvent>], heard: &[Vec<u64>]| heard.iter().all(|h| h.len() == 1);
    until(&mut hosts, "they hear each other", both);
    // One file at a time, as an operator does it: nothing is lost meanwhile.
    for secrets in [&[1, 2][..], &[2, 1], &[2]] {
        for i in [0, 1] {
            write_keys(&files[i], secrets);
            hosts[i].reload();
            let last: Vec<_> = hosts.iter().map(|host| host.sequence.0).collect();
            let news = |_: &[Vec<ExchangeEvent>], heard: &[Vec<u64>]| {
                heard[0].iter().any(|s| *s > last[1]) && heard[1].iter().any(|s| *s > last[0])
            };
            until(&mut hosts, "both are heard after a change", news);
        }
    }
    // A file that cannot be used changes nothing, and is told of.
    std::fs::write(&files[0], "secret").unwrap();
    hosts[0].reload();
    let last = hosts[1].sequence.0;
    until(&mut hosts, "the keys from before stay", |events, heard| {
        let told = |e: &ExchangeEvent| e.to_string().contains(":1: is no key");
        events[0].iter().any(told) && heard[0].iter().any(|s| *s > last)
    });
    for host in &hosts {
        let standing = standing(host);
        let refused =
            [Refused::UnknownKey, Refused::Forged].map(|why| standing.refused[why.name()]);
        assert_eq!((refused, standing.keys), ([0, 0], 1));
    }
}

#[test]
fn hosts_with_other_keys_do_not_hear_each_other_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let all = addresses::<2>();
    let mut hosts: Vec<_> = [("a", 1), ("b", 2)]
        .iter()
        .zip(all)
        .map(|((host, secret), address)| {
            let file = dir.path().join(host);
            write_keys(&file, &[*secret]);
            UdpExchange::new(settings(host, address, &all, KeySource::File(file)))
        })
        .collect();
    until(&mut hosts, "each says so", |events, heard| {
        assert!(heard.iter().all(Vec::is_empty));
        let unknown =
            |e: &ExchangeEvent| e.to_string().contains("a key that this host does not have");
        events.iter().all(|events| events.iter().any(unknown))
    });
}

#[test]
fn peers_of_which_none_has_an_address_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys");
    write_keys(&file, &[1]);
    let [own] = addresses();
    let reach = UdpReach::Peers(vec![PeerAddress::Name("nowhere.invalid".to_owned(), 7077)]);
    let mut host =
        UdpExchange::new(UdpSettings { reach, ..settings("a", own, &[], KeySource::File(file)) });
    let begun = std::time::Instant::now();
    let error = loop {
        host.collect(at(0)).unwrap();
        match host.publish(&publication(1.0)) {
            Err(error) => break error.to_string(),
            // The look-up goes on.
            Ok(()) => std::thread::sleep(Duration::from_millis(10)),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no error");
    };
    assert!(error.contains("no peer has an address: peer nowhere.invalid"), "{error}");
}

#[test]
fn what_cannot_be_opened_is_an_error_and_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys");
    let [own, peer] = addresses();
    let taken = UdpSocket::bind(own).unwrap();
    let mut host = UdpExchange::new(settings("a", own, &[peer], KeySource::File(file.clone())));
    let error = |host: &mut UdpExchange| host.collect(at(0)).unwrap_err().to_string();
    assert!(error(&mut host).contains("cannot read the key file"));
    assert_eq!(standing(&host).keys, 0);
    write_keys(&file, &[1]);
    assert!(error(&mut host).contains("cannot bind"));
    assert!(host.publish(&publication(1.0)).is_err());
    drop(taken);
    host.collect(at(0)).unwrap();
    host.publish(&publication(1.0)).unwrap();
    // The port is free as soon as the exchange is dropped, for its successor.
    drop(host);
    drop(UdpSocket::bind(own).unwrap());
    let nowhere: SocketAddr = "192.0.2.1:7077".parse().unwrap();
    let mut host = UdpExchange::new(settings("a", nowhere, &[peer], KeySource::File(file)));
    assert!(error(&mut host).contains("exchange udp 192.0.2.1:7077: cannot bind"));
    assert!(examine(nowhere, &UdpReach::Peers(Vec::new())).unwrap().contains("cannot bind"));
    let nowhere = UdpReach::Group { interface: "none0".to_owned() };
    let group = "239.7.7.7:7077".parse().unwrap();
    assert!(examine(group, &nowhere).unwrap().contains("interface none0"));
}

#[test]
fn a_host_that_cannot_send_at_all_says_so() {
    let own = addresses::<1>()[0];
    // The kernel does not route loopback addresses to the outside.
    let nowhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let mut host = UdpExchange::new(settings("a", own, &[nowhere], KeySource::Loopback));
    host.collect(at(0)).unwrap();
    let error = host.publish(&publication(1.0)).unwrap_err().to_string();
    assert!(error.contains("cannot send to 192.0.2.1:9"), "{error}");
    assert_eq!(standing(&host).unsent, 1);
}

/// Noise and datagrams that only look right, as fast as they go out, while two hosts go on.
#[test]
fn a_flood_is_counted_and_keeps_nobody_from_being_heard() {
    let all = addresses::<2>();
    let mut hosts = ["a", "b"]
        .iter()
        .zip(all)
        .map(|(host, address)| UdpExchange::new(settings(host, address, &all, KeySource::Loopback)))
        .collect::<Vec<_>>();
    let both = |_: &[Vec<ExchangeEvent>], heard: &[Vec<u64>]| heard.iter().all(|h| h.len() == 1);
    until(&mut hosts, "they hear each other", both);
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut forged = vec![7; LEAST_BYTES];
    forged[..8].copy_from_slice(b"PARDAUDP");
    forged[8..12].copy_from_slice(&1u32.to_le_bytes());
    forged[12..14].copy_from_slice(&(LEAST_BYTES as u16).to_le_bytes());
    forged[14..16].copy_from_slice(&[0, 0]);
    forged[16..24].copy_from_slice(&Keys::public().first().name().to_le_bytes());
    let sent = AtomicU64::new(0);
    let floods = [&forged[..], b"noise", &forged[..300], &[0; MOST_BYTES + 400]];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                for bytes in floods {
                    let _ = sender.send_to(bytes, all[0]);
                }
                sent.fetch_add(1, Relaxed);
            }
        });
        let last = hosts[1].sequence.0;
        until(&mut hosts, "news are heard in spite of it", |_, heard| {
            // The flood may begin late.
            sent.load(Relaxed) > 100 && heard[0].iter().any(|sequence| *sequence > last + 20)
        });
        stop.store(true, Relaxed);
    });
    until(&mut hosts, "what has come is read", |_, _| true);
    let sent = sent.into_inner();
    let refused = |host: usize, why: Refused| standing(&hosts[host]).refused[why.name()];
    for why in [Refused::Forged, Refused::Foreign, Refused::Truncated] {
        assert!(refused(0, why) > 0, "{why} of {sent}");
    }
    assert!(refused(0, Refused::Foreign) >= refused(0, Refused::Forged) / 2);
    assert_eq!(refused(1, Refused::Forged), 0);
}

#[test]
fn datagrams_of_ipv6_are_heard() {
    let ip = Ipv6Addr::LOCALHOST.into();
    let all = [0, 1].map(|_| SocketAddr::new(ip, free_port(ip)));
    let mut hosts = ["a", "b"]
        .iter()
        .zip(all)
        .map(|(host, address)| UdpExchange::new(settings(host, address, &all, KeySource::Loopback)))
        .collect::<Vec<_>>();
    let both = |_: &[Vec<ExchangeEvent>], heard: &[Vec<u64>]| heard.iter().all(|h| h.len() == 1);
    until(&mut hosts, "they hear each other", both);
}

/// Hosts of which each sends to the others that it has as peers.
fn with_peers<const N: usize>(peers: [&[usize]; N]) -> [UdpExchange; N] {
    let all = addresses::<N>();
    std::array::from_fn(|i| {
        let peers: Vec<_> = peers[i].iter().map(|peer| all[*peer]).collect();
        UdpExchange::new(settings(&format!("h{i}"), all[i], &peers, KeySource::Loopback))
    })
}

#[test]
fn a_host_that_the_others_do_not_have_as_a_peer_is_alone_and_named_by_them() {
    let mut hosts = with_peers([&[0, 1], &[0, 1], &[0, 1, 2]]);
    until(&mut hosts, "the others name it", |_, heard| heard[0].len() == 1);
    for _ in 0..2_000 {
        until(&mut hosts, "a period", |_, _| true);
        if standing(&hosts[0]).one_way_hosts == 1 {
            break;
        }
    }
    let [stranger] = &standing(&hosts[0]).one_way[..] else { panic!("{:?}", hosts[0].standing()) };
    assert_eq!((stranger.host.as_str(), stranger.is_peer), ("h2", false));
    assert!(stranger.to_string().contains("which is not in this host's `peers`"), "{stranger}");
    assert_eq!(hosts[0].silence(), None);
    let silence = hosts[2].silence().unwrap();
    assert!(silence.rounds > 3, "{silence:?}");
    let address = hosts[2].settings.address.to_string();
    assert!(
        silence.why.contains(&format!("do not have {address} in their `peers`")),
        "{silence:?}"
    );
}

#[test]
fn a_host_whose_peers_are_wrong_says_what_is_known_of_it() {
    // The first sends to itself, the second to a port where nobody is.
    let mut hosts = with_peers([&[0], &[], &[0, 1]]);
    let nobody = SocketAddr::new(Ipv4Addr::new(127, 9, 0, 99).into(), 9);
    hosts[1] =
        UdpExchange::new(settings("h1", hosts[1].settings.address, &[nobody], KeySource::Loopback));
    until(&mut hosts, "the last host is heard", |_, _| true);
    for _ in 0..2_000 {
        until(&mut hosts, "a period", |_, _| true);
        if standing(&hosts[1]).one_way_hosts == 1 {
            break;
        }
    }
    let why = |host: &UdpExchange| host.silence().unwrap().why;
    assert!(why(&hosts[0]).contains("no address but this host's own"), "{}", why(&hosts[0]));
    assert!(why(&hosts[1]).contains("h2 at 127."), "{}", why(&hosts[1]));
    assert!(why(&hosts[2]).contains("none of its 2 peers is heard"), "{}", why(&hosts[2]));
}
