//! Expected values of single metrics.

use std::collections::BTreeMap;

use parda_scenario::Study;
use parda_scenario::expectation::{Bound, Expectation};

/// Expected values by the path of their metric.
pub(crate) struct Expected(BTreeMap<String, f64>);

impl Expected {
    pub(crate) fn new(study: &Study) -> Expected {
        let of_one = |e: &Expectation| match e.bound {
            Bound::Near { expected, .. } if e.of.is_none() => {
                Some((Expected::path(&e.what.to_string()), expected))
            }
            _ => None,
        };
        Expected(study.expectations.iter().filter_map(of_one).collect())
    }

    pub(crate) fn get(&self, path: &str) -> Option<f64> {
        self.0.get(&Expected::path(path)).copied()
    }

    /// The path of a distribution stands for its mean.
    fn path(path: &str) -> String {
        path.strip_suffix("/mean").unwrap_or(path).to_owned()
    }
}
