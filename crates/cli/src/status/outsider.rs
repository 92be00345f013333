//! Load that is not under control, in words.

use parda_agent::status::OutsiderStatus;
use parda_control::outsider::State;

use crate::output::count;

/// What was found, with what says so.
pub(crate) fn line(found: &OutsiderStatus) -> String {
    let latency = format!(
        "IOs of all hosts take {:.1} ms, and {:.1} ms were usual with as many outstanding, for {}",
        found.latency_ms,
        found.usual_ms,
        count(found.periods.into(), "period"),
    );
    let size = size(found);
    if found.state == State::Outsider {
        return format!(
            "OUTSIDER: load that is not under control uses the array, with about {size}; {latency}; {:.0} times \
             likelier than an array that is {:.2} times slower, by {}",
            found.evidence.exp(),
            found.factor,
            count(found.compared.into(), "period"),
        );
    }
    format!(
        "SLOWER: the array is {:.2} times slower, or an outsider uses it with about {size}: nothing says which; {latency}",
        found.factor
    )
}

/// The same in few words.
pub(crate) fn short(found: &OutsiderStatus) -> String {
    match found.state {
        State::Outsider => format!("OUTSIDER: about {}", size(found)),
        _ => format!("SLOWER: the array, {:.2} times, or an outsider uses it", found.factor),
    }
}

fn size(found: &OutsiderStatus) -> String {
    format!(
        "{:.0} IOs outstanding ({:.0} to {:.0}), {:.0} % of all",
        found.outstanding,
        found.outstanding_least,
        found.outstanding_most,
        100.0 * found.part
    )
}
