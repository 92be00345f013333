//! Scales of axes: ranges, ticks, and the mapping from values to positions.

use crate::number::{brief, number};

/// Ticks of an axis, each with its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ticks {
    /// Values and labels, in ascending order.
    pub(crate) at: Vec<(f64, String)>,
}

/// Mapping from values to positions in the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    /// Whether `low` and `high` are logarithms.
    log: bool,
}

impl Scale {
    /// A linear scale from `low`, at position `from`, to `high`, at `to`.
    pub(crate) fn new((low, high): (f64, f64), from: f64, to: f64) -> Scale {
        Scale { low, high, from, to, log: false }
    }

    /// A logarithmic scale. Both ends must be above zero.
    pub(crate) fn log((low, high): (f64, f64), from: f64, to: f64) -> Scale {
        Scale { low: low.ln(), high: high.ln(), from, to, log: true }
    }

    /// A value as the scale counts it. NaN or infinite if it has no position.
    fn counts(&self, value: f64) -> f64 {
        if self.log { value.ln() } else { value }
    }

    /// Position of a value in the picture.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let part = (self.counts(value) - self.low) / (self.high - self.low);
        let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        self.from + part * (self.to - self.from)
    }

    /// Whether a value is within the range.
    pub(crate) fn holds(&self, value: f64) -> bool {
        let slack = (self.high - self.low) * 1e-9;
        (self.low - slack..=self.high + slack).contains(&self.counts(value))
    }
}

/// The smallest and the largest value, if there is any.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |so_far, v| match so_far {
        None => Some((v, v)),
        Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
    })
}

/// A range for values that are compared with one another and with zero.
pub(crate) fn from_zero(values: Option<(f64, f64)>) -> (f64, f64) {
    match values {
        Some((low, high)) if low < high.max(0.0) || high < 0.0 => (low.min(0.0), high.max(0.0)),
        Some((_, high)) if high > 0.0 => (0.0, high),
        _ => (0.0, 1.0),
    }
}

/// The range, widened if it is empty.
pub(crate) fn not_empty((low, high): (f64, f64)) -> (f64, f64) {
    if high - low > low.abs().max(high.abs()) * 1e-9 {
        return (low, high);
    }
    let room = if low == 0.0 { 0.5 } else { low.abs() * 0.05 };
    (low - room, high + room)
}

/// The step among 1, 2 and 5 times powers of ten that gives about `wanted` steps, and its decimals.
fn step(range: f64, wanted: usize) -> (f64, usize) {
    let rough = (range / wanted.max(1) as f64).max(f64::MIN_POSITIVE);
    let exponent = rough.log10().floor();
    let power = 10f64.powf(exponent);
    let (factor, carry) = match rough / power {
        f if f < 1.5 => (1.0, 0.0),
        f if f < 3.5 => (2.0, 0.0),
        f if f < 7.5 => (5.0, 0.0),
        _ => (1.0, 1.0),
    };
    let exponent = exponent + carry;
    (factor * 10f64.powf(exponent), (-exponent).clamp(0.0, 12.0) as usize)
}

/// About `wanted` round values within a range.
pub(crate) fn ticks(range: (f64, f64), wanted: usize) -> Ticks {
    stepped(range, step(range.1 - range.0, wanted))
}

/// The multiples of a step within a range.
fn stepped((low, high): (f64, f64), (step, decimals): (f64, usize)) -> Ticks {
    let first = (low / step - 1e-6).ceil();
    let last = (high / step + 1e-6).floor();
    let count = (last - first).clamp(0.0, 100.0) as usize;
    let largest = low.abs().max(high.abs());
    let at = (0..=count).map(|i| {
        let value = (first + i as f64) * step;
        (value, label(value, step, decimals, largest))
    });
    Ticks { at: at.filter(|(v, _)| v.is_finite()).collect() }
}

/// Label of a tick, in the form that all labels of the axis share.
fn label(value: f64, step: f64, decimals: usize, largest: f64) -> String {
    if decimals > 6 {
        return format!("{value:.1e}");
    }
    for (unit, from, name) in [(1e12, 1e13, " T"), (1e9, 1e10, " G"), (1e6, 1e7, " M")] {
        if largest >= from {
            let decimals = (-(step / unit).log10().floor()).clamp(0.0, 3.0) as usize;
            return format!("{}{name}", number(value / unit, decimals));
        }
    }
    number(value, decimals)
}

/// A range that ends at ticks, and the ticks.
pub(crate) fn rounded((low, high): (f64, f64), wanted: usize) -> ((f64, f64), Ticks) {
    let (low, high) = not_empty((low, high));
    let step = step(high - low, wanted);
    let outer = ((low / step.0 + 1e-6).floor() * step.0, (high / step.0 - 1e-6).ceil() * step.0);
    (outer, stepped(outer, step))
}

/// The factors by which ticks of a logarithmic axis are multiples of powers of ten: the first that are not too many.
const LADDERS: [&[f64]; 4] =
    [&[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];

/// A range above zero whose ends are ticks of a logarithmic axis, and the ticks: no more than about `wanted`.
pub(crate) fn log_rounded((low, high): (f64, f64), wanted: usize) -> ((f64, f64), Ticks) {
    let all = |ladder: &[f64]| -> Vec<f64> {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let rungs = |power: i32| ladder.iter().map(move |f| round(*f, power)).collect::<Vec<_>>();
        let rungs: Vec<f64> = (first..=last).flat_map(rungs).collect();
        // The last that is no higher, to the first that is no lower.
        let from = rungs.iter().rposition(|r| *r <= low * (1.0 + 1e-9)).unwrap_or(0);
        let to = rungs.iter().position(|r| *r >= high * (1.0 - 1e-9)).unwrap_or(rungs.len() - 1);
        rungs.get(from..=to.max(from + 1)).unwrap_or(&rungs).to_vec()
    };
    let mut rungs = all(LADDERS[3]);
    if let Some(fine) = LADDERS.iter().map(|ladder| all(ladder)).find(|r| r.len() <= wanted.max(2))
    {
        rungs = fine;
    }
    let range = (rungs[0], rungs[rungs.len() - 1]);
    let every = rungs.len().div_ceil(wanted.max(2) + 1);
    let at = rungs.into_iter().step_by(every).map(|v| (v, log_label(v))).collect();
    (range, Ticks { at })
}

/// A factor times a power of ten, without the dust of multiplying.
fn round(factor: f64, power: i32) -> f64 {
    format!("{factor}e{power}").parse().unwrap_or(factor * 10f64.powi(power))
}

/// The powers of two within a range, no more than about `wanted`.
pub(crate) fn doubling((low, high): (f64, f64), wanted: usize) -> Ticks {
    let (first, last) = ((low.log2() - 1e-6).ceil() as i32, (high.log2() + 1e-6).floor() as i32);
    let every = ((last - first + 1).max(1) as usize).div_ceil(wanted.max(2));
    let values = (first..=last).step_by(every).map(|power| 2f64.powi(power));
    Ticks { at: values.map(|v| (v, log_label(v))).collect() }
}

/// Whether a number is a power of two.
pub(crate) fn doubles(value: f64) -> bool {
    value > 0.0 && (value.log2() - value.log2().round()).abs() < 1e-9
}

/// Ticks of a logarithmic axis are round: all their digits count.
fn log_label(value: f64) -> String {
    for (unit, name) in [(1e12, " T"), (1e9, " G"), (1e6, " M")] {
        if value >= unit {
            return format!("{}{name}", brief(value / unit));
        }
    }
    match value {
        v if v >= 1000.0 => brief(v),
        v if v >= 1e-4 => v.to_string(),
        v => format!("{v:e}"),
    }
}

/// In which unit a stretch of time reads well: its name, and how many seconds it is.
pub(crate) fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        s if s <= 900.0 => ("s", 1.0),
        s if s <= 3.0 * 3600.0 => ("min", 60.0),
        _ => ("h", 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(ticks: &Ticks) -> Vec<&str> {
        ticks.at.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            labels(&ticks((0.0, 350.0), 7)),
            ["0", "50", "100", "150", "200", "250", "300", "350"]
        );
        assert_eq!(labels(&ticks((0.0, 1.0), 5)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&ticks((0.0, 3200.0), 4)), ["0", "1,000", "2,000", "3,000"]);
        assert_eq!(labels(&ticks((-10.0, 10.0), 4)), ["−10", "−5", "0", "5", "10"]);
        assert_eq!(
            labels(&ticks((0.0, 2e9), 4)),
            ["0 M", "500 M", "1,000 M", "1,500 M", "2,000 M"]
        );
    }

    #[test]
    fn a_rounded_range_ends_at_ticks() {
        let ((low, high), ticks) = rounded((0.0, 61.3), 4);
        assert_eq!((low, high), (0.0, 80.0));
        assert_eq!(labels(&ticks), ["0", "20", "40", "60", "80"]);
    }

    #[test]
    fn a_range_from_zero_is_never_empty() {
        assert_eq!(from_zero(None), (0.0, 1.0));
        assert_eq!(from_zero(Some((0.0, 0.0))), (0.0, 1.0));
        assert_eq!(from_zero(Some((5.0, 5.0))), (0.0, 5.0));
        assert_eq!(from_zero(Some((2.0, 5.0))), (0.0, 5.0));
        assert_eq!(from_zero(Some((-3.0, -3.0))), (-3.0, 0.0));
        assert_eq!(from_zero(Some((-3.0, 4.0))), (-3.0, 4.0));
    }

    #[test]
    fn a_logarithmic_range_ends_at_ticks_that_are_as_many_as_fit() {
        let (range, ticks) = log_rounded((0.3, 150.0), 10);
        assert_eq!(range, (0.2, 200.0));
        assert_eq!(
            labels(&ticks),
            ["0.2", "0.5", "1", "2", "5", "10", "20", "50", "100", "200"][..]
        );
    }

    #[test]
    fn time_is_told_in_the_unit_that_reads_well() {
        assert_eq!(time_unit(350.0), ("s", 1.0));
        assert_eq!(time_unit(1800.0), ("min", 60.0));
        assert_eq!(time_unit(86_400.0), ("h", 3600.0));
    }

    proptest! {
        #[test]
        fn any_logarithmic_range_has_some_ticks_in_order_within_it(a in -13.0..15f64, b in -13.0..15f64, wanted in 1usize..12) {
            let (low, high) = (10f64.powf(a.min(b)), 10f64.powf(a.max(b)));
            let ((from, to), ticks) = log_rounded((low, high), wanted);
            prop_assert!(from <= low * 1.000_001 && high <= to * 1.000_001, "{from} {low} {high} {to}");
            prop_assert!((2..=wanted.max(2) + 2).contains(&ticks.at.len()), "{ticks:?}");
            prop_assert!(ticks.at.windows(2).all(|w| w[0].0 < w[1].0));
            let scale = Scale::log((from, to), 100.0, 0.0);
            prop_assert!(ticks.at.iter().all(|(value, _)| scale.holds(*value)));
            prop_assert!(!scale.holds(0.0) && !scale.holds(-1.0) && !scale.holds(f64::NAN));
            prop_assert!(scale.place(low) >= scale.place(high));
        }

        #[test]
        fn any_range_has_some_ticks_in_order_within_it(a in -1e15..1e15f64, b in -1e15..1e15f64, wanted in 1usize..12) {
            let range = not_empty((a.min(b), a.max(b)));
            let ((low, high), ticks) = rounded(range, wanted);
            prop_assert!(low <= range.0 + (high - low) * 1e-5 && range.1 <= high + (high - low) * 1e-5);
            prop_assert!((2..=2 * wanted + 3).contains(&ticks.at.len()), "{ticks:?}");
            prop_assert!(ticks.at.windows(2).all(|w| w[0].0 < w[1].0));
            let scale = Scale::new((low, high), 100.0, 0.0);
            for (value, _) in &ticks.at {
                prop_assert!(scale.holds(*value));
                prop_assert!((-0.01..=100.01).contains(&scale.place(*value)));
            }
        }
    }
}
