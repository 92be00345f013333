//! Input and output of the detection: a period's load, and the finding.

/// Load of all hosts that are heard in a period, with and without control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// IOs per second of all these hosts.
    pub rate: f64,
    /// Mean number of their outstanding IOs.
    pub outstanding: f64,
    /// Number of IOs in the period.
    pub ios: f64,
    /// Part of the IOs that are reads, from 0 to 1.
    pub reads: f64,
    /// Mean size of an IO, in bytes.
    pub size: f64,
    /// Whether other hosts have longer periods, so that a change reaches this host in parts.
    pub early: bool,
}

impl Seen {
    /// Mean latency of an IO, in seconds.
    pub(super) fn latency(&self) -> f64 {
        self.outstanding / self.rate
    }
}

/// State of the array, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum State {
    /// Too little is known of the array under this kind of load.
    #[default]
    Unknown,
    /// Latency is as usual.
    Usual,
    /// The array became slower, or an outsider uses it: nothing says which.
    Slower,
    /// An outsider uses the array.
    Outsider,
}

/// State of the array, with the figures that it rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finding {
    /// State that explains the latency best.
    pub state: State,
    /// Mean latency of the last period, in seconds.
    pub latency: f64,
    /// The usual latency with as many outstanding IOs, in seconds.
    pub usual: f64,
    /// Periods for which the latency has been above that.
    pub periods: u32,
    /// Outstanding IOs of an outsider that would explain it, counted in IOs like ours.
    pub outstanding: f64,
    /// 90 % interval of `outstanding`, if there is an outsider.
    pub within: (f64, f64),
    /// Part of all outstanding IOs that such an outsider has, from 0 to 1.
    pub part: f64,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
    /// Natural logarithm of how many times likelier the outsider is than the slower array. Below 0 the slower array is likelier.
    pub evidence: f64,
    /// Number of periods that the evidence rests on.
    pub compared: u32,
}
