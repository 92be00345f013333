//! Charts of throughput and latency over outstanding IOs, and of throughput over latency.

use parda_plot::{Figure, Level};

use super::{Swept, both, swept};
use crate::report::words::ms;
use parda_probe::ProbeDocument;

/// The advised threshold, for the legend.
const THRESHOLD: &str = "threshold to set";

/// Two charts: both over outstanding IOs, and throughput over latency.
pub(crate) fn load(document: &ProbeDocument) -> Vec<(String, Figure)> {
    let swept = swept(document);
    if swept.is_empty() {
        return Vec::new();
    }
    let sweeps: Vec<(String, &Swept)> = swept.iter().map(|of| (of.mix.to_string(), of)).collect();
    // Numbers at the ends of each curve, and along the first, where there is room.
    let [mut load, mut answer] =
        both("Throughput and latency against outstanding", &sweeps, |place, i, point| {
            let last = swept[place].points.len() - 1;
            i == 0 || i == last || place == 0 && point.load.outstanding.is_power_of_two()
        });
    let found = &document.findings;
    if let Some(threshold) = found.advice.as_ref().map(|a| a.latency_threshold_ms) {
        if let Some(latency) = load.panels.last_mut() {
            let level = Level { name: THRESHOLD.to_owned(), value: threshold, within: None };
            latency.levels.push(level);
        }
        answer.uprights.push((format!("{THRESHOLD}, {}", ms(threshold)), threshold));
    }
    if let Some(knee) = found.curves.first().and_then(|curve| curve.knee) {
        load.spans.push((String::new(), knee.outstanding.low, knee.outstanding.high));
        let name = format!("knee of {} (grey: 95 % sure)", found.curves[0].mix);
        load.uprights.push((name, knee.outstanding.value));
    }
    vec![("load".to_owned(), load), ("answer".to_owned(), answer)]
}
