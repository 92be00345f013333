//! Disks and listeners that come and go while the volume runs.
use crate::common;

use std::collections::VecDeque;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant as Clock};

use common::{Client, disk, file, read, spawn, spawn_timed, write};
use parda_address::Address;
use parda_block::{BackendConfig, DiskConfig, ListenerConfig, OpenDisk, Timed, TimedId};
use parda_control::{Bytes, Instant, IoKind, Span};
use parda_disk::Extent;

const LONG: Duration = Duration::from_secs(60);

fn memory() -> BackendConfig {
    BackendConfig::Memory { size: Bytes(1 << 20) }
}

fn open(config: DiskConfig) -> OpenDisk {
    OpenDisk::open(config).unwrap()
}

/// Every IO takes that long.
pub(crate) struct Slow(pub(crate) Span, pub(crate) VecDeque<(Instant, TimedId)>);

impl Timed for Slow {
    fn submit(&mut self, now: Instant, id: TimedId, _: IoKind, _: Extent) {
        self.1.push_back((now + self.0, id));
    }

    fn next(&self) -> Option<Instant> {
        self.1.front().map(|(at, _)| *at)
    }

    fn pop(&mut self, now: Instant) -> Option<TimedId> {
        let due = self.1.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.1.pop_front().map(|(_, id)| id)).flatten()
    }
}

#[test]
fn disks_come_and_go_and_the_others_keep_their_connections() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = spawn(vec![disk("vm1", memory(), &socket)]);
    let mut first = Client::connect(&socket, "vm1");
    first.call(write(0, 4096), &[1; 4096]).unwrap();
    for round in 0..20 {
        assert!(Client::try_connect(&socket, "vm2").is_err(), "not there yet");
        let second = volume.add_disk(open(disk("vm2", memory(), &socket))).unwrap();
        let mut client = Client::connect(&socket, "vm2");
        // What the slots were used for before does not show.
        assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![0; 4096]), "round {round}");
        client.call(write(0, 4096), &[2; 4096]).unwrap();
        let stats = volume.stats().unwrap();
        assert_eq!(stats.disks.len(), 2);
        let at = stats.disks.iter().position(|id| *id == second).unwrap();
        assert_eq!((stats.vms[at].writes.ios, stats.vms[at].reads.ios), (1, 1));
        assert_eq!(volume.remove_disk(second, LONG), Ok(true));
        assert_eq!(client.receive(), None, "its connection is closed");
        assert_eq!(volume.remove_disk(second, LONG), Ok(false));
        assert_eq!(first.call(read(0, 4096), &[]), Ok(vec![1; 4096]));
    }
    assert_eq!(volume.stats().unwrap().connections, 1);
}

#[test]
fn a_removal_answers_what_is_in_flight_and_held_first() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let slow = Slow(Span::from_millis(20), VecDeque::new());
    let volume = spawn_timed(vec![disk("vm1", memory(), &socket)], 2.0, slow);
    let mut client = Client::connect(&socket, "vm1");
    let (started, mut sent) = (Clock::now(), 0);
    let stats = loop {
        let stats = volume.stats().unwrap();
        if stats.held > 0 {
            break stats;
        }
        // All may be answered before anybody looks, on a busy machine.
        if stats.vms[0].writes.ios == sent {
            for i in 0..16 {
                client.send(write(i * 4096, 4096), &[7; 4096]);
            }
            sent += 16;
        }
        assert!(started.elapsed() < LONG, "none is held: {stats:?}");
        std::thread::yield_now();
    };
    // One that is still to be read from the socket may be lost, as at any close; these are not.
    let taken = stats.held + stats.outstanding + stats.vms[0].writes.ios as usize;
    assert_eq!(volume.remove_disk(stats.disks[0], LONG), Ok(true));
    let answers: Vec<_> = std::iter::from_fn(|| client.receive()).collect();
    assert!(answers.len() >= taken, "{} of {taken}", answers.len());
    assert!(answers.iter().all(|(_, outcome)| outcome.is_ok()));
    assert!(volume.stats().unwrap().disks.is_empty());
}

#[test]
fn a_disk_behind_a_silent_server_is_removed_in_bounded_time() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, silent) = (dir.path().join("s"), dir.path().join("silent"));
    let server = UnixListener::bind(&silent).unwrap();
    // It agrees, and then says no more.
    let agrees = std::thread::spawn(move || common::agree(server.accept().unwrap().0, 1 << 20));
    let uri = format!("nbd+unix:///x?socket={}", silent.display()).parse().unwrap();
    let backend = BackendConfig::Nbd { uri, options: Default::default() };
    let volume = spawn(vec![disk("vm1", memory(), &socket)]);
    let dead = volume.add_disk(open(disk("vm2", backend, &socket))).unwrap();
    let held_open = agrees.join().unwrap();
    let mut good = Client::connect(&socket, "vm1");
    let mut client = Client::connect(&socket, "vm2");
    client.send(read(0, 4096), &[]);
    let started = Clock::now();
    while volume.stats().unwrap().outstanding == 0 {
        assert!(started.elapsed() < LONG, "it was not sent");
        std::thread::yield_now();
    }
    let started = Clock::now();
    assert_eq!(volume.remove_disk(dead, Duration::from_millis(200)), Ok(true));
    let took = started.elapsed();
    assert!((Duration::from_millis(150)..Duration::from_secs(25)).contains(&took), "{took:?}");
    assert_eq!(client.receive(), None);
    assert_eq!(volume.stats().unwrap().outstanding, 0, "its slot of the window is free again");
    assert!(good.call(read(0, 4096), &[]).is_ok());
    drop(held_open);
}

#[test]
fn listeners_come_and_go_and_connections_stay() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    let (old_address, new_address) = (Address::Unix(old.clone()), Address::Unix(new.clone()));
    let config = disk("vm1", memory(), &old);
    let moved = DiskConfig { listen: new_address.clone(), ..config.clone() };
    let volume = spawn(vec![config]);
    let mut client = Client::connect(&old, "vm1");
    let mut shaking = UnixStream::connect(&old).unwrap();
    let id = volume.stats().unwrap().disks[0];
    volume.add_listener(ListenerConfig::new(new_address.clone())).unwrap();
    assert!(Client::try_connect(&new, "vm1").is_err(), "it is not offered there yet");
    assert_eq!(volume.set_disk(id, moved), Ok(true));
    let mut other = Client::connect(&new, "vm1");
    assert_eq!(volume.remove_listener(&old_address), Ok(true));
    assert_eq!(volume.remove_listener(&old_address), Ok(false));
    assert!(!old.exists());
    let mut greeting = Vec::new();
    // Closed: it would otherwise wait for ever.
    let _ = std::io::Read::read_to_end(&mut shaking, &mut greeting);
    for client in [&mut client, &mut other] {
        assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![0; 4096]));
    }
    // The address is free at once, for whoever wants it.
    drop(UnixListener::bind(&old).unwrap());
}

#[test]
fn a_disk_that_is_drained_keeps_its_clients_and_gets_no_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let config = disk("vm1", memory(), &socket);
    let volume = spawn(vec![config.clone()]);
    let mut client = Client::connect(&socket, "vm1");
    let id = volume.stats().unwrap().disks[0];
    let drained = DiskConfig { drain: true, ..config.clone() };
    assert!(config.stays_open_for(&drained));
    assert_eq!(volume.set_disk(id, drained), Ok(true));
    assert!(Client::try_connect(&socket, "vm1").is_err());
    assert_eq!(client.call(read(0, 4096), &[]), Ok(vec![0; 4096]));
    assert_eq!(volume.set_disk(id, config), Ok(true));
    drop(Client::connect(&socket, "vm1"));
}

#[test]
fn a_disk_stays_open_for_other_settings_and_not_for_other_data() {
    let config = disk("vm1", memory(), Path::new("/s"));
    let mut other = DiskConfig { listen: Address::Unix("/t".into()), ..config.clone() };
    other.settings.shares = Some(7);
    assert!(config.stays_open_for(&other));
    other.read_only = true;
    assert!(!config.stays_open_for(&other));
}

#[test]
fn a_port_is_free_as_soon_as_its_listener_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let volume = spawn(vec![disk("vm1", memory(), &dir.path().join("s"))]);
    let any = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    for _ in 0..10 {
        let at = volume.add_listener(ListenerConfig::new(any.clone())).unwrap();
        assert_eq!(volume.remove_listener(&any), Ok(true));
        let again = volume.add_listener(ListenerConfig::new(at.clone())).unwrap();
        assert_eq!(again, at);
        assert_eq!(volume.remove_listener(&at), Ok(true));
    }
}

#[test]
fn a_file_is_closed_when_its_disk_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, data) = (dir.path().join("s"), dir.path().join("data"));
    std::fs::write(&data, vec![0; 1 << 20]).unwrap();
    let volume = spawn(vec![disk("vm1", file(&data), &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    client.call(write(0, 4096), &[3; 4096]).unwrap();
    assert!(is_open(&data));
    let id = volume.stats().unwrap().disks[0];
    assert_eq!(volume.remove_disk(id, LONG), Ok(true));
    assert!(!is_open(&data), "whoever opens it next must find nobody");
}

fn is_open(path: &Path) -> bool {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    fds.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path))
}
