//! `latency_threshold`: a number, or the settings of the search for one.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use parda_control::{Auto, ConfigError, Span, check_bounds};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quantity::Quantity as _;

/// Value of the key `latency_threshold`.
#[derive(Clone, Debug, PartialEq)]
pub enum ThresholdSetting {
    /// A duration, which is the threshold.
    Fixed(Duration),
    /// `"auto"`, or a table of the search's settings: the threshold is found while working.
    Auto(AutoSetting),
}

/// Settings of an automatic threshold. [`crate::TUNABLES`] has the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoSetting {
    /// Document of `parda probe --json`. If the file exists, the search begins at the threshold that it recommends.
    pub probe: Option<PathBuf>,
    /// Threshold at which the search begins otherwise.
    #[serde(with = "crate::quantity")]
    pub start: Option<Duration>,
    /// Smallest threshold that is tried.
    #[serde(with = "crate::quantity")]
    pub at_least: Option<Duration>,
    /// Largest threshold that is tried.
    #[serde(with = "crate::quantity")]
    pub at_most: Option<Duration>,
    /// Largest change of the threshold in one period, as a part of it.
    pub step: Option<f64>,
    /// Whether the threshold moves. If not, it stays where it begins.
    pub learn: Option<bool>,
    /// Interval at which the stored probe is renewed while the volume is idle. `inject` is its former name.
    #[serde(alias = "inject")]
    pub idle_probe: Option<IdleProbeSetting>,
}

/// Interval of the idle probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleProbeSetting {
    /// An idle volume is never probed. The default.
    Off,
    /// A volume that is idle is probed once a day.
    Daily,
}

impl AutoSetting {
    /// Threshold at which the search begins, if a probe or a setting says it. `probed`: the recommendation of the stored probe.
    #[must_use]
    pub fn begins(&self, probed: Option<Duration>) -> Option<Span> {
        probed.or(self.start).map(Span::from)
    }

    /// Bounds of the search; `None` with `learn = false`.
    ///
    /// # Errors
    /// A bound or the step cannot work, whether anything is learned or not.
    pub(crate) fn auto(&self, probed: Option<Duration>) -> Result<Option<Auto>, ConfigError> {
        let default = Auto::default();
        let auto = Auto {
            start: self.begins(probed),
            at_least: self.at_least.map_or(default.at_least, Span::from),
            at_most: self.at_most.map_or(default.at_most, Span::from),
            step: self.step.unwrap_or(default.step),
        };
        check_bounds(&auto)?;
        Ok(self.learn.unwrap_or(true).then_some(auto))
    }
}

const AUTO: &str = "auto";

/// Largest threshold. Linux guests give an IO up after 30 s, and arrays answer within a second. A larger value is a mistake in
/// the unit.
pub(crate) const MOST: Duration = Duration::from_secs(10);
pub(crate) const AT_MOST: &str = "at most 10s, which is far above what an array needs";

/// Smallest threshold. No array answers sooner: below, the window would stay at its least under any load.
pub(crate) const LEAST: Duration = Duration::from_micros(10);
const AT_LEAST: &str =
    "at least 10us: no array answers sooner, so that the window would stay at window_min";

impl ThresholdSetting {
    /// Refuses durations that no array needs, and those that none can meet.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let within = |parameter, given: Option<Duration>, least: Duration| {
            let refused = |must_be, value: Duration| {
                Err(ConfigError { parameter, must_be, value: value.as_secs_f64() })
            };
            match given {
                Some(given) if given < least => refused(AT_LEAST, given),
                Some(given) if given > MOST => refused(AT_MOST, given),
                _ => Ok(()),
            }
        };
        match self {
            ThresholdSetting::Fixed(given) => within("latency_threshold", Some(*given), LEAST),
            ThresholdSetting::Auto(auto) => {
                within("latency_threshold.start", auto.start, LEAST)?;
                within("latency_threshold.at_least", auto.at_least, Duration::ZERO)?;
                within("latency_threshold.at_most", auto.at_most, Duration::ZERO)
            }
        }
    }
}

impl Serialize for ThresholdSetting {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            ThresholdSetting::Fixed(duration) => duration.write(to),
            ThresholdSetting::Auto(auto) if *auto == AutoSetting::default() => {
                to.serialize_str(AUTO)
            }
            ThresholdSetting::Auto(auto) => auto.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for ThresholdSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ThresholdSetting, D::Error> {
        from.deserialize_any(Written)
    }
}

struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = ThresholdSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"30ms\", \"auto\", or a table that says how to find it")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ThresholdSetting, E> {
        if text == AUTO {
            return Ok(ThresholdSetting::Auto(AutoSetting::default()));
        }
        let wrong = |_| E::invalid_value(de::Unexpected::Str(text), &self);
        Duration::of::<E>(text).map(ThresholdSetting::Fixed).map_err(wrong)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ThresholdSetting, A::Error> {
        let auto = AutoSetting::deserialize(de::value::MapAccessDeserializer::new(map))?;
        if auto == AutoSetting::default() {
            return Err(de::Error::custom(
                "is an empty table: \"auto\" finds it with the defaults",
            ));
        }
        Ok(ThresholdSetting::Auto(auto))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControlSettings, Document};

    fn parse(text: &str) -> Result<ControlSettings, String> {
        Document::new("p.toml", text).parse().map_err(|e| e.to_string())
    }

    fn auto(text: &str) -> Option<Auto> {
        parse(text).unwrap().resolve().unwrap().auto
    }

    #[test]
    fn a_number_pins_it_and_auto_finds_it() {
        assert_eq!(auto("latency_threshold = \"12ms\""), None);
        assert_eq!(auto("latency_threshold = \"auto\""), Some(Auto::default()));
        let text = "latency_threshold = { start = \"12ms\", at_least = \"1ms\", at_most = \"50ms\", \
                    step = 0.1 }";
        let want = Auto {
            start: Some(Span::from_millis(12)),
            at_least: Span::from_millis(1),
            at_most: Span::from_millis(50),
            step: 0.1,
        };
        assert_eq!(auto(text), Some(want));
        let law = parse(text).unwrap().resolve().unwrap().law;
        assert_eq!(law.threshold, Span::from_millis(12));
    }

    #[test]
    fn without_learning_it_stays_where_a_probe_or_a_number_says() {
        let text = "latency_threshold = { start = \"12ms\", learn = false }";
        let settings = parse(text).unwrap();
        let threshold = |probed| {
            let control = settings.resolve_probed(probed).unwrap();
            assert_eq!(control.auto, None);
            control.law.threshold
        };
        assert_eq!(threshold(None), Span::from_millis(12));
        assert_eq!(threshold(Some(Duration::from_millis(9))), Span::from_millis(9));
        // Bounds of a search that is not made are no bounds of where it stays.
        let far = parse("latency_threshold = { start = \"2s\", learn = false }").unwrap();
        assert_eq!(far.resolve().unwrap().law.threshold, Span::from_millis(2000));
        let nothing = parse("latency_threshold = { learn = false }").unwrap();
        assert_eq!(nothing.resolve().unwrap_err().parameter, "latency_threshold.start");
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (value, wrong) in [
            ("30", "p.toml:1:21: latency_threshold = 30: must be a duration such"),
            ("\"30\"", "p.toml:1:21: latency_threshold = \"30\": "),
            (
                "1979-05-27",
                "p.toml:1:21: latency_threshold = 1979-05-27: must not be the date 1979-05-27: write",
            ),
            ("\"automatic\"", "p.toml:1:21: latency_threshold = \"automatic\": "),
            (
                "{ begin = \"3ms\" }",
                "p.toml:1:23: latency_threshold = { begin = \"3ms\" }: unknown",
            ),
        ] {
            let error = parse(&format!("latency_threshold = {value}")).unwrap_err();
            assert!(error.starts_with(wrong), "{error}");
        }
        for (value, name) in [
            ("\"30min\"", "latency_threshold"),
            ("\"1ns\"", "latency_threshold"),
            ("{ start = \"9us\" }", "latency_threshold.start"),
            ("\"30s\"", "latency_threshold"),
            ("{ start = \"20s\" }", "latency_threshold.start"),
            ("{ at_most = \"1h\" }", "latency_threshold.at_most"),
            ("{ at_least = \"0s\" }", "latency_threshold.at_least"),
            ("{ at_least = \"40ms\" }", "latency_threshold.start"),
            ("{ at_most = \"50us\" }", "latency_threshold.at_most"),
            ("{ step = 0.9 }", "latency_threshold.step"),
            ("{ start = \"9ms\", step = -7, learn = false }", "latency_threshold.step"),
            ("{ start = \"9ms\", at_least = \"0s\", learn = false }", "latency_threshold.at_least"),
            ("{ probe = \"a.json\" }", "latency_threshold.probe"),
            ("\"auto\"\nmode = \"published\"", "latency_threshold"),
        ] {
            let settings = parse(&format!("latency_threshold = {value}")).unwrap();
            assert_eq!(settings.resolve().unwrap_err().parameter, name, "{value}");
        }
    }

    #[test]
    fn it_survives_being_written_and_read() {
        for value in ["\"12ms\"", "\"auto\"", "{ start = \"3ms\", step = 0.1 }"] {
            let settings = parse(&format!("latency_threshold = {value}")).unwrap();
            let written = toml::to_string(&settings).unwrap();
            assert_eq!(parse(&written).unwrap(), settings, "{written}");
        }
        let written = toml::to_string(&parse("latency_threshold = \"auto\"").unwrap()).unwrap();
        assert_eq!(written.trim(), "latency_threshold = \"auto\"");
    }
}
