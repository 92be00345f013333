//! What can be probed.

use std::str::FromStr;

use crate::document::{Document, TargetInfo};
use crate::model::{Model, ModelError};
use crate::plan::{Plan, Wishes};
use crate::run::{Probe, Watcher};

/// What is to be probed.
#[derive(Debug)]
pub enum Target {
    /// The array model.
    Model(Model),
}

/// Why something cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such model.
    #[error("{name}: {error}")]
    Model {
        /// As it was named.
        name: String,
        /// Why.
        error: ModelError,
    },
    /// It is none of the kinds of targets.
    #[error("{0}: not a target: a model is named as model:drive-7200")]
    Unknown(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(name: &str) -> Result<Target, TargetError> {
        let Some(model) = name.strip_prefix("model:") else {
            return Err(TargetError::Unknown(name.to_owned()));
        };
        let wrong = |error| TargetError::Model { name: name.to_owned(), error };
        model.parse().map(Target::Model).map_err(wrong)
    }
}

impl Target {
    /// What it is.
    #[must_use]
    pub fn info(&self) -> TargetInfo {
        match self {
            Target::Model(model) => model.info(),
        }
    }

    /// Probes it.
    pub fn probe(
        &mut self,
        wishes: Wishes,
        time: Option<f64>,
        seed: u64,
        watcher: &mut dyn Watcher,
    ) -> Document {
        let (target, plan) = (self.info(), Plan::new(wishes, seed));
        let Target::Model(driver) = self;
        Probe { target, driver, plan, time, seed }.run(watcher)
    }
}
