//! Expected values of single metrics.

use std::collections::HashMap;

use parda_scenario::Study;
use parda_scenario::expectation::{Bound, Expectation};
use parda_scenario::metric::Metric;

/// Expected values by their metric.
pub(crate) struct Expected(HashMap<Metric, f64>);

impl Expected {
    pub(crate) fn new(study: &Study) -> Expected {
        let of_one = |e: &Expectation| match e.bound {
            Bound::Near { expected, .. } if e.of.is_none() => Some((e.what.shortened(), expected)),
            _ => None,
        };
        Expected(study.expectations.iter().filter_map(of_one).collect())
    }

    pub(crate) fn get(&self, metric: &Metric) -> Option<f64> {
        self.0.get(&metric.shortened()).copied()
    }
}
