//! The policy that the host has read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The policy in etcd, as the host read it last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Number of its revision; 0 before there is a policy.
    pub revision: u64,
    /// Author of the revision.
    pub by: Option<String>,
    /// Time of the revision by the author's clock, in milliseconds since 1970.
    pub at_ms: Option<u64>,
    /// Reason why etcd cannot be read now. The policy that was read last stays in force.
    pub fault: Option<String>,
    /// Volumes of this host that have a policy.
    pub volumes: Vec<VolumePolicy>,
}

/// The policy of one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumePolicy {
    /// Name of the volume.
    pub name: String,
    /// Revision in which the policy in force was made; `null` if none is in force.
    pub in_force: Option<u64>,
    /// Reason why the policy that was read last is not in force.
    pub fault: Option<String>,
    /// Keys that this version does not know. The rest is in force.
    pub unknown: Vec<String>,
}
