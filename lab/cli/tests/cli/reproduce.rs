//! `parda-lab reproduce` as a person runs it, on a folder with one quick scenario.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with the papers' quickest scenario, in which this text became that.
fn papers(from: &str, to: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("papers");
    std::fs::create_dir(&folder).unwrap();
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/papers/speed08-fig3ab.toml");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(folder.join("fig3ab.toml"), text.replace(from, to)).unwrap();
    (dir, folder)
}

fn reproduce(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parda-lab"));
    command.arg("reproduce").arg("--scenarios").arg(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn values_are_a_table_that_fits_a_page() {
    let (_dir, folder) = papers("\"5%\"", "\"5%\"");
    let output = reproduce(&folder, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("4 passed, 0 missed, 0 exempt"));
    assert!(table.lines().all(|line| line.chars().count() <= 132), "{table}");
}

#[test]
fn a_value_out_of_its_tolerance_is_exit_status_1() {
    let (_dir, folder) = papers("\"5%\"", "\"0.001%\"");
    let output = reproduce(&folder, &["--json", "-"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["ok"].as_bool(), json["values"].as_array().unwrap().len()), (Some(false), 4));
    assert_eq!(json["values"][0]["outcome"], "out");
}

#[test]
fn a_folder_without_scenarios_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let output = reproduce(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no scenario"), "{}", text(&output.stderr));
}
