//! Traces of a real fio and a real blkparse, invalid ones, and their replay.
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parda_control::Bytes;
use parda_workload::trace::{self, Begin, Player, Replay, Trace, TraceIo};
use proptest::prelude::*;

fn parse(text: &str) -> Result<Trace, String> {
    trace::parse("t", text.as_bytes()).map_err(|e| e.to_string())
}

fn io(at: u64, read: bool, offset: u64, len: u32) -> TraceIo {
    TraceIo { at: at * 1_000_000, offset, len, read }
}

/// Three IOs within 300 ms, the last at the end of a disk of 1 MiB.
const THREE: &str = "fio version 3 iolog\n0 d add\n1 d open\n100000 d read 0 4096\n\
                     200000 d write 4096 512\n400000 d read 1044480 4096\n500000 d close\n";

#[test]
fn a_log_of_a_real_fio_is_what_fio_did() {
    // A busy machine may take the processor before the first IO or after the last one.
    let parts: Vec<f64> = (0..5).map(|_| logged_part_of_a_run()).collect();
    println!("{parts:?}");
    assert!(parts.iter().all(|part| *part < 1.01), "{parts:?}");
    assert!(parts.iter().any(|part| *part > 0.9), "{parts:?}");
}

/// Length of the log of a real fio, as a part of the time that its IOs took.
fn logged_part_of_a_run() -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let (log, disk) = (folder.path().join("log"), folder.path().join("disk"));
    let fio = Command::new("fio")
        .args(["--name=db", "--rw=randrw", "--rwmixread=75", "--percentage_random=60"])
        .args(["--bssplit=4k/80:16k/20", "--size=8m", "--number_ios=600", "--rate_iops=600,200"])
        .args(["--rate_process=poisson", "--output-format=json", "--ioengine=libaio"])
        .arg(format!("--filename={}", disk.display()))
        .arg(format!("--write_iolog={}", log.display()))
        .output()
        .unwrap();
    assert!(fio.status.success(), "{fio:?}");
    let said: serde_json::Value = serde_json::from_slice(&fio.stdout).unwrap();
    let of = |kind: &str, key: &str| said["jobs"][0][kind][key].as_u64().unwrap();
    let trace = trace::read(&log).unwrap();
    let of_kind = |read| trace.ios().iter().filter(move |io| io.read == read);
    for (kind, read) in [("read", true), ("write", false)] {
        assert_eq!(of_kind(read).count() as u64, of(kind, "total_ios"));
        let bytes: u64 = of_kind(read).map(|io| u64::from(io.len)).sum();
        assert_eq!(bytes, of(kind, "io_bytes"));
    }
    assert!(trace.end <= Bytes(8 << 20));
    let took = of("read", "runtime").max(of("write", "runtime"));
    trace.length.as_secs_f64() * 1e3 / took as f64
}

#[test]
fn the_text_of_the_real_blkparse_comes_to_what_it_says_itself() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/shop.blkparse");
    let text = std::fs::read_to_string(&path).unwrap();
    let trace = trace::read(&path).unwrap();
    // ` Reads Queued:         833,     3406KiB	 Writes Queued: …` of the total, or of the only CPU.
    let total = text.lines().rfind(|line| line.starts_with(" Reads Queued:")).unwrap();
    let numbers: Vec<u64> = total
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let of = |read| {
        let ios = trace.ios().iter().filter(move |io| io.read == read);
        (ios.clone().count() as u64, ios.map(|io| u64::from(io.len)).sum::<u64>() >> 10)
    };
    assert_eq!(of(true), (numbers[0], numbers[1]));
    // Flushes are queued as writes without data.
    assert_eq!(of(false).1, numbers[3]);
    assert!(of(false).0 > 0 && of(false).0 < numbers[2] && of(true).0 > 0);
}

#[test]
fn queues_and_depths_are_told_apart() {
    let line = |at: u32, what: &str| format!("  8,0 0 1 0.{:09} 7 {what} [db]\n", at * 1_000_000);
    let queued = [
        line(10, "Q W 8 + 8"),
        line(20, "Q R 0 + 1"),
        line(30, "D W 8 + 8"),
        line(40, "D R 0 + 1"),
        line(50, "C R 0 + 1"),
        line(60, "Q FWS"),
        line(70, "Q DS 64 + 64"),
        line(80, "m N cfq said something"),
        line(90, "C W 8 + 8"),
    ]
    .concat();
    let trace = parse(&queued).unwrap();
    assert_eq!(trace.ios(), [io(0, false, 4096, 4096), io(10, true, 0, 512)]);
    let issued: String =
        queued.lines().filter(|l| !l.contains(" Q ")).map(|l| format!("{l}\n")).collect();
    let trace = parse(&issued).unwrap();
    assert_eq!(trace.ios(), [io(0, false, 4096, 4096), io(10, true, 0, 512)]);
    // The kernel's own text has no event numbers, and has a header.
    let kernels = format!("# tracer: blk\n#\n{}", queued.replace(" 0 1 0.", " 0 0."));
    assert_eq!(parse(&kernels).unwrap().ios(), parse(&queued).unwrap().ios());
}

#[test]
fn operations_that_move_no_data_are_no_ios() {
    let first = "8,0 0 1 0.000000000 7 Q R 0 + 8 [a]\n";
    let of = |kind: &str| {
        let text = format!("{first}8,0 0 2 0.001000000 7 Q {kind} 8 + 8 [a]\n");
        parse(&text).unwrap().ios().get(1).map(|io| io.read)
    };
    for kind in ["W", "WS", "WSM", "FWFS", "WA", "ZA", "ZAS", "WFSU", "FWSM"] {
        assert_eq!(of(kind), Some(false), "{kind}");
    }
    for kind in ["R", "RA", "RSM", "RAM", "RU"] {
        assert_eq!(of(kind), Some(true), "{kind}");
    }
    let none = [
        "WZ", "WZS", "WZF", "ZR", "ZRA", "ZRS", "ZO", "ZC", "ZF", "D", "DS", "DE", "FD", "N", "FN",
        "F",
    ];
    for kind in none {
        assert_eq!(of(kind), None, "{kind}");
    }
}

#[test]
fn a_log_without_times_of_its_own_has_them_by_its_waits() {
    let log = "fio version 2 iolog\nd add\nd open\nd read 0 512\nd wait 5000 0\nd write 512 512\nd sync 0 0\nd read 1024 512\n\
               d wait 99 0\nd read 0 512\nd wait 20000\nd wait 10000 0\nd read 2048 512\nd close\n";
    let ios = [
        io(0, true, 0, 512),
        io(5, false, 512, 512),
        io(5, true, 1024, 512),
        io(5, true, 0, 512),
        io(35, true, 2048, 512),
    ];
    assert_eq!(parse(log).unwrap().ios(), ios);
}

#[test]
fn ios_are_widened_to_whole_sectors() {
    let trace = parse("fio version 3 iolog\n0 d read 0 512\n5000 d write 1000 100\n").unwrap();
    assert_eq!(trace.ios(), [io(0, true, 0, 512), io(5, false, 512, 1024)]);
}

#[test]
fn what_is_no_trace_is_pointed_at() {
    let log = |line: &str| format!("fio version 3 iolog\n0 d open\n{line}\n");
    let blk = |line: &str| format!("8,0 0 1 0.000000000 7 Q R 8 + 8 [a]\n{line}\n");
    for (text, says) in [
        (String::new(), "t: is empty"),
        ("hello\n".to_owned(), "t:1:1: hello: is neither fio's log"),
        ("fio version 2 iolog\n".to_owned(), "t:1:1: fio version 2 iolog: has no times"),
        (
            "\u{7}tae\u{1}\n".to_owned(),
            "t:1:1: \\u{7}tae\\u{1}: is what blktrace writes, in binary",
        ),
        (
            "fio version 2 iolog\nd read 0 512\n".to_owned(),
            "t:1:1: fio version 2 iolog: has no times",
        ),
        (
            "fio version 2 iolog\nd wait soon\n".to_owned(),
            "t:2:1: d wait soon: must be a time, a file",
        ),
        ("fio version 2 iolog\nd wait 100 0\n".to_owned(), "t: has neither"),
        (log("1 d wait 100 0"), "t:3:1: 1 d wait 100 0: must be"),
        (log("x d read 0 512"), "t:3:1: x d read 0 512: must be a time"),
        (log("5 d read 0"), "t:3:1: 5 d read 0: must be a time, a file"),
        (log("5 d read 0 -1"), "t:3:1: 5 d read 0 -1: must be"),
        (log("5 d shout 0 1"), "t:3:1: 5 d shout 0 1: must be"),
        (
            log("5 d read 18446744073709551615 1"),
            "t:3:1: 5 d read 18446744073709551615 1: lies beyond",
        ),
        (log("5 d read 0 9999999999"), "t:3:1: 5 d read 0 9999999999: is larger than 4 GiB"),
        (log("5 d read 0 512\n6 e read 0 512"), "t:4:1: 6 e read 0 512: is of another file"),
        (log(""), "t: has neither reads nor writes"),
        (blk("8,0 0 2 0.1 7 Q R 8 + 8 [a]"), "t:2:1: 8,0 0 2 0.1 7 Q R 8 + 8 [a]: must be a line"),
        (blk("8,0 0 2"), "t:2:1: 8,0 0 2: must be a line of blkparse"),
        (
            blk("8,16 0 2 0.000000001 7 Q R 8 + 8 [a]"),
            "t:2:1: 8,16 0 2 0.000000001 7 Q R 8 + 8 [a]: is of another",
        ),
        (blk("CPU:1 [LOST 7 EVENTS]"), "t:2:1: CPU:1 [LOST 7 EVENTS]: the kernel lost"),
        (format!("fio version 3 iolog\n{}", "x".repeat(70_000)), "t:2:1: xxxx"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.starts_with(says), "{error}");
        assert!(error.len() < 400, "{error}");
    }
}

fn replay(text: &str) -> Replay {
    let trace = Arc::new(parse(text).unwrap());
    Replay { trace, speed: 1.0, repeat: false, fold: false, begin: Begin::First }
}

/// Times in ms and offsets of at most `most` IOs of a player.
fn played(player: &mut Player, most: usize) -> Vec<(u64, u64)> {
    let mut at = 0;
    std::iter::from_fn(|| {
        at += player.gap()?;
        Some((at / 1_000_000, player.io().offset))
    })
    .take(most)
    .collect()
}

#[test]
fn a_trace_is_replayed_when_and_where_it_was() {
    let disk = Bytes(1 << 20);
    let once = replay(THREE);
    let all = [(0, 0), (100, 4096), (300, 1_044_480)];
    let mut player = Player::new(&once, disk, 0.0);
    assert_eq!(played(&mut player, 9), all);
    player.restart();
    assert_eq!(played(&mut player, 9), all, "again when it is started again");
    let fast = Replay { speed: 2.0, repeat: true, ..once.clone() };
    // The mean time between two arrivals, 150 ms, separates the last IO from the first of the next
    // round.
    let fast = played(&mut Player::new(&fast, disk, 0.0), 5);
    assert_eq!(fast, [(0, 0), (50, 4096), (150, 1_044_480), (225, 0), (275, 4096)]);
}

#[test]
fn those_that_begin_elsewhere_do_all_of_it_once_too() {
    let elsewhere = Replay { begin: Begin::Anywhere, ..replay(THREE) };
    // A round takes 450 ms. The replay begins at 225 ms and wraps around.
    let all = played(&mut Player::new(&elsewhere, Bytes(1 << 20), 0.5), 9);
    assert_eq!(all, [(75, 1_044_480), (225, 0), (325, 4096)]);
    // After the last IO only the wait for the first remains.
    let all = played(&mut Player::new(&elsewhere, Bytes(1 << 20), 0.9), 9);
    assert_eq!(all[0], (45, 0));
}

#[test]
fn what_lies_behind_the_end_of_the_disk_is_folded_back() {
    let text = THREE.replace("4096 512", "1572352 8192");
    let fold = Replay { fold: true, ..replay(&text) };
    let offsets = played(&mut Player::new(&fold, Bytes(1 << 20), 0.0), 9);
    // 1,572,352 exceeds the disk by 523,776. An IO that would cross the disk's end is moved to end
    // there.
    assert_eq!(offsets, [(0, 0), (100, 523_776), (300, 1_044_480)]);
    let offsets = played(&mut Player::new(&fold, Bytes(1_045_504), 0.0), 9);
    assert_eq!(offsets[2].1, 1_045_504 - 4096);
}

proptest! {
    #[test]
    fn no_bytes_bring_the_reader_down(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = trace::parse("t", &bytes[..]);
    }

    #[test]
    fn nor_do_lines_that_are_nearly_right(
        lines in proptest::collection::vec(
            "(8,0 0 [0-9]{1,3} [0-9]{1,20}\\.[0-9]{9} 1 [QDCMFRA] [RWDFSN]{1,3} [0-9]{0,20} [+] [0-9]{0,20}|[0-9]{0,20} d (read|write|wait|sync) [0-9]{1,20} [0-9]{1,20})",
            0..8,
        ),
        chance in 0.0..1.0,
        head in prop_oneof![Just(""), Just("fio version 3 iolog\n")],
    ) {
        let Ok(trace) = parse(&format!("{head}{}\n", lines.join("\n"))) else { return Ok(()) };
        // A trace that can be read can be replayed.
        let disk = Bytes(trace.largest.0 + 512);
        let trace = Arc::new(trace);
        let replay = Replay { trace, speed: 0.01, repeat: true, fold: true, begin: Begin::Anywhere };
        let mut player = Player::new(&replay, disk, chance);
        for _ in 0..30 {
            prop_assert!(player.gap().is_some());
            let io = player.io();
            prop_assert!(io.offset + u64::from(io.len) <= disk.0 && io.offset.is_multiple_of(512));
        }
    }
}
