//! What is to be drawn.

/// Panels above one another over a common axis.
///
/// A value that is NaN, infinite or beyond ±10¹⁵ counts as missing: lines have a gap there.
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
    /// A figure without panels yet.
    pub fn new(title: impl Into<String>, across: Across) -> Figure {
        Figure {
            title: title.into(),
            subtitle: String::new(),
            across,
            panels: Vec::new(),
            spans: Vec::new(),
            reference: "paper".to_owned(),
        }
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
            Data::Band(points) => {
                points.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]).collect()
            }
        };
        all.into_iter().filter(|p| drawable(p.0).and(drawable(p.1)).is_some()).collect()
    }
}
