//! Drawing of a figure as SVG.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::digest::thinned;
use crate::figure::{Across, Data, Figure, Level, Panel, Series, Tile, drawable};
use crate::font::{self, FAMILY};
use crate::layout::{Entry, Frame, Layout, MARGIN, SLANT, SMALL, SWATCH, Swatch, TEXT};
use crate::number::brief;
use crate::style::Style;

const INK: &str = "#1a1a1a";
const FAINT: &str = "#555555";
const GRID: &str = "#e2e2e2";
const BAND: &str = "#0072B2";
const HEAT: &str = "#4a5568";
/// The dashes of a line from top to bottom: others than those of a level.
const UPRIGHT: &str = "2 3";
/// A line with no more points than this has a mark at each of them, others have one now and then.
const MARK_EACH: usize = 40;
const MARK_EVERY: f64 = 98.0;

impl Figure {
    /// The figure as an SVG document. Text is text, and the background is white.
    pub fn svg(&self) -> String {
        svg(self, Letters::Text)
    }
}

/// Form in which text is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Letters {
    /// Text as SVG text elements.
    Text,
    /// Outlines of the glyphs, for renderers without fonts.
    Outlines,
}

pub(crate) fn svg(figure: &Figure, letters: Letters) -> String {
    let layout = Layout::new(figure);
    let draw = Draw { figure, layout: &layout, letters };
    let alt = clean(&figure.alt());
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(layout.width) height=(layout.height)
            viewBox={ "0 0 " (layout.width) " " (layout.height) } role="img" aria-label=(alt)
            font-family=(FAMILY) font-size=(SMALL) fill=(INK) {
            title { (clean(&figure.title)) }
            desc { (alt) }
            rect width=(layout.width) height=(layout.height) fill="#ffffff" {}
            (draw.head())
            (draw.spans())
            @for (panel, frame) in figure.panels.iter().zip(&layout.panels) {
                (draw.panel(panel, frame))
            }
            (draw.uprights())
            (draw.x_label())
        }
    };
    markup.into_string()
}

/// Removes characters that XML cannot contain.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_whitespace() && c != '\u{a0}' { ' ' } else { c })
        .filter(|c| !c.is_control() && !matches!(c, '\u{FFFE}' | '\u{FFFF}'))
        .collect()
}

/// A coordinate, rounded to a tenth of a pixel.
fn tenth(value: f64) -> String {
    format!("{value:.1}")
}

#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

struct Draw<'a> {
    figure: &'a Figure,
    layout: &'a Layout,
    letters: Letters,
}

impl Draw<'_> {
    /// Text whose baseline begins at a point.
    fn text(
        &self,
        text: &str,
        (x, y): (f64, f64),
        size: f64,
        anchor: Anchor,
        fill: &str,
    ) -> Markup {
        self.turned(text, (x, y), size, anchor, fill, 0.0)
    }

    fn turned(
        &self,
        text: &str,
        (x, y): (f64, f64),
        size: f64,
        anchor: Anchor,
        fill: &str,
        degrees: f64,
    ) -> Markup {
        let text = clean(text);
        let turn = if degrees == 0.0 {
            String::new()
        } else {
            format!("rotate({degrees:.0} {x:.1} {y:.1})")
        };
        if self.letters == Letters::Outlines {
            let back = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => font::width(&text, size) / 2.0,
                Anchor::End => font::width(&text, size),
            };
            let to = format!("{turn}translate({:.2} {y:.2})", x - back);
            return html! { path d=(font::outlines(&text, size)) transform=(to) fill=(fill) {} };
        }
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let turn = (!turn.is_empty()).then_some(turn);
        html! {
            text x=(tenth(x)) y=(tenth(y)) font-size=(size) text-anchor=(anchor) fill=(fill)
                transform=[turn] { (text) }
        }
    }

    /// Title, subtitle and legend.
    fn head(&self) -> Markup {
        html! {
            @for (y, line) in &self.layout.title {
                (self.text(line, (MARGIN, *y), self.layout.title_size, Anchor::Start, INK))
            }
            @for (y, line) in &self.layout.subtitle {
                (self.text(line, (MARGIN, *y), SMALL, Anchor::Start, FAINT))
            }
            @if !self.layout.legend.is_empty() {
                g class="legend" {
                    @for entry in &self.layout.legend {
                        (swatch(entry))
                        (self.text(&entry.name, (entry.x + SWATCH + 6.0, entry.y), TEXT, Anchor::Start, INK))
                    }
                }
            }
        }
    }

    /// The named stretches, behind all panels.
    fn spans(&self) -> Markup {
        let frames = &self.layout.panels;
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return html! {} };
        html! {
            @for (span, label) in self.figure.spans.iter().zip(&self.layout.spans) {
                @let (from, to) = (self.layout.x.place(span.from), self.layout.x.place(span.to));
                @if to > from {
                    @let top = label.as_ref().map_or(first.top, |l| l.0 - 12.0);
                    g class="span" {
                        rect x=(tenth(from)) y=(tenth(top)) width=(tenth(to - from)) height=(tenth(last.bottom - top))
                            fill="#8a8a8a" fill-opacity="0.10" {}
                        @if let Some((y, name)) = label {
                            (self.text(name, ((from + to) / 2.0, *y), SMALL, Anchor::Middle, FAINT))
                        }
                    }
                }
            }
        }
    }

    fn panel(&self, panel: &Panel, frame: &Frame) -> Markup {
        let heading = if panel.unit.is_empty() {
            panel.label.clone()
        } else {
            format!("{}, {}", panel.label, panel.unit)
        };
        let heading = font::fitted(&heading, TEXT, self.layout.right - MARGIN);
        html! {
            g class="panel" {
                (self.text(&heading, (MARGIN, frame.heading), TEXT, Anchor::Start, INK))
                (self.axes(frame))
                @let (over, under): (Vec<&Series>, Vec<&Series>) =
                    in_order(&panel.series).into_iter().partition(|s| matches!(s.data, Data::Paper(_)));
                @for series in under {
                    g class="series" { (self.series(panel, series, frame)) }
                }
                @if panel.series.iter().all(|s| !s.data.is_some()) {
                    @let middle = ((self.layout.left + self.layout.right) / 2.0, (frame.top + frame.bottom) / 2.0);
                    (self.text("no data", middle, TEXT, Anchor::Middle, FAINT))
                }
                // Over the data, which is often just there.
                (self.levels(panel, frame))
                @for series in over {
                    g class="series" { (self.series(panel, series, frame)) }
                }
                (self.notes(panel, frame))
            }
        }
    }

    /// The grid, the ticks and their labels. Those of the common axis only below the last panel.
    fn axes(&self, frame: &Frame) -> Markup {
        let Layout { left, right, .. } = *self.layout;
        let last = self.layout.panels.last().is_some_and(|l| l.bottom == frame.bottom);
        let named = matches!(self.figure.across, Across::Names { .. });
        html! {
            @for (value, label) in &frame.ticks.at {
                @let y = frame.y.place(*value);
                line x1=(tenth(left)) x2=(tenth(right)) y1=(tenth(y)) y2=(tenth(y)) stroke=(GRID) {}
                (self.text(label, (left - 7.0, y + SMALL * 0.36), SMALL, Anchor::End, FAINT))
            }
            @for (value, label) in &self.layout.x_ticks.at {
                @let x = self.layout.x.place(*value);
                @if !named {
                    line x1=(tenth(x)) x2=(tenth(x)) y1=(tenth(frame.bottom)) y2=(tenth(frame.bottom + 4.0)) stroke=(FAINT) {}
                }
                @if last && self.layout.slanted {
                    (self.turned(label, (x + 4.0, frame.bottom + 14.0), SMALL, Anchor::End, FAINT, -SLANT))
                } @else if last {
                    (self.text(label, (x, frame.bottom + 18.0), SMALL, Anchor::Middle, FAINT))
                }
            }
            line x1=(tenth(left)) x2=(tenth(right)) y1=(tenth(frame.bottom)) y2=(tenth(frame.bottom)) stroke=(FAINT) {}
        }
    }

    fn x_label(&self) -> Markup {
        let (y, label) = &self.layout.x_label;
        self.text(
            label,
            ((self.layout.left + self.layout.right) / 2.0, *y),
            TEXT,
            Anchor::Middle,
            INK,
        )
    }

    fn levels(&self, panel: &Panel, frame: &Frame) -> Markup {
        let Layout { left, right, x, .. } = self.layout;
        let within = |level: &Level| {
            level.within.map_or((*left, *right), |(from, to)| (x.place(from), x.place(to)))
        };
        html! {
            @for level in panel.levels.iter().filter(|l| frame.y.holds(l.value)) {
                @let y = frame.y.place(level.value);
                @let (from, to) = within(level);
                line class="level" x1=(tenth(from)) x2=(tenth(to)) y1=(tenth(y)) y2=(tenth(y))
                    stroke=(INK) stroke-width="1.3" stroke-dasharray="7 4" {}
            }
        }
    }

    /// Over the data, through all panels.
    fn uprights(&self) -> Markup {
        html! {
            @for upright in self.figure.uprights.iter().filter(|u| self.layout.x.holds(u.at)) {
                @let x = tenth(self.layout.x.place(upright.at));
                @for frame in &self.layout.panels {
                    line class="upright" x1=(x) x2=(x) y1=(tenth(frame.top)) y2=(tenth(frame.bottom))
                        stroke=(INK) stroke-width="1.3" stroke-dasharray=(UPRIGHT) {}
                }
            }
        }
    }

    /// Words beside points: where there is room, and none where there is not.
    fn notes(&self, panel: &Panel, frame: &Frame) -> Markup {
        let size = SMALL;
        let mut taken: Vec<[f64; 4]> = Vec::new();
        let mut placed: Vec<(f64, f64, String)> = Vec::new();
        for note in &panel.notes {
            let Some((x, y)) = self.at(frame, note.at) else { continue };
            let text = clean(&note.text);
            let wide = font::width(&text, size);
            let beside = [
                (x + 7.0, y + 12.0),
                (x + 7.0, y - 5.0),
                (x - 7.0 - wide, y - 5.0),
                (x - 7.0 - wide, y + 12.0),
                (x - wide / 2.0, y - 9.0),
                (x - wide / 2.0, y + 18.0),
            ];
            let free = beside.into_iter().find(|&(left, base)| {
                let area = [left, base - size, left + wide, base + 2.0];
                let inside = area[0] >= self.layout.left
                    && area[2] <= self.layout.right
                    && area[1] >= frame.top - 6.0
                    && area[3] <= frame.bottom;
                let apart = |other: &[f64; 4]| {
                    area[2] < other[0]
                        || other[2] < area[0]
                        || area[3] < other[1]
                        || other[3] < area[1]
                };
                inside && taken.iter().all(apart)
            });
            if let Some((left, base)) = free {
                taken.push([left, base - size, left + wide, base + 2.0]);
                placed.push((left, base, text));
            }
        }
        html! {
            @for (left, base, text) in placed {
                (self.text(&text, (left, base), size, Anchor::Start, INK))
            }
        }
    }

    fn series(&self, panel: &Panel, series: &Series, frame: &Frame) -> Markup {
        let style = self.layout.style(&series.name);
        let at = |points: &[(f64, f64)]| -> Vec<Option<(f64, f64)>> {
            points.iter().map(|p| self.at(frame, *p)).collect()
        };
        match &series.data {
            Data::Line(points) => {
                // Over dark areas a line needs an edge.
                let edged = panel.series.iter().any(|s| matches!(s.data, Data::Heat(_)));
                self.line(&at(points), style, self.layout.place(&series.name), edged)
            }
            Data::Marks(points) => {
                let shift = self.bar(panel, &series.name).0;
                html! {
                    @for (x, y) in at(points).iter().flatten() { (filled(style, x + shift, *y)) }
                }
            }
            Data::Paper(points) => {
                let (shift, wide) = self.bar(panel, &series.name);
                // On a bar of its own colour it would be lost.
                let colour = if wide > 0.0 { INK } else { style.colour };
                html! {
                    @for (x, y) in at(points).iter().flatten() { (hollow(colour, style, x + shift, *y)) }
                }
            }
            Data::Bars(points) => self.bars(panel, series, points, frame),
            Data::Band(points) => self.band(points, frame),
            Data::Whiskers(points) => self.whiskers(points, style, frame),
            Data::Heat(tiles) => self.heat(tiles, frame),
        }
    }

    /// What is beyond an end of the scale ends there.
    fn whiskers(&self, points: &[(f64, f64, f64)], style: Style, frame: &Frame) -> Markup {
        let there = |&(x, low, high): &(f64, f64, f64)| -> Option<(f64, f64, f64)> {
            let x = drawable(x).filter(|x| self.layout.x.holds(*x))?;
            let (low, high) = (drawable(low)?, drawable(high)?);
            Some((self.layout.x.place(x), frame.y.place(low), frame.y.place(high)))
        };
        html! {
            @for (x, low, high) in points.iter().filter_map(there) {
                path d={ "M" (tenth(x - 3.0)) " " (tenth(high)) "h6M" (tenth(x)) " " (tenth(high)) "V" (tenth(low))
                    "M" (tenth(x - 3.0)) " " (tenth(low)) "h6" } fill="none" stroke=(style.colour) stroke-width="1.1" {}
            }
        }
    }

    fn heat(&self, tiles: &[Tile], frame: &Frame) -> Markup {
        let place = |tile: &Tile| -> Option<[f64; 5]> {
            let sides = [tile.across.0, tile.across.1, tile.up.0, tile.up.1];
            if sides.iter().any(|v| drawable(*v).is_none()) {
                return None;
            }
            let (x, y) = (&self.layout.x, &frame.y);
            let (left, right) = (x.place(sides[0]), x.place(sides[1]));
            let (bottom, top) = (y.place(sides[2]), y.place(sides[3]));
            let shade = if tile.shade.is_nan() { 0.0 } else { tile.shade.clamp(0.0, 1.0) };
            Some([left, top, right - left, bottom - top, shade])
        };
        html! {
            @for [left, top, wide, high, shade] in tiles.iter().filter_map(place) {
                @if wide > 0.0 && high > 0.0 && shade > 0.0 {
                    rect class="tile" x=(tenth(left)) y=(tenth(top)) width=(tenth(wide)) height=(tenth(high.max(1.0)))
                        fill=(HEAT) fill-opacity=(format!("{shade:.2}")) {}
                }
            }
        }
    }

    /// Where a value is in the picture, if it can be drawn.
    fn at(&self, frame: &Frame, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (x, y) = (drawable(x)?, drawable(y)?);
        (self.layout.x.holds(x) && frame.y.holds(y))
            .then(|| (self.layout.x.place(x), frame.y.place(y)))
    }

    fn line(
        &self,
        points: &[Option<(f64, f64)>],
        style: Style,
        place: usize,
        edged: bool,
    ) -> Markup {
        let points = thinned(points, self.layout.right - self.layout.left);
        let mut path = String::new();
        let mut marks = Vec::new();
        // Marks of several lines are not all at one place.
        let mut next = self.layout.left + 20.0 + 14.0 * (place % 7) as f64;
        for (i, point) in points.iter().enumerate() {
            let Some((x, y)) = point else { continue };
            let begins = i == 0 || points[i - 1].is_none();
            let _ = write!(path, "{}{x:.1} {y:.1}", if begins { 'M' } else { 'L' });
            if begins && points.get(i + 1).is_none_or(Option::is_none) {
                // A point alone is a dot.
                path.push_str("h0.1");
            }
            if points.len() <= MARK_EACH || *x >= next {
                marks.push((*x, *y));
            }
            while next <= *x {
                next += MARK_EVERY;
            }
        }
        html! {
            @if edged {
                path d=(path) fill="none" stroke="#ffffff" stroke-width="4" stroke-linejoin="round"
                    stroke-linecap="round" {}
            }
            path d=(path) fill="none" stroke=(style.colour) stroke-width="1.7" stroke-linejoin="round"
                stroke-linecap="round" stroke-dasharray=(style.dash) {}
            @for (x, y) in marks { (filled(style, x, y)) }
        }
    }

    /// By how much the bars of a name are beside their place, and how wide they are.
    fn bar(&self, panel: &Panel, name: &str) -> (f64, f64) {
        let bars: Vec<&Series> =
            panel.series.iter().filter(|s| matches!(s.data, Data::Bars(_))).collect();
        let Some(place) = bars.iter().position(|s| s.name == name) else { return (0.0, 0.0) };
        let mut at: Vec<f64> = bars
            .iter()
            .flat_map(|s| s.data.values())
            .map(|(x, _)| self.layout.x.place(x))
            .collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let room = match self.figure.across {
            Across::Names { .. } => self.layout.x.place(1.0) - self.layout.x.place(0.0),
            _ => 120.0,
        };
        let room = at.windows(2).map(|w| w[1] - w[0]).fold(room.max(1.0), f64::min);
        let wide = (room * 0.78 / bars.len() as f64).min(56.0);
        ((place as f64 - (bars.len() - 1) as f64 / 2.0) * wide, wide)
    }

    fn bars(&self, panel: &Panel, series: &Series, points: &[(f64, f64)], frame: &Frame) -> Markup {
        let style = self.layout.style(&series.name);
        let (shift, wide) = self.bar(panel, &series.name);
        let zero = frame.y.place(0.0);
        let papers: Vec<(f64, f64)> = panel
            .series
            .iter()
            .filter(|s| s.name == series.name && matches!(s.data, Data::Paper(_)))
            .flat_map(|s| s.data.values())
            .collect();
        html! {
            @for &(place, value) in points {
                @if let Some((x, y)) = self.at(frame, (place, value)) {
                    @let left = x + shift - wide / 2.0;
                    rect x=(tenth(left)) y=(tenth(y.min(zero))) width=(tenth((wide - 1.5).max(0.5)))
                        height=(tenth((zero - y).abs())) fill=(style.colour) {}
                    @let label = brief(value);
                    @if value >= 0.0 && font::width(&label, SMALL - 1.0) <= wide + 2.0 {
                        // Above the bar, and above what a paper says of it if that is near.
                        @let mark = papers.iter().filter(|p| p.0 == place).map(|p| frame.y.place(p.1) - 7.0);
                        @let above = mark.filter(|m| (m - y).abs() < 22.0).fold(y, f64::min);
                        (self.text(&label, (x + shift, above - 4.0), SMALL - 1.0, Anchor::Middle, INK))
                    }
                }
            }
        }
    }

    fn band(&self, points: &[(f64, f64, f64)], frame: &Frame) -> Markup {
        let edge = |pick: fn(&(f64, f64, f64)) -> f64| -> Vec<Option<(f64, f64)>> {
            points
                .iter()
                .map(|p| {
                    self.at(frame, (p.0, p.1))
                        .and(self.at(frame, (p.0, p.2)))
                        .and(self.at(frame, (p.0, pick(p))))
                })
                .collect()
        };
        let (low, high) = (edge(|p| p.1), edge(|p| p.2));
        let columns = self.layout.right - self.layout.left;
        html! {
            // A stretch without a gap is an area.
            @for stretch in low.split(Option::is_none).zip(high.split(Option::is_none)) {
                @let there = thinned(stretch.1, columns);
                @let back = thinned(stretch.0, columns);
                @let outline: Vec<(f64, f64)> = there.into_iter().chain(back.into_iter().rev()).flatten().collect();
                @if !outline.is_empty() {
                    path d={ (polyline(&outline)) "Z" } fill=(BAND) fill-opacity="0.22" stroke=(BAND)
                        stroke-opacity="0.35" stroke-width="1" {}
                }
            }
        }
    }
}

/// Bands behind bars, bars behind lines, marks on top.
fn in_order(series: &[Series]) -> Vec<&Series> {
    let mut all: Vec<&Series> = series.iter().collect();
    all.sort_by_key(|s| match s.data {
        Data::Heat(_) => 0,
        Data::Band(_) => 1,
        Data::Bars(_) => 2,
        Data::Whiskers(_) => 3,
        Data::Line(_) => 4,
        Data::Marks(_) => 5,
        Data::Paper(_) => 6,
    });
    all
}

fn polyline(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    path
}

fn filled(style: Style, x: f64, y: f64) -> Markup {
    html! {
        path class="mark" d=(style.mark(x, y, 3.6)) fill=(style.colour) stroke="#ffffff" stroke-width="0.9" {}
    }
}

fn hollow(colour: &str, style: Style, x: f64, y: f64) -> Markup {
    let mark = style.mark(x, y, 6.0);
    html! {
        g class="paper" fill="none" {
            path d=(mark) stroke="#ffffff" stroke-width="4.2" {}
            path d=(mark) stroke=(colour) stroke-width="1.9" {}
        }
    }
}

/// The picture in front of a name in the legend.
fn swatch(entry: &Entry) -> Markup {
    let (left, right, y) = (entry.x, entry.x + SWATCH, entry.y - TEXT * 0.35);
    let middle = (left + right) / 2.0;
    let line = |colour: &str, dash: &str, width: f64| -> Markup {
        html! {
            line x1=(tenth(left)) x2=(tenth(right)) y1=(tenth(y)) y2=(tenth(y)) stroke=(colour)
                stroke-width=(width) stroke-dasharray=(dash) {}
        }
    };
    let area = |colour: &str, opacity: f64| -> Markup {
        html! {
            rect x=(tenth(left + 4.0)) y=(tenth(y - 6.0)) width=(tenth(SWATCH - 8.0)) height="12" fill=(colour)
                fill-opacity=(opacity) {}
        }
    };
    match entry.swatch {
        Swatch::Line(style) => {
            html! { (line(style.colour, style.dash, 1.7)) (filled(style, middle, y)) }
        }
        Swatch::Marks(style) => filled(style, middle, y),
        Swatch::Bars(style) => area(style.colour, 1.0),
        Swatch::Paper(Some(style)) => hollow(style.colour, style, middle, y),
        Swatch::Paper(None) => hollow(FAINT, Style::of(0), middle, y),
        Swatch::Band => area(BAND, 0.25),
        Swatch::Whiskers(style) => line(style.colour, "none", 1.1),
        Swatch::Heat => html! {
            @for (step, shade) in [0.15, 0.4, 0.7, 1.0].into_iter().enumerate() {
                rect x=(tenth(left + 6.5 * step as f64)) y=(tenth(y - 6.0)) width="6.5" height="12" fill=(HEAT)
                    fill-opacity=(shade) {}
            }
        },
        Swatch::Level => line(INK, "7 4", 1.3),
        Swatch::Upright => html! {
            line x1=(tenth(middle)) x2=(tenth(middle)) y1=(tenth(y - 8.0)) y2=(tenth(y + 8.0)) stroke=(INK)
                stroke-width="1.3" stroke-dasharray=(UPRIGHT) {}
        },
        Swatch::Nothing => PreEscaped(String::new()),
    }
}
