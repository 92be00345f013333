//! Ranges and ticks of axes.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

use crate::figure::{Across, Figure, Panel, PlotSeries, drawable, extent};
use crate::number::{brief, number};

/// An axis: a range, linear or logarithmic, and its ticks.
#[derive(Clone)]
pub(crate) struct Axis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    log: bool,
    /// Values with their labels, ascending.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.linear().map(&self.counts(*value), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks.iter().find(|(at, _)| at == value).map_or(String::new(), |tick| tick.1.clone())
    }
}

impl Axis {
    /// An axis for these values, with a fraction `room` of its length beside them, and about `most` ticks at most. A
    /// linear axis begins at zero if the least value is 0 to 30 % of the greatest.
    fn new(values: impl Iterator<Item = f64>, log: bool, room: f64, most: usize) -> Axis {
        let range = extent(values.filter(|v| fits(*v, log)));
        let (low, high) = range.unwrap_or(if log { (1.0, 10.0) } else { (0.0, 1.0) });
        let (low, high) = if log {
            let room = (high / low).powf(room).max(1.05);
            (low / room, high * room)
        } else {
            // An empty range is widened.
            let room = ((high - low) * room).max(low.abs().max(high.abs()) * 1e-9).max(1e-15);
            let near_zero = (0.0..=0.3 * high).contains(&low);
            (if near_zero { 0.0 } else { low - room }, high + room)
        };
        let mut axis = Axis { low, high, log, ticks: Vec::new() };
        axis.put(if log { axis.decades(most) } else { axis.linear().key_points(most) });
        axis
    }

    /// The scale of the values of a panel.
    pub(crate) fn up(panel: &Panel, most: usize) -> Axis {
        let values = panel.series.iter().flat_map(|s| s.data.values()).map(|(_, y)| y);
        let levels = panel.levels.iter().map(|level| level.value);
        let zero = if panel.log { None } else { Some(0.0) };
        Axis::new(values.chain(levels).chain(zero), panel.log, 0.05, most)
    }

    /// The common axis of a figure.
    pub(crate) fn across(figure: &Figure) -> Axis {
        if let Across::Names(_, names) = &figure.across {
            let ticks = (0..).map(f64::from).zip(names.iter().cloned()).collect();
            return Axis { low: -0.5, high: names.len().max(1) as f64 - 0.5, log: false, ticks };
        }
        let log = matches!(figure.across, Across::Log(_));
        let all = || figure.panels.iter().flat_map(|p| &p.series);
        let place = |series: &PlotSeries| series.data.values().into_iter().map(|(x, _)| x);
        let spans = figure.spans.iter().flat_map(|(_, from, to)| [*from, *to]);
        let uprights = figure.uprights.iter().map(|(_, at)| *at);
        let others = spans.chain(uprights);
        let width = figure.css_width();
        let room = if figure.across == Across::Time { 0.0 } else { 0.04 };
        let places = all().flat_map(place).chain(others);
        let mut axis = Axis::new(places, log, room, width as usize / 75);
        // Whole numbers have ticks where the data is.
        let mut at: Vec<f64> = all().flat_map(place).filter(|at| fits(*at, log)).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        if figure.across != Across::Time && at.len() <= 24 && at.iter().all(|at| at.fract() == 0.0)
        {
            let length = axis.counts(axis.high) - axis.counts(axis.low);
            let least = 33.0 / f64::from(width) * length;
            at.dedup_by(|next, last| axis.counts(*next) - axis.counts(*last) < least);
            axis.put(at);
        }
        axis
    }

    /// The value, if it has a place on this axis.
    pub(crate) fn at(&self, value: f64) -> Option<f64> {
        (self.low..=self.high).contains(&value).then_some(value)
    }

    fn counts(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }

    fn linear(&self) -> RangedCoordf64 {
        (self.counts(self.low)..self.counts(self.high)).into()
    }

    fn put(&mut self, ticks: Vec<f64>) {
        self.ticks = ticks.into_iter().map(|value| (value, label(value))).collect();
    }

    /// Round values within a logarithmic axis.
    fn decades(&self, most: usize) -> Vec<f64> {
        let ladder = |factors: &[f64]| -> Vec<f64> {
            let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            // Parsed, as multiplying is not exact.
            let value = |power, factor| format!("{factor}e{power}").parse().unwrap_or(f64::NAN);
            let values = powers.flat_map(|power| factors.iter().map(move |f| value(power, *f)));
            values.filter(|value: &f64| (self.low..=self.high).contains(value)).collect()
        };
        let fine = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];
        let ladders = [&fine[..], &[1.0, 2.0, 5.0], &[1.0, 3.0]];
        let few = ladders.into_iter().map(ladder).find(|ticks| ticks.len() <= most.max(2));
        few.unwrap_or_else(|| ladder(&[1.0]))
    }
}

/// Whether a value has a place on a scale.
fn fits(value: f64, log: bool) -> bool {
    drawable(value).is_some_and(|value| !log || value >= 1e-15)
}

/// A tick's label: ticks are round, and zeros at the end say nothing.
fn label(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        return brief(value);
    }
    number(value, 4).trim_end_matches('0').trim_end_matches('.').to_owned()
}
