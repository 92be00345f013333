//! The standing of an exchange over UDP.

use super::counters::DatagramCounters;

/// The state of an exchange over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramStanding {
    /// Datagrams since the start.
    pub counters: DatagramCounters,
    /// Number of hosts that are heard now and have not shown that they hear this one.
    pub unproven: usize,
    /// Number of keys in force.
    pub keys: usize,
}
