//! Means of one period over all hosts, from which the search learns.

/// What all hosts together did in a period, by what they publish.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// IO/s of the hosts that want more than they have, as a mean that nobody's gain makes up for
    /// another's loss in ([`crate::backlog::Backlog::rate`]).
    pub rate: f64,
    /// IO/s of all hosts whose windows a law governs, just added up.
    pub total: f64,
    /// IO/s of all others that are heard.
    pub light_rate: f64,
    /// What part of all that is outstanding is theirs.
    pub light: f64,
    /// Which hosts want more: only periods with the same ones are compared.
    pub who: u64,
    /// What part of their shares they used, in eighths: all, if they wanted more all the time.
    pub used: u8,
    /// IOs that the latency is a mean of.
    pub ios: f64,
    /// Mean device latency, in seconds.
    pub latency: f64,
    /// How many times the mean over all IOs that is, as the slowest VM counts ([`crate::slowest`]).
    pub beyond: f64,
    /// Σ outstanding of the governed hosts, in slots.
    pub outstanding: f64,
    /// Σ of their windows.
    pub windows: f64,
    /// Whether any of them came near to using its own.
    pub in_use: bool,
    /// What they may have outstanding however high the latency.
    pub least: f64,
    /// Mean size of an IO, in bytes.
    pub size: f64,
    /// What part of the IOs reads, from 0 to 1.
    pub reads: f64,
}
