//! All values as a text table and as Markdown.

use std::path::Path;

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};

use super::{PaperFigure, Reproduction, Value};
use crate::pictures::{WriteError, folder, write};
use crate::table::{plain, right};

/// Line of a page below which `parda reproduce --page` writes.
pub const MARK: &str = "<!-- From here on by `parda reproduce --page`. -->";
/// Columns of a table for a pipe or a file, in characters.
const WIDTH: u16 = 132;

/// A text table of all values and their outcomes. With `color`, it has ANSI colours.
#[must_use]
pub fn table(reproduction: &Reproduction, color: bool) -> String {
    let table = text_table(reproduction.values(), color);
    format!("{}\n\n{}\n", table.trim_fmt(), reproduction.tally())
}

/// The values out of tolerance and the counts, for a terminal when the table goes to a file.
#[must_use]
pub fn missed(reproduction: &Reproduction) -> String {
    let mut missed = reproduction.values().filter(|value| value.outcome == "out").peekable();
    let list = match missed.peek() {
        Some(_) => format!("{}\n\n", text_table(missed, false).trim_fmt()),
        None => String::new(),
    };
    format!("{list}{}\n", reproduction.tally())
}

fn text_table(values: impl Iterator<Item = Value>, color: bool) -> Table {
    let mut table = plain(color);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !color {
        table.set_width(WIDTH);
    }
    let head = ["source", "value", "paper", "ours", "error", "tolerance", ""];
    table.set_header(head.map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
    for value in values {
        let outcome = match &value.reason {
            Some(reason) => Cell::new(format!("exempt: {reason}")).fg(Color::Yellow),
            None if value.outcome == "ok" => Cell::new("ok").fg(Color::Green),
            None => Cell::new("OUT").fg(Color::Red).add_attribute(Attribute::Bold),
        };
        let numbers = value.numbers().map(right);
        let names = [Cell::new(value.source), Cell::new(value.what)];
        table.add_row(names.into_iter().chain(numbers).chain([outcome]));
    }
    table
}

/// `page` with everything below [`MARK`] written anew. Links to pictures point into `folder`.
/// `None` if the page has no [`MARK`].
#[must_use]
pub fn renewed(page: &str, reproduction: &Reproduction, folder: &str) -> Option<String> {
    let (prose, _) = page.split_once(MARK)?;
    Some(format!("{prose}{MARK}\n\n{}", markdown(reproduction, folder)))
}

/// Writes the pictures as SVG into a folder, which is created if needed.
///
/// # Errors
/// The folder cannot be created, or a file cannot be written.
pub fn write_pictures(dir: &Path, reproduction: &Reproduction) -> Result<(), WriteError> {
    folder(dir)?;
    write(dir, reproduction.figures.iter().flat_map(|figure| &figure.pictures)).map(|_| ())
}

fn markdown(reproduction: &Reproduction, folder: &str) -> String {
    let mut text = format!("{}.\n", reproduction.tally());
    for figure in &reproduction.figures {
        let study = &figure.study;
        let about = study.description.trim().split("\n\n").next().unwrap_or_default();
        text += &format!("\n## {}\n\n`{}.toml`:\n{about}\n", study.title, study.name);
        for picture in &figure.pictures {
            text += &format!("\n![{}]({folder}/{}.svg)\n", picture.figure.title, picture.name);
        }
        text += &format!("\n{}", values(figure));
    }
    text
}

/// The values of a figure. A source and its tolerance stand where they begin.
fn values(figure: &PaperFigure) -> String {
    let (mut before, mut work) = (String::new(), String::new());
    let rows = figure.values().map(|value| {
        let [paper, ours, mut error, tolerance] = value.numbers();
        let all = if tolerance.is_empty() {
            value.source
        } else {
            format!("{}, {tolerance}", value.source)
        };
        let (of, what) = all.split_once(": ").unwrap_or((&all, ""));
        let source = match all == before {
            true => "",
            false if of == work => what,
            false => &all,
        };
        let source = source.to_owned();
        (work, before) = (of.to_owned(), all.clone());
        match (value.outcome, value.reason) {
            (_, Some(reason)) => error += &format!(" **exempt**: {reason}"),
            ("out", _) => error += " **OUT**",
            _ => {}
        }
        [source, format!("`{}`", brief(&value.what)), paper, ours, error]
    });
    let cells = |cells: [String; 5]| {
        format!("|{}|\n", cells.map(|cell| cell.replace('|', "\\|")).join("|"))
    };
    let rows: String = rows.map(cells).collect();
    format!("|source|value|paper|ours|error|\n|---|---|--:|--:|--:|\n{rows}")
}

/// `A of B`, in which B has only the parts of its path that differ from A's.
fn brief(what: &str) -> String {
    let Some((a, b)) = what.split_once(" of ") else { return what.to_owned() };
    let differ =
        a.split('/').zip(b.split('/')).filter(|(a, b)| a != b).map(|(_, b)| b).collect::<Vec<_>>();
    format!("{a} of {}", differ.join("/"))
}
