//! Data model of figures: panels, series and axes.

use std::collections::BTreeMap;

use crate::number::brief;

/// Largest number of series of a panel that its words describe.
const MOST: usize = 12;

/// Panels above one another over a common axis.
///
/// A value that is NaN, infinite or beyond ±10¹⁵ counts as missing: lines have a gap there. So does one on a
/// logarithmic scale that is not above 10⁻¹⁵.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Title of the figure, above all panels.
    pub title: String,
    /// Line below the title, such as the source of the numbers. May be empty.
    pub subtitle: String,
    /// The axis that all panels share.
    pub across: Across,
    /// Panels from top to bottom.
    pub panels: Vec<Panel>,
    /// Named stretches of the common axis, such as phases: name, beginning and end.
    pub spans: Vec<(String, f64, f64)>,
    /// Source of the hollow marks, for the legend: a paper by default.
    pub reference: String,
    /// Dashed lines from top to bottom through all panels: name, and place on the common axis.
    pub uprights: Vec<(String, f64)>,
    /// Width in CSS pixels: [`WIDE`](Figure::WIDE) or [`NARROW`](Figure::NARROW).
    pub width: u32,
}

/// The common axis, from left to right.
#[derive(Clone, Debug, PartialEq)]
pub enum Across {
    /// Seconds from the beginning.
    Time,
    /// Label, with the unit, of a linear scale.
    Numbers(String),
    /// Label, with the unit, of a logarithmic scale.
    Log(String),
    /// Label, and names side by side. The first is at 0, the next at 1.
    Names(String, Vec<String>),
}

/// A part of the figure with a scale of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Label of the quantity that the panel shows.
    pub label: String,
    /// Unit of the values. May be empty.
    pub unit: String,
    /// Data series of the panel.
    pub series: Vec<PlotSeries>,
    /// Dashed horizontal lines, such as thresholds.
    pub levels: Vec<Level>,
    /// Labels of points: place, value and a word.
    pub notes: Vec<(f64, f64, String)>,
    /// Whether the scale of the values is logarithmic.
    pub log: bool,
}

/// Data of one name. In all panels, one name has one colour and one kind of mark.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotSeries {
    /// Name in the legend.
    pub name: String,
    /// Values, and the form in which they are drawn.
    pub data: SeriesData,
}

/// A dashed horizontal line.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Name in the legend.
    pub name: String,
    /// Value at which the line is drawn.
    pub value: f64,
    /// Beginning and end on the common axis; the whole axis if absent.
    pub within: Option<(f64, f64)>,
}

/// The forms of data, and the method of [`Panel`] that adds each.
macro_rules! data {
    ($($add:ident $form:ident($point:ty): $what:literal;)+) => {
        /// Data and how it is drawn. The first number is the place on the common axis.
        #[derive(Clone, Debug, PartialEq)]
        pub enum SeriesData {
            $(#[doc = $what] $form(Vec<$point>),)+
        }

        impl Panel {
            $(
                #[doc = concat!("Adds a series: ", $what)]
                #[must_use]
                pub fn $add(mut self, name: impl Into<String>, data: impl Into<Vec<$point>>) -> Panel {
                    self.series.push(PlotSeries { name: name.into(), data: SeriesData::$form(data.into()) });
                    self
                }
            )+
        }
    };
}

data! {
    band Band((f64, f64, f64)): "A band from the second number to the third.";
    bars Bars((f64, f64)): "Bars from zero. Those of several series stand side by side.";
    whiskers Whiskers((f64, f64, f64)): "Whiskers from the second number to the third, at the data of the same name.";
    line Line((f64, f64)): "A line with marks at its points.";
    marks Marks((f64, f64)): "Marks without a line.";
    paper Paper((f64, f64)): "Hollow marks: the values of [`Figure::reference`] for the series of the same name.";
}

impl Figure {
    /// Width of a page.
    pub const WIDE: u32 = 760;
    /// Half the width of a page, and the width of a phone.
    pub const NARROW: u32 = 400;

    /// A figure without panels.
    pub fn new(title: impl Into<String>, across: Across) -> Figure {
        Figure {
            title: title.into(),
            subtitle: String::new(),
            across,
            panels: Vec::new(),
            spans: Vec::new(),
            reference: "paper".to_owned(),
            uprights: Vec::new(),
            width: Figure::WIDE,
        }
    }

    /// Sets the line below the title.
    #[must_use]
    pub fn subtitle(self, subtitle: impl Into<String>) -> Figure {
        Figure { subtitle: subtitle.into(), ..self }
    }

    /// Width that can be drawn.
    pub(crate) fn css_width(&self) -> u32 {
        self.width.clamp(200, 4000)
    }

    /// Adds a panel below the others.
    #[must_use]
    pub fn panel(mut self, panel: Panel) -> Figure {
        self.panels.push(panel);
        self
    }

    /// Condenses each panel with more than `most` lines. A band from the least to the greatest value, and a line
    /// at the mean, replace its lines.
    #[must_use]
    pub fn digest(mut self, most: usize, what: &str) -> Figure {
        for panel in &mut self.panels {
            let lines =
                panel.series.iter().filter(|s| matches!(s.data, SeriesData::Line(_))).count();
            if lines > most {
                digest(panel, &format!("mean of {lines} {what}"));
            }
        }
        self
    }

    /// Description of the figure in a few sentences, for readers who do not see it. Contents: its panels, and
    /// the range of each series.
    pub fn alt(&self) -> String {
        let panels = self.panels.iter().map(|panel| panel.words(&self.reference));
        let uprights = self.uprights.iter().map(|(name, at)| format!(" {name} at {}.", brief(*at)));
        let title = format!("{}.", self.title.trim_end_matches('.'));
        std::iter::once(title).chain(panels).chain(uprights).collect()
    }
}

/// Replaces all lines of a panel by a band, and a line with this name.
fn digest(panel: &mut Panel, name: &str) {
    // Places are told apart by their bits: they are not negative, so bits are in the order of the numbers.
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    panel.series.retain(|series| {
        let SeriesData::Line(points) = &series.data else { return true };
        for (x, y) in points {
            at.entry(x.max(0.0).to_bits()).or_default().extend(drawable(*y));
        }
        false
    });
    // Without any value there is a gap: NaN.
    let of = |ys: &[f64], least: fn(f64, f64) -> f64| ys.iter().copied().fold(f64::NAN, least);
    let band = at.iter().map(|(x, ys)| (f64::from_bits(*x), of(ys, f64::min), of(ys, f64::max)));
    let mean = |ys: &[f64]| ys.iter().sum::<f64>() / ys.len() as f64;
    let line = at.iter().map(|(x, ys)| (f64::from_bits(*x), mean(ys)));
    let both = [
        ("least to most", SeriesData::Band(band.collect())),
        (name, SeriesData::Line(line.collect())),
    ];
    let both = both.map(|(name, data)| PlotSeries { name: name.to_owned(), data });
    panel.series.splice(0..0, both);
}

impl Panel {
    /// A panel without data.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Panel {
        Panel { label: label.into(), unit: unit.into(), ..Panel::default() }
    }

    /// Makes the scale of the values logarithmic.
    #[must_use]
    pub fn log(self) -> Panel {
        Panel { log: true, ..self }
    }

    /// The quantity with its unit.
    pub(crate) fn heading(&self) -> String {
        [self.label.as_str(), &self.unit]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn words(&self, reference: &str) -> String {
        // Whiskers belong to series that are described already.
        let all = self.series.iter().filter(|s| !matches!(s.data, SeriesData::Whiskers(_)));
        let mut parts: Vec<String> = all.map(|series| series.words(reference)).collect();
        if parts.len() > MOST {
            let more = format!("and {} more", parts.len() - MOST);
            parts.truncate(MOST);
            parts.push(more);
        }
        parts.extend(self.levels.iter().map(|l| format!("{} {}", l.name, brief(l.value))));
        if parts.is_empty() {
            parts.push("no data".to_owned());
        }
        format!(" {}: {}.", self.heading(), parts.join("; "))
    }
}

impl PlotSeries {
    fn words(&self, reference: &str) -> String {
        let source = match self.data {
            SeriesData::Paper(_) => format!(" ({reference})"),
            _ => String::new(),
        };
        let range = match extent(self.data.values().into_iter().map(|(_, y)| y)) {
            None => "no data".to_owned(),
            Some((low, high)) if low == high => brief(low),
            Some((low, high)) => format!("{} to {}", brief(low), brief(high)),
        };
        format!("{}{source} {range}", self.name).trim_start().to_owned()
    }
}

impl SeriesData {
    /// Whether the data has anything to draw.
    pub fn is_some(&self) -> bool {
        !self.values().is_empty()
    }

    /// Positions and values that can be drawn.
    pub(crate) fn values(&self) -> Vec<(f64, f64)> {
        let mut all: Vec<(f64, f64)> = match self {
            SeriesData::Line(points)
            | SeriesData::Marks(points)
            | SeriesData::Bars(points)
            | SeriesData::Paper(points) => points.clone(),
            SeriesData::Band(points) | SeriesData::Whiskers(points) => {
                points.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]).collect()
            }
        };
        all.retain(|p| drawable(p.0).and(drawable(p.1)).is_some());
        all
    }
}

/// The value, if it can be drawn.
pub(crate) fn drawable(value: f64) -> Option<f64> {
    (value.abs() <= 1e15).then_some(value)
}

/// The smallest and the largest value, if there is any.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |so_far, v| match so_far {
        None => Some((v, v)),
        Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
    })
}
