//! What docs/studies.md says of the law holds. `PARDA_STUDY=NAME` tries that one alone.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

use std::path::Path;
use std::sync::Mutex;

use parda_config::Document;
use parda_scenario::{Study, Verdict};
use parda_sim::{SimOptions, run_all};

#[test]
fn every_study_holds() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/studies");
    let mut files: Vec<_> = dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    if let Some(name) = std::env::var_os("PARDA_STUDY") {
        files.retain(|file| file.file_stem() == Some(&name));
    }
    assert!(!files.is_empty());
    let (files, failed) = (Mutex::new(files), Mutex::new(Vec::new()));
    let next = || files.lock().unwrap().pop();
    let work = || {
        while let Some(file) = next() {
            let misses = misses(&file);
            failed.lock().unwrap().extend(misses);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The expectations of a study that do not hold.
fn misses(file: &Path) -> Vec<String> {
    let began = std::time::Instant::now();
    let study = Study::parse(&Document::read(file).unwrap()).unwrap_or_else(|e| panic!("{e}"));
    let answer = run_all(&study, &SimOptions::default(), 1, |_, _| ()).unwrap().answer;
    assert!(!answer.expectations.is_empty(), "{}: expects nothing", study.name);
    println!("{:6.1} s  {}", began.elapsed().as_secs_f64(), study.name);
    let misses = answer.expectations.into_iter().filter(|verdict| !verdict.ok);
    let words = |Verdict { what, measured, expected, tolerance, .. }| {
        format!("{}: {what} is {measured:?}, not {expected} ({tolerance})", study.name)
    };
    misses.map(words).collect()
}
