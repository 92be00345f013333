//! Bounds of the settings of a VM that can be changed live, for the configuration and for a policy.

use std::time::Duration;

use parda_control::VmConfig;

use crate::threshold::{AT_MOST, MOST};

/// Keys of the settings of a VM that can be changed without closing its connections.
pub const VM_SETTINGS: [&str; 3] = ["shares", "burst", "latency_target"];

/// The fault of a VM's `shares`, if they are out of bounds.
#[must_use]
pub fn wrong_shares(shares: u32) -> Option<String> {
    let good = (1..=VmConfig::MAX_SHARES).contains(&shares);
    (!good).then(|| format!("must be from 1 to {}", VmConfig::MAX_SHARES))
}

/// The fault of a VM's `burst`, if it is out of bounds.
#[must_use]
pub fn wrong_burst(burst: f64) -> Option<String> {
    (!(0.0..=1e6).contains(&burst)).then(|| "must be from 0 to 1000000 IOs".to_owned())
}

/// The fault of a disk's `latency_target`, if it is outside the bounds of a threshold.
#[must_use]
pub fn wrong_target(target: Duration) -> Option<String> {
    if target.is_zero() {
        return Some("must be above zero".into());
    }
    (target > MOST).then(|| format!("must be {AT_MOST}"))
}
