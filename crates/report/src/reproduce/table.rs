//! All values as a text table.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};

use super::run::Reproduction;
use super::value::{Agreement, Value};

/// Columns of a table for a pipe or a file, in characters.
const WIDTH: u16 = 132;

/// A text table of all values and their outcomes. With `color`, it has ANSI colours.
#[must_use]
pub fn table(reproduction: &Reproduction, color: bool) -> String {
    let table = values(reproduction.values(), color);
    format!("{}\n\n{}\n", table.trim_fmt(), reproduction.words())
}

/// The values out of tolerance and the counts, for a terminal when the table goes to a file.
#[must_use]
pub fn missed(reproduction: &Reproduction) -> String {
    let missed: Vec<&Value> =
        reproduction.values().filter(|value| value.outcome == Agreement::Out).collect();
    let list = if missed.is_empty() {
        String::new()
    } else {
        format!("{}\n\n", values(missed.into_iter(), false).trim_fmt())
    };
    format!("{list}{}\n", reproduction.words())
}

fn values<'a>(values: impl Iterator<Item = &'a Value>, color: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if color {
        // Output with colours goes to a terminal, whose width is known.
        table.enforce_styling().set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.force_no_tty().set_width(WIDTH).set_content_arrangement(ContentArrangement::Dynamic);
    }
    let head = ["source", "value", "paper", "ours", "error", "tolerance", ""];
    table.set_header(head.map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
    for value in values {
        table.add_row(row(value));
    }
    table
}

fn row(value: &Value) -> [Cell; 7] {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let outcome = Cell::new(match &value.reason {
        Some(reason) => format!("{}: {reason}", value.outcome.word()),
        None => value.outcome.word().to_owned(),
    });
    [
        Cell::new(&value.source),
        Cell::new(&value.what),
        right(value.paper_text()),
        right(value.ours_text()),
        right(value.error_text()),
        right(value.tolerance_text()),
        match value.outcome {
            Agreement::Ok => outcome.fg(Color::Green),
            Agreement::Exempt => outcome.fg(Color::Yellow),
            Agreement::Out => outcome.fg(Color::Red).add_attribute(Attribute::Bold),
        },
    ]
}
