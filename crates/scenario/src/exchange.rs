//! Faults of the exchange: delay, loss and partitions, as hosts see them.

use std::time::Duration;

use parda_config::Amount;
use serde::Deserialize;

/// Settings of the exchange, in `[exchange]` and `exchange = { … }`. An absent key leaves the
/// setting as it was; the first settings are those of [`Hearing::default`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeSettings {
    /// Number of slots. Allowed in `[exchange]` only, where [`Scenario::exchange_slots`] is taken from
    /// it.
    ///
    /// [`Scenario::exchange_slots`]: crate::Scenario::exchange_slots
    pub slots: Option<u32>,
    /// Age of what a read returns: see [`Hearing::delay`].
    #[serde(default, with = "humantime_serde")]
    pub delay: Option<Duration>,
    /// Fraction of visits that fail: see [`Hearing::loss`]. A percentage.
    pub loss: Option<Amount>,
    /// Whether the exchange can be read and written at all: see [`Hearing::reachable`].
    pub reachable: Option<bool>,
    /// Whether what the host publishes reaches the exchange: see [`Hearing::writable`].
    pub writable: Option<bool>,
    /// Side of a partition: see [`Hearing::side`].
    pub side: Option<String>,
}

/// How well a host reads the exchange, and which hosts it finds there.
#[derive(Clone, Debug, PartialEq)]
pub struct Hearing {
    /// Age of what a read returns: the slots as they were this long ago.
    pub delay: Duration,
    /// Probability that a visit fails, 0 to 1.
    pub loss: f64,
    /// Whether the exchange can be read and written. If not, every visit fails at once.
    pub reachable: bool,
    /// Whether the host's writes to the exchange work. If not, each fails at once, and reads still work.
    pub writable: bool,
    /// Side of a partition. A host finds only hosts of its own side. All hosts begin on the side named
    /// `""`.
    pub side: String,
}

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing {
            delay: Duration::ZERO,
            loss: 0.0,
            reachable: true,
            writable: true,
            side: String::new(),
        }
    }
}

impl ExchangeSettings {
    /// These settings with the present ones of `over` on top.
    #[must_use]
    pub fn overlaid(&self, over: &ExchangeSettings) -> ExchangeSettings {
        ExchangeSettings {
            slots: None,
            delay: over.delay.or(self.delay),
            loss: over.loss.or(self.loss),
            reachable: over.reachable.or(self.reachable),
            writable: over.writable.or(self.writable),
            side: over.side.clone().or_else(|| self.side.clone()),
        }
    }

    /// The settings in full, with defaults for absent keys.
    #[must_use]
    pub fn hearing(&self) -> Hearing {
        let usual = Hearing::default();
        Hearing {
            delay: self.delay.unwrap_or(usual.delay),
            loss: self.loss.map_or(usual.loss, |loss| loss.percent() / 100.0),
            reachable: self.reachable.unwrap_or(usual.reachable),
            writable: self.writable.unwrap_or(usual.writable),
            side: self.side.clone().unwrap_or(usual.side),
        }
    }

    /// The first invalid key and what is wrong with its value.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let ok = self.loss.is_none_or(|loss| (0.0..=100.0).contains(&loss.percent()));
        (!ok).then_some(("loss", "must be a percentage, 0% to 100%"))
    }
}
