//! Data model of figures: panels, series and axes.

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
    /// Named stretches of the common axis, such as phases, shown above the panels.
    pub spans: Vec<Span>,
    /// Whose values the hollow marks are, for the legend: a paper's by default.
    pub reference: String,
    /// Dashed lines from top to bottom through all panels, at places of the axis that matter.
    pub uprights: Vec<Upright>,
    /// A range that the common axis has room for, whatever the data: that of another figure, so that
    /// both can be held against each other.
    pub room: Option<(f64, f64)>,
    /// How wide it is, in the units of CSS, at which its text is as large as text is. Two
    /// [`NARROW`](Figure::NARROW) ones stand side by side on a page, and one fits a phone.
    pub width: f64,
}

/// A dashed vertical line through all panels.
#[derive(Clone, Debug, PartialEq)]
pub struct Upright {
    /// Name in the legend.
    pub name: String,
    /// Position on the common axis.
    pub at: f64,
}

/// The common axis, from left to right.
#[derive(Clone, Debug, PartialEq)]
pub enum Across {
    /// Seconds from the beginning. Shown in seconds, minutes or hours, whichever reads well.
    Time,
    /// Numbers on a linear scale.
    Numbers {
        /// Label of the axis, with the unit.
        label: String,
    },
    /// Numbers on a logarithmic scale.
    Log {
        /// Label of the axis, with the unit.
        label: String,
    },
    /// Names side by side, in this order. The first is at 0, the next at 1.
    Names {
        /// Label of the axis, with the unit if there is one.
        label: String,
        /// Names from left to right.
        names: Vec<String>,
    },
}

/// A part of the figure with a scale of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Label of the quantity that the panel shows.
    pub label: String,
    /// Unit of the values. May be empty.
    pub unit: String,
    /// Data series of the panel.
    pub series: Vec<Series>,
    /// Dashed horizontal lines, such as thresholds.
    pub levels: Vec<Level>,
    /// Labels of single points.
    pub notes: Vec<Note>,
    /// Whether the scale of the values is logarithmic.
    pub log: bool,
    /// A range that its scale has room for, whatever the data.
    pub room: Option<(f64, f64)>,
}

/// Label of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The place of the point on the common axis, and its value.
    pub at: (f64, f64),
    /// Text of the label, a word or two.
    pub text: String,
}

/// Data of one name. In all panels, one name has one colour and one kind of mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Values, and the form in which they are drawn.
    pub data: Data,
}

/// Data and how it is drawn. The first number is the place on the common axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// A line with marks at its points.
    Line(Vec<(f64, f64)>),
    /// Marks without a line.
    Marks(Vec<(f64, f64)>),
    /// Bars from zero. Those of several series stand side by side.
    Bars(Vec<(f64, f64)>),
    /// Hollow marks: what a paper, or whoever is [`Figure::reference`], says about the series of the same name.
    Paper(Vec<(f64, f64)>),
    /// A band from the second number to the third.
    Band(Vec<(f64, f64, f64)>),
    /// Whiskers from the second number to the third, at what is drawn under the same name.
    Whiskers(Vec<(f64, f64, f64)>),
    /// Areas, shaded by how much there is in each.
    Heat(Vec<Tile>),
}

/// An area of a heat map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// Beginning and end on the common axis.
    pub across: (f64, f64),
    /// Lower and upper value.
    pub up: (f64, f64),
    /// How dark it is: 0 as the ground, 1 as dark as it gets.
    pub shade: f64,
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

/// A named stretch of the common axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Name that is shown above the panels.
    pub name: String,
    /// Beginning on the common axis.
    pub from: f64,
    /// End on the common axis.
    pub to: f64,
}

impl Figure {
    /// Width of a page, in CSS pixels.
    pub const WIDE: f64 = 760.0;
    /// Half the width of a page, and the width of a phone, in CSS pixels.
    pub const NARROW: f64 = 400.0;

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
            room: None,
            width: Figure::WIDE,
        }
    }

    /// Adds a dashed vertical line through all panels.
    #[must_use]
    pub fn upright(mut self, name: impl Into<String>, at: f64) -> Figure {
        self.uprights.push(Upright { name: name.into(), at });
        self
    }

    /// Sets the line below the title.
    #[must_use]
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Figure {
        self.subtitle = subtitle.into();
        self
    }

    /// Adds a panel below the others.
    #[must_use]
    pub fn panel(mut self, panel: Panel) -> Figure {
        self.panels.push(panel);
        self
    }

    /// Adds a named stretch of the common axis.
    #[must_use]
    pub fn span(mut self, name: impl Into<String>, from: f64, to: f64) -> Figure {
        self.spans.push(Span { name: name.into(), from, to });
        self
    }
}

impl Panel {
    /// A panel without data.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Panel {
        Panel { label: label.into(), unit: unit.into(), ..Panel::default() }
    }

    /// Adds a line through points.
    #[must_use]
    pub fn line(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Line(points.into()))
    }

    /// Adds marks at points.
    #[must_use]
    pub fn marks(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Marks(points.into()))
    }

    /// Adds bars at points.
    #[must_use]
    pub fn bars(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Bars(points.into()))
    }

    /// Adds a paper's values for the series of this name, as hollow marks.
    #[must_use]
    pub fn paper(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Paper(points.into()))
    }

    /// Adds a band from the second number to the third.
    #[must_use]
    pub fn band(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64, f64)>>) -> Panel {
        self.with(name, Data::Band(points.into()))
    }

    /// Adds a dashed line at a value.
    #[must_use]
    pub fn level(mut self, name: impl Into<String>, value: f64) -> Panel {
        self.levels.push(Level { name: name.into(), value, within: None });
        self
    }

    /// Adds whiskers from the second number to the third.
    #[must_use]
    pub fn whiskers(
        self,
        name: impl Into<String>,
        points: impl Into<Vec<(f64, f64, f64)>>,
    ) -> Panel {
        self.with(name, Data::Whiskers(points.into()))
    }

    /// Adds the shaded areas of a heat map.
    #[must_use]
    pub fn heat(self, name: impl Into<String>, tiles: impl Into<Vec<Tile>>) -> Panel {
        self.with(name, Data::Heat(tiles.into()))
    }

    /// Adds a label at a point.
    #[must_use]
    pub fn note(mut self, at: (f64, f64), text: impl Into<String>) -> Panel {
        self.notes.push(Note { at, text: text.into() });
        self
    }

    /// Makes the scale of the values logarithmic.
    #[must_use]
    pub fn log(mut self) -> Panel {
        self.log = true;
        self
    }

    fn with(mut self, name: impl Into<String>, data: Data) -> Panel {
        self.series.push(Series { name: name.into(), data });
        self
    }
}

/// The value, if it can be drawn.
pub(crate) fn drawable(value: f64) -> Option<f64> {
    (value.abs() <= 1e15).then_some(value)
}

impl Data {
    /// Whether the data has anything to draw.
    pub fn is_some(&self) -> bool {
        !self.values().is_empty()
    }

    /// Positions and values that can be drawn.
    pub(crate) fn values(&self) -> Vec<(f64, f64)> {
        let all: Vec<(f64, f64)> = match self {
            Data::Line(points) | Data::Marks(points) | Data::Bars(points) | Data::Paper(points) => {
                points.clone()
            }
            Data::Band(points) | Data::Whiskers(points) => {
                points.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]).collect()
            }
            Data::Heat(tiles) => {
                tiles.iter().flat_map(|t| [(t.across.0, t.up.0), (t.across.1, t.up.1)]).collect()
            }
        };
        all.into_iter().filter(|p| drawable(p.0).and(drawable(p.1)).is_some()).collect()
    }
}
