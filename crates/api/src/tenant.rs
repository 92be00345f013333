//! Tenants of a volume.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::state::ValueFrom;

/// A tenant of a volume: disks on any number of hosts with shares, a limit or a reservation together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Name of the tenant, the same on all hosts.
    pub name: String,
    /// Settings that are set, by key: `shares`, `limit` and `reservation`.
    pub settings: Map<String, Value>,
    /// Origin of each setting that is set.
    #[serde(default)]
    pub settings_from: BTreeMap<String, ValueFrom>,
    /// IO/s of its disks on all hosts that are heard.
    pub iops: f64,
    /// IO/s of its disks on this host.
    pub own_iops: f64,
    /// This host's part of its limit, from 0 to 1.
    pub limit_part: Option<f64>,
    /// It asks for its reservation, and has less.
    pub short: bool,
}
