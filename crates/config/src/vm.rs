//! Settings of a VM that are changed while it is served: their bounds, for the configuration and for a policy.

use std::time::Duration;

use parda_control::VmConfig;

use crate::threshold::{AT_MOST, MOST};

/// Keys of the settings of a disk that change without closing its connections.
pub const VM_SETTINGS: [&str; 3] = ["shares", "burst", "latency_target"];

/// Says what is wrong with a VM's `shares`.
#[must_use]
pub fn wrong_shares(shares: u32) -> Option<String> {
    let good = (1..=VmConfig::MAX_SHARES).contains(&shares);
    (!good).then(|| format!("must be from 1 to {}", VmConfig::MAX_SHARES))
}

/// Says what is wrong with a VM's `burst`.
#[must_use]
pub fn wrong_burst(burst: f64) -> Option<String> {
    (!(0.0..=1e6).contains(&burst)).then(|| "must be from 0 to 1000000 IOs".to_owned())
}

/// Says what is wrong with a disk's `latency_target`, which has the bounds of a threshold.
#[must_use]
pub fn wrong_target(target: Duration) -> Option<String> {
    if target.is_zero() {
        return Some("must be above zero".into());
    }
    (target > MOST).then(|| format!("must be {AT_MOST}"))
}
