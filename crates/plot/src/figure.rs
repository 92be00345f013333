//! What is to be drawn.

/// Panels above one another over a common axis.
///
/// A value that is NaN, infinite or beyond ±10¹⁵ counts as missing: lines have a gap there. So does one on a
/// logarithmic scale that is not above 10⁻¹⁵.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// A line below the title: where the numbers come from. May be empty.
    pub subtitle: String,
    /// The common axis.
    pub across: Across,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// Stretches of the axis that are named above the panels: the phases that are measured.
    pub spans: Vec<Span>,
    /// Whose values the hollow marks are, for the legend: a paper's if nothing else is said.
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

/// A dashed line from top to bottom.
#[derive(Clone, Debug, PartialEq)]
pub struct Upright {
    /// Its name in the legend.
    pub name: String,
    /// Where it is.
    pub at: f64,
}

/// The common axis, from left to right.
#[derive(Clone, Debug, PartialEq)]
pub enum Across {
    /// Seconds from the beginning. Shown in seconds, minutes or hours, whichever reads well.
    Time,
    /// Numbers.
    Numbers {
        /// What they are, with their unit.
        label: String,
    },
    /// Numbers on a logarithmic scale.
    Log {
        /// What they are, with their unit.
        label: String,
    },
    /// Names, in this order. The first is at 0, the next at 1.
    Names {
        /// What they are, with their unit if they have one.
        label: String,
        /// The names.
        names: Vec<String>,
    },
}

/// A part of the figure with a scale of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// What it shows.
    pub label: String,
    /// In which unit. May be empty, for numbers that have none.
    pub unit: String,
    /// The data.
    pub series: Vec<Series>,
    /// Dashed lines at values that matter.
    pub levels: Vec<Level>,
    /// Words beside points.
    pub notes: Vec<Note>,
    /// Whether its scale is logarithmic.
    pub log: bool,
    /// A range that its scale has room for, whatever the data.
    pub room: Option<(f64, f64)>,
}

/// Words beside a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The place of the point on the common axis, and its value.
    pub at: (f64, f64),
    /// A word or two.
    pub text: String,
}

/// Data of one name. In all panels, one name has one colour and one kind of mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// What it consists of, and how it is drawn.
    pub data: Data,
}

/// Data and how it is drawn. The first number is the place on the common axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// A line, with marks.
    Line(Vec<(f64, f64)>),
    /// Marks only.
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
    /// From where to where on the common axis.
    pub across: (f64, f64),
    /// From which value to which.
    pub up: (f64, f64),
    /// How dark it is: 0 as the ground, 1 as dark as it gets.
    pub shade: f64,
}

/// A dashed line.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name in the legend.
    pub name: String,
    /// Where it is.
    pub value: f64,
    /// From where to where on the common axis it holds: all of it if not given.
    pub within: Option<(f64, f64)>,
}

/// A named stretch of the common axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

impl Figure {
    /// As wide as a page.
    pub const WIDE: f64 = 760.0;
    /// Half as wide as a page, and as wide as a phone.
    pub const NARROW: f64 = 400.0;

    /// A figure without panels yet.
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

    /// With a dashed line from top to bottom through all panels.
    #[must_use]
    pub fn upright(mut self, name: impl Into<String>, at: f64) -> Figure {
        self.uprights.push(Upright { name: name.into(), at });
        self
    }

    /// With a line below the title.
    #[must_use]
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Figure {
        self.subtitle = subtitle.into();
        self
    }

    /// With one more panel below the others.
    #[must_use]
    pub fn panel(mut self, panel: Panel) -> Figure {
        self.panels.push(panel);
        self
    }

    /// With a named stretch of the common axis.
    #[must_use]
    pub fn span(mut self, name: impl Into<String>, from: f64, to: f64) -> Figure {
        self.spans.push(Span { name: name.into(), from, to });
        self
    }
}

impl Panel {
    /// A panel without data yet.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Panel {
        Panel { label: label.into(), unit: unit.into(), ..Panel::default() }
    }

    /// With a line through points.
    #[must_use]
    pub fn line(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Line(points.into()))
    }

    /// With marks at points.
    #[must_use]
    pub fn marks(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Marks(points.into()))
    }

    /// With bars at points.
    #[must_use]
    pub fn bars(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Bars(points.into()))
    }

    /// With what a paper says about the series of this name, as hollow marks.
    #[must_use]
    pub fn paper(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Panel {
        self.with(name, Data::Paper(points.into()))
    }

    /// With a band from the second number to the third.
    #[must_use]
    pub fn band(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64, f64)>>) -> Panel {
        self.with(name, Data::Band(points.into()))
    }

    /// With a dashed line at a value.
    #[must_use]
    pub fn level(mut self, name: impl Into<String>, value: f64) -> Panel {
        self.levels.push(Level { name: name.into(), value, within: None });
        self
    }

    /// With whiskers from the second number to the third.
    #[must_use]
    pub fn whiskers(
        self,
        name: impl Into<String>,
        points: impl Into<Vec<(f64, f64, f64)>>,
    ) -> Panel {
        self.with(name, Data::Whiskers(points.into()))
    }

    /// With shaded areas.
    #[must_use]
    pub fn heat(self, name: impl Into<String>, tiles: impl Into<Vec<Tile>>) -> Panel {
        self.with(name, Data::Heat(tiles.into()))
    }

    /// With words beside a point.
    #[must_use]
    pub fn note(mut self, at: (f64, f64), text: impl Into<String>) -> Panel {
        self.notes.push(Note { at, text: text.into() });
        self
    }

    /// With a logarithmic scale.
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

/// The value if it can be drawn.
pub(crate) fn drawable(value: f64) -> Option<f64> {
    (value.abs() <= 1e15).then_some(value)
}

impl Data {
    /// Whether there is anything to draw.
    pub fn is_some(&self) -> bool {
        !self.values().is_empty()
    }

    /// All places and values that can be drawn.
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
