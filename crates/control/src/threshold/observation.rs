//! Means of one period over all hosts, from which the search learns.

/// Sums and means of a period over all hosts, from their reports. A host is *governed* if a law sets its window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// IO/s of the backlogged hosts, as a mean in which the gain of one does not make up for the loss of another
    /// ([`crate::backlog::Backlog::rate`]).
    pub rate: f64,
    /// IO/s of all governed hosts, added up.
    pub total: f64,
    /// IO/s of all hosts that are heard and not backlogged.
    pub light_rate: f64,
    /// Fraction of all outstanding IOs that belongs to the hosts of `light_rate`.
    pub light: f64,
    /// Hash of the set of backlogged hosts. Only periods with the same set are compared.
    pub who: u64,
    /// Part of their shares that the backlogged hosts used, in eighths: 8 if they were backlogged all the time.
    pub used: u8,
    /// Number of IOs over which `latency` is the mean.
    pub ios: f64,
    /// Mean device latency, in seconds.
    pub latency: f64,
    /// Σ outstanding of the governed hosts, in slots.
    pub outstanding: f64,
    /// Σ windows of the governed hosts, in slots.
    pub windows: f64,
    /// Whether any governed host nearly used its window.
    pub in_use: bool,
    /// Slots that the governed hosts may have outstanding however high the latency is.
    pub least: f64,
    /// Mean size of an IO, in bytes.
    pub size: f64,
    /// Fraction of the IOs that are reads.
    pub reads: f64,
}
