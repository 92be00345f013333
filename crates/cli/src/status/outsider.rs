//! Load that is not under control, in words.

use parda_api::{Outsider, OutsiderState, ThresholdCost};
use parda_terminal::output::count;

/// Line on a detected outsider, with the evidence.
pub(crate) fn line(found: &Outsider) -> String {
    let Outsider { outstanding, part, latency_ms, usual_ms, factor, periods, .. } = *found;
    let size = format!("about {outstanding:.0} IOs outstanding, {:.0} % of all", 100.0 * part);
    match found.state {
        OutsiderState::Slower => format!(
            "SLOWER: the array is {factor:.2} times slower, or an outsider uses it with {size}; IOs of all hosts take {latency_ms:.1} \
             ms, and {usual_ms:.1} ms were usual with as many outstanding, for {}",
            count(periods.into(), "period"),
        ),
        OutsiderState::Outsider => format!(
            "OUTSIDER: load that is not under control uses the array with {size}; the hosts keep nine tenths of what they would have \
             without control, at {latency_ms:.1} ms"
        ),
        OutsiderState::BelowKnee => format!(
            "BELOW THE KNEE: the threshold is too low for the array, or an outsider was there from the start: smaller windows bring \
             little latency and cost much throughput, so IOs take {latency_ms:.1} ms"
        ),
    }
}

/// The same in few words.
pub(crate) fn short(found: &Outsider) -> String {
    match found.state {
        OutsiderState::Slower => {
            format!("SLOWER: the array, {:.2} times, or an outsider uses it", found.factor)
        }
        OutsiderState::Outsider => "OUTSIDER: load that is not under control uses the array".into(),
        OutsiderState::BelowKnee => "BELOW THE KNEE: a threshold too low, or an outsider".into(),
    }
}

/// The price of a threshold.
pub(crate) fn cost(cost: &ThresholdCost) -> String {
    format!(
        "the threshold costs throughput: without it about {:.2} times as many IO/s, at {:.1} ms",
        cost.factor, cost.latency_ms
    )
}
