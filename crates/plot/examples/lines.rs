//! A chart of a file with a line, a place on the axis of time in seconds and a value in each row, separated by tabs:
//! `cargo run -p parda-plot --example lines -- IN.tsv OUT.svg TITLE WHAT UNIT`.

use std::error::Error;

use parda_plot::{Across, Figure, Panel};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, title, what, unit] = arguments.as_slice() else {
        return Err("usage: lines IN.tsv OUT.svg TITLE WHAT UNIT".into());
    };
    let text = std::fs::read_to_string(from).map_err(|e| format!("{from}: {e}"))?;
    let mut lines: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for (row, fields) in text.lines().map(|row| row.split('\t').collect::<Vec<_>>()).enumerate() {
        let wrong = || format!("{from}:{}: needs a name and two numbers", row + 1);
        let [name, x, y] = fields.as_slice() else { return Err(wrong().into()) };
        let point = (x.parse().map_err(|_| wrong())?, y.parse().map_err(|_| wrong())?);
        match lines.iter_mut().find(|(known, _)| known == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    let panel = lines
        .into_iter()
        .fold(Panel::new(what, unit), |panel, (name, points)| panel.line(name, points));
    std::fs::write(to, Figure::new(title, Across::Time).panel(panel).svg())?;
    Ok(())
}
