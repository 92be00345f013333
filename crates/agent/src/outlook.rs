//! What an agent that only observes would do: the law's forecasts with the names of the disks or VMs.

use parda_control::{Forecast, Outlook};
use serde::{Deserialize, Serialize};

/// What would be done, by the last period and by all since observing began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutlookStatus {
    /// By the last period with IO.
    pub last: ForecastStatus,
    /// By all of them since the law observes by its present parameters.
    pub since: ForecastStatus,
}

/// What would have been done over some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForecastStatus {
    /// How long that is, in seconds. Only periods in which the hosts did IO count.
    pub over_s: f64,
    /// What this host's window would have been, in slots.
    pub window: f64,
    /// The array's latency, in milliseconds.
    pub latency_ms: f64,
    /// What it would have been, in milliseconds.
    pub latency_would_be_ms: f64,
    /// The disks or VMs of this host.
    pub disks: Vec<PartStatus>,
}

/// What one disk or VM has of the array, and what it would have had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartStatus {
    /// Name of the disk, or of the steered VM.
    pub name: String,
    /// Shares of the disk or VM.
    pub shares: u32,
    /// Its part of what all hosts under control or observing have at the array, from 0 to 1.
    pub part: f64,
    /// What its part would have been.
    pub part_would_be: f64,
}

impl OutlookStatus {
    /// `disks`: names and shares, in their order. `None` while there was nothing to go by.
    pub(crate) fn new(outlook: &Outlook, disks: &[(String, u32)]) -> Option<OutlookStatus> {
        Some(OutlookStatus {
            last: ForecastStatus::new(&outlook.last, disks)?,
            since: ForecastStatus::new(&outlook.since, disks)?,
        })
    }
}

impl ForecastStatus {
    fn new(forecast: &Forecast, disks: &[(String, u32)]) -> Option<ForecastStatus> {
        let latency = forecast.latency()?;
        let parts = disks.iter().zip(forecast.parts()).map(|((name, shares), part)| PartStatus {
            name: name.clone(),
            shares: *shares,
            part: part.is,
            part_would_be: part.would_be,
        });
        Some(ForecastStatus {
            over_s: forecast.over.secs(),
            window: forecast.window()?,
            latency_ms: latency.is * 1e3,
            latency_would_be_ms: latency.would_be * 1e3,
            disks: parts.collect(),
        })
    }
}
