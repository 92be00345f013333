//! Load on the array that is not under control: its events and its status.

use parda_api::{Outsider, OutsiderState, ThresholdCost};
use parda_control::outsider::{Finding, OutsiderSign};

use crate::history::rounded;

/// Periods for which the array must be slower before that is logged, as a short burst of an outsider passes.
const LASTS: u32 = 10;

/// The status of a finding. `None` while throughput is as usual, or too little is known of the array.
pub(crate) fn status(finding: &Finding) -> Option<Outsider> {
    let state = match finding.state {
        OutsiderSign::Unknown | OutsiderSign::Usual => return None,
        OutsiderSign::Slower => OutsiderState::Slower,
        OutsiderSign::Outsider => OutsiderState::Outsider,
        OutsiderSign::BelowKnee => OutsiderState::BelowKnee,
    };
    Some(Outsider {
        state,
        outstanding: rounded(finding.outstanding),
        part: rounded(finding.part),
        latency_ms: rounded(finding.latency * 1e3),
        usual_ms: rounded(finding.usual * 1e3),
        periods: finding.periods,
        factor: rounded(finding.factor),
    })
}

/// The cost of the threshold, where it is more than a tenth of the throughput.
pub(crate) fn cost(finding: &Finding) -> Option<ThresholdCost> {
    let cost = finding.cost?;
    Some(ThresholdCost { latency_ms: rounded(cost.latency * 1e3), factor: rounded(cost.factor) })
}

/// The state that was logged last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    said: OutsiderSign,
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
            OutsiderSign::Slower => tracing::warn!(
                volume,
                %factor,
                %outstanding,
                %latency_ms,
                %usual_ms,
                periods,
                event = "array_slower",
                "the array became slower, or an outsider, load that is not under control, uses it"
            ),
            OutsiderSign::Outsider | OutsiderSign::BelowKnee => tracing::warn!(
                volume,
                %outstanding,
                %latency_ms,
                %usual_ms,
                periods,
                event = "outsider",
                "an outsider, load that is not under control, uses the array, or the threshold is below the array's knee: the hosts keep \
                 their part of the array, above the threshold"
            ),
            OutsiderSign::Usual => tracing::info!(
                volume,
                %latency_ms,
                event = "array_as_usual",
                "the array serves IOs as fast again as it did"
            ),
            OutsiderSign::Unknown => {}
        }
        self.said = state;
    }

    /// The state to log, if it is new.
    fn news(&self, finding: &Finding) -> Option<OutsiderSign> {
        let is_new = match finding.state {
            // While other hosts are silent, the array's state is unknown, and no earlier state is over.
            OutsiderSign::Unknown => false,
            OutsiderSign::Usual => self.said > OutsiderSign::Usual,
            OutsiderSign::Slower => self.said < OutsiderSign::Slower && finding.periods >= LASTS,
            OutsiderSign::Outsider | OutsiderSign::BelowKnee => self.said < OutsiderSign::Outsider,
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
            (OutsiderSign::Unknown, 0),
            (OutsiderSign::Usual, 0),
            (OutsiderSign::Slower, 3),
            (OutsiderSign::Usual, 0),
            (OutsiderSign::Slower, 10),
            (OutsiderSign::Slower, 11),
            (OutsiderSign::Unknown, 0),
            (OutsiderSign::Slower, 14),
            (OutsiderSign::Usual, 0),
            (OutsiderSign::Usual, 0),
            (OutsiderSign::Slower, 10),
            (OutsiderSign::Outsider, 11),
            (OutsiderSign::BelowKnee, 0),
            (OutsiderSign::Outsider, 0),
            (OutsiderSign::Usual, 0),
        ];
        for (state, periods) in states {
            let finding = Finding { state, periods, ..Finding::default() };
            said.extend(watch.news(&finding));
            watch.look("v", &finding);
        }
        let first = [OutsiderSign::Slower, OutsiderSign::Usual];
        assert_eq!(
            said,
            [&first[..], &[OutsiderSign::Slower, OutsiderSign::Outsider, OutsiderSign::Usual]]
                .concat()
        );
    }

    #[test]
    fn the_status_has_what_is_not_usual() {
        let finding = Finding { state: OutsiderSign::Usual, ..Finding::default() };
        assert_eq!(status(&finding), None);
        let finding = Finding { state: OutsiderSign::Slower, latency: 0.040, ..Finding::default() };
        assert_eq!(status(&finding).unwrap().latency_ms, 40.0);
    }
}
