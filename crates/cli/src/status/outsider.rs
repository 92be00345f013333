//! Load that is not under control, in words.

use parda_api::Outsider;

use crate::output::count;

/// What was found, with what says so.
pub(crate) fn line(found: &Outsider) -> String {
    format!(
        "SLOWER: the array is {:.2} times slower, or an outsider uses it with about {:.0} IOs outstanding, {:.0} % of all; IOs \
         of all hosts take {:.1} ms, and {:.1} ms were usual with as many outstanding, for {}",
        found.factor,
        found.outstanding,
        100.0 * found.part,
        found.latency_ms,
        found.usual_ms,
        count(found.periods.into(), "period"),
    )
}

/// The same in few words.
pub(crate) fn short(found: &Outsider) -> String {
    format!("SLOWER: the array, {:.2} times, or an outsider uses it", found.factor)
}
