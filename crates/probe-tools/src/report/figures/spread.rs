//! Heat maps of the distributions of latencies, load by load.

use parda_plot::{Across, Figure, Panel, Tile};

use super::{Swept, narrow, range, swept};
use parda_probe::ProbeDocument;
use parda_probe::{Bucket, Point};

/// Approximate number of bins from the lowest latency to the highest, and the smallest and largest number of bins for each decade.
const BINS: f64 = 36.0;
const PER_DECADE: (f64, f64) = (12.0, 40.0);
/// Decades of the colour scale: a fraction of ten to the minus this is not visible.
const FAINTEST: f64 = 4.0;

/// A heat map for each mix that was swept.
pub(crate) fn spread(document: &ProbeDocument) -> Vec<(String, Figure)> {
    let all: Vec<(String, Swept)> =
        swept(document).into_iter().map(|of| (of.mix.to_string(), of)).collect();
    let figures = spread_of(&all).into_iter().enumerate();
    figures.map(|(place, figure)| (format!("spread-{}", place + 1), figure)).collect()
}

/// Heat maps of several sweeps, each with its title, all with the same axes.
pub(crate) fn spread_of(all: &[(String, Swept<'_>)]) -> Vec<Figure> {
    let points = || all.iter().flat_map(|(_, of)| &of.points);
    let ends =
        |p: &Point| [p.all.histogram.first().map_or(p.all.mean_ms, |b| b.up_to_ms), p.all.max_ms];
    let decades =
        range(points().flat_map(|p| ends(p))).map_or(1.0, |(low, high)| (high / low).log10());
    let per_decade = (BINS / decades).clamp(PER_DECADE.0, PER_DECADE.1).round();
    let tiles = |of: &Swept| tiles(&of.points, per_decade);
    let drawn = all.iter().flat_map(|(_, of)| tiles(of)).flat_map(|t| [t.up.0, t.up.1]);
    let up = range(drawn.chain(points().flat_map(|p| [p.all.mean_ms, p.all.max_ms])));
    let across = range(points().map(|p| f64::from(p.load.outstanding)));
    let figure = |(title, of): &(String, Swept)| {
        let line = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
            of.points.iter().map(|p| (f64::from(p.load.outstanding), value(p))).collect()
        };
        let mut panel = Panel::new("Latency", "ms")
            .heat("share of IOs, from 0.01 % to all", tiles(of))
            .line("mean", line(|p| p.all.mean_ms))
            .line("99 % are no slower", line(|p| p.all.p99_ms))
            .line("slowest", line(|p| p.all.max_ms))
            .log();
        panel.room = up;
        let label = Across::Log("IOs outstanding".to_owned());
        let mut figure = narrow(title, label).panel(panel);
        // Tiles reach half a doubling beyond the outer points.
        figure.room = across.map(|(low, high)| (low / 2f64.sqrt(), high * 2f64.sqrt()));
        figure
    };
    all.iter().map(figure).collect()
}

/// One column for each point. It reaches half the way to either neighbour.
fn tiles(points: &[&Point], per_decade: f64) -> Vec<Tile> {
    let at: Vec<f64> = points.iter().map(|p| f64::from(p.load.outstanding)).collect();
    let mut tiles = Vec::new();
    for (i, point) in points.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|j| at.get(j)).copied();
        let from = before.map_or(at[i] / 2f64.sqrt(), |b| (b * at[i]).sqrt());
        let to = at.get(i + 1).map_or(at[i] * 2f64.sqrt(), |next| (next * at[i]).sqrt());
        let shares = shares(&point.all.histogram, per_decade);
        let total: f64 = shares.iter().map(|s| s.1).sum();
        tiles.extend(shares.into_iter().map(|(bin, ios)| Tile {
            across: (from, to),
            up: (
                10f64.powf(f64::from(bin) / per_decade),
                10f64.powf(f64::from(bin + 1) / per_decade),
            ),
            shade: 1.0 + (ios / total).log10() / FAINTEST,
        }));
    }
    tiles
}

/// Number of IOs in each bin, ascending. A bucket that covers several bins is divided among them.
fn shares(histogram: &[Bucket], per_decade: f64) -> Vec<(i32, f64)> {
    let ratios = histogram.windows(2).map(|w| w[1].up_to_ms / w[0].up_to_ms);
    // Empty buckets are left out of the document: the width of buckets is seen where two follow one another.
    let wide = ratios.filter(|r| *r > 1.0).fold(1.3, f64::min);
    let mut shares: Vec<(i32, f64)> = Vec::new();
    for bucket in histogram.iter().filter(|b| b.up_to_ms > 0.0 && b.up_to_ms.is_finite()) {
        let bin = |ms: f64| (ms.log10() * per_decade - 1e-9).floor() as i32;
        let (first, last) = (bin(bucket.up_to_ms / wide), bin(bucket.up_to_ms));
        // A bucket that begins just below the end of a bin belongs to the next bin.
        let first = if wide < 10f64.powf(1.0 / per_decade) { last } else { first + 1 };
        let bins = f64::from(last - first + 1).max(1.0);
        for bin in first.min(last)..=last {
            let ios = bucket.ios as f64 / bins;
            match shares.iter_mut().find(|s| s.0 == bin) {
                Some(share) => share.1 += ios,
                None => shares.push((bin, ios)),
            }
        }
    }
    shares.sort_by_key(|s| s.0);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::document;

    #[test]
    fn no_io_is_lost_between_buckets_and_bins() {
        let document = document();
        for point in &document.points {
            let histogram = &point.all.histogram;
            let ios: f64 = histogram.iter().map(|b| b.ios as f64).sum();
            let shown: f64 = shares(histogram, 12.0).iter().map(|s| s.1).sum();
            assert!((shown - ios).abs() < 1e-6 * ios, "{ios} {shown}");
        }
        assert_eq!(shares(&[Bucket { up_to_ms: 0.0, ios: 3 }], 12.0), []);
    }

    #[test]
    fn most_ios_are_where_it_is_darkest() {
        let document = document();
        let swept = swept(&document);
        let tiles = tiles(&swept[0].points[..1], 12.0);
        let darkest = tiles.iter().max_by(|a, b| a.shade.total_cmp(&b.shade)).unwrap();
        let median = swept[0].points[0].all.p50_ms;
        assert!((darkest.up.0 / 1.5..darkest.up.1 * 1.5).contains(&median), "{darkest:?} {median}");
        assert!(tiles.iter().all(|t| t.shade <= 1.0));
    }
}
