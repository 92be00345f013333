//! Layout of a figure: the places of titles, panels, axes and legend.

use crate::figure::{Across, Data, Figure, Panel};
use crate::font::{self, fitted, wrapped};
use crate::scale::{
    Scale, Ticks, doubles, doubling, extent, from_zero, log_rounded, not_empty, rounded, ticks,
    time_unit,
};
use crate::style::Style;

/// Width of the margin around the figure, in pixels.
pub(crate) const MARGIN: f64 = 16.0;
/// Font sizes of titles, text and small text, in pixels.
pub(crate) const TITLE: f64 = 18.0;
pub(crate) const TEXT: f64 = 13.0;
pub(crate) const SMALL: f64 = 12.0;
/// Width of a sample in the legend, in pixels.
pub(crate) const SWATCH: f64 = 26.0;
/// Largest number of entries in the legend. A note counts the others.
const LEGEND_MOST: usize = 36;

pub(crate) struct Layout {
    pub(crate) width: f64,
    /// Height of the figure, which depends on its content.
    pub(crate) height: f64,
    /// Font size of the title in this figure.
    pub(crate) title_size: f64,
    /// Text at the left above everything: its baseline.
    pub(crate) title: Vec<(f64, String)>,
    pub(crate) subtitle: Vec<(f64, String)>,
    pub(crate) legend: Vec<Entry>,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) x: Scale,
    pub(crate) x_ticks: Ticks,
    /// Whether the labels of the common axis are at an angle.
    pub(crate) slanted: bool,
    /// The common axis' label, and its baseline.
    pub(crate) x_label: (f64, String),
    /// The baselines of the spans' names, and these. None where there is no room.
    pub(crate) spans: Vec<Option<(f64, String)>>,
    pub(crate) panels: Vec<Frame>,
    /// The names of all series, in the order of their styles.
    names: Vec<String>,
}

/// Place of a panel.
pub(crate) struct Frame {
    /// The baseline of what it is called.
    pub(crate) heading: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    pub(crate) y: Scale,
    pub(crate) ticks: Ticks,
}

/// Entry of the legend.
pub(crate) struct Entry {
    pub(crate) x: f64,
    /// Baseline of the entry's text.
    pub(crate) y: f64,
    pub(crate) name: String,
    pub(crate) swatch: Swatch,
}

/// Sample of an entry in the legend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Swatch {
    Line(Style),
    Marks(Style),
    Bars(Style),
    /// Hollow marks: those of one name, or of all.
    Paper(Option<Style>),
    Band,
    Whiskers(Style),
    Heat,
    Level,
    Upright,
    Nothing,
}

impl Layout {
    pub(crate) fn new(figure: &Figure) -> Layout {
        let width = width(figure);
        let room = width - 2.0 * MARGIN;
        let mut down = MARGIN;
        let mut lines = |text: &str, size: f64| -> Vec<(f64, String)> {
            let lines = wrapped(text, size, room).into_iter();
            lines
                .map(|line| {
                    down += size * 1.3;
                    (down - size * 0.3, line)
                })
                .collect()
        };
        let title_size = if width < Figure::WIDE { TEXT + 2.0 } else { TITLE };
        let title = lines(&figure.title, title_size);
        let subtitle = lines(&figure.subtitle, SMALL);

        let names = names(figure);
        let mut legend = legend(figure, &names);
        if !legend.is_empty() {
            down = place(&mut legend, down + 8.0, width);
        }

        let frames: Vec<((f64, f64), Ticks)> =
            figure.panels.iter().map(|panel| y_range(panel, panel_height(figure))).collect();
        let labels =
            frames.iter().flat_map(|(_, ticks)| &ticks.at).map(|(_, l)| font::width(l, SMALL));
        let left = MARGIN + labels.fold(24.0, f64::max) + 10.0;
        let right = width - MARGIN;
        let range = x_range(figure);
        let x = match figure.across {
            Across::Log { .. } => Scale::log(range, left, right),
            _ => Scale::new(range, left, right),
        };

        let (spans, rows) = spans(figure, &x, down + 4.0);
        down += 18.0 * rows as f64;

        let mut panels = Vec::new();
        for ((range, ticks), panel) in frames.into_iter().zip(&figure.panels) {
            let heading = down + 22.0;
            let top = heading + 9.0;
            let bottom = top + panel_height(figure);
            let scale = if panel.log { Scale::log } else { Scale::new };
            let y = scale(range, bottom, top);
            panels.push(Frame { heading, top, bottom, y, ticks });
            down = bottom + 4.0;
        }

        let x_ticks = x_ticks(figure, range, &x, right - left);
        let slanted = crowded(&x_ticks, &x);
        down += 18.0;
        if slanted {
            let widest = x_ticks.at.iter().map(|(_, l)| font::width(l, SMALL)).fold(0.0, f64::max);
            down += widest * SLANT.to_radians().sin();
        }
        let x_label = (down + 16.0, x_label(figure, range));
        Layout {
            width,
            title_size,
            height: (x_label.0 + MARGIN).ceil(),
            title,
            subtitle,
            legend,
            left,
            right,
            x,
            x_ticks,
            slanted,
            x_label,
            spans,
            panels,
            names,
        }
    }

    /// How the series of a name looks.
    pub(crate) fn style(&self, name: &str) -> Style {
        style(&self.names, name)
    }

    /// The place of a name among the series.
    pub(crate) fn place(&self, name: &str) -> usize {
        self.names.iter().position(|n| n == name).unwrap_or(0)
    }
}

/// The angle of labels that do not fit side by side.
pub(crate) const SLANT: f64 = 40.0;

/// Whole pixels, of which there are some.
fn width(figure: &Figure) -> f64 {
    let width = if figure.width.is_finite() { figure.width } else { Figure::WIDE };
    width.round().clamp(200.0, 4000.0)
}

fn panel_height(figure: &Figure) -> f64 {
    match figure.panels.len() {
        1 if width(figure) < Figure::WIDE => 250.0,
        1 => 290.0,
        2 => 190.0,
        3 => 150.0,
        _ => 125.0,
    }
}

/// All names that have a style, in the order of the data. A band has one of its own.
fn names(figure: &Figure) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for series in figure.panels.iter().flat_map(|p| &p.series) {
        if !matches!(series.data, Data::Band(_) | Data::Heat(_)) && !names.contains(&series.name) {
            names.push(series.name.clone());
        }
    }
    names
}

fn style(names: &[String], name: &str) -> Style {
    Style::of(names.iter().position(|n| n == name).unwrap_or(0))
}

/// What is in the legend, without places.
fn legend(figure: &Figure, names: &[String]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut add = |name: &str, swatch: Swatch| {
        if !name.is_empty() && !entries.iter().any(|e| e.name == name) {
            entries.push(Entry { x: 0.0, y: 0.0, name: name.to_owned(), swatch });
        }
    };
    let all = || figure.panels.iter().flat_map(|p| &p.series);
    let ours = |name: &str| all().any(|s| s.name == name && !matches!(s.data, Data::Paper(_)));
    for series in all() {
        let style = style(names, &series.name);
        match series.data {
            Data::Line(_) => add(&series.name, Swatch::Line(style)),
            Data::Marks(_) => add(&series.name, Swatch::Marks(style)),
            Data::Bars(_) => add(&series.name, Swatch::Bars(style)),
            Data::Band(_) => add(&series.name, Swatch::Band),
            Data::Whiskers(_) => add(&series.name, Swatch::Whiskers(style)),
            Data::Heat(_) => add(&series.name, Swatch::Heat),
            Data::Paper(_) if !ours(&series.name) => {
                let name = format!("{} ({})", series.name, figure.reference);
                add(name.trim_start(), Swatch::Paper(Some(style)));
            }
            Data::Paper(_) => {}
        }
    }
    if all().any(|s| matches!(s.data, Data::Paper(_)) && ours(&s.name)) {
        add(&format!("{} (hollow)", figure.reference), Swatch::Paper(None));
    }
    for level in figure.panels.iter().flat_map(|p| &p.levels) {
        add(&level.name, Swatch::Level);
    }
    for upright in &figure.uprights {
        add(&upright.name, Swatch::Upright);
    }
    if entries.len() > LEGEND_MOST {
        let more = format!("and {} more", entries.len() - LEGEND_MOST);
        entries.truncate(LEGEND_MOST);
        entries.push(Entry { x: 0.0, y: 0.0, name: more, swatch: Swatch::Nothing });
    }
    entries
}

/// Puts the entries into rows from there on, and says where they end.
fn place(entries: &mut [Entry], mut down: f64, width: f64) -> f64 {
    const ROW: f64 = 19.0;
    let mut x = MARGIN;
    for entry in entries {
        entry.name = fitted(&entry.name, TEXT, width - 2.0 * MARGIN - SWATCH - 8.0);
        let needed = SWATCH + 6.0 + font::width(&entry.name, TEXT);
        if x > MARGIN && x + needed > width - MARGIN {
            x = MARGIN;
            down += ROW;
        }
        (entry.x, entry.y) = (x, down + 13.0);
        x += needed + 18.0;
    }
    down + ROW
}

/// The range and the ticks of a panel's values.
fn y_range(panel: &Panel, height: f64) -> ((f64, f64), Ticks) {
    let values = panel.series.iter().flat_map(|s| s.data.values()).map(|(_, y)| y);
    let levels = panel.levels.iter().map(|l| l.value).filter(|v| v.abs() <= 1e15);
    let room = panel.room.into_iter().flat_map(|(low, high)| [low, high]);
    let room = room.filter(|v| v.abs() <= 1e15);
    if panel.log {
        let range = extent(values.chain(levels).chain(room).filter(|v| (1e-15..=1e15).contains(v)));
        return log_rounded(range.unwrap_or((1.0, 10.0)), (height / 22.0) as usize);
    }
    let levels = levels.chain(room);
    let (low, mut high) = from_zero(extent(values.chain(levels)));
    if panel.series.iter().any(|s| matches!(s.data, Data::Bars(_))) {
        // For the numbers above the bars.
        high += (high - low) * 0.07;
    }
    rounded((low, high), (height / 38.0) as usize)
}

/// The range of the common axis.
fn x_range(figure: &Figure) -> (f64, f64) {
    if let Across::Names { names, .. } = &figure.across {
        return (-0.5, names.len().max(1) as f64 - 0.5);
    }
    let data = figure.panels.iter().flat_map(|p| &p.series).flat_map(|s| s.data.values());
    let spans = figure.spans.iter().flat_map(|s| [s.from, s.to]).filter(|v| v.abs() <= 1e15);
    let uprights = figure.uprights.iter().map(|u| u.at).filter(|v| v.abs() <= 1e15);
    let room = figure.room.into_iter().flat_map(|(low, high)| [low, high]);
    let room = room.filter(|v| v.abs() <= 1e15);
    let all = data.map(|(x, _)| x).chain(spans).chain(uprights).chain(room);
    if matches!(figure.across, Across::Log { .. }) {
        let (low, high) = extent(all.filter(|v| (1e-15..=1e15).contains(v))).unwrap_or((1.0, 10.0));
        // As much room beside the data as on a scale that is not logarithmic; some even for a single place.
        let room = (high / low).powf(0.04).max(1.05);
        return (low / room, high * room);
    }
    let Some((low, high)) = extent(all) else { return (0.0, 1.0) };
    if matches!(figure.across, Across::Time) {
        let low = if (0.0..=0.1 * high).contains(&low) { 0.0 } else { low };
        return not_empty((low, high));
    }
    let (from, to) = not_empty((low, high));
    let room = (to - from) * 0.04;
    let low = if (0.0..=0.3 * high).contains(&low) { 0.0 } else { from - room };
    (low, to + room)
}

fn x_ticks(figure: &Figure, range: (f64, f64), x: &Scale, room: f64) -> Ticks {
    match &figure.across {
        Across::Time => {
            let (_, seconds) = time_unit(range.1 - range.0);
            let mut ticks = ticks((range.0 / seconds, range.1 / seconds), (room / 75.0) as usize);
            for tick in &mut ticks.at {
                tick.0 *= seconds;
            }
            ticks
        }
        Across::Numbers { .. } => {
            let data = figure.panels.iter().flat_map(|p| &p.series).flat_map(|s| s.data.values());
            let mut at: Vec<f64> = data.map(|(x, _)| x).collect();
            at.sort_by(f64::total_cmp);
            at.dedup();
            // Where the data is, if there is room for it.
            if at.len() <= 12 {
                let at = at.into_iter().map(|v| (v, crate::number::brief(v))).collect();
                let own = Ticks { at };
                if !own.at.is_empty() && !crowded(&own, x) {
                    return own;
                }
            }
            ticks(range, (room / 75.0) as usize)
        }
        Across::Log { .. } => {
            let data = figure.panels.iter().flat_map(|p| &p.series);
            // Tiles are as wide as they need to be: it is what is in them that has a place.
            let data = data.filter(|s| !matches!(s.data, Data::Heat(_)));
            let wanted = (room / 45.0) as usize;
            let mut at: Vec<f64> = data.flat_map(|s| s.data.values()).map(|(at, _)| at).collect();
            at.retain(|at| x.holds(*at));
            at.sort_by(f64::total_cmp);
            at.dedup();
            // Where most places double, ticks do.
            let mut ticks = if 2 * at.iter().filter(|at| doubles(**at)).count() > at.len() {
                doubling(range, wanted)
            } else {
                log_rounded(range, wanted).1
            };
            ticks.at.retain(|(value, _)| x.holds(*value));
            if ticks.at.len() < 3 {
                // So short a stretch of it is nearly a scale like others.
                ticks = crate::scale::ticks(range, (room / 75.0) as usize);
            }
            ticks
        }
        Across::Names { names, .. } => {
            // Slanted labels need 16 each.
            let every = ((names.len() as f64 * 16.0 / room).ceil() as usize).max(1);
            let name = |(i, name): (usize, &String)| (i as f64, fitted(name, SMALL, 150.0));
            Ticks { at: names.iter().enumerate().step_by(every).map(name).collect() }
        }
    }
}

/// Whether labels would touch one another.
fn crowded(ticks: &Ticks, x: &Scale) -> bool {
    ticks.at.windows(2).any(|pair| {
        let [(a, left), (b, right)] = pair else { return false };
        x.place(*b) - x.place(*a)
            < (font::width(left, SMALL) + font::width(right, SMALL)) / 2.0 + 8.0
    })
}

fn x_label(figure: &Figure, range: (f64, f64)) -> String {
    match &figure.across {
        Across::Time => format!("time, {}", time_unit(range.1 - range.0).0),
        Across::Numbers { label } | Across::Log { label } | Across::Names { label, .. } => {
            fitted(label, TEXT, width(figure) - 2.0 * MARGIN)
        }
    }
}

/// The names of the spans in rows, so that none covers another; and how many rows these are.
fn spans(figure: &Figure, x: &Scale, down: f64) -> (Vec<Option<(f64, String)>>, usize) {
    // How far to the right each row is taken.
    let mut rows: Vec<f64> = Vec::new();
    let mut out = Vec::new();
    for span in &figure.spans {
        let (from, to) = (x.place(span.from), x.place(span.to));
        let name = fitted(&span.name, SMALL, to - from - 4.0);
        if to <= from || name.is_empty() || name == "…" {
            out.push(None);
            continue;
        }
        let row = rows.iter().position(|taken| *taken <= from + 0.5).unwrap_or_else(|| {
            rows.push(0.0);
            rows.len() - 1
        });
        if row > 3 {
            out.push(None);
            continue;
        }
        rows[row] = to;
        out.push(Some((down + 18.0 * row as f64 + 13.0, name)));
    }
    (out, rows.len().min(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn across(names: &[&str]) -> Across {
        Across::Names {
            label: "variant".to_owned(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        }
    }

    #[test]
    fn a_name_looks_the_same_in_all_panels_and_is_in_the_legend_once() {
        let figure = Figure::new("t", Across::Time)
            .panel(Panel::new("a", "").line("one", vec![(0.0, 1.0)]).line("two", vec![(0.0, 1.0)]))
            .panel(Panel::new("b", "").line("two", vec![(0.0, 1.0)]).level("limit", 3.0));
        let layout = Layout::new(&figure);
        let names: Vec<&str> = layout.legend.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "limit"]);
        assert_ne!(layout.style("one"), layout.style("two"));
    }

    #[test]
    fn what_the_paper_says_of_ours_has_one_entry_for_all() {
        let points = vec![(0.0, 1.0)];
        let panel = Panel::new("a", "").bars("one", points.clone()).bars("two", points.clone());
        let panel = panel.paper("one", points.clone()).paper("two", points.clone());
        let layout = Layout::new(&Figure::new("t", across(&["x"])).panel(panel));
        let names: Vec<&str> = layout.legend.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "paper (hollow)"]);
    }

    #[test]
    fn what_a_paper_says_of_what_is_not_drawn_has_its_own_name() {
        let panel = Panel::new("a", "").paper("one", vec![(0.0, 1.0)]);
        let layout = Layout::new(&Figure::new("t", Across::Time).panel(panel));
        assert_eq!(layout.legend[0].name, "one (paper)");
    }

    #[test]
    fn the_legend_is_above_the_data_and_within_the_figure() {
        let panel = (0..40).fold(Panel::new("a", ""), |panel, i| {
            panel.line(format!("a host with a rather long name {i}"), vec![(0.0, 1.0)])
        });
        let layout = Layout::new(&Figure::new("t", Across::Time).panel(panel));
        assert_eq!(layout.legend.last().map(|e| e.name.as_str()), Some("and 4 more"));
        for entry in &layout.legend {
            assert!(entry.y < layout.panels[0].heading - 10.0);
            assert!(
                entry.x + SWATCH + 6.0 + font::width(&entry.name, TEXT) <= Figure::WIDE - MARGIN
            );
        }
    }

    #[test]
    fn panels_do_not_overlap_and_share_their_left_side() {
        let wide = Panel::new("a", "").line("x", vec![(0.0, 123_456.0)]);
        let figure = Figure::new("t", Across::Time).panel(wide).panel(Panel::new("b", ""));
        let layout = Layout::new(&figure);
        assert!(layout.panels[0].bottom < layout.panels[1].heading - TEXT);
        assert!(layout.left > MARGIN + font::width("120,000", SMALL));
        assert!(layout.height > layout.x_label.0);
    }

    #[test]
    fn names_that_do_not_fit_are_slanted_and_too_many_of_them_thinned() {
        assert!(!Layout::new(&Figure::new("t", across(&["4 KiB", "32 KiB"]))).slanted);
        let long = ["a variant with a long name"; 10];
        assert!(Layout::new(&Figure::new("t", across(&long))).slanted);
        let layout = Layout::new(&Figure::new("t", across(&["x"; 500])));
        assert!(layout.x_ticks.at.len() < 60);
    }

    #[test]
    fn ticks_of_numbers_are_where_the_data_is() {
        let points: Vec<(f64, f64)> = (1..=5).map(|i| (f64::from(i), 1.0)).collect();
        let numbers = Across::Numbers { label: "hosts".to_owned() };
        let figure = Figure::new("t", numbers).panel(Panel::new("a", "").line("x", points));
        let labels: Vec<String> =
            Layout::new(&figure).x_ticks.at.into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["1", "2", "3", "4", "5"]);
    }

    #[test]
    fn spans_that_overlap_are_named_in_rows_of_their_own() {
        let figure = Figure::new("t", Across::Time)
            .span("first", 0.0, 50.0)
            .span("second", 50.0, 100.0)
            .span("all", 0.0, 100.0)
            .span("too short to be named", 50.0, 50.5);
        let layout = Layout::new(&figure);
        let rows: Vec<Option<f64>> = layout.spans.iter().map(|s| s.as_ref().map(|s| s.0)).collect();
        assert_eq!(rows[0], rows[1]);
        assert!(rows[2] > rows[0]);
        assert_eq!(rows[3], None);
    }
}
