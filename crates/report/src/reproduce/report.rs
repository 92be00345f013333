//! The reproduction as one HTML page, with its pictures beside it.

use std::io;
use std::path::{Path, PathBuf};

use parda_plot::{Cell, Page, Table};

use super::run::{PaperFigure, Reproduction};
use super::value::{Agreement, Value};

/// A file or folder of the report that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", file.display())]
pub struct ReportError {
    /// Path of the file or folder.
    pub file: PathBuf,
    /// The failure to write it.
    pub source: io::Error,
}

/// Writes `index.html` and the pictures as SVG into a folder, which is created if needed.
///
/// # Errors
/// The folder cannot be created, or a file cannot be written.
pub fn write_report(dir: &Path, reproduction: &Reproduction) -> Result<(), ReportError> {
    write_pictures(dir, reproduction)?;
    write(&dir.join("index.html"), &html(reproduction))
}

/// Writes the pictures as SVG into a folder, which is created if needed.
///
/// # Errors
/// The folder cannot be created, or a file cannot be written.
pub fn write_pictures(dir: &Path, reproduction: &Reproduction) -> Result<(), ReportError> {
    let failed = |source| ReportError { file: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(failed)?;
    for picture in reproduction.figures.iter().flat_map(|figure| &figure.pictures) {
        write(&dir.join(format!("{}.svg", picture.name)), &picture.figure.svg())?;
    }
    Ok(())
}

fn write(file: &Path, content: &str) -> Result<(), ReportError> {
    let failed = |source| ReportError { file: file.to_owned(), source };
    std::fs::write(file, content).map_err(failed)
}

/// The reproduction as one self-contained HTML page.
#[must_use]
pub fn html(reproduction: &Reproduction) -> String {
    let mut page = Page::new("Figures of the papers, reproduced");
    page.prose(&format!("{}.", reproduction.words()));
    page.prose(
        "Every figure and table of the source papers, run in virtual time with the control code of `parda serve` \
         and one set of physical parameters for each kind of array. Hollow marks in the pictures are the paper's.",
    );
    for figure in &reproduction.figures {
        add(&mut page, figure);
    }
    page.html()
}

fn add(page: &mut Page, figure: &PaperFigure) {
    page.heading(&figure.study.title);
    page.prose(&figure.study.description);
    for picture in &figure.pictures {
        page.figure(&picture.figure, "");
    }
    let columns = ["source", "value", "paper", "ours", "error", "tolerance", "verdict"];
    page.table(
        figure.values.iter().fold(Table::new(columns), |table, value| table.row(row(value))),
    );
}

fn row(value: &Value) -> [Cell; 7] {
    let word = value.outcome.word();
    [
        Cell::text(&value.source),
        Cell::text(format!("`{}`", value.what)),
        Cell::Number(value.paper_text()),
        Cell::Number(value.ours_text()),
        Cell::Number(value.error_text()),
        Cell::Number(value.tolerance_text()),
        match (&value.reason, value.outcome) {
            (Some(reason), _) => Cell::text(format!("{word}: {reason}")),
            (None, outcome) => Cell::verdict(outcome == Agreement::Ok, word),
        },
    ]
}
