//! Forecast of observe mode, with the names of disks or VMs.

use parda_control::{Forecast, Outlook};
use serde::{Deserialize, Serialize};

/// Forecast of observe mode: from the last period, and from all periods since observing began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutlookStatus {
    /// By the last period with IO.
    pub last: ForecastStatus,
    /// By all of them since the law observes by its present parameters.
    pub since: ForecastStatus,
}

/// Forecast over a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForecastStatus {
    /// Length of that time, in seconds. Only periods in which the hosts did IO count.
    pub over_s: f64,
    /// Window that this host would have had, in slots.
    pub window: f64,
    /// The array's latency, in milliseconds.
    pub latency_ms: f64,
    /// Latency under control, in milliseconds.
    pub latency_would_be_ms: f64,
    /// The disks or VMs of this host.
    pub disks: Vec<PartStatus>,
}

/// Part of the array that one disk or VM has, and the part that it would have had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartStatus {
    /// Name of the disk, or of the steered VM.
    pub name: String,
    /// Shares of the disk or VM.
    pub shares: u32,
    /// Its part of what all hosts under control or observing have at the array, from 0 to 1.
    pub part: f64,
    /// Part under control, 0 to 1.
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
