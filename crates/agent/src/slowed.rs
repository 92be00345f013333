//! Warnings about an exchange that would load the array too much at the configured period. Its hosts meet less often.

use parda_control::{PeriodClock, Rhythm, Span};

/// Rounds in a row at the configured period after which longer periods are logged again.
const OVER: u32 = 60;

/// Whether longer periods were logged, by their reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// As the array would have too much to do, and the rounds at the configured period since.
    said: bool,
    usual: u32,
    /// As there are more hosts than the exchange can bear.
    crowded: bool,
}

impl Watch {
    /// Logs once that hosts meet less often.
    pub(crate) fn look(&mut self, volume: &str, clock: &PeriodClock, hosts: usize) {
        if let Some(message) = self.news(clock.rhythm(), clock.configured()) {
            tracing::warn!(volume, event = "exchange_slowed", "{message}");
        }
        if clock.is_crowded() && !std::mem::replace(&mut self.crowded, true) {
            tracing::warn!(
                volume,
                "hosts meet every {:.1} s in place of every {} s: {CROWDED} ({hosts} hosts). parda status says how often",
                clock.period().secs(),
                clock.configured().secs(),
            );
        }
    }

    fn news(&mut self, rhythm: &Rhythm, configured: Span) -> Option<String> {
        let (true, Some((ios, _))) = (rhythm.is_slowed(), rhythm.cost()) else {
            self.usual = self.usual.saturating_add(1);
            self.said &= self.usual < OVER;
            return None;
        };
        self.usual = 0;
        if std::mem::replace(&mut self.said, true) {
            return None;
        }
        Some(format!(
            "the exchange is read and written less often than every {} s: {} ({} hosts, {ios:.0} IO/s of all \
             of them). parda status says how often",
            configured.secs(),
            COSTLY,
            rhythm.hosts(),
        ))
    }
}

/// Why rounds over etcd are further apart than configured.
const CROWDED: &str = "that many hosts would be too much for etcd";

/// Why rounds over the volume itself are further apart than configured.
const COSTLY: &str = "it would be more than 1 % of the array's IOs";

/// Reason why rounds are further apart than configured, if they are.
pub(crate) fn reason(clock: &PeriodClock) -> Option<&'static str> {
    let costly = clock.rhythm().is_slowed().then_some(COSTLY);
    costly.or_else(|| clock.is_crowded().then_some(CROWDED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::{Config, Measurement, Period, Round, Totals, View};

    const SECOND: Span = Span::from_millis(1000);

    #[test]
    fn it_is_said_once_and_again_when_it_was_over_for_long() {
        let own = Period::new(Config::default()).unwrap().tick(
            &mut Measurement::default(),
            View::Silent,
            None,
        );
        let totals = Totals::default();
        let mut rhythm = Rhythm::default();
        let mut watch = Watch::default();
        let mut rounds = |hosts, count| {
            let said = (0..count).filter_map(|_| {
                let others = Some(&totals);
                rhythm.next(Round { period: SECOND, hosts, others, own: &own });
                watch.news(&rhythm, SECOND)
            });
            said.collect::<Vec<_>>()
        };
        assert!(rounds(4, 9).is_empty());
        let said = rounds(100, 9);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("every 1 s") && said[0].contains("100 hosts"), "{}", said[0]);
        assert!(rounds(4, 20).is_empty() && rounds(100, 9).is_empty(), "it comes and goes");
        assert!(rounds(4, 80).is_empty());
        assert_eq!(rounds(100, 9).len(), 1);
    }
}
