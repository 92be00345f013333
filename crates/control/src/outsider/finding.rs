//! What is seen of an array in a period, and what is found.

/// What all hosts that are heard did in a period, those outside control among them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// IOs per second of all these hosts.
    pub rate: f64,
    /// Mean number of their outstanding IOs.
    pub outstanding: f64,
    /// IOs that these are means of.
    pub ios: f64,
    /// Part of the IOs that reads, from 0 to 1.
    pub reads: f64,
    /// Mean size of an IO, in bytes.
    pub size: f64,
    /// Whether the others have longer periods: a change then comes in parts, from one host after another.
    pub early: bool,
}

impl Seen {
    /// Mean latency of an IO, in seconds.
    pub(super) fn latency(&self) -> f64 {
        self.outstanding / self.rate
    }
}

/// What is found of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum State {
    /// Too little is known of it under this load.
    #[default]
    Unknown,
    /// It does what it did.
    Usual,
    /// It became slower, or somebody else uses it: nothing says which.
    Slower,
    /// Somebody else uses it.
    Outsider,
}

/// What is found, and the figures that say so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finding {
    /// What explains the latency best.
    pub state: State,
    /// Mean latency of the last period, in seconds.
    pub latency: f64,
    /// The usual latency with as many outstanding, in seconds.
    pub usual: f64,
    /// Periods for which the latency has been above that.
    pub periods: u32,
    /// Outstanding IOs of an outsider that would explain it, counted in IOs like ours.
    pub outstanding: f64,
    /// The interval in which that is, with nine chances of ten, if there is an outsider.
    pub within: (f64, f64),
    /// The part of the array that such an outsider has: its part of all outstanding IOs.
    pub part: f64,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
    /// Logarithm of how many times likelier the outsider is than the slower array. Negative: the slower array is likelier.
    pub evidence: f64,
    /// Periods that this rests on.
    pub compared: u32,
}
