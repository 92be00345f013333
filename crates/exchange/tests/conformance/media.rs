//! The transports, each as a medium on which a cluster meets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use parda_control::{Bytes, Span};
use parda_etcd::Endpoint;
use parda_exchange::etcd::{EtcdExchange, EtcdLimits, EtcdSettings};
use parda_exchange::fallback;
use parda_exchange::region::{FileRegion, NbdRegion};
use parda_exchange::udp::{KeySource, PeerAddress, UdpExchange, UdpReach, UdpSettings};
use parda_exchange::{
    Exchange, HostName, Identity, Incarnation, Location, Region, Site, SlotChoice, SlotCount,
    SlotExchange, SlotSettings, Standing, VolumeId, init,
};

use crate::common::{make, publication};
use crate::medium::MemoryRegion;
use crate::network::Network;

const SLOTS: u32 = 80;

/// How long a call or a datagram may take on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

/// Where hosts of one cluster meet.
pub(crate) trait Medium {
    /// A host at a seat.
    fn host(&mut self, seat: usize, name: HostName, volume: &str, start: u64) -> Box<dyn Exchange>;

    /// Waits until what the hosts at these seats have said has come to all.
    fn settle(&mut self, _spoke: &[usize], _standing: &dyn Fn(usize) -> Option<Standing>) {}
}

fn slots(
    region: impl Region + 'static,
    host: HostName,
    volume: &str,
    start: u64,
) -> Box<dyn Exchange> {
    let settings = SlotSettings {
        me: Identity { host, incarnation: Incarnation(start) },
        volume: VolumeId::of(volume),
        choice: SlotChoice::Automatic,
        period: Span::from_millis(1_000),
        make: "parda exchange init".to_owned(),
    };
    Box::new(SlotExchange::new(region, settings).unwrap())
}

/// A medium of slots in memory.
pub(crate) struct Memory(MemoryRegion);

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory(MemoryRegion::new(SlotCount::new(SLOTS).unwrap()))
    }
}

impl Medium for Memory {
    fn host(&mut self, _: usize, name: HostName, volume: &str, start: u64) -> Box<dyn Exchange> {
        slots(self.0.clone(), name, volume, start)
    }
}

/// Slots in a file.
pub(crate) struct Files {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Files {
    pub(crate) fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        make(&path, None, SLOTS);
        Files { _dir: dir, path }
    }
}

impl Medium for Files {
    fn host(&mut self, _: usize, name: HostName, volume: &str, start: u64) -> Box<dyn Exchange> {
        let region = FileRegion::new(&self.path, None, SlotCount::new(SLOTS).unwrap()).unwrap();
        slots(region, name, volume, start)
    }
}

/// Slots in an export of nbdkit.
pub(crate) struct Export {
    server: Child,
    dir: tempfile::TempDir,
}

impl Export {
    pub(crate) fn new() -> Export {
        let dir = tempfile::tempdir().unwrap();
        let server = Command::new("nbdkit")
            .args(["--foreground", "--unix"])
            .arg(dir.path().join("nbd"))
            .args(["memory", "1M"])
            .spawn()
            .expect("nbdkit must be installed for this test");
        let export = Export { server, dir };
        while UnixStream::connect(export.dir.path().join("nbd")).is_err() {
            std::thread::yield_now();
        }
        let site = Site::new(Location::Nbd(export.uri()), None).unwrap();
        init(&site, SlotCount::new(SLOTS).unwrap(), None, PATIENT).unwrap();
        export
    }

    fn uri(&self) -> parda_address::Uri {
        format!("nbd+unix:///?socket={}", self.dir.path().join("nbd").display()).parse().unwrap()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Medium for Export {
    fn host(&mut self, _: usize, name: HostName, volume: &str, start: u64) -> Box<dyn Exchange> {
        let count = SlotCount::new(SLOTS).unwrap();
        slots(NbdRegion::new(self.uri(), Bytes(0), count, PATIENT).unwrap(), name, volume, start)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// UDP from each host to all others.
pub(crate) struct Unicast {
    addresses: Vec<SocketAddr>,
    network: Option<Network>,
    arrivals: Arrivals,
}

impl Unicast {
    pub(crate) fn new(family: Family, seats: usize) -> Unicast {
        let addresses = (0..seats).map(|_| free_address(family)).collect();
        Unicast { addresses, network: None, arrivals: Arrivals::default() }
    }

    /// Over a network that is not perfect.
    pub(crate) fn over(network: Network) -> Unicast {
        let addresses = network.hosts().to_vec();
        Unicast { addresses, network: Some(network), arrivals: Arrivals::default() }
    }
}

impl Medium for Unicast {
    fn host(
        &mut self,
        seat: usize,
        host: HostName,
        volume: &str,
        _start: u64,
    ) -> Box<dyn Exchange> {
        self.arrivals.0.remove(&seat);
        let to = self.network.as_ref().map_or(self.addresses.as_slice(), Network::doors);
        // The own address may be in the list, but a door of the network would bring all back.
        let peers = to.iter().enumerate().filter(|(other, _)| *other != seat);
        let peers = peers.map(|(_, address)| PeerAddress::Address(*address)).collect();
        let mut exchange = UdpExchange::new(UdpSettings {
            host,
            volume: VolumeId::of(volume),
            address: self.addresses[seat],
            reach: UdpReach::Peers(peers),
            keys: KeySource::Loopback,
        });
        // It listens before the others speak.
        exchange.collect(parda_control::Instant(0)).unwrap();
        Box::new(exchange)
    }

    fn settle(&mut self, spoke: &[usize], standing: &dyn Fn(usize) -> Option<Standing>) {
        for seat in 0..self.addresses.len() {
            let sent = spoke.iter().filter(|from| **from != seat).count() as u64;
            let came = match &mut self.network {
                None => sent,
                Some(network) => network.forward(seat, sent),
            };
            self.arrivals.wait(seat, came, standing);
        }
    }
}

/// UDP to a group.
pub(crate) struct Multicast {
    group: SocketAddr,
    interface: String,
    arrivals: Arrivals,
    seats: usize,
}

impl Multicast {
    /// `None` where no interface carries such a group. No datagram leaves this host: the group of IPv4 is at the
    /// loopback interface, and that of IPv6 has the scope of one interface.
    pub(crate) fn new(family: Family) -> Option<Multicast> {
        let (group, interfaces): (IpAddr, _) = match family {
            Family::V4 => {
                (Ipv4Addr::new(239, 77, 7, fastrand::u8(1..)).into(), vec!["lo".to_owned()])
            }
            Family::V6 => {
                let ip = Ipv6Addr::new(0xff11, 0, 0, 0, 0, 0, 0x7077, fastrand::u16(..));
                let names = std::fs::read_dir("/sys/class/net").unwrap();
                let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
                (ip.into(), names.collect())
            }
        };
        let group = SocketAddr::new(group, free_address(family).port());
        for interface in interfaces {
            let mut exchange = group_host(group, &interface, HostName::new("x").unwrap(), "x");
            let works = exchange.collect(parda_control::Instant(0)).is_ok()
                && exchange.publish(&publication(1.0)).is_ok();
            if works {
                return Some(Multicast {
                    group,
                    interface,
                    arrivals: Arrivals::default(),
                    seats: 0,
                });
            }
        }
        println!("skipped: no interface carries {group}");
        None
    }
}

fn group_host(group: SocketAddr, interface: &str, host: HostName, volume: &str) -> UdpExchange {
    UdpExchange::new(UdpSettings {
        host,
        volume: VolumeId::of(volume),
        address: group,
        reach: UdpReach::Group { interface: interface.to_owned() },
        keys: KeySource::Loopback,
    })
}

impl Medium for Multicast {
    fn host(
        &mut self,
        seat: usize,
        host: HostName,
        volume: &str,
        _start: u64,
    ) -> Box<dyn Exchange> {
        self.arrivals.0.remove(&seat);
        self.seats = self.seats.max(seat + 1);
        let mut exchange = group_host(self.group, &self.interface, host, volume);
        exchange.collect(parda_control::Instant(0)).unwrap();
        Box::new(exchange)
    }

    fn settle(&mut self, spoke: &[usize], standing: &dyn Fn(usize) -> Option<Standing>) {
        for seat in 0..self.seats {
            self.arrivals.wait(seat, spoke.len() as u64, standing);
        }
    }
}

/// UDP, with a file as its fall-back.
pub(crate) struct WithFallback {
    first: Unicast,
    second: Files,
}

impl WithFallback {
    pub(crate) fn new(first: Unicast) -> WithFallback {
        WithFallback { first, second: Files::new() }
    }
}

impl Medium for WithFallback {
    fn host(&mut self, seat: usize, name: HostName, volume: &str, start: u64) -> Box<dyn Exchange> {
        let first = self.first.host(seat, name.clone(), volume, start);
        let second = self.second.host(seat, name.clone(), volume, start);
        Box::new(fallback::WithFallback::new(first, second, name.id()))
    }

    fn settle(&mut self, spoke: &[usize], standing: &dyn Fn(usize) -> Option<Standing>) {
        self.first.settle(spoke, standing);
    }
}

/// A real etcd of one member.
pub(crate) struct Etcd {
    _dir: tempfile::TempDir,
    server: parda_testkit::TestEtcd,
}

impl Etcd {
    pub(crate) fn new() -> Etcd {
        let dir = tempfile::tempdir().unwrap();
        Etcd { server: parda_testkit::TestEtcd::start(dir.path(), 1), _dir: dir }
    }
}

impl Medium for Etcd {
    fn host(&mut self, _: usize, host: HostName, volume: &str, _: u64) -> Box<dyn Exchange> {
        let endpoints = self.server.urls();
        let endpoints = endpoints.iter().map(|url| Endpoint::parse(url).unwrap()).collect();
        let settings = EtcdSettings {
            host,
            volume: volume.to_owned(),
            prefix: "/parda/".to_owned(),
            cluster: parda_etcd::EtcdAccess { endpoints, tls: None, login: None },
            limits: EtcdLimits { wait: PATIENT, attempt: PATIENT },
        };
        Box::new(EtcdExchange::new(settings).unwrap())
    }
}

/// How many datagrams have come to the host of each seat.
#[derive(Default)]
struct Arrivals(BTreeMap<usize, u64>);

impl Arrivals {
    /// Waits until so many more have come.
    fn wait(&mut self, seat: usize, more: u64, standing: &dyn Fn(usize) -> Option<Standing>) {
        let Some(first) = standing(seat) else { return };
        let expected = self.0.get(&seat).copied().unwrap_or_default() + more;
        let begun = Instant::now();
        let mut came = received(&first);
        while came < expected {
            assert!(begun.elapsed() < PATIENT, "{came} of {expected} datagrams came to {seat}");
            std::thread::yield_now();
            came = standing(seat).map_or(expected, |standing| received(&standing));
        }
        self.0.insert(seat, came);
    }
}

fn received(standing: &Standing) -> u64 {
    let datagrams = match standing {
        Standing::Datagrams(datagrams) => datagrams,
        Standing::Both(both) => return received(&both.first),
        _ => return 0,
    };
    datagrams.heard + datagrams.own + datagrams.refused.values().sum::<u64>()
}

/// An address that nobody uses. No two of a process are alike, so that those which are not bound yet stay free.
pub(crate) fn free_address(family: Family) -> SocketAddr {
    // Below the ports that the kernel gives away.
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let ip: IpAddr = match family {
        Family::V4 => Ipv4Addr::new(127, 77, fastrand::u8(..), fastrand::u8(1..255)).into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    loop {
        let address = SocketAddr::new(ip, NEXT.fetch_add(1, Ordering::Relaxed));
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}
