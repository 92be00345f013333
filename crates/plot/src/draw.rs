//! Drawing of a figure as SVG.

use std::collections::HashSet;
use std::error::Error;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::axis::Axis;
use crate::figure::{Across, Figure, Level, Panel, PlotSeries, SeriesData};
use crate::page::{clean, escaped};

/// All lengths are tenths of a CSS pixel, as `plotters` draws in whole numbers.
const PX: i32 = 10;
const MARGIN: i32 = 16 * PX;
const TITLE: i32 = 17 * PX;
const TEXT: i32 = 13 * PX;
const SMALL: i32 = 12 * PX;
/// Row of the legend, and width of a sample in it.
const ROW: i32 = 19 * PX;
const SAMPLE: i32 = 26 * PX;
/// Height of a panel's heading.
const HEADING: i32 = 27 * PX;
/// Longest label of a name on the common axis.
const NAME: i32 = 150 * PX;
/// Dashes of horizontal and of vertical lines.
const LEVEL: i32 = 7 * PX;
const UPRIGHT: i32 = 2 * PX;
/// A line with no more points than this has a mark at each of them.
const MARKED: usize = 40;

const FAMILY: &str = "Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif";
const INK: RGBColor = RGBColor(26, 26, 26);
const FAINT: RGBColor = RGBColor(85, 85, 85);
const GRID: RGBColor = RGBColor(226, 226, 226);
const SPAN: RGBAColor = RGBAColor(138, 138, 138, 0.12);
const BAND: RGBAColor = RGBAColor(0, 114, 178, 0.22);
/// Okabe and Ito's palette, which the colour-blind can tell apart; without its yellow, which white swallows.
/// M. Okabe, K. Ito: Color Universal Design, 2008.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    BLACK,
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), Box<dyn Error>>;

impl Figure {
    /// The figure as an SVG document on a white ground.
    pub fn svg(&self) -> String {
        let draw = Draw::new(self);
        let mut down = 0;
        let mut body = draw.group("head", 0, |area| draw.head(&area, &mut down));
        for (i, (panel, up)) in self.panels.iter().zip(&draw.ups).enumerate() {
            let (first, last) = (i == 0, i + 1 == self.panels.len());
            let mut parts =
                draw.group("axes", down, |area| draw.axes(&area, panel, up, first, last));
            for series in &panel.series {
                parts += &draw.group("series", down, |area| draw.series(&area, panel, series, up));
            }
            parts += &draw.group("lines", down, |area| draw.lines(&area, panel, up));
            body += &format!("<g class=\"panel\">\n{parts}</g>\n");
            down += HEADING + draw.panel + 6 * PX;
        }
        let (width, height) = (draw.width, down + draw.below + MARGIN);
        clean(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n<title>{}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n",
            width / PX,
            height / PX,
            escaped(&self.alt()),
            escaped(&self.title),
        ))
    }
}

/// A figure, and the sizes of its parts.
struct Draw<'a> {
    figure: &'a Figure,
    /// Names of all series, in the order of their styles.
    names: Vec<&'a str>,
    across: Axis,
    /// Whether the labels of the common axis are written downwards.
    turned: bool,
    /// The scale of each panel.
    ups: Vec<Axis>,
    width: i32,
    /// Left side of the panels, and the height of each.
    left: i32,
    panel: i32,
    /// Height of the labels of the common axis.
    below: i32,
}

/// What a name in the legend is of.
enum Entry<'a> {
    /// Data, and the place of its name among the series.
    Data(&'a SeriesData, usize),
    Hollow(RGBColor),
    /// Dashes of this length.
    Dashes(i32),
}

impl<'a> Draw<'a> {
    fn new(figure: &'a Figure) -> Draw<'a> {
        let mut names: Vec<&str> = Vec::new();
        for series in figure.panels.iter().flat_map(|p| &p.series) {
            let styled = !matches!(series.data, SeriesData::Band(_));
            if styled && !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        let panel = [280, 190, 150, 125][figure.panels.len().clamp(1, 4) - 1];
        let ups: Vec<Axis> = figure.panels.iter().map(|p| Axis::up(p, panel / 28)).collect();
        let labels = ups.iter().flat_map(|up| &up.ticks).map(|(_, label)| wide(label, SMALL));
        let left = MARGIN + labels.fold(24 * PX, i32::max) + 8 * PX;
        let width = figure.css_width() as i32 * PX;
        let across = Axis::across(figure);
        // Names that do not fit side by side are turned.
        let longest = across.ticks.iter().map(|(_, label)| wide(label, SMALL)).max().unwrap_or(0);
        let room = (width - left - MARGIN) / across.ticks.len().max(1) as i32 - 8 * PX;
        let turned = matches!(figure.across, Across::Names(..)) && longest > room;
        let below = TEXT + 14 * PX + if turned { longest.min(NAME) } else { SMALL };
        let panel = panel as i32 * PX;
        Draw { figure, names, across, turned, ups, width, left, panel, below }
    }

    /// SVG group of class `class` with the result of `draw`, from `top` downwards.
    fn group(&self, class: &str, top: i32, draw: impl for<'b> FnOnce(Area<'b>) -> Drawn) -> String {
        let mut svg = String::new();
        let size = (self.width, HEADING + self.panel + self.below);
        let root = SVGBackend::with_string(&mut svg, (size.0 as u32, u32::MAX / 2));
        // Drawing into memory cannot fail.
        let _ = draw(root.into_drawing_area().shrink((0, top), size));
        let body = svg.split_once(">\n").map_or("", |(_, body)| body);
        format!("<g class=\"{class}\">\n{}</g>\n", body.trim_end().trim_end_matches("</svg>"))
    }

    /// Title, subtitle and legend. Moves `down` to the top of the first panel.
    fn head(&self, area: &Area, down: &mut i32) -> Drawn {
        let room = self.width - 2 * MARGIN;
        let Figure { title, subtitle, .. } = self.figure;
        // A long title has smaller letters.
        let size = (room * 7 / 4 / title.chars().count().max(1) as i32).clamp(SMALL, TITLE);
        *down = MARGIN;
        for (line, size, colour) in [(title, size, INK), (subtitle, SMALL, FAINT)] {
            if !line.is_empty() {
                let line = fitted(line, size, room);
                area.draw(&Text::new(line, (MARGIN, *down), font(size, colour)))?;
                *down += size + 4 * PX;
            }
        }
        let mut x = MARGIN;
        let legend = self.legend();
        *down += if legend.is_empty() { 0 } else { ROW / 2 };
        for (name, of) in legend {
            let name = fitted(name.trim(), TEXT, room - SAMPLE);
            let needed = SAMPLE + 6 * PX + wide(&name, TEXT);
            if x > MARGIN && x + needed > self.width - MARGIN {
                (x, *down) = (MARGIN, *down + ROW);
            }
            let [from, middle, to] = [0, 1, 2].map(|half| (x + half * SAMPLE / 2, *down));
            let block = |colour: RGBAColor| {
                let corners = [(from.0, middle.1 - 6 * PX), (to.0, middle.1 + 6 * PX)];
                Rectangle::new(corners, colour.filled())
            };
            match of {
                Entry::Dashes(length) => area.draw(&dashed(vec![from, to], length))?,
                Entry::Hollow(colour) => {
                    hollow(colour, middle).iter().try_for_each(|ring| area.draw(ring))?;
                }
                Entry::Data(data, place) => match data {
                    SeriesData::Bars(_) => area.draw(&block(colour(place).into()))?,
                    SeriesData::Band(_) => area.draw(&block(BAND))?,
                    _ => {
                        if matches!(data, SeriesData::Line(_)) {
                            area.draw(&PathElement::new([from, to], stroke(colour(place), 17)))?;
                        }
                        area.draw(&mark(place, middle))?;
                    }
                },
            }
            let style = font(TEXT, INK).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(name, (to.0 + 6 * PX, *down), style))?;
            x += needed + 18 * PX;
        }
        let named = self.figure.spans.iter().any(|(name, ..)| !name.is_empty());
        *down += if named { 2 * ROW } else { ROW * 3 / 4 };
        Ok(())
    }

    /// Names in the legend, each once: of data, of hollow marks, of lines.
    fn legend(&self) -> Vec<(String, Entry<'a>)> {
        let Figure { panels, reference, uprights, .. } = self.figure;
        let (paper, ours): (Vec<&PlotSeries>, Vec<&PlotSeries>) = panels
            .iter()
            .flat_map(|p| &p.series)
            .partition(|s| matches!(s.data, SeriesData::Paper(_)));
        let data = ours.iter().filter(|s| !matches!(s.data, SeriesData::Whiskers(_)));
        let data = data.map(|s| (s.name.clone(), Entry::Data(&s.data, self.place(&s.name))));
        let paper = paper.iter().map(|s| match ours.iter().any(|ours| ours.name == s.name) {
            true => (format!("{reference} (hollow)"), Entry::Hollow(FAINT)),
            false => {
                (format!("{} ({reference})", s.name), Entry::Hollow(colour(self.place(&s.name))))
            }
        });
        let levels = panels.iter().flat_map(|p| &p.levels).map(|level| (&level.name, LEVEL));
        let dashes = levels.chain(uprights.iter().map(|(name, _)| (name, UPRIGHT)));
        let dashes = dashes.map(|(name, length)| (name.clone(), Entry::Dashes(length)));
        let mut seen = HashSet::new();
        let all = data.chain(paper).chain(dashes);
        all.filter(|(name, _)| !name.trim().is_empty() && seen.insert(name.clone())).collect()
    }

    /// The scales of a panel.
    fn chart<'b>(
        &self,
        area: &Area<'b>,
        across: Axis,
        up: &Axis,
    ) -> Result<Chart<'b>, Box<dyn Error>> {
        let mut builder = ChartBuilder::on(area);
        builder.margin_top(HEADING).margin_right(MARGIN);
        builder.x_label_area_size(self.below).y_label_area_size(self.left);
        Ok(builder.build_cartesian_2d(across, up.clone())?)
    }

    /// Heading, grid, ticks, and the named stretches; below the last panel the labels of the common axis.
    fn axes(&self, area: &Area, panel: &Panel, up: &Axis, first: bool, last: bool) -> Drawn {
        let mut across = self.across.clone();
        if self.turned || !last {
            across.ticks.clear();
        }
        let mut chart = self.chart(area, across, up)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().bold_line_style(stroke(GRID, 10)).axis_style(stroke(FAINT, 10));
        mesh.label_style(font(SMALL, FAINT)).axis_desc_style(font(TEXT, INK));
        mesh.set_all_tick_mark_size(4 * PX);
        if last {
            let label = match &self.figure.across {
                Across::Time => "time, s",
                Across::Numbers(label) | Across::Log(label) | Across::Names(label, _) => label,
            };
            mesh.x_desc(fitted(label, TEXT, self.width - self.left - MARGIN));
        }
        mesh.draw()?;
        let heading = fitted(&panel.heading(), TEXT, self.width - 2 * MARGIN);
        area.draw(&Text::new(heading, (MARGIN, 4 * PX), font(TEXT, INK)))?;
        for (name, from, to) in &self.figure.spans {
            let Some((from, to)) = self.across.at(*from).zip(self.across.at(*to)) else { continue };
            chart.draw_series([Rectangle::new([(from, up.low), (to, up.high)], SPAN.filled())])?;
            let [left, right] = [from, to].map(|x| chart.backend_coord(&(x, up.low)).0);
            let name = fitted(name, SMALL, right - left);
            if first && name != "…" {
                let style = font(SMALL, FAINT).pos(Pos::new(HPos::Center, VPos::Bottom));
                area.draw(&Text::new(name, ((left + right) / 2, 0), style))?;
            }
        }
        if self.turned && last {
            let every =
                (self.across.ticks.len() as i32 * 16 * PX / (self.width - self.left)) as usize;
            for (at, label) in self.across.ticks.iter().step_by(every + 1) {
                let x = chart.backend_coord(&(*at, up.low)).0 + SMALL / 2;
                let style = font(SMALL, FAINT).transform(FontTransform::Rotate90);
                let at = (x, HEADING + self.panel + 8 * PX);
                area.draw(&Text::new(fitted(label, SMALL, NAME), at, style))?;
            }
        }
        Ok(())
    }

    /// Place of a name among the series, which decides on its colour and mark.
    fn place(&self, name: &str) -> usize {
        self.names.iter().position(|n| *n == name).unwrap_or(0)
    }

    fn series(&self, area: &Area, panel: &Panel, series: &PlotSeries, up: &Axis) -> Drawn {
        let mut chart = self.chart(area, self.across.clone(), up)?;
        let at = |&(x, y): &(f64, f64)| self.across.at(x).zip(up.at(y));
        let ends = |&(x, low, high): &(f64, f64, f64)| Some((at(&(x, low))?, at(&(x, high))?));
        let (place, bar) = (self.place(&series.name), panel.bar(&series.name));
        let (colour, (shift, half)) = (colour(place), bar.unwrap_or_default());
        match &series.data {
            SeriesData::Line(points) => {
                let points: Vec<Option<(f64, f64)>> = points.iter().map(at).collect();
                for run in points.split(Option::is_none) {
                    let run: Vec<(f64, f64)> = run.iter().copied().flatten().collect();
                    let style = stroke(colour, 17);
                    if place < PALETTE.len() {
                        chart.draw_series([PathElement::new(run.clone(), style)])?;
                    } else {
                        chart.draw_series(DashedLineSeries::new(run.clone(), 60, 30, style))?;
                    }
                    if points.len() <= MARKED || run.len() == 1 {
                        chart.draw_series(run.into_iter().map(|at| mark(place, at)))?;
                    }
                }
            }
            SeriesData::Marks(points) => {
                chart.draw_series(points.iter().filter_map(at).map(|at| mark(place, at)))?;
            }
            SeriesData::Paper(points) => {
                // On a bar of its own colour a mark would be lost.
                let colour = if bar.is_some() { INK } else { colour };
                let points = points.iter().filter_map(at);
                chart.draw_series(points.flat_map(|(x, y)| hollow(colour, (x + shift, y))))?;
            }
            SeriesData::Bars(points) => {
                let bar = |(x, y)| {
                    let (left, right) = (x + shift - half, x + shift + half);
                    Rectangle::new([(left, up.low.max(0.0)), (right, y)], colour.filled())
                };
                chart.draw_series(points.iter().filter_map(at).map(bar))?;
            }
            SeriesData::Band(points) => {
                let points: Vec<_> = points.iter().map(ends).collect();
                for run in points.split(Option::is_none) {
                    let there = run.iter().flatten().map(|(low, _)| *low);
                    let back = run.iter().flatten().rev().map(|(_, high)| *high);
                    let outline: Vec<(f64, f64)> = there.chain(back).collect();
                    chart.draw_series([Polygon::new(outline, BAND)])?;
                }
            }
            SeriesData::Whiskers(points) => {
                let ends: Vec<_> = points.iter().filter_map(ends).collect();
                let style = stroke(colour, 12);
                let caps = ends.iter().flat_map(|(low, high)| [*low, *high]);
                let cap = |at| EmptyElement::at(at) + PathElement::new([(-30, 0), (30, 0)], style);
                chart.draw_series(caps.map(cap))?;
                chart.draw_series(
                    ends.iter().map(|(low, high)| PathElement::new([*low, *high], style)),
                )?;
            }
        }
        Ok(())
    }

    /// Levels, uprights and labels of points, over the data.
    fn lines(&self, area: &Area, panel: &Panel, up: &Axis) -> Drawn {
        let mut chart = self.chart(area, self.across.clone(), up)?;
        for Level { value, within, .. } in &panel.levels {
            let (from, to) = within.unwrap_or((self.across.low, self.across.high));
            let ends = [from, to].map(|x| x.clamp(self.across.low, self.across.high));
            let ends = ends.map(|x| self.across.at(x).zip(up.at(*value)));
            chart.draw_series([dashed(ends.into_iter().flatten().collect(), LEVEL)])?;
        }
        for x in self.figure.uprights.iter().filter_map(|(_, x)| self.across.at(*x)) {
            chart.draw_series([dashed(vec![(x, up.low), (x, up.high)], UPRIGHT)])?;
        }
        if !panel.series.iter().any(|series| series.data.is_some()) {
            let middle = ((self.left + self.width) / 2, HEADING + self.panel / 2);
            area.draw(&Text::new("no data", middle, font(TEXT, FAINT)))?;
        }
        let mut taken: Vec<(i32, i32)> = Vec::new();
        for (x, y, text) in &panel.notes {
            let Some(at) = self.across.at(*x).zip(up.at(*y)) else { continue };
            let (x, y) = chart.backend_coord(&at);
            let near = |other: &(i32, i32)| {
                (other.0 - x).abs() < wide(text, SMALL) + 8 * PX && (other.1 - y).abs() < SMALL
            };
            if !taken.iter().any(near) {
                taken.push((x, y));
                let beside = (7 * PX).min(self.width - MARGIN / 2 - x - wide(text, SMALL));
                let text = Text::new(text.clone(), (beside, 3 * PX), font(SMALL, INK));
                chart.draw_series([EmptyElement::at(at) + text])?;
            }
        }
        Ok(())
    }
}

impl Panel {
    /// Offset of a series' bars from their place, and half their width.
    fn bar(&self, name: &str) -> Option<(f64, f64)> {
        let bars = self.series.iter().filter(|s| matches!(s.data, SeriesData::Bars(_)));
        let names: Vec<&str> = bars.map(|s| s.name.as_str()).collect();
        let wide = 0.78 / names.len() as f64;
        let place = names.iter().position(|n| *n == name)? as f64;
        Some(((place - (names.len() - 1) as f64 / 2.0) * wide, wide / 2.0))
    }
}

fn colour(place: usize) -> RGBColor {
    PALETTE[place % PALETTE.len()]
}

/// The filled mark of the series at this place.
fn mark<'a, At: Clone + 'static>(place: usize, at: At) -> DynElement<'static, SVGBackend<'a>, At> {
    let style = colour(place).filled();
    match place % 3 {
        0 => Circle::new(at, 35, style).into_dyn(),
        1 => TriangleMarker::new(at, 50, style).into_dyn(),
        _ => Cross::new(at, 32, style.stroke_width(20)).into_dyn(),
    }
}

/// A hollow mark, with an edge that sets it apart from what is below.
fn hollow<At: Clone>(colour: RGBColor, at: At) -> [Circle<At, i32>; 2] {
    let ring = |colour, wide| Circle::new(at.clone(), 60, stroke(colour, wide));
    [ring(WHITE, 42), ring(colour, 19)]
}

fn dashed<At: Clone>(ends: Vec<At>, length: i32) -> DashedPathElement<std::vec::IntoIter<At>, i32> {
    DashedPathElement::new(ends, length, 35, stroke(INK, 13))
}

fn stroke(colour: RGBColor, width: u32) -> ShapeStyle {
    colour.stroke_width(width)
}

/// Letters of this height.
fn font(size: i32, colour: RGBColor) -> TextStyle<'static> {
    // plotters writes fonts smaller than it is asked to.
    let font = (FAMILY, f64::from(size) * 1.24).into_font();
    TextStyle { color: colour.to_backend_color(), ..TextStyle::from(font) }
}

/// Estimated width of a text.
fn wide(text: &str, size: i32) -> i32 {
    text.chars().count() as i32 * size * 13 / 25
}

/// The text, shortened to the room for it.
fn fitted(text: &str, size: i32, room: i32) -> String {
    if wide(text, size) <= room {
        return text.to_owned();
    }
    let letters = (room / wide("m", size) - 1).max(0) as usize;
    text.chars().take(letters).chain(['…']).collect()
}
