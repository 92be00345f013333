//! Seek time of the arm between two cylinders.

use crate::error::{ParamError, check};
use crate::units::Nanos;

/// Seek time: base + root · √d + linear · d, with d the fraction of all cylinders crossed; 0 when
/// the arm stays. √d covers acceleration and braking, d the coasting. Source: Ruemmler and Wilkes,
/// *An introduction to disk drive modeling*, 1994.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekParams {
    /// Time of the shortest seek.
    pub base: Nanos,
    /// Factor of √d.
    pub root: Nanos,
    /// Factor of d.
    pub linear: Nanos,
}

/// Upper bound of each parameter; no disk drive seeks for ten seconds.
const LONGEST: Nanos = Nanos::from_millis(10_000);

impl SeekParams {
    pub(crate) fn validate(&self) -> Result<(), ParamError> {
        let must = "be at most 10s";
        check(self.base <= LONGEST, "drive.seek.base", self.base, must)?;
        check(self.root <= LONGEST, "drive.seek.root", self.root, must)?;
        check(self.linear <= LONGEST, "drive.seek.linear", self.linear, must)
    }
}

/// [`SeekParams`] in the form for fast evaluation.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeekCurve {
    base: f64,
    root: f64,
    linear: f64,
    per_cylinder: f64,
}

impl SeekCurve {
    pub(super) fn new(params: &SeekParams, cylinders: u32) -> SeekCurve {
        SeekCurve {
            base: params.base.0 as f64,
            root: params.root.0 as f64,
            linear: params.linear.0 as f64,
            per_cylinder: 1.0 / f64::from(cylinders),
        }
    }

    /// Seek time from one cylinder to another, in nanoseconds.
    pub(super) fn time(&self, from: f64, to: f64) -> f64 {
        let cylinders = (from - to).abs();
        if cylinders <= 0.0 {
            return 0.0;
        }
        let d = cylinders * self.per_cylinder;
        self.base + self.root * libm::sqrt(d) + self.linear * d
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_curve() {
        let params = SeekParams {
            base: Nanos::from_millis(1),
            root: Nanos::from_millis(10),
            linear: Nanos::from_millis(6),
        };
        let curve = SeekCurve::new(&params, 400);
        assert_eq!(curve.time(7.0, 7.0), 0.0);
        assert_eq!(curve.time(100.0, 0.0), 1e6 + 5e6 + 1.5e6);
        assert_eq!(curve.time(0.0, 100.0), curve.time(300.0, 200.0));
        assert_eq!(curve.time(0.0, 400.0), 17e6);
    }
}
