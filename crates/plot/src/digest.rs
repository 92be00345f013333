//! Reduction of data: a band for many lines, and no more points than a screen can show.

use std::collections::BTreeMap;

use crate::figure::{Data, Figure, Panel, Series, drawable};

impl Figure {
    /// Replaces the lines of each panel with more than `most` of them by a band from the least to the
    /// greatest value and a line at the mean.
    #[must_use]
    pub fn digest(mut self, most: usize, what: &str) -> Figure {
        for panel in &mut self.panels {
            let lines = panel.series.iter().filter(|s| matches!(s.data, Data::Line(_))).count();
            if lines > most {
                digest(panel, lines, what);
            }
        }
        self
    }
}

/// Replaces all lines of a panel by a band.
fn digest(panel: &mut Panel, lines: usize, what: &str) {
    // Places are told apart by their bits: they are not negative, so bits are in the order of the numbers.
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for series in &panel.series {
        let Data::Line(points) = &series.data else { continue };
        for (x, y) in points {
            at.entry(x.max(0.0).to_bits()).or_default().extend(drawable(*y));
        }
    }
    let (mut band, mut mean) = (Vec::new(), Vec::new());
    for (x, ys) in at {
        let x = f64::from_bits(x);
        // Without any value there is a gap.
        let low = ys.iter().copied().reduce(f64::min).unwrap_or(f64::NAN);
        let high = ys.iter().copied().reduce(f64::max).unwrap_or(f64::NAN);
        band.push((x, low, high));
        mean.push((x, ys.iter().sum::<f64>() / ys.len() as f64));
    }
    panel.series.retain(|s| !matches!(s.data, Data::Line(_)));
    let name = format!("mean of {lines} {what}");
    panel.series.insert(0, Series { name: "least to most".to_owned(), data: Data::Band(band) });
    panel.series.insert(1, Series { name, data: Data::Line(mean) });
}

/// The points of a line, thinned to what can be seen: for each column of pixels the first, the lowest, the highest and the
/// last. `None` is a gap.
pub(crate) fn thinned(points: &[Option<(f64, f64)>], columns: f64) -> Vec<Option<(f64, f64)>> {
    if points.len() as f64 <= 4.0 * columns {
        return points.to_vec();
    }
    let mut out = Vec::new();
    let mut column: Vec<(f64, f64)> = Vec::new();
    for point in points {
        let begun = column.first().map(|p| p.0.floor());
        if point.is_none() || begun.is_some_and(|x| point.is_some_and(|p| p.0.floor() != x)) {
            flush(&mut column, &mut out);
        }
        match point {
            Some(p) => column.push(*p),
            None => out.push(None),
        }
    }
    flush(&mut column, &mut out);
    out
}

fn flush(column: &mut Vec<(f64, f64)>, out: &mut Vec<Option<(f64, f64)>>) {
    let by = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
    let mut keep = vec![0, column.len().saturating_sub(1)];
    keep.extend((0..column.len()).min_by(by));
    keep.extend((0..column.len()).max_by(by));
    keep.sort_unstable();
    keep.dedup();
    out.extend(keep.into_iter().filter_map(|i| column.get(i)).map(|p| Some(*p)));
    column.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Across;

    fn hosts(n: usize) -> Figure {
        let panel = (0..n).fold(Panel::new("IOPS", "1/s"), |panel, i| {
            panel.line(format!("h{i}"), vec![(1.0, i as f64), (2.0, f64::NAN)])
        });
        Figure::new("t", Across::Time).panel(panel.paper("all", vec![(1.0, 3.0)]))
    }

    #[test]
    fn few_hosts_stay_as_they_are() {
        let figure = hosts(12).digest(12, "hosts");
        assert_eq!(figure.panels[0].series.len(), 13);
        assert!(!figure.panels[0].series.iter().any(|s| matches!(s.data, Data::Band(_))));
    }

    #[test]
    fn many_hosts_become_a_band_and_a_mean() {
        let figure = hosts(13).digest(12, "hosts");
        let series = &figure.panels[0].series;
        assert_eq!(series.len(), 3, "band, mean, and the paper's marks");
        let Data::Band(band) = &series[0].data else { panic!("no band: {series:?}") };
        let Data::Line(mean) = &series[1].data else { panic!("no mean: {series:?}") };
        assert_eq!(band[0], (1.0, 0.0, 12.0));
        assert_eq!(mean[0], (1.0, 6.0));
        assert!(mean[1].1.is_nan(), "a gap for all is a gap");
        assert_eq!(series[1].name, "mean of 13 hosts");
    }

    #[test]
    fn thinning_keeps_peaks_ends_and_gaps() {
        let mut points: Vec<_> = (0..10_000).map(|i| Some((f64::from(i) / 100.0, 1.0))).collect();
        points[5050] = Some((50.5, 99.0));
        points[7000] = None;
        let thin = thinned(&points, 100.0);
        assert!(thin.len() <= 410, "{}", thin.len());
        assert_eq!((thin.first(), thin.last()), (points.first(), points.last()));
        assert!(thin.contains(&Some((50.5, 99.0))));
        assert_eq!(thin.iter().filter(|p| p.is_none()).count(), 1);
    }
}
