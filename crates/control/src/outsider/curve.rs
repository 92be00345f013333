//! Latency against what is outstanding.

use alloc::vec::Vec;

/// By what part of a change of the outstanding IOs latency changes beyond all that were seen: there the array has next to no more to give.
const BEYOND: f64 = 0.9;

/// Mean of some periods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) outstanding: f64,
    pub(super) latency: f64,
    /// Periods of many IOs that it is a mean of.
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
    /// Through points in the order of their outstanding IOs. `falls`: by what part of a change of the outstanding IOs latency changes, at
    /// least, below all of them. `room`: memory of an earlier curve. `None` without points.
    pub(super) fn new(
        mut room: Vec<Point>,
        means: impl Iterator<Item = Point>,
        falls: f64,
    ) -> Option<Curve> {
        room.clear();
        let mut points = room;
        for mut point in means {
            // More outstanding IOs take no less time: where they seem to, that is chance.
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

    /// The least outstanding IOs that are known of.
    pub(super) fn least(&self) -> f64 {
        self.first.outstanding
    }

    /// Latency with so many outstanding; below the least, that of the least.
    pub(super) fn at(&self, outstanding: f64) -> f64 {
        if outstanding >= self.last.outstanding {
            return self.last.latency
                * (1.0 + BEYOND * (outstanding / self.last.outstanding - 1.0));
        }
        let [low, high] = self.around(|point| point.outstanding <= outstanding);
        let part = (outstanding - low.outstanding) / (high.outstanding - low.outstanding);
        low.latency + part.max(0.0) * (high.latency - low.latency)
    }

    /// The most that the latency may be with so many outstanding. Below the least that are known of it falls.
    pub(super) fn most_at(&self, outstanding: f64) -> f64 {
        let below = (1.0 - outstanding / self.least()).max(0.0);
        self.at(outstanding) * (1.0 - self.falls * below)
    }

    /// Outstanding IOs at this latency; below the least, that of the least.
    pub(super) fn outstanding(&self, latency: f64) -> f64 {
        if latency >= self.last.latency {
            return self.last.outstanding * (1.0 + (latency / self.last.latency - 1.0) / BEYOND);
        }
        let [low, high] = self.around(|point| point.latency <= latency);
        let part = (latency - low.latency) / (high.latency - low.latency);
        low.outstanding + part.max(0.0) * (high.outstanding - low.outstanding)
    }

    /// Variance of the latency with so many outstanding, in that of a period of many IOs.
    pub(super) fn unsure(&self, outstanding: f64) -> f64 {
        let below = self.points.partition_point(|point| point.outstanding <= outstanding);
        let point = below.checked_sub(1).map_or(self.first, |below| self.points[below]);
        1.0 / point.weight
    }

    /// The points on both sides of where `below` ends, which is before the last. Before the first they are the first two.
    fn around(&self, below: impl Fn(&Point) -> bool) -> [Point; 2] {
        let above = self.points.partition_point(below).clamp(1, self.points.len().max(2) - 1);
        let high = self.points.get(above).copied();
        // With one point there is no other, and nothing between the two.
        let beyond = Point {
            outstanding: self.last.outstanding + 1.0,
            latency: self.last.latency + 1.0,
            ..self.last
        };
        [self.points[above - 1], high.unwrap_or(beyond)]
    }
}
