//! Every value of the source papers has a scenario and is within its tolerance, and
//! docs/reproduction.md shows the results of the current code.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

use parda_report::reproduce::{Value, built_in, in_folder, renewed, reproduce};

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
    let reproduction = reproduce(built_in().unwrap(), true, 2, |_| ()).unwrap();
    let values: Vec<Value> = reproduction.values().collect();
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
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let shown = std::fs::read_to_string(docs.join("reproduction.md")).unwrap();
    let renewed =
        renewed(&shown, &reproduction, "reproduction").expect("the line below which it is renewed");
    let differ = shown.lines().zip(renewed.lines()).find(|(shown, renewed)| shown != renewed);
    assert!(shown == renewed, "`make reproduce` renews the page: {differ:?}");
    let mut pictures = 0;
    for picture in reproduction.figures.iter().flat_map(|figure| &figure.pictures) {
        let file = docs.join("reproduction").join(format!("{}.svg", picture.name));
        let shown = std::fs::read_to_string(&file).unwrap();
        assert!(shown == picture.figure.svg(), "`make reproduce` renews {}", file.display());
        pictures += 1;
    }
    assert_eq!(docs.join("reproduction").read_dir().unwrap().count(), pictures);
}

#[test]
fn what_is_built_in_is_the_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/papers");
    let names = |studies: Vec<parda_scenario::Study>| -> Vec<String> {
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
