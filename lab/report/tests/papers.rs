//! Every value of the source papers has a scenario and is within its tolerance, and
//! docs/reproduction.md shows the results of the current code. With `PARDA_RENEW` set the page and its pictures are written.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

use parda_report::pictures::{Picture, pictures};
use parda_report::reproduce::{Value, built_in, in_folder, tally, values};
use parda_scenario::{RunAnswer, Study};
use parda_sim::{KeptRuns, StudyOutcome, run_all};
use parda_testkit::manual::{docs, is_shown};

/// Line of the page below which it is made anew.
const MARK: &str = "<!-- From here on by `make reproduce`. -->";

/// Numbers in the tables and text of the source documents, by their source.
const NUMBERS: &[(&str, &[f64])] = &[
    ("Elling'12", &[80.0, 12.5, 137.0, 73.0, 900.0, 185.0, 5.5, 55.0]),
    ("SPEED'08 fig. 2", &[1.14, 42.0, 8.0, 177.0]),
    ("SPEED'08 fig. 3 a, b", &[1.0, 1.5, 2.0]),
    ("SPEED'08 fig. 3 c, d", &[0.0625, 0.125, 0.25, 0.5, 0.75, 1.0]),
    ("FAST'09 fig. 7, SPEED'08 fig. 4", &[470.0, 375.0, 85.0, 42.0, 360.0, 780.0, 2.0]),
    ("FAST'09 fig. 6", &[0.99]),
    (
        "FAST'09 table 2",
        &[
            1160.0, 26.0, 880.0, 35.0, 1280.0, 25.0, 900.0, 36.0, 640.0, 24.0, 1190.0, 27.0, 890.0,
            17.0, 1240.0,
        ],
    ),
    (
        "FAST'09 table 4",
        &[525.0, 59.0, 570.0, 55.0, 560.0, 57.0, 430.0, 77.0, 500.0, 62.0, 3130.0, 60.0],
    ),
    ("FAST'09 §5.4", &[3130.0, 60.0, 3150.0, 25.0, 30.0, 40.0, 1.006, 0.5]),
    ("FAST'09 fig. 9", &[1.2, 1.5, 20.0]),
    ("FAST'09 §4, fig. 3", &[780.0, 910.0, 920.0, 800.0, 40.0, 34.5, 35.0, 39.5]),
    ("FAST'09 §4, fig. 4", &[790.0, 39.0, 30.0]),
    // Definitions: no number of the paper was at hand.
    ("OSDI'10", &[]),
];

#[test]
fn all_values_are_there_and_in_tolerance_and_the_page_shows_them() {
    let studies = built_in().unwrap();
    let outcome = |study: &Study| run_all(study, KeptRuns::Plotted, 2, |_, _| ()).unwrap();
    let outcomes: Vec<StudyOutcome> = studies.iter().map(outcome).collect();
    let answers: Vec<RunAnswer> = outcomes.iter().map(|of| of.answer.clone()).collect();
    let values: Vec<Value> = values(&answers).collect();
    let out: Vec<&Value> = values.iter().filter(|value| value.outcome == "out").collect();
    assert!(out.is_empty(), "{out:#?}");
    for (source, numbers) in NUMBERS {
        for number in *numbers {
            let is_there = |v: &Value| v.source.starts_with(source) && v.paper == *number;
            assert!(values.iter().any(is_there), "{source}: {number}");
        }
    }
    for value in &values {
        let known = NUMBERS.iter().any(|(source, _)| value.source.starts_with(source));
        assert!(
            known
                || value.source.contains("§3")
                || value.source.contains("static windows")
                || value.source.starts_with("FAST'09 §4:"),
            "{}",
            value.source
        );
    }
    let mut page = format!("{}.\n", tally(&answers));
    let mut shown = 0;
    for (study, outcome) in studies.iter().zip(&outcomes) {
        let about = study.description.trim().split("\n\n").next().unwrap();
        page += &format!("\n## {}\n\n`{}.toml`:\n{about}\n", study.title, study.name);
        for Picture { name, figure } in pictures(study, outcome, "paper") {
            is_shown(&format!("reproduction/{name}.svg"), &figure.svg());
            let says = if figure.title == study.title { "The figure" } else { &figure.title };
            page += &format!("\n![{says}](reproduction/{name}.svg)\n");
            shown += 1;
        }
        page += &format!("\n{}", markdown(&outcome.answer));
    }
    let before = std::fs::read_to_string(docs("reproduction.md")).unwrap();
    let (prose, _) = before.split_once(MARK).expect("the line below which it is renewed");
    is_shown("reproduction.md", &format!("{prose}{MARK}\n\n{page}"));
    assert_eq!(docs("reproduction").read_dir().unwrap().count(), shown);
}

/// The values of a figure as a table: of those that follow each other with one source and tolerance, the one that is farthest off.
/// A source and its tolerance stand where they begin.
fn markdown(answer: &RunAnswer) -> String {
    let (mut before, mut work) = (String::new(), String::new());
    let values: Vec<Value> = values(std::slice::from_ref(answer)).collect();
    let alike = |a: &Value, b: &Value| {
        (&a.source, &a.tolerance, &a.reason) == (&b.source, &b.tolerance, &b.reason)
    };
    let rows = values.chunk_by(alike).map(|group| {
        let worst = group.iter().max_by(|a, b| off(a).total_cmp(&off(b))).unwrap();
        let [paper, ours, mut error, tolerance] = worst.numbers();
        let all = if tolerance.is_empty() {
            worst.source.clone()
        } else {
            format!("{}, {tolerance}", worst.source)
        };
        let (of, what) = all.split_once(": ").unwrap_or((&all, ""));
        let source = match all == before {
            true => "",
            false if of == work => what,
            false => &all,
        };
        let source = source.to_owned();
        (work, before) = (of.to_owned(), all.clone());
        match (worst.outcome, &worst.reason) {
            (_, Some(reason)) => error += &format!(" **exempt**: {reason}"),
            ("out", _) => error += " **OUT**",
            _ => {}
        }
        let among = match group.len() {
            1 => String::new(),
            count => format!(", worst of {count}"),
        };
        [source, format!("`{}`{among}", brief(&worst.what)), paper, ours, error]
    });
    let cells = |cells: [String; 5]| {
        format!("|{}|\n", cells.map(|cell| cell.replace('|', "\\|")).join("|"))
    };
    let rows: String = rows.map(cells).collect();
    format!("|source|value|paper|ours|error|\n|---|---|--:|--:|--:|\n{rows}")
}

/// Deviation of a value from the paper's, as a fraction; of a bound, the part of it that is used up. Nothing measured is farthest.
fn off(value: &Value) -> f64 {
    let Some(ours) = value.ours else { return f64::INFINITY };
    match value.tolerance.as_str() {
        "at least" => value.paper / ours,
        "at most" => ours / value.paper,
        _ => value.error.map_or(ours.abs(), f64::abs),
    }
}

/// `A of B`, in which B has only the parts of its path that differ from A's.
fn brief(what: &str) -> String {
    let Some((a, b)) = what.split_once(" of ") else { return what.to_owned() };
    let differ =
        a.split('/').zip(b.split('/')).filter(|(a, b)| a != b).map(|(_, b)| b).collect::<Vec<_>>();
    format!("{a} of {}", differ.join("/"))
}

#[test]
fn what_is_built_in_is_the_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/papers");
    let names = |studies: Vec<Study>| -> Vec<String> {
        studies.into_iter().map(|study| study.name).collect()
    };
    assert_eq!(names(built_in().unwrap()), names(in_folder(&folder).unwrap()));
}

#[test]
fn a_folder_without_scenarios_is_refused() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert!(in_folder(&here).unwrap_err().to_string().contains("there is no scenario"));
    let nowhere = Path::new("does/not/exist");
    assert!(in_folder(nowhere).unwrap_err().to_string().starts_with("does/not/exist: "));
}
