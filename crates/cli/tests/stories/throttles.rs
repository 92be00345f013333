//! Limits beside QEMU's throttle groups: the same client does as many IOs under the same keys, with a real storage daemon. All keys and
//! long times are in virtual time, in `crates/control/tests/control/qemu_throttle.rs`.

#![allow(clippy::print_stdout, reason = "the figures of a long race are read")]

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parda_testkit::{Client, read, write};
use serde_json::json;

use crate::stage::{Stage, config, until};

/// Bytes of each disk.
const SIZE: u64 = 64 << 20;

/// Disks that are raced at once.
const BESIDE: usize = 10;

/// Keys of a limit, as QEMU's throttle groups have them, and the clients: whether each writes, and its size in KiB.
#[derive(Clone, Debug)]
struct Case {
    keys: Vec<(String, u64)>,
    clients: Vec<(bool, u32)>,
}

fn case(keys: &[(&str, u64)], clients: &[(bool, u32)]) -> Case {
    let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    Case { keys, clients: clients.to_vec() }
}

/// One by chance, which bounds all of its clients.
fn drawn(rng: &mut Rng) -> Case {
    // Of one size: what a burst lets through at once is divided by how fast a server reads and writes.
    let kib = 4 << rng.u32(0..4);
    let both = [(false, kib), (true, kib)];
    let clients = [&both[..1], &both[1..], &both[..]][rng.usize(..3)].to_vec();
    let mut keys = Vec::new();
    let kinds = [("iops", 10..100), ("bps", 100_000..1_000_000)];
    let which = [&kinds[..1], &kinds[1..], &kinds[..]][rng.usize(..3)];
    for (kind, rates) in which {
        let ways: &[&str] = if rng.bool() { &["total"] } else { &["read", "write"] };
        for way in ways {
            let rate = rng.u64(rates.clone());
            keys.push((format!("{kind}-{way}"), rate));
            if rng.bool() {
                keys.push((format!("{kind}-{way}-max"), rate * rng.u64(10..60) / 10));
                let length = if rng.bool() { 1 } else { rng.u64(2..20) };
                keys.push((format!("{kind}-{way}-max-length"), length));
            }
        }
    }
    if which[0].0 == "iops" && rng.bool() {
        keys.push(("iops-size".to_owned(), rng.u64(2_000..20_000)));
    }
    Case { keys, clients }
}

/// IOs that clients of an export have done by each of these times, each with 16 IOs at the server.
fn client(socket: &Path, export: &str, clients: &[(bool, u32)], looks: &[Duration]) -> Vec<u64> {
    let mut nbd = Client::connect(socket, export);
    let mut rng = Rng::with_seed(7);
    let mut under_way = HashMap::new();
    let mut send = |nbd: &mut Client, which: usize| {
        let (writes, kib) = clients[which];
        let at = 4096 * rng.u64(0..SIZE / 4096 - 256);
        let op = if writes { write(at, kib << 10) } else { read(at, kib << 10) };
        let data = vec![7; if writes { kib as usize * 1024 } else { 0 }];
        (nbd.send(op, &data).unwrap(), which)
    };
    let begin = Instant::now();
    for which in (0..clients.len()).cycle().take(16 * clients.len()) {
        let (cookie, which) = send(&mut nbd, which);
        under_way.insert(cookie, which);
    }
    let (mut done, mut counts) = (0, Vec::new());
    loop {
        let (cookie, answer) = nbd.receive().unwrap();
        answer.unwrap();
        while begin.elapsed() > looks[counts.len()] {
            counts.push(done);
            if counts.len() == looks.len() {
                return counts;
            }
        }
        done += 1;
        let which = under_way.remove(&cookie).unwrap();
        let (cookie, which) = send(&mut nbd, which);
        under_way.insert(cookie, which);
    }
}

/// IOs of each case under QEMU and under parda by each of these times.
fn race(cases: &[Case], looks: &[Duration]) -> Vec<[Vec<u64>; 2]> {
    let stage = Stage::new();
    let names: Vec<String> = (0..cases.len()).map(|at| format!("d{at}")).collect();
    let mut text = config("a", "mode = \"off\"", &[]);
    let mut daemons = Vec::new();
    for (name, case) in names.iter().zip(cases) {
        let limits: serde_json::Map<_, _> =
            case.keys.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let server = json!({ "addr": { "type": "unix", "path": format!("{name}.qemu") } });
        let group = json!({ "qom-type": "throttle-group", "id": "group", "limits": limits });
        let null = json!({ "driver": "null-co", "node-name": "null", "size": SIZE });
        let filter = json!({ "driver": "throttle", "node-name": "node", "throttle-group": "group", "file": "null" });
        let export = json!({ "type": "nbd", "id": "export", "node-name": "node", "name": name, "writable": true });
        let options = [
            ("--nbd-server", server),
            ("--object", group),
            ("--blockdev", null),
            ("--blockdev", filter),
            ("--export", export),
        ];
        let options = options.map(|(option, value)| [option.to_owned(), value.to_string()]);
        // One for each: QEMU 7.2 throttles no more after nodes were added beside the filter.
        let line: Vec<&str> = options.as_flattened().iter().map(String::as_str).collect();
        daemons.push(
            stage.start(&format!("qemu-{name}"), &[&["qemu-storage-daemon"], &line[..]].concat()),
        );
        stage.sparse(&format!("{name}.img"), SIZE);
        let limit: Vec<_> =
            case.keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        text += &format!(
            "[[volume.disk]]\nname = \"{name}\"\npath = \"{name}.img\"\nlisten = \"unix:a\"\nlimit = {{ {} }}\n",
            limit.join(", ")
        );
    }
    let _agent = stage.agent("a", &text);
    let theirs = |name: &String| stage.path(&format!("{name}.qemu"));
    until("QEMU listens", || names.iter().all(|name| theirs(name).exists()));
    thread::scope(|scope| {
        let run = |(name, case): (&String, &Case)| {
            [theirs(name), stage.path("a")].map(|socket| {
                let (name, clients) = (name.clone(), case.clients.clone());
                scope.spawn(move || client(&socket, &name, &clients, looks))
            })
        };
        let running: Vec<_> = names.iter().zip(cases).map(run).collect();
        let end =
            |pair: [thread::ScopedJoinHandle<'_, Vec<u64>>; 2]| pair.map(|it| it.join().unwrap());
        running.into_iter().map(end).collect()
    })
}

/// Cases in which both did not do as much at each look, but for this part and a few IOs: parda lets IOs go in groups of 5 ms of the rate.
fn misses(cases: &[Case], looks: &[Duration], part: f64) -> Vec<Case> {
    let near = |(theirs, ours): (&u64, &u64), look: &Duration| {
        let few = 2.0 + 0.01 * *theirs as f64 / look.as_secs_f64();
        theirs.abs_diff(*ours) as f64 <= part * *theirs as f64 + few
    };
    let raced = cases.iter().zip(race(cases, looks));
    let missed = raced.filter(|(case, [theirs, ours])| {
        let good = theirs.iter().zip(ours).zip(looks).all(|(pair, look)| near(pair, look));
        println!("{} {case:?}: QEMU {theirs:?}, parda {ours:?}", if good { "near" } else { "FAR" });
        !good
    });
    missed.map(|(case, _)| case.clone()).collect()
}

/// Asserts that both do as much. A machine that stops one of them for a second, which a bucket of 0.1 s forgets, does not so three times.
fn compare(cases: &[Case], looks: &[Duration], part: f64) {
    let mut left = cases.to_vec();
    for _ in 0..3 {
        left = if left.is_empty() { left } else { misses(&left, looks, part) };
    }
    assert!(left.is_empty(), "QEMU and parda are apart by more than {part}: {left:?}");
}

/// Ratios have room, as the machine may be busy.
#[test]
fn a_client_has_the_bursts_that_qemu_would_let_it_have() {
    let read = [(false, 4)];
    let cases = [
        case(&[("iops-total", 100)], &read),
        case(&[("iops-total", 100), ("iops-total-max", 200)], &read),
        case(&[("iops-read", 50), ("iops-read-max", 200), ("iops-read-max-length", 3)], &read),
        case(
            &[
                ("iops-total", 40),
                ("iops-total-max", 300),
                ("iops-total-max-length", 10),
                ("bps-total", 125_829_120),
            ],
            &read,
        ),
        case(&[("iops-total", 200), ("iops-size", 8192)], &[(true, 32)]),
        case(&[("bps-total", 1 << 20), ("bps-total-max", 4 << 20)], &[(false, 16), (true, 16)]),
    ];
    compare(&cases, &[1, 5].map(Duration::from_secs), 0.15);
}

#[test]
fn forty_limits_by_chance_are_within_3_percent_of_qemus_for_a_minute() {
    if std::env::var_os("PARDA_LONG").is_none() {
        eprintln!(
            "SKIPPED: takes four minutes; PARDA_LONG=1 cargo test --test stories -- forty_limits"
        );
        return;
    }
    let mut rng = Rng::with_seed(48);
    let cases: Vec<_> = (0..40).map(|_| drawn(&mut rng)).collect();
    for some in cases.chunks(BESIDE) {
        compare(some, &[1, 5, 30, 60].map(Duration::from_secs), 0.03);
    }
}
