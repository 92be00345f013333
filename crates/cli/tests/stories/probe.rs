//! `parda probe`: each kind of target, and each way in which it can end. (What it refuses to write
//! to, and that what it finds is right: see the tests of `parda-probe`.)

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::Duration;

use parda_probe::{OpenQuestion, ProbeDocument, ProbeEnd, Purpose, TargetKind};
use rustix::process::Signal;

use crate::stage::{Done, LAB, PARDA, Process, Stage, noise, until};

const MIB: usize = 1 << 20;

fn document(text: &str) -> ProbeDocument {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A file of data that is on the disk: fio, which drops what is cached of it, does not wait for the disk of a busy machine.
fn written(stage: &Stage, name: &str, data: &[u8]) {
    stage.write(name, data);
    File::open(stage.path(name)).unwrap().sync_all().unwrap();
}

/// The document of a probe that went well.
fn probe(stage: &Stage, arguments: &[&str]) -> ProbeDocument {
    let program = if arguments[0].starts_with("model:") { LAB } else { PARDA };
    let line = [&[program, "probe"], arguments, &["--json", "-"]].concat();
    let Done { status, out, err } = stage.run(&line);
    assert!(status.success(), "{status}\n{err}");
    document(&out)
}

/// An emulated array with a LUN at [`LUN`].
fn array(stage: &Stage) -> Process {
    let line = [LAB, "array", "--preset", "cx3-40-raid0", "--listen", "unix:array"];
    let process = stage.start("array", &line);
    until("the array listens", || stage.path("array").exists());
    process
}

const LUN: &str = "nbd+unix:///lun0?socket=array";

#[test]
fn a_model_tells_its_knee_and_what_to_set() {
    let stage = Stage::new();
    let Done { status, out, err } = stage.lab(&[
        "probe",
        "model:hdd-7200",
        "--quick",
        "--json",
        "probe.json",
        "--page",
        "probe.html",
    ]);
    assert!(status.success(), "{err}");
    assert!(out.contains("latency_threshold = "), "{out}");
    let written = String::from_utf8(stage.read("probe.json")).unwrap();
    let found = document(&written);
    assert_eq!((found.end, found.target.kind), (ProbeEnd::Complete, TargetKind::Model));
    assert_eq!(found.target.name, "model:drive-7200");
    assert!(found.points.iter().all(|p| p.settled && p.little_error.abs() < 0.02));
    let advice = found.findings.advice.unwrap();
    assert!((50.0..100.0).contains(&advice.latency_threshold_ms), "{advice:?}");
    assert!(String::from_utf8(stage.read("probe.html")).unwrap().contains("<svg"));

    let Done { status, err, .. } = stage.lab(&["probe", "model:hdd-5400"]);
    assert_eq!(status.code(), Some(2));
    assert!(err.contains("there are drive-7200, drive-15k, "), "{err}");

    let Done { status, err, .. } = stage.parda(&["probe", "model:drive-7200"]);
    assert_eq!(status.code(), Some(2));
    assert!(err.contains("is measured by parda-lab probe model:drive-7200"), "{err}");
}

#[test]
fn a_file_is_measured_and_not_a_byte_of_it_changes() {
    let stage = Stage::new();
    written(&stage, "file", &noise(64 * MIB));
    let options = ["file", "--time", "8s", "--depths", "1-4", "--only", "depth"];
    let found = probe(&stage, &options);
    assert_eq!((found.target.kind, found.target.writes), (TargetKind::File, false));
    let depths: Vec<u32> = found.points.iter().map(|p| p.load.outstanding).collect();
    // A busy machine may let fio wait until there is no time for more; without a bound it would
    // take a minute.
    assert!(depths.starts_with(&[1]), "{depths:?}");
    assert!(found.took_s < 50.0, "{}", found.took_s);
    for point in &found.points {
        let of = |ios: u64, sum: u64| sum.abs_diff(ios) <= ios / 100;
        let counted = point.all.histogram.iter().map(|bucket| bucket.ios).sum();
        assert!(of(point.all.ios, counted), "{counted} of {point:?}");
        assert!(point.all.p50_ms <= point.all.p99_ms && point.all.p99_ms <= point.all.max_ms);
        assert!(point.outstanding_measured <= 1.1 * f64::from(point.load.outstanding));
    }
    assert!(stage.read("file") == noise(64 * MIB), "it has changed");
    let writes = stage.parda(&["probe", "file", "--read", "50"]);
    assert_eq!(writes.status.code(), Some(2));
    assert!(
        writes.err.contains("it is only read, unless --allow-writes is given"),
        "{}",
        writes.err
    );
    let allowed = stage.parda(&["probe", "file", "--allow-writes"]);
    assert_eq!(allowed.status.code(), Some(2));
    assert!(
        allowed.err.contains("file will not be written to: only a file that"),
        "{}",
        allowed.err
    );
    assert!(stage.read("file") == noise(64 * MIB), "it has changed");
}

/// A busy host gives fio no time, here by a signal, for longer than is waited in silence.
#[test]
fn a_fio_that_does_not_answer_is_reported_and_waited_for() {
    let stage = Stage::new();
    written(&stage, "file", &noise(16 * MIB));
    let fio = stage.ok(&["sh", "-c", "command -v fio"]);
    let run = format!("exec {} \"$@\"", fio.trim());
    let stops = "(sleep 1; kill -STOP $$; sleep 12; kill -CONT $$) >/dev/null 2>&1 &";
    stage.write("fio", format!("#!/bin/sh\n[ \"$1\" = --enghelp ] && {run}\n{stops}\n{run}\n"));
    std::fs::set_permissions(stage.path("fio"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:/usr/bin:/bin", stage.path("").display());
    let options = ["--time", "8s", "--depths", "1-1", "--only", "depth", "--json", "-"];
    let Done { status, out, err } =
        stage.run(&[&["env", &path, PARDA, "probe", "file"], &options[..]].concat());
    assert!(status.success() && err.contains("fio has not answered for 10 s"), "{status}: {err}");
    assert_eq!(document(&out).points.len(), 1, "{err}");
}

#[test]
fn what_can_measure_nothing_is_refused() {
    let stage = Stage::new();
    stage.sparse("holes", 1 << 30);
    stage.write("file", noise(MIB));
    for (line, says) in [
        (&["probe", "holes"][..], "holes: has no data, only holes"),
        (&["probe", "file", "--time", "1s"], "--time 1s: must be at least 3s"),
    ] {
        let Done { status, err, .. } = stage.parda(line);
        assert_eq!(status.code(), Some(2), "{err}");
        assert!(err.contains(says), "{err}");
    }
}

#[test]
fn a_file_that_it_made_is_written_to_but_for_its_ends() {
    let stage = Stage::new();
    let create = ["scratch", "--create", "16MiB", "--depths", "1-1", "--only", "depth"];
    let read = probe(&stage, &[&create[..], &["--time", "3s"]].concat());
    assert!(!read.target.writes);
    let before = stage.read("scratch");
    let options = ["scratch", "--allow-writes", "--read", "0", "--depths", "2-2", "--time", "3s"];
    let written = probe(&stage, &[&options[..], &["--only", "depth"]].concat());
    assert!(written.target.writes);
    let point = &written.points[0];
    assert_eq!((point.reads.is_none(), point.writes.as_ref()), (true, Some(&point.all)));
    let after = stage.read("scratch");
    assert!(before.len() == 16 * MIB && before[..MIB] == after[..MIB], "its beginning");
    assert!(before[15 * MIB..] == after[15 * MIB..], "its end");
    assert!(before[MIB..15 * MIB] != after[MIB..15 * MIB], "what is between");
}

/// Whether all loads of both are alike: of a few hundred IOs each.
fn is_like(real: &ProbeDocument, model: &ProbeDocument) -> bool {
    let depths = real.points.iter().filter(|p| p.purpose == Purpose::Depth);
    let mut both =
        depths.filter_map(|p| Some((p, model.points.iter().find(|m| m.load == p.load)?)));
    both.all(|(point, like)| {
        let ratio = point.all.mean_ms / like.all.mean_ms;
        (0.7..1.5).contains(&ratio) && point.little_error.abs() < 0.1
    })
}

#[test]
fn an_export_of_an_array_is_what_the_model_of_it_is() {
    let stage = Stage::new();
    let _array = array(&stage);
    let options = ["--depths", "1-8", "--time", "12s", "--only", "depth,repeat"];
    let model = probe(&stage, &["model:cx3-40-raid0", "--depths", "1-8", "--only", "depth"]);
    // A machine that has other things to do may be late throughout one probe, and is not throughout six.
    let mut real = probe(&stage, &[&[LUN], &options[..]].concat());
    for _ in 0..5 {
        if !is_like(&real, &model) {
            real = probe(&stage, &[&[LUN], &options[..]].concat());
        }
    }
    assert!(is_like(&real, &model), "{real:?}");
    // Beside the LUN the array has room for an exchange.
    let less = model.target.bytes - real.target.bytes;
    assert!(real.target.kind == TargetKind::Nbd && less < MIB as u64, "{real:?}");
    assert!(real.points.len() >= 3, "{real:?}");
}

#[test]
fn who_interrupts_it_has_what_was_measured_until_then() {
    let stage = Stage::new();
    written(&stage, "file", &noise(64 * MIB));
    let interrupted_after = |seconds| {
        let line = [PARDA, "probe", "file", "--time", "2m", "--json", "probe.json"];
        let mut process = stage.start("probe", &line);
        sleep(Duration::from_secs(seconds));
        process.signal(Signal::INT);
        let status = process.wait();
        assert_eq!(status.code(), Some(130), "{}", process.log());
        let found = document(&String::from_utf8(stage.read("probe.json")).unwrap());
        assert_eq!(found.end, ProbeEnd::Aborted);
        found.points
    };
    // A machine that has other things to do measures its first load later.
    let has_points = [4, 16, 40].into_iter().any(|seconds| !interrupted_after(seconds).is_empty());
    assert!(has_points);
}

/// A write cache of 2.5 GB is not full in half a minute.
#[test]
fn what_never_settles_is_kept_and_said_so() {
    let stage = Stage::new();
    let options = ["model:cx3-40-raid0", "--read", "0", "--depths", "4-4", "--time", "30s"];
    let found = probe(&stage, &[&options[..], &["--only", "depth"]].concat());
    assert_eq!(found.points.iter().map(|p| p.settled).collect::<Vec<_>>(), [false]);
    let unknown = &found.findings.unknown;
    assert!(unknown.iter().any(|u| matches!(u, OpenQuestion::Unsettled { .. })), "{unknown:?}");
}

#[test]
fn a_target_that_goes_away_leaves_what_was_measured_until_then() {
    let stage = Stage::new();
    let gone_after = |seconds| {
        let _ = std::fs::remove_file(stage.path("array"));
        let array = array(&stage);
        let time = format!("{}s", 4 * seconds);
        let line = [PARDA, "probe", LUN, "--time", &time, "--quick", "--json", "probe.json"];
        let mut process = stage.start("probe", &line);
        sleep(Duration::from_secs(seconds));
        array.kill();
        let status = process.wait();
        let log = process.log();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains("the target failed"), "{log}");
        let found = document(&String::from_utf8(stage.read("probe.json")).unwrap());
        assert_eq!(found.end, ProbeEnd::Failed);
        found.points
    };
    // A machine that has other things to do measures its first load later.
    let has_points = [10, 30, 60].into_iter().any(|seconds| !gone_after(seconds).is_empty());
    assert!(has_points);
    let gone = stage.parda(&["probe", LUN]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(gone.err.contains("cannot connect"), "{}", gone.err);
}
