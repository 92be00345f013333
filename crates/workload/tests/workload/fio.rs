//! A real fio runs jobs, and its log shows the workload.
use std::process::Command;

use parda_control::Bytes;
use parda_workload::fio::{Job, JobTarget};
use parda_workload::{ArrivalRule, Workload};
use parda_workload::{Hot, SizePart};

const DISK: Bytes = Bytes(64 << 20);

/// Workload of a database: its hot tenth receives six of ten random IOs.
fn workload() -> Workload {
    let part = |kib, percent| SizePart { size: Bytes::kib(kib), percent };
    Workload {
        sizes: vec![part(4, 70), part(64, 30)],
        read_percent: 67.0,
        random_percent: 80.0,
        hot: Some(Hot { part_percent: 10.0, hits_percent: 60.0 }),
        demand: ArrivalRule::Closed { outstanding: 24 },
        one_stream: false,
        trim_percent: 0.0,
        bursts: None,
    }
}

fn part<T>(all: &[T], of: impl Fn(&T) -> bool) -> f64 {
    all.iter().filter(|x| of(x)).count() as f64 / all.len() as f64
}

#[test]
fn fio_does_what_a_job_says() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut job = Job::new("db");
    job.target(JobTarget::Path(folder.path().join("disk:1").to_str().unwrap()));
    job.load(&workload(), DISK).unwrap();
    job.set("ioengine", "null");
    job.set("number_ios", 4000);
    job.set("randseed", u32::MAX);
    job.set("write_iolog", log.display());
    let out = Command::new("fio").args(job.arguments()).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let log = std::fs::read_to_string(log).unwrap();
    let ios: Vec<(&str, u64, u64)> = log
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, _, kind, offset, len] => Some((kind, offset.parse().ok()?, len.parse().ok()?)),
            _ => None,
        })
        .collect();
    assert!(ios.len() >= 4000, "{}", ios.len());
    assert!(ios.iter().all(|(_, offset, len)| offset + len <= DISK.0));
    let reads = part(&ios, |(kind, ..)| *kind == "read");
    assert!((0.64..0.70).contains(&reads), "{reads}");
    let large = part(&ios, |(.., len)| *len == 64 << 10);
    assert!((0.27..0.33).contains(&large), "{large}");
    // Six of ten random IOs are hot, and sequential streams continue from there.
    let hot = part(&ios, |(_, offset, _)| *offset < DISK.0 / 10);
    assert!((0.5..0.7).contains(&hot), "{hot}");
}
