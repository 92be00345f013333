//! Largest values of the law's settings, and the least `hold_max`. A value beyond is a mistake in the number or its unit, and would
//! stop the law silently.

use std::time::Duration;

use bytesize::ByteSize;
use parda_control::ConfigError;

use crate::tunables::ControlSettings;
use crate::values::SizeModelSetting;

const HOUR: Duration = Duration::from_secs(3600);
const TEN_SECONDS: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const MILLION: f64 = 1e6;

const HELD: &str = "from 100ms to 1h";

/// What waits for less would go out of turn wherever an array is busy.
const LEAST_HELD: Duration = Duration::from_millis(100);

/// Refuses the first setting that is beyond its largest value.
pub(crate) fn check(settings: &ControlSettings) -> Result<(), ConfigError> {
    let line = match settings.size_model {
        Some(SizeModelSetting::Line(line)) => Some(line),
        _ => None,
    };
    let time = |value: Option<Duration>, most: Duration| {
        (value.map(|value| value.as_secs_f64()), most.as_secs_f64())
    };
    let size = |value: Option<ByteSize>| {
        (value.map(|value| value.as_u64() as f64), ByteSize::gib(1).as_u64() as f64)
    };
    let count = |value: Option<f64>| (value, MILLION);
    for (parameter, (value, most), must_be) in [
        ("period", time(settings.period, HOUR), "from 50ms to 1h"),
        ("hold_max", time(settings.hold_max, HOUR), HELD),
        (
            "latency_target_min",
            time(settings.latency_target_min, TEN_SECONDS),
            "above zero, at most 10s",
        ),
        ("size_model.per_kib", time(line.map(|line| line.per_kib), SECOND), "at most 1s"),
        ("size_model.fixed", time(line.map(|line| line.fixed), TEN_SECONDS), "at most 10s"),
        ("window_min", count(settings.window_min), "above zero, at most 1000000"),
        ("window_max", count(settings.window_max), "at least window_min, at most 1000000"),
        ("window_start", count(settings.window_start), "above zero, at most 1000000"),
        ("cluster_min", count(settings.cluster_min), "zero or more, at most 1000000"),
        ("min_ios", count(settings.min_ios.map(f64::from)), "at most 1000000"),
        ("reference_size", size(settings.reference_size), "above zero, at most 1GiB"),
    ] {
        // NaN is within no bounds.
        if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
            return Err(ConfigError { parameter, must_be, value });
        }
    }
    if let Some(held) = settings.hold_max.filter(|held| *held < LEAST_HELD) {
        let value = held.as_secs_f64();
        return Err(ConfigError { parameter: "hold_max", must_be: HELD, value });
    }
    if let Some((parameter, must_be, value)) =
        settings.fairness.and_then(|fairness| fairness.fault())
    {
        return Err(ConfigError { parameter, must_be, value });
    }
    // A setting of another mode than the one in force is not in the law's configuration, which is checked later.
    if let Some(value) = settings.beta_per_share.filter(|k| !(*k > 0.0 && *k <= MILLION)) {
        let must_be = "above zero, at most 1000000";
        return Err(ConfigError { parameter: "beta_per_share", must_be, value });
    }
    Ok(())
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
