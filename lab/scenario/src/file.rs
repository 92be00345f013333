//! The TOML document of a scenario, key by key. [`crate::check`] checks its meaning.

use std::time::Duration;

use bytesize::ByteSize;
use parda_config::{Amount, ControlSettings, TenantSettings};
use parda_workload::keys::WorkloadKeys;
use serde::Deserialize;
use toml::Table;

use crate::array::ArraySettings;
use crate::exchange::{EtcdEvent, ExchangeSettings};
use crate::guest::GuestSettings;
use crate::sweep::Sweep;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    #[serde(default = "default_seed")]
    pub seed: u64,
    #[serde(with = "parda_config::quantity")]
    pub duration: Duration,
    pub array: ArraySettings,
    #[serde(default)]
    pub control: ControlSettings,
    #[serde(default)]
    pub exchange: ExchangeSettings,
    #[serde(default)]
    pub tenant: Vec<TenantSettings>,
    #[serde(default)]
    pub host: Vec<Host>,
    #[serde(default)]
    pub event: Vec<EventEntry>,
    #[serde(default)]
    pub phase: Vec<crate::scenario::Phase>,
    #[serde(default)]
    pub expect: Vec<Expect>,
    #[serde(default)]
    pub variant: Vec<Variant>,
    #[serde(default)]
    pub sweep: Vec<Sweep>,
    #[serde(default)]
    pub plot: Vec<crate::plot::PlotKeys>,
}

fn default_seed() -> u64 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub name: String,
    /// Number of hosts with these settings, see [`crate::many`]. If absent, one host of exactly this
    /// name.
    pub count: Option<u32>,
    #[serde(default)]
    pub kind: Kind,
    pub guest: Option<GuestSettings>,
    #[serde(default)]
    pub outside: bool,
    pub control: Option<ControlSettings>,
    pub exchange: Option<ExchangeSettings>,
    #[serde(default)]
    pub vm: Vec<Vm>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Process,
    Guest,
}

parda_config::with_vm_settings! {
    #[derive(Clone, Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(crate) struct Vm {
        pub name: String,
        #[serde(default, with = "parda_config::quantity")]
        pub disk: Option<ByteSize>,
        /// Name of the VM whose disk this VM shares, in place of `disk`.
        pub same_disk_as: Option<String>,
        pub workload: WorkloadKeys,
        #[serde(default, with = "parda_config::quantity")]
        pub start: Option<Duration>,
        #[serde(default, with = "parda_config::quantity")]
        pub stop: Option<Duration>,
    }
}

parda_config::with_vm_settings! {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(crate) struct EventEntry {
        #[serde(with = "parda_config::quantity")]
        pub at: Duration,
        pub vm: Option<String>,
        pub host: Option<String>,
        /// Name of the host that a VM moves to.
        pub to: Option<String>,
        #[serde(rename = "do")]
        pub verb: Option<Verb>,
        pub control: Option<ControlSettings>,
        pub exchange: Option<ExchangeSettings>,
        pub array: Option<ArrayChange>,
        pub etcd: Option<EtcdEvent>,
    }
}

/// A fault or change of the array: exactly one of these keys.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArrayChange {
    pub fail_drive: Option<u32>,
    pub rebuild_drive: Option<u32>,
    pub write_cache: Option<bool>,
    pub slow: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verb {
    Start,
    Stop,
    Kill,
    Hang,
    Resume,
    Move,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub what: String,
    pub of: Option<String>,
    #[serde(default)]
    pub source: String,
    pub expected: Option<Amount>,
    pub tolerance: Option<Amount>,
    pub at_least: Option<Amount>,
    pub at_most: Option<Amount>,
    pub exempt: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub name: String,
    pub hosts: Option<Vec<String>>,
    #[serde(default)]
    pub set: Table,
}
