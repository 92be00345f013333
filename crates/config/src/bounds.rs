//! Largest values of the law's settings, and the least `hold_max`. A value beyond is a mistake in the number or its unit, and would
//! stop the law silently.

use std::time::Duration;

use bytesize::ByteSize;
use parda_control::ConfigError;

use crate::tunables::ControlSettings;
use crate::values::SizeModelSetting;

const MILLION: f64 = 1e6;
const HOUR: f64 = 3600.0;

/// Refuses the first setting that is beyond its bounds. Bounds that depend on other settings are in the law's own check.
pub(crate) fn check(settings: &ControlSettings) -> Result<(), ConfigError> {
    let line = match settings.size_model {
        Some(SizeModelSetting::Line(line)) => Some(line),
        _ => None,
    };
    let time = |value: Option<Duration>| value.map(|value| value.as_secs_f64());
    let size = settings.reference_size.map(|value| value.as_u64() as f64);
    let gib = ByteSize::gib(1).as_u64() as f64;
    for (parameter, value, bounds, must_be) in [
        // A shorter interval holds too few IOs of a disk array to mean anything.
        ("period", time(settings.period), 0.05..=HOUR, "from 50ms to 1h"),
        // A shorter wait would send IOs out of turn wherever an array is busy.
        ("hold_max", time(settings.hold_max), 0.1..=HOUR, "from 100ms to 1h"),
        (
            "latency_target_min",
            time(settings.latency_target_min),
            0.0..=10.0,
            "above zero, at most 10s",
        ),
        ("size_model.per_kib", time(line.map(|line| line.per_kib)), 0.0..=1.0, "at most 1s"),
        ("size_model.fixed", time(line.map(|line| line.fixed)), 0.0..=10.0, "at most 10s"),
        ("window_min", settings.window_min, 0.0..=MILLION, "above zero, at most 1000000"),
        ("window_max", settings.window_max, 0.0..=MILLION, "at least window_min, at most 1000000"),
        ("window_start", settings.window_start, 0.0..=MILLION, "above zero, at most 1000000"),
        ("cluster_min", settings.cluster_min, 0.0..=MILLION, "zero or more, at most 1000000"),
        ("min_ios", settings.min_ios.map(f64::from), 0.0..=MILLION, "at most 1000000"),
        ("reference_size", size, 0.0..=gib, "above zero, at most 1GiB"),
        // These count in other modes than the one in force, too.
        (
            "beta_per_share",
            settings.beta_per_share,
            f64::MIN_POSITIVE..=MILLION,
            "above zero, at most 1000000",
        ),
    ] {
        // NaN is within no bounds.
        if let Some(value) = value.filter(|value| !bounds.contains(value)) {
            return Err(ConfigError { parameter, must_be, value });
        }
    }
    match settings.fairness.and_then(|fairness| fairness.fault()) {
        Some((parameter, must_be, value)) => Err(ConfigError { parameter, must_be, value }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::tunables::TUNABLES;

    use super::*;

    #[test]
    fn what_nobody_means_is_refused_and_the_page_says_where_it_begins() {
        for (text, parameter) in [
            ("period = \"99999999h\"", "period"),
            ("period = \"3601s\"", "period"),
            ("hold_max = \"2h\"", "hold_max"),
            ("hold_max = \"1ns\"", "hold_max"),
            ("hold_max = \"99ms\"", "hold_max"),
            ("latency_target_min = \"11s\"", "latency_target_min"),
            ("size_model = { per_kib = \"2s\", fixed = \"1s\" }", "size_model.per_kib"),
            ("size_model = { per_kib = \"1ms\", fixed = \"1h\" }", "size_model.fixed"),
            ("window_min = 1e7", "window_min"),
            ("window_max = 1e300", "window_max"),
            ("window_start = inf", "window_start"),
            ("cluster_min = 1e9", "cluster_min"),
            ("mode = \"published\"\nbeta_per_share = 1e9", "beta_per_share"),
            ("min_ios = 4000000000", "min_ios"),
            ("reference_size = \"1TiB\"", "reference_size"),
        ] {
            let settings: ControlSettings = toml::from_str(text).unwrap();
            let error = settings.resolve().unwrap_err();
            assert_eq!(error.parameter, parameter, "{text}");
            let (_, most) = error.must_be.rsplit_once(' ').unwrap();
            let key = parameter.split('.').next().unwrap();
            let tunable = TUNABLES.iter().find(|tunable| tunable.key == key).unwrap();
            assert!(tunable.unit.contains(most), "{key}: {} has no {most}", tunable.unit);
        }
        let numbers = ["window_min", "window_max", "window_start", "cluster_min", "alpha", "gamma"];
        for key in numbers.iter().chain(&["beta_per_share"]) {
            for mode in ["parda", "published", "static", "observe", "off"] {
                for value in ["-1", "nan", "-nan", "inf", "-inf"] {
                    let text = format!("mode = \"{mode}\"\n{key} = {value}");
                    let settings: ControlSettings = toml::from_str(&text).unwrap();
                    assert_eq!(settings.resolve().unwrap_err().parameter, *key, "{text}");
                }
            }
        }
        for text in
            ["period = \"1h\"", "window_max = 1000000", "hold_max = \"1h\"", "hold_max = \"100ms\""]
        {
            let settings: ControlSettings = toml::from_str(text).unwrap();
            assert!(settings.resolve().is_ok(), "{text}");
        }
    }
}
