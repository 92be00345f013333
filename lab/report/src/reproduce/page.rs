//! All values as a text table.

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use parda_scenario::RunAnswer;

use super::{Value, tally, values};
use crate::table::{plain, right};

/// Columns of a table for a pipe or a file, in characters.
const WIDTH: u16 = 132;

/// A text table of all values and their outcomes. With `color`, it has ANSI colours.
#[must_use]
pub fn table(answers: &[RunAnswer], color: bool) -> String {
    let table = text_table(values(answers), color);
    format!("{}\n\n{}\n", table.trim_fmt(), tally(answers))
}

/// The values out of tolerance and the counts, for a terminal when the table goes to a file.
#[must_use]
pub fn missed(answers: &[RunAnswer]) -> String {
    let mut missed = values(answers).filter(|value| value.outcome == "out").peekable();
    let list = match missed.peek() {
        Some(_) => format!("{}\n\n", text_table(missed, false).trim_fmt()),
        None => String::new(),
    };
    format!("{list}{}\n", tally(answers))
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
