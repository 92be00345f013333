//! The window, the model and the mailbox.
use crate::common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Client, disk, read, spawn, spawn_timed, tick, write};
use parda_block::{BackendConfig, Handle, Timed, TimedId};
use parda_control::law::Mode;
use parda_control::{Bytes, Instant, IoKind, Measurement, Period, Shares, Span, Window};
use parda_disk::{Extent, Op};

fn memory() -> BackendConfig {
    BackendConfig::Memory { size: Bytes(1 << 20) }
}

/// An array on which every IO takes the same time, and which counts.
struct Delay {
    service: Span,
    under_way: BTreeSet<(Instant, TimedId)>,
    most: Arc<AtomicUsize>,
}

impl Delay {
    fn new(service: Span) -> (Self, Arc<AtomicUsize>) {
        let most = Arc::new(AtomicUsize::new(0));
        (Self { service, under_way: BTreeSet::new(), most: Arc::clone(&most) }, most)
    }
}

impl Timed for Delay {
    fn submit(&mut self, now: Instant, id: TimedId, _: IoKind, _: Extent) {
        self.under_way.insert((now + self.service, id));
        self.most.fetch_max(self.under_way.len(), Ordering::Relaxed);
    }

    fn next(&self) -> Option<Instant> {
        self.under_way.first().map(|(at, _)| *at)
    }

    fn pop(&mut self, now: Instant) -> Option<TimedId> {
        self.under_way.first().filter(|(at, _)| *at <= now)?;
        self.under_way.pop_first().map(|(_, id)| id)
    }
}

fn send_reads(socket: &Path, export: &str, n: usize) -> Client {
    let mut client = Client::connect(socket, export);
    for _ in 0..n {
        client.send(read(0, 4096), &[]);
    }
    client
}

/// Waits until the volume has read so many requests from its sockets.
fn until_taken(volume: &Handle, reads: usize) {
    let started = std::time::Instant::now();
    loop {
        let stats = volume.stats().unwrap();
        if stats.held + stats.outstanding + stats.vms[0].reads.ios as usize >= reads {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::yield_now();
    }
}

#[test]
fn the_window_is_honoured_over_all_disks_and_connections() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let (model, most) = Delay::new(Span::from_micros(200));
    let disks = vec![disk("a", memory(), &socket), disk("b", memory(), &socket)];
    let volume = spawn_timed(disks, 4.0, model);
    let mut clients: Vec<Client> =
        ["a", "a", "b"].map(|export| send_reads(&socket, export, 50)).into();
    for client in &mut clients {
        (0..50).for_each(|_| assert!(client.receive().unwrap().1.is_ok()));
    }
    assert_eq!(most.load(Ordering::Relaxed), 4);
    let stats = volume.stats().unwrap();
    assert_eq!(stats.window, Window(4.0));
    let total = stats.total();
    assert_eq!(total.reads.ios, 150);
    // No IO was answered before the model was done with it.
    assert!(total.device.min() >= 198_000, "{}", total.device.min());
    assert!(total.held.max() > 198_000, "some were held");
}

#[test]
fn a_window_below_one_still_moves() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let (model, most) = Delay::new(Span::from_millis(1));
    let volume = spawn_timed(vec![disk("vm1", memory(), &socket)], 0.25, model);
    let mut client = send_reads(&socket, "vm1", 40);
    (0..40).for_each(|_| assert!(client.receive().unwrap().1.is_ok()));
    assert_eq!(most.load(Ordering::Relaxed), 1);
    // One millisecond at the array, three of pause.
    let held = volume.stats().unwrap().vms[0].held.max();
    assert!(held > 39 * 3 * 900_000, "{held}");
}

#[test]
fn a_flush_takes_its_turn_but_is_no_latency() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = spawn(vec![disk("vm1", memory(), &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    assert_eq!(client.call(Op::Flush, &[]), Ok(vec![]));
    let measured = volume.measure(Measurement::default()).unwrap();
    assert_eq!(measured.interval, parda_control::latency::Interval::default());
    assert_eq!(client.call(write(0, 4096), &[1; 4096]), Ok(vec![]));
    let measured = volume.measure(measured).unwrap();
    assert_ne!(measured.interval, parda_control::latency::Interval::default());
    let vm = &volume.stats().unwrap().vms[0];
    assert_eq!((vm.others.ios, vm.writes.ios, vm.total.len()), (1, 1, 1));
}

#[test]
fn settings_and_decisions_are_in_force_with_the_next_measurement() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = disk("vm1", memory(), &dir.path().join("s"));
    let volume = spawn(vec![config.clone()]);
    config.settings.shares = Some(7);
    let disk = volume.stats().unwrap().disks[0];
    assert_eq!(volume.set_disk(disk, config.clone()), Ok(true));
    let mut control = parda_control::Config::default();
    let mut period = Period::new(control.clone()).unwrap();
    assert_eq!(tick(&volume, &mut period).shares, Shares(7));
    assert_eq!(volume.remove_disk(disk, Duration::ZERO), Ok(true));
    assert_eq!(volume.set_disk(disk, config), Ok(false));
    assert_eq!(volume.remove_disk(disk, Duration::ZERO), Ok(false));
    assert_eq!(tick(&volume, &mut period).shares, Shares(0));
    control.law.mode = Mode::Static;
    control.law.window_max = Window(3.0);
    period.set_config(control).unwrap();
    volume.apply(period.decision().clone()).unwrap();
    assert_eq!(volume.stats().unwrap().window, Window(3.0));
}

#[test]
fn a_shutdown_answers_what_is_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let (model, _) = Delay::new(Span::from_millis(20));
    let volume = spawn_timed(vec![disk("vm1", memory(), &socket)], 2.0, model);
    let mut client = send_reads(&socket, "vm1", 6);
    until_taken(&volume, 6);
    assert!(client.receive().unwrap().1.is_ok());
    let drained = volume.shutdown(Duration::from_secs(60)).unwrap();
    assert_eq!(drained.unanswered, 0);
    (0..5).for_each(|_| assert!(client.receive().unwrap().1.is_ok()));
    assert_eq!(client.receive(), None);
    assert!(!socket.exists());
}

#[test]
fn a_shutdown_ends_in_time_even_if_the_array_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let (model, most) = Delay::new(Span::from_secs(3600.0));
    let volume = spawn_timed(vec![disk("vm1", memory(), &socket)], 2.0, model);
    let mut client = send_reads(&socket, "vm1", 3);
    until_taken(&volume, 3);
    assert_eq!(most.load(Ordering::Relaxed), 2);
    let drained = volume.shutdown(Duration::from_millis(10)).unwrap();
    assert_eq!(drained.unanswered, 3);
    assert_eq!(client.receive(), None);
}

#[test]
fn a_dropped_handle_ends_its_volume() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = spawn(vec![disk("vm1", memory(), &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    drop(volume);
    assert_eq!(client.receive(), None);
}

#[test]
fn a_map_waits_for_no_room_in_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let (model, most) = Delay::new(Span::from_millis(250));
    let _volume = spawn_timed(vec![disk("a", memory(), &socket)], 1.0, model);
    let mut client = Client::connect(&socket, "a");
    let extent = Extent { offset: 0, len: 1 << 20 };
    let map = [1 << 20, 3u32].map(u32::to_be_bytes).concat();
    // On a busy machine the reads may be over before the map is asked for, now and then.
    let is_first = (0..10).any(|_| {
        for _ in 0..2 {
            client.send(read(0, 4096), &[]);
        }
        let status = client.send(Op::BlockStatus { extent, one: false }, &[]).unwrap();
        let answers: Vec<_> = (0..3).map(|_| client.receive().unwrap()).collect();
        for (cookie, answer) in &answers {
            let expected = if *cookie == status { map.clone() } else { vec![0; 4096] };
            assert_eq!(answer, &Ok(expected));
        }
        answers[0].0 == status
    });
    assert!(is_first, "it waits for the reads");
    assert_eq!(most.load(Ordering::Relaxed), 1);
}
