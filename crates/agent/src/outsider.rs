//! Load on the array that is not under control: its events and its status.

use parda_control::outsider::{Finding, State};
use serde::{Deserialize, Serialize};

/// Periods for which the array must be slower before that is logged, as a short burst of an outsider passes.
const LASTS: u32 = 10;

/// Factor by which the array must be slower before that is logged. With periods of 0.2 s, and few IOs in each, smaller factors came and went.
const SLOWER_BY: f64 = 1.15;

/// Load on the array that is not under control, and the figures that say so.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutsiderStatus {
    /// `outsider`: somebody else uses the array. `slower`: the array became slower, or somebody else uses it, and nothing
    /// says which.
    pub state: State,
    /// Mean latency of all hosts' IOs in the last period, in milliseconds.
    pub latency_ms: f64,
    /// The usual latency with as many outstanding IOs, in milliseconds.
    pub usual_ms: f64,
    /// Periods for which the latency has been above that.
    pub periods: u32,
    /// Outstanding IOs of an outsider that would explain it, counted in IOs like ours.
    pub outstanding: f64,
    /// Lower end of the 90 % interval of `outstanding`.
    pub outstanding_least: f64,
    /// Upper end of the 90 % interval of `outstanding`.
    pub outstanding_most: f64,
    /// Part of all outstanding IOs that such an outsider has, from 0 to 1.
    pub part: f64,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
    /// Natural logarithm of how many times likelier the outsider is than the slower array.
    pub evidence: f64,
    /// Periods that the evidence rests on.
    pub compared: u32,
}

impl OutsiderStatus {
    /// `None` while latency is as usual or little above it, or too little is known of the array.
    pub(crate) fn new(finding: &Finding) -> Option<OutsiderStatus> {
        let shown = match finding.state {
            State::Outsider => true,
            // Factors near 1 come and go.
            State::Slower => finding.factor >= SLOWER_BY,
            State::Usual | State::Unknown => false,
        };
        shown.then_some(OutsiderStatus {
            state: finding.state,
            latency_ms: finding.latency * 1e3,
            usual_ms: finding.usual * 1e3,
            periods: finding.periods,
            outstanding: finding.outstanding,
            outstanding_least: finding.within.0,
            outstanding_most: finding.within.1,
            part: finding.part,
            factor: finding.factor,
            evidence: finding.evidence,
            compared: finding.compared,
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
        let Finding { periods, within, compared, .. } = *finding;
        let [latency_ms, usual_ms] =
            [finding.latency, finding.usual].map(|secs| format!("{:.1}", secs * 1e3));
        let [outstanding, least, most, evidence] =
            [finding.outstanding, within.0, within.1, finding.evidence].map(|n| format!("{n:.1}"));
        let [part, factor] = [finding.part, finding.factor].map(|n| format!("{n:.2}"));
        match state {
            State::Outsider => tracing::warn!(
                volume,
                %outstanding,
                at_least = %least,
                at_most = %most,
                %part,
                %latency_ms,
                %usual_ms,
                %evidence,
                compared,
                event = "outsider_seen",
                "an outsider, load that is not under control, uses the array. parda status shows how much"
            ),
            State::Slower => tracing::info!(
                volume,
                %factor,
                %outstanding,
                %latency_ms,
                %usual_ms,
                periods,
                %evidence,
                event = "array_slower",
                "the array became slower, or an outsider, load that is not under control, uses it: nothing says which"
            ),
            State::Usual if self.said == State::Outsider => tracing::info!(
                volume,
                %latency_ms,
                event = "outsider_gone",
                "no outsider is seen any more on the array"
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
            State::Usual => self.said >= State::Slower,
            // After an outsider was logged, a slower array is not logged as well.
            State::Slower => {
                self.said < State::Slower && finding.periods >= LASTS && finding.factor >= SLOWER_BY
            }
            State::Outsider => self.said < State::Outsider,
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
            (State::Unknown, 0, 1.2),
            (State::Usual, 0, 1.2),
            (State::Slower, 3, 1.2),
            (State::Slower, 12, 1.1),
            (State::Usual, 0, 1.2),
            (State::Slower, 10, 1.2),
            (State::Slower, 11, 1.2),
            (State::Outsider, 12, 1.2),
            (State::Outsider, 13, 1.2),
            (State::Slower, 14, 1.2),
            (State::Unknown, 0, 1.2),
            (State::Usual, 0, 1.2),
            (State::Usual, 0, 1.2),
        ];
        for (state, periods, factor) in states {
            let finding = Finding { state, periods, factor, ..Finding::default() };
            said.extend(watch.news(&finding));
            watch.look("v", &finding);
        }
        assert_eq!(said, [State::Slower, State::Outsider, State::Usual]);
    }

    #[test]
    fn the_status_has_what_is_not_usual() {
        let finding = Finding { state: State::Usual, ..Finding::default() };
        assert_eq!(OutsiderStatus::new(&finding), None);
        let slower = |factor| Finding { state: State::Slower, factor, ..Finding::default() };
        assert_eq!(OutsiderStatus::new(&slower(1.05)), None);
        assert!(OutsiderStatus::new(&slower(1.3)).is_some());
        let finding = Finding {
            state: State::Outsider,
            latency: 0.040,
            within: (20.0, 40.0),
            ..Finding::default()
        };
        let status = OutsiderStatus::new(&finding).unwrap();
        assert_eq!((status.latency_ms, status.outstanding_most), (40.0, 40.0));
        let json = serde_json::to_value(status).unwrap();
        assert_eq!(json["state"], "outsider");
    }
}
