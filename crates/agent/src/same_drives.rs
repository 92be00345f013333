//! Volumes that seem to lie on the same drives, as the latency of one follows the load on another: what is said of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A volume whose drives this one seems to lie on as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SameDrivesStatus {
    /// Name of the other volume: the latency of this one follows the load on it.
    pub volume: String,
    /// Partial rank correlation of the changes of latency here with those of the outstanding IOs there, from 0 to 1.
    pub correlation: f64,
    /// The same in standard errors, by Fisher's transform.
    pub errors: f64,
    /// Rise of latency here with each IO outstanding there, in milliseconds.
    pub rise_ms: f64,
    /// Number of changes that were compared.
    pub compared: u32,
}

/// What is found of each volume, by its name.
pub(crate) type Found = BTreeMap<String, Vec<SameDrivesStatus>>;
