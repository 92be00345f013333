//! The `[[plot]]` tables as written.

use serde::Deserialize;

/// Quantities of hosts that are recorded second by second.
pub const OVER_TIME: [&str; 5] =
    ["window", "device_latency_ms", "iops", "beta", "latency_threshold_ms"];

/// Kind of marks for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Draw {
    /// Lines with a mark at each point.
    Lines,
    /// Marks without lines between them.
    Marks,
    /// Bars side by side.
    Bars,
}

/// A `[[plot]]` table, as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlotKeys {
    pub(crate) name: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) over: Over,
    pub(crate) panels: Option<Vec<String>>,
    pub(crate) variant: Option<String>,
    pub(crate) phase: Option<String>,
    pub(crate) x: Option<String>,
    pub(crate) x_label: Option<String>,
    pub(crate) draw: Option<Draw>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Over {
    #[default]
    Time,
    Variants,
    Hosts,
    Vms,
}

impl PlotKeys {
    /// The plot of a study that has no `[[plot]]`.
    pub(crate) fn default_of(variants: bool) -> PlotKeys {
        let over = if variants { Over::Variants } else { Over::Time };
        PlotKeys { over, ..PlotKeys::default() }
    }

    /// Quantities of the panels, from top to bottom: those of the table, or else the usual ones.
    pub(crate) fn panels(&self) -> Vec<String> {
        let panels: &[&str] = match self.over {
            Over::Time => &OVER_TIME[..3],
            Over::Variants => &["total/iops", "total/device_latency_ms"],
            Over::Hosts => &["iops", "device_latency_ms"],
            Over::Vms => &["iops", "latency_ms"],
        };
        self.panels.clone().unwrap_or_else(|| panels.iter().map(|p| (*p).to_owned()).collect())
    }
}
