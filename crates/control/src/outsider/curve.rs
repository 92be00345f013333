//! The usual latency against the number of outstanding IOs.

use alloc::vec::Vec;

/// Relative change of latency over the relative change of outstanding IOs, above all that were seen. It is near 1, as the array is nearly
/// saturated there.
const BEYOND: f64 = 0.9;

/// Means of some periods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) outstanding: f64,
    pub(super) latency: f64,
    /// Number of periods of the mean, each weighted by its IOs.
    pub(super) weight: f64,
}

impl Point {
    /// The mean of the periods of both.
    pub(super) fn with(self, other: Point) -> Point {
        let weight = self.weight + other.weight;
        let part = other.weight / weight;
        Point {
            outstanding: self.outstanding + part * (other.outstanding - self.outstanding),
            latency: self.latency + part * (other.latency - self.latency),
            weight,
        }
    }
}

/// A curve that does not fall: straight lines between points.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    first: Point,
    last: Point,
    points: Vec<Point>,
    falls: f64,
}

impl Curve {
    /// A curve through points, which are sorted by outstanding IOs. `falls`: the least relative change of latency over that of outstanding
    /// IOs below the first point. `room`: memory of an earlier curve. `None` without points.
    pub(super) fn new(
        mut room: Vec<Point>,
        means: impl Iterator<Item = Point>,
        falls: f64,
    ) -> Option<Curve> {
        room.clear();
        let mut points = room;
        for mut point in means {
            // Latency does not fall as outstanding IOs rise: points where it seems to fall, by chance, are merged.
            while let Some(last) = points.pop_if(|last| last.latency >= point.latency) {
                point = last.with(point);
            }
            points.push(point);
        }
        let (first, last) = (*points.first()?, *points.last()?);
        Some(Curve { first, last, points, falls })
    }

    /// Memory for the next curve.
    pub(super) fn into_room(self) -> Vec<Point> {
        self.points
    }

    /// Outstanding IOs of the first point.
    pub(super) fn least(&self) -> f64 {
        self.first.outstanding
    }

    /// Latency with these outstanding IOs. Below the first point the curve is flat.
    pub(super) fn at(&self, outstanding: f64) -> f64 {
        if outstanding >= self.last.outstanding {
            return self.last.latency
                * (1.0 + BEYOND * (outstanding / self.last.outstanding - 1.0));
        }
        let [low, high] = self.around(|point| point.outstanding <= outstanding);
        let part = (outstanding - low.outstanding) / (high.outstanding - low.outstanding);
        low.latency + part.max(0.0) * (high.latency - low.latency)
    }

    /// Upper bound of the latency with these outstanding IOs. Below the first point it falls.
    pub(super) fn most_at(&self, outstanding: f64) -> f64 {
        let below = (1.0 - outstanding / self.least()).max(0.0);
        self.at(outstanding) * (1.0 - self.falls * below)
    }

    /// Outstanding IOs at this latency. Below the first point's latency, those of the first point.
    pub(super) fn outstanding(&self, latency: f64) -> f64 {
        if latency >= self.last.latency {
            return self.last.outstanding * (1.0 + (latency / self.last.latency - 1.0) / BEYOND);
        }
        let [low, high] = self.around(|point| point.latency <= latency);
        let part = (latency - low.latency) / (high.latency - low.latency);
        low.outstanding + part.max(0.0) * (high.outstanding - low.outstanding)
    }

    /// Variance of the curve at these outstanding IOs, over the variance of one period of many IOs.
    pub(super) fn unsure(&self, outstanding: f64) -> f64 {
        let below = self.points.partition_point(|point| point.outstanding <= outstanding);
        let point = below.checked_sub(1).map_or(self.first, |below| self.points[below]);
        1.0 / point.weight
    }

    /// The last point for which `below` holds, and the next. If it holds for none, the first two points; `below` must not hold for the last point.
    fn around(&self, below: impl Fn(&Point) -> bool) -> [Point; 2] {
        let above = self.points.partition_point(below).clamp(1, self.points.len().max(2) - 1);
        let high = self.points.get(above).copied();
        // A second point, for a curve of one point.
        let beyond = Point {
            outstanding: self.last.outstanding + 1.0,
            latency: self.last.latency + 1.0,
            ..self.last
        };
        [self.points[above - 1], high.unwrap_or(beyond)]
    }
}
