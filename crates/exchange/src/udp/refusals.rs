//! Log lines on refused datagrams: at most one a minute for each reason.

use std::net::SocketAddr;

use parda_control::{Instant, Span};
use strum::VariantArray;

use super::counters::Refused;
use crate::exchange::ExchangeEvent;

/// Time between two lines on one reason.
const PAUSE: Span = Span::from_millis(60_000);

/// Datagrams refused since the last line on each reason.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    reasons: [Reason; Refused::VARIANTS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Reason {
    count: u64,
    from: Option<SocketAddr>,
    said: Option<Instant>,
}

/// Datagrams refused for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Reason of the refusal.
    pub(super) why: Refused,
    /// Number of datagrams since the last line on this reason.
    pub(super) count: u64,
    /// Source address of the last datagram, which can be forged.
    pub(super) from: SocketAddr,
}

impl From<Refusal> for ExchangeEvent {
    fn from(Refusal { why, count, from }: Refusal) -> ExchangeEvent {
        let plural = if count == 1 { "" } else { "s" };
        ExchangeEvent::warning(format!(
            "the exchange ignored {count} datagram{plural} {why}, the last one from {from}; parda status counts them"
        ))
    }
}

impl Refusals {
    pub(super) fn add(&mut self, why: Refused, from: SocketAddr) {
        let reason = &mut self.reasons[why as usize];
        reason.count += 1;
        reason.from = Some(from);
    }

    /// Refusals that are to be logged now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Refusal> {
        let reasons = Refused::VARIANTS.iter().copied().zip(&mut self.reasons);
        let due = reasons.filter(|(why, reason)| {
            why.is_logged() && reason.said.is_none_or(|said| now.since(said) >= PAUSE)
        });
        due.filter_map(|(why, reason)| {
            let from = reason.from.take()?;
            let count = std::mem::take(&mut reason.count);
            reason.said = Some(now);
            Some(Refusal { why, count, from })
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_at_once_and_then_once_a_minute() {
        let at = |s: u64| Instant(s * 1_000_000_000);
        let from: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut refusals = Refusals::default();
        assert_eq!(refusals.due(at(0)), []);
        refusals.add(Refused::Forged, from);
        refusals.add(Refused::Unproven, from);
        let told = |why, count| Refusal { why, count, from };
        assert_eq!(refusals.due(at(1)), [told(Refused::Forged, 1)]);
        for _ in 0..1_000 {
            refusals.add(Refused::Forged, from);
        }
        refusals.add(Refused::Foreign, from);
        assert_eq!(refusals.due(at(2)), [told(Refused::Foreign, 1)]);
        assert_eq!(refusals.due(at(60)), []);
        assert_eq!(refusals.due(at(61)), [told(Refused::Forged, 1_000)]);
        assert_eq!(refusals.due(at(200)), []);
    }
}
