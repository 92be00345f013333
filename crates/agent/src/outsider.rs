//! Load on the array that is not under control: its events and its status.

use parda_control::outsider::{Finding, State};
use serde::{Deserialize, Serialize};

/// Periods for which the array must be slower before that is logged, as a short burst of an outsider passes.
const LASTS: u32 = 10;

/// Load on the array that is not under control, or an array that became slower: nothing says which.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutsiderStatus {
    /// Mean latency of all hosts' IOs in the last period, in milliseconds.
    pub latency_ms: f64,
    /// The usual latency with as many outstanding IOs, in milliseconds.
    pub usual_ms: f64,
    /// Periods for which the latency has been above that.
    pub periods: u32,
    /// Outstanding IOs of an outsider that would explain it, counted in IOs like ours.
    pub outstanding: f64,
    /// Part of all outstanding IOs that such an outsider has, from 0 to 1.
    pub part: f64,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
}

impl OutsiderStatus {
    /// `None` while throughput is as usual, or too little is known of the array.
    pub(crate) fn new(finding: &Finding) -> Option<OutsiderStatus> {
        (finding.state == State::Slower).then_some(OutsiderStatus {
            latency_ms: finding.latency * 1e3,
            usual_ms: finding.usual * 1e3,
            periods: finding.periods,
            outstanding: finding.outstanding,
            part: finding.part,
            factor: finding.factor,
        })
    }
}

/// The state that was logged last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    said: State,
}

impl Watch {
    /// Logs a finding once, and once its end.
    pub(crate) fn look(&mut self, volume: &str, finding: &Finding) {
        let Some(state) = self.news(finding) else { return };
        let periods = finding.periods;
        let [latency_ms, usual_ms] =
            [finding.latency, finding.usual].map(|secs| format!("{:.1}", secs * 1e3));
        let [outstanding, factor] =
            [finding.outstanding, finding.factor].map(|n| format!("{n:.2}"));
        match state {
            State::Slower => tracing::warn!(
                volume,
                %factor,
                %outstanding,
                %latency_ms,
                %usual_ms,
                periods,
                event = "array_slower",
                "the array became slower, or an outsider, load that is not under control, uses it"
            ),
            State::Usual => tracing::info!(
                volume,
                %latency_ms,
                event = "array_as_usual",
                "the array serves IOs as fast again as it did"
            ),
            State::Unknown => {}
        }
        self.said = state;
    }

    /// The state to log, if it is new.
    fn news(&self, finding: &Finding) -> Option<State> {
        let is_new = match finding.state {
            // Where hosts are not heard for a while, nothing is known of the array, and nothing is over.
            State::Unknown => false,
            State::Usual => self.said == State::Slower,
            State::Slower => self.said != State::Slower && finding.periods >= LASTS,
        };
        is_new.then_some(finding.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_said_once() {
        let mut watch = Watch::default();
        let mut said = Vec::new();
        let states = [
            (State::Unknown, 0),
            (State::Usual, 0),
            (State::Slower, 3),
            (State::Usual, 0),
            (State::Slower, 10),
            (State::Slower, 11),
            (State::Unknown, 0),
            (State::Slower, 14),
            (State::Usual, 0),
            (State::Usual, 0),
        ];
        for (state, periods) in states {
            let finding = Finding { state, periods, ..Finding::default() };
            said.extend(watch.news(&finding));
            watch.look("v", &finding);
        }
        assert_eq!(said, [State::Slower, State::Usual]);
    }

    #[test]
    fn the_status_has_what_is_not_usual() {
        let finding = Finding { state: State::Usual, ..Finding::default() };
        assert_eq!(OutsiderStatus::new(&finding), None);
        let finding = Finding { state: State::Slower, latency: 0.040, ..Finding::default() };
        assert_eq!(OutsiderStatus::new(&finding).unwrap().latency_ms, 40.0);
    }
}
