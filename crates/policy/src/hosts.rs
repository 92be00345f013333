//! Reports of hosts on the policy in force. Each host has a key of its own. The time left of its lease shows how long the host has been
//! silent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Time after which etcd removes the report of a silent host.
pub const LEASE: Duration = Duration::from_secs(24 * 3600);

/// Interval at which a host renews its lease.
pub const RENEWAL: Duration = Duration::from_secs(20);

/// Silence from which on a host counts as silent: two renewals were missed.
const SILENT: Duration = Duration::from_secs(60);

/// Report of a host on its policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Name of the host in its `parda.toml`.
    pub host: String,
    /// Version of its agent.
    pub version: String,
    /// Revision of the policy that the host has read last.
    pub revision: u64,
    /// Its volumes that have a policy.
    pub volumes: Vec<VolumeReport>,
}

/// Report of a host on one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Name of the volume.
    pub name: String,
    /// Revision of the volume's policy that is in force, if one is.
    pub in_force: Option<u64>,
    /// Reason why the policy that was read last is not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Keys that this version does not define; the rest is in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// Values in force of the settings of the law that the policy names.
    #[serde(default)]
    pub control: BTreeMap<String, ValueInForce>,
    /// Values in force of the settings that the policy names, by VM of this host.
    #[serde(default)]
    pub vms: BTreeMap<String, BTreeMap<String, ValueInForce>>,
}

/// A value that a host has in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValueInForce {
    /// The value; `null` if the default is in force.
    pub value: Value,
    /// Layer that it comes from: `policy`, or `state` or `live`, which override the policy.
    pub from: String,
}

/// Whether a host is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// The host renews its lease.
    Live,
    /// The host has not renewed its lease for this many seconds.
    Silent(u64),
}

/// A host and its report in etcd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Name of the host, from its key.
    pub host: String,
    /// Whether the host is heard.
    pub presence: Presence,
    /// Its report; `None` if the value is no report.
    pub report: Option<HostReport>,
}

impl Presence {
    /// Presence of a host, from the whole time of its lease and the time that is left.
    #[must_use]
    pub fn of(granted: Duration, left: Duration) -> Presence {
        let silence = granted.saturating_sub(left);
        if silence < SILENT { Presence::Live } else { Presence::Silent(silence.as_secs()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_silent_when_two_renewals_are_missed() {
        let of = |left: u64| Presence::of(LEASE, LEASE - Duration::from_secs(left));
        assert_eq!([of(0), of(59)], [Presence::Live; 2]);
        assert_eq!(of(60), Presence::Silent(60));
        assert_eq!(Presence::of(LEASE, LEASE * 2), Presence::Live, "no time runs backwards");
        assert!(2 * RENEWAL < SILENT);
    }
}
