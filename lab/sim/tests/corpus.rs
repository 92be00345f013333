//! The regression corpus: every file of `scenarios/corpus` and `scenarios/studies`, scored by how many of its expectations
//! hold, against the scores on record in `scenarios/scores.txt`.
//!
//! A score that falls fails the test; so does one that rises and is not on record. `UPDATE_SCORES=1` writes the scores as
//! measured: a commit that lowers one names it. `PARDA_CORPUS=fleets/` runs the files whose names contain that, and lists
//! each expectation that misses; `PARDA_SET="control.gamma=0.5"` overrides settings, comma-separated, and compares nothing.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;
use std::{env, fs, thread};

use parda_config::Document;
use parda_control::mechanism::{Mechanism, switch_off};
use parda_scenario::set::{Setting, with_settings};
use parda_scenario::{Study, Verdict};
use parda_sim::{KeptRuns, run_all};

/// How many of a file's expectations hold, and how many there are.
type Score = (usize, usize);

const FOLDERS: [&str; 4] = ["corpus/adversarial", "corpus/fleets", "corpus/papers", "studies"];

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Names of all files, without their extension.
fn names() -> Vec<String> {
    let of = |folder: &str| {
        let files = fs::read_dir(scenarios().join(folder)).unwrap();
        let stem = |file: PathBuf| file.file_stem().unwrap().display().to_string();
        let names = files.map(|file| format!("{folder}/{}", stem(file.unwrap().path())));
        names.collect::<Vec<_>>()
    };
    let mut names: Vec<String> = FOLDERS.into_iter().flat_map(of).collect();
    names.sort();
    names
}

fn recorded() -> BTreeMap<String, Score> {
    let text = fs::read_to_string(scenarios().join("scores.txt")).unwrap_or_default();
    let entry = |line: &str| {
        let (name, score) = line.split_once(' ').unwrap();
        let (held, all) = score.split_once('/').unwrap();
        (name.to_owned(), (held.parse().unwrap(), all.parse().unwrap()))
    };
    text.lines().filter(|line| !line.starts_with('#')).map(entry).collect()
}

/// Runs a file. Returns its score, and the expectations that miss as text.
fn score(name: &str, set: &[Setting]) -> (Score, String) {
    let began = Instant::now();
    let file = scenarios().join(name).with_extension("toml");
    let document = with_settings(&Document::read(&file).unwrap(), set).unwrap();
    let study = Study::parse(&document).unwrap_or_else(|e| panic!("{e}"));
    let answer = run_all(&study, KeptRuns::Nothing, 1, |_, _| ()).unwrap().answer;
    let all = answer.expectations.into_iter().filter(|verdict| verdict.exempt.is_none());
    let (held, missed): (Vec<Verdict>, Vec<Verdict>) = all.partition(|verdict| verdict.ok);
    let score = (held.len(), held.len() + missed.len());
    assert!(score.1 > 0, "{name}: expects nothing");
    let mut text =
        format!("{name} {}/{}, {:.1} s", score.0, score.1, began.elapsed().as_secs_f64());
    for Verdict { what, measured, expected, tolerance, source, .. } in missed {
        let measured = measured.map_or("nothing".to_owned(), |measured| format!("{measured:.4}"));
        write!(text, "\n    {what}: {measured}, expected {expected} ({tolerance}): {source}")
            .unwrap();
    }
    (score, text)
}

fn list(variable: &str) -> Vec<String> {
    let list = env::var(variable).unwrap_or_default();
    list.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Runs files, with these settings in place of their own. Returns the score of each.
fn scores(names: Vec<String>, set: &[Setting]) -> BTreeMap<String, Score> {
    let (names, scores) = (Mutex::new(names), Mutex::new(BTreeMap::new()));
    let next = || names.lock().unwrap().pop();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = next() {
                    let (score, text) = score(&name, set);
                    println!("{text}");
                    scores.lock().unwrap().insert(name, score);
                }
            });
        }
    });
    scores.into_inner().unwrap()
}

/// The files that `PARDA_CORPUS` names, or all.
fn chosen() -> Vec<String> {
    let (mut names, only) = (names(), list("PARDA_CORPUS"));
    names.retain(|name| only.is_empty() || only.iter().any(|part| name.contains(part)));
    assert!(!names.is_empty());
    names
}

/// What `PARDA_SET` sets in each file, such as another seed.
fn settings() -> Vec<Setting> {
    list("PARDA_SET").iter().map(|text| text.parse().unwrap()).collect()
}

/// What fails without each mechanism, or those that `PARDA_WITHOUT` names: the table of docs/control.md, in `scenarios/ablation.txt`.
#[test]
#[ignore = "minutes for each mechanism: make nightly, or cargo test -p parda-sim --test corpus -- ablation --ignored"]
fn ablation_of_each_mechanism() {
    let set = settings();
    let base: BTreeMap<_, _> = match set.is_empty() {
        true => recorded().into_iter().filter(|(name, _)| chosen().contains(name)).collect(),
        false => scores(chosen(), &set),
    };
    let mut text =
        "# Expectations lost and gained without each mechanism, of all files and of each:\n\
                    # cargo test -p parda-sim --test corpus -- ablation --ignored\n"
            .to_owned();
    let only = list("PARDA_WITHOUT");
    let chosen_one = |mechanism: &Mechanism| {
        only.is_empty() || only.iter().any(|name| *name == format!("{mechanism:?}"))
    };
    for mechanism in Mechanism::ALL.into_iter().filter(chosen_one) {
        switch_off(Some(mechanism));
        let without = scores(chosen(), &set);
        switch_off(None);
        let differ = |name: &String| base[name].0 as i64 - without[name].0 as i64;
        let lost: i64 = base.keys().map(differ).filter(|lost| *lost > 0).sum();
        let gained: i64 = base.keys().map(differ).filter(|lost| *lost < 0).sum();
        let mut files: Vec<_> = base.keys().filter(|name| differ(name) != 0).collect();
        files.sort_by_key(|name| -differ(name));
        let files: Vec<_> =
            files.iter().map(|name| format!("{} {:+}", name, -differ(name))).collect();
        writeln!(text, "{mechanism:?}: -{lost} +{}: {}", -gained, files.join(", ")).unwrap();
        fs::write(scenarios().join("ablation.txt"), &text).unwrap();
    }
}

#[test]
fn each_mechanism_has_its_row_in_the_manual_and_its_line_in_the_ablation() {
    let manual = fs::read_to_string(scenarios().join("../docs/control.md")).unwrap();
    let ablation = fs::read_to_string(scenarios().join("ablation.txt")).unwrap();
    let rows = manual.lines().skip_while(|line| !line.starts_with("| mechanism |")).skip(2);
    let rows = rows.map_while(|row| row.strip_prefix("| ")?.split(' ').next());
    let lines = ablation.lines().filter_map(|line| line.split(':').next());
    let all = Mechanism::ALL.map(|mechanism| format!("{mechanism:?}"));
    assert_eq!(rows.collect::<Vec<_>>(), all);
    assert_eq!(lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>(), all);
}

#[test]
fn scores_are_those_on_record() {
    let set = settings();
    let scores = scores(chosen(), &set);
    for folder in FOLDERS {
        let of = scores.iter().filter(|(name, _)| name.starts_with(folder));
        let (held, all) = of.fold((0, 0), |sum, (_, score)| (sum.0 + score.0, sum.1 + score.1));
        println!("{folder}: {held} of {all} hold");
    }
    if !set.is_empty() {
        return;
    }
    let before = recorded();
    if env::var_os("UPDATE_SCORES").is_some() {
        let mut text =
            "# Expectations that hold, of all: UPDATE_SCORES=1 cargo test -p parda-sim --test corpus\n"
                .to_owned();
        let mut all: BTreeMap<_, _> = before.into_iter().chain(scores).collect();
        let there = names();
        all.retain(|name, _| there.contains(name));
        all.iter().for_each(|(name, (held, all))| writeln!(text, "{name} {held}/{all}").unwrap());
        fs::write(scenarios().join("scores.txt"), text).unwrap();
        return;
    }
    let differ = scores.iter().filter(|(name, score)| before.get(*name) != Some(score));
    let differ: Vec<String> = differ
        .map(|(name, score)| format!("{name}: {score:?}, on record {:?}", before.get(name)))
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
}
