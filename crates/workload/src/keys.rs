//! The TOML of a workload, key by key. [`reader`](crate::reader) checks its meaning.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use parda_config::Amount;
use serde::Deserialize;

/// Keys of a load: those of a workload, or those of `trace`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a workload: a table")]
#[allow(missing_docs, reason = "docs/workloads.md describes each key")]
pub struct WorkloadKeys {
    #[serde(default, with = "parda_config::quantity")]
    pub size: Option<ByteSize>,
    pub sizes: Option<BTreeMap<String, Amount>>,
    pub read: Option<Amount>,
    pub trim: Option<Amount>,
    pub random: Option<Amount>,
    pub one_stream: Option<bool>,
    pub hot: Option<HotKeys>,
    pub outstanding: Option<u32>,
    pub rate: Option<f64>,
    #[serde(default, with = "parda_config::quantity")]
    pub on: Option<Duration>,
    #[serde(default, with = "parda_config::quantity")]
    pub off: Option<Duration>,
    pub trace: Option<PathBuf>,
    pub speed: Option<f64>,
    pub repeat: Option<bool>,
    pub fold: Option<bool>,
    pub in_step: Option<bool>,
}

/// Keys of the hot part of a disk.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a hot part: a table with `part` and `hits`")]
#[allow(missing_docs, reason = "docs/workloads.md describes each key")]
pub struct HotKeys {
    pub part: Amount,
    pub hits: Amount,
}
