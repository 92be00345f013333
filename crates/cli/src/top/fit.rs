//! Fitting columns, lines and numbers into a terminal.

use ratatui::text::{Line, Span};

use super::rows::Column;

/// Number of past looks that are kept for the charts.
pub(super) const PAST: usize = 120;

/// Least width of the first column.
const LEAST: u16 = 4;

/// A line that is at most so wide. If something is cut, the line ends with `…`.
pub(super) fn line(line: impl Into<Line<'static>>, width: u16) -> Line<'static> {
    let (line, width) = (line.into(), usize::from(width));
    if line.width() <= width {
        return line;
    }
    let mut room = width.saturating_sub(1);
    let mut spans = Vec::new();
    for span in line.spans {
        let (mut kept, mut whole) = (String::new(), true);
        for c in span.content.chars() {
            let wide = Span::raw(c.to_string()).width();
            whole = wide <= room;
            if !whole {
                break;
            }
            room -= wide;
            kept.push(c);
        }
        spans.push(Span::styled(kept, span.style));
        if !whole {
            break;
        }
    }
    spans.push(Span::from("…"));
    Line { spans, style: line.style, alignment: line.alignment }
}

/// A number of at most `width` characters, with `digits` decimals, or none, or a unit such as k or M.
pub(super) fn number(value: f64, digits: usize, width: u16) -> String {
    let fits = |text: &String| text.len() <= usize::from(width);
    let exact = [format!("{value:.digits$}"), format!("{value:.0}")];
    let units = [(1e3, 'k'), (1e6, 'M'), (1e9, 'G'), (1e12, 'T')];
    let about = units.map(|(unit, name)| format!("{:.0}{name}", value / unit));
    exact.into_iter().chain(about).find(fits).unwrap_or_else(|| format!("{value:.0e}"))
}

/// Columns that fit into a width, in their order, each with its width. `drops`: order in which columns are left out. The sort column stays,
/// alone beside the first one where the first had less than [`LEAST`]. Spare room goes to the first column up to `longest`, then to the
/// others up to their most. The rest goes to the first again.
pub(super) fn columns(
    all: &[Column],
    drops: &[usize],
    sorted_by: usize,
    longest: u16,
    width: u16,
) -> Vec<(usize, u16)> {
    let mut kept: Vec<usize> = (0..all.len()).collect();
    // Width of all columns but the first, with the blanks between them.
    let others = |kept: &[usize]| -> u16 { kept[1..].iter().map(|i| all[*i].width + 1).sum() };
    for drop in drops.iter().filter(|drop| **drop != sorted_by) {
        if others(&kept) + all[0].width <= width {
            break;
        }
        kept.retain(|column| column != drop);
    }
    if width < others(&kept) + LEAST {
        kept.retain(|column| [0, sorted_by].contains(column));
    }
    let first = width.saturating_sub(others(&kept)).max(LEAST.min(width));
    // In a very narrow terminal even the column that is sorted by has less than its width.
    let narrow = width.saturating_sub(first + 1).max(1);
    let mut spare = first.saturating_sub(longest.max(all[0].width));
    let mut shown: Vec<_> = kept.iter().map(|i| (*i, all[*i].width.min(narrow))).collect();
    for (index, width) in &mut shown[1..] {
        let more = spare.min(all[*index].most.saturating_sub(*width));
        (*width, spare) = (*width + more, spare - more);
    }
    let rest: u16 = shown[1..].iter().map(|(_, width)| width + 1).sum();
    shown[0].1 = first.min(width.saturating_sub(rest));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_says_so_and_is_no_wider() {
        let cut = |text: &str, width| line(text.to_owned(), width).to_string();
        assert_eq!(cut("vm-12", 5), "vm-12");
        assert_eq!(cut("vm-123", 5), "vm-1…");
        // Characters of two columns each.
        assert_eq!(cut("数据库甲", 8), "数据库甲");
        assert_eq!(cut("数据库甲", 7), "数据库…");
        assert_eq!(cut("数据库甲", 6), "数据…");
        assert_eq!(cut("abc", 1), "…");
        let two = Line::from(vec![Span::from("ab"), Span::from("cd")]);
        assert_eq!(line(two, 3).to_string(), "ab…");
    }

    #[test]
    fn a_number_keeps_its_leading_digits() {
        let texts = [12.34, 1234.5, 123_456.0, 1_234_567.0, 5e9].map(|n| number(n, 1, 5));
        assert_eq!(texts, ["12.3", "1234", "123k", "1235k", "5000M"].map(str::to_owned));
        assert_eq!(number(1e18, 0, 4), "1e18");
    }
}
