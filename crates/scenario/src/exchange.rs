//! How well hosts hear one another.

use std::time::Duration;

use serde::Deserialize;

use crate::amount::Amount;

/// How well a host hears the others, as `[exchange]` and `exchange = { … }` write it. What is left
/// out is as it was; at the beginning, as in [`Hearing::default`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeSettings {
    /// How many slots there are: only in `[exchange]`, where [`Scenario::exchange_slots`] is taken
    /// from it.
    ///
    /// [`Scenario::exchange_slots`]: crate::Scenario::exchange_slots
    pub slots: Option<u32>,
    /// See [`Hearing::delay`].
    #[serde(default, with = "humantime_serde")]
    pub delay: Option<Duration>,
    /// See [`Hearing::loss`]; a percentage.
    pub loss: Option<Amount>,
    /// See [`Hearing::reachable`].
    pub reachable: Option<bool>,
    /// See [`Hearing::side`].
    pub side: Option<String>,
}

/// How well a host hears the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Hearing {
    /// A read shows what the slots held so long ago.
    pub delay: Duration,
    /// The part of its visits that fail, each by chance: 0 to 1.
    pub loss: f64,
    /// Whether it can read and write at all. If not, every visit fails at once.
    pub reachable: bool,
    /// It hears only hosts of its own side. At first all are on the one without a name.
    pub side: String,
}

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing { delay: Duration::ZERO, loss: 0.0, reachable: true, side: String::new() }
    }
}

impl ExchangeSettings {
    /// These settings with those of `over` in their place, where it has any.
    #[must_use]
    pub fn overlaid(&self, over: &ExchangeSettings) -> ExchangeSettings {
        ExchangeSettings {
            slots: None,
            delay: over.delay.or(self.delay),
            loss: over.loss.or(self.loss),
            reachable: over.reachable.or(self.reachable),
            side: over.side.clone().or_else(|| self.side.clone()),
        }
    }

    /// What they come to.
    #[must_use]
    pub fn hearing(&self) -> Hearing {
        let usual = Hearing::default();
        Hearing {
            delay: self.delay.unwrap_or(usual.delay),
            loss: self.loss.map_or(usual.loss, |loss| loss.percent() / 100.0),
            reachable: self.reachable.unwrap_or(usual.reachable),
            side: self.side.clone().unwrap_or(usual.side),
        }
    }

    /// The key whose value cannot be, and why.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let ok = self.loss.is_none_or(|loss| (0.0..=100.0).contains(&loss.percent()));
        (!ok).then_some(("loss", "must be a percentage, 0% to 100%"))
    }
}
