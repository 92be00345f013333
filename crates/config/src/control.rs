//! The law's configuration from its settings: defaults filled in, and the whole checked.

use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use parda_control::law::{LawConfig, Mode};
use parda_control::outsider::OutsiderPolicy;
use parda_control::size::{Line, SizeModel};
use parda_control::{Auto, Bytes, Config, ConfigError, ModeName, Span, Window};

use crate::bounds;
use crate::threshold::{IdleProbeSetting, ThresholdSetting};
use crate::tunables::ControlSettings;
use crate::values::{Fairness, OutsiderSetting, SizeModelSetting};

const DEFAULT_BETA_PER_SHARE: f64 = 0.002;

impl ControlSettings {
    /// Fills in the defaults and checks the whole.
    ///
    /// # Errors
    /// The first setting that cannot work, by its key.
    pub fn resolve(&self) -> Result<Config, ConfigError> {
        if self.probe().is_some() {
            return Err(ConfigError {
                parameter: "latency_threshold.probe",
                must_be: "left out here: only an agent reads a stored probe",
                value: f64::NAN,
            });
        }
        self.resolve_probed(None)
    }

    /// The stored probe that says where an automatic threshold begins.
    #[must_use]
    pub fn probe(&self) -> Option<&Path> {
        match &self.latency_threshold {
            Some(ThresholdSetting::Auto(auto)) => auto.probe.as_deref(),
            Some(ThresholdSetting::Fixed(_)) | None => None,
        }
    }

    /// Whether the stored probe is renewed while the volume is idle.
    #[must_use]
    pub fn probes_when_idle(&self) -> bool {
        matches!(&self.latency_threshold, Some(ThresholdSetting::Auto(auto))
            if auto.idle_probe == Some(IdleProbeSetting::Daily))
    }

    /// [`resolve`](Self::resolve) for a caller that has read the stored probe. `probed`: the probe's recommendation.
    ///
    /// # Errors
    /// As with [`ControlSettings::resolve`].
    pub fn resolve_probed(&self, probed: Option<Duration>) -> Result<Config, ConfigError> {
        let default = Config::default();
        let law = default.law;
        let bytes = |size: ByteSize| Bytes(size.as_u64());
        self.latency_threshold.as_ref().map_or(Ok(()), ThresholdSetting::check)?;
        bounds::check(self)?;
        let (threshold, auto) = self.law_threshold(law.threshold, probed)?;
        let control = Config {
            law: LawConfig {
                mode: self.law_mode(),
                estimation: self.estimation.unwrap_or_default(),
                signal: self.signal.unwrap_or_default(),
                threshold,
                alpha: self.alpha.unwrap_or(law.alpha),
                gamma: self.gamma.unwrap_or_else(|| self.law_mode().gamma()),
                period: self.period.map_or(law.period, Into::into),
                window_min: self.window_min.map_or(law.window_min, Window),
                window_max: self.window_max.map_or_else(|| self.law_mode().window_max(), Window),
                window_start: self.window_start.map_or(law.window_start, Window),
                cluster_min: self.cluster_min.unwrap_or(law.cluster_min),
                min_ios: self.min_ios.unwrap_or(law.min_ios),
                hold_max: self.hold_max.map_or(law.hold_max, Into::into),
            },
            size_model: self.law_size_model(),
            reference_size: self.reference_size.map_or(default.reference_size, bytes),
            costs: self.fairness.as_ref().and_then(Fairness::costs),
            objective_floor: self.latency_target_min.map_or(default.objective_floor, Into::into),
            auto,
            outsider: match self.outsider.unwrap_or(OutsiderSetting::Compete) {
                OutsiderSetting::Compete => OutsiderPolicy::Compete,
                OutsiderSetting::Hold => OutsiderPolicy::Hold,
            },
            prefer: self.prefer.unwrap_or_default(),
        };
        control.validate()?;
        Ok(control)
    }

    fn law_mode(&self) -> Mode {
        match self.mode.unwrap_or_default() {
            ModeName::Off => Mode::Off,
            ModeName::Observe => Mode::Observe,
            ModeName::Static => Mode::Static,
            ModeName::Published => Mode::Published {
                beta_per_share: self.beta_per_share.unwrap_or(DEFAULT_BETA_PER_SHARE),
            },
            ModeName::Parda => Mode::Parda,
        }
    }

    fn law_size_model(&self) -> SizeModel {
        match self.size_model {
            None | Some(SizeModelSetting::Off) => SizeModel::Off,
            Some(SizeModelSetting::Learned) => SizeModel::Learned,
            Some(SizeModelSetting::Line(line)) => SizeModel::Fixed(Line {
                per_byte: line.per_kib.as_secs_f64() / 1024.0,
                fixed: line.fixed.into(),
            }),
        }
    }

    /// Threshold to begin with, and the bounds of the search if it is automatic.
    fn law_threshold(
        &self,
        default: Span,
        probed: Option<Duration>,
    ) -> Result<(Span, Option<Auto>), ConfigError> {
        match &self.latency_threshold {
            None => Ok((default, None)),
            Some(ThresholdSetting::Fixed(threshold)) => Ok(((*threshold).into(), None)),
            Some(ThresholdSetting::Auto(setting)) => {
                let (begins, auto) = (setting.begins(probed), setting.auto(probed)?);
                if auto.is_none() && begins.is_none() {
                    return Err(ConfigError {
                        parameter: "latency_threshold.start",
                        must_be: "given where nothing is learned and no probe is stored",
                        value: f64::NAN,
                    });
                }
                Ok((begins.unwrap_or(default), auto))
            }
        }
    }
}

/// The setting whose table may name a file of one host: only parda.toml may have it as a table.
pub const NAMES_FILES: &str = "latency_threshold";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, TUNABLES};
    use parda_control::latency::Signal;
    use parda_control::law::Estimation;
    use parda_control::{Charge, Costs, Source};
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapper {
        control: ControlSettings,
    }

    fn parse(text: &str) -> ControlSettings {
        let doc = Document::new("t.toml", format!("[control]\n{text}"));
        doc.parse::<Wrapper>().unwrap().control
    }

    #[test]
    fn every_setting_is_a_tunable_with_its_true_default() {
        let written: String = TUNABLES
            .iter()
            .map(|t| {
                let literal = match t.default.as_bytes()[0] {
                    b'"' => t.default.to_owned(),
                    _ if t.unit.starts_with("size") || t.unit.starts_with("duration") => {
                        format!("\"{}\"", t.default)
                    }
                    _ => t.default.to_owned(),
                };
                format!("{} = {literal}\n", t.key)
            })
            .collect();
        let explicit = parse(&written);
        assert_eq!(explicit.resolve().unwrap(), ControlSettings::default().resolve().unwrap());
    }

    #[test]
    fn names_are_spelt_alike_in_configuration_and_messages() {
        fn alike<T>(values: &[T])
        where
            T: Serialize
                + for<'de> Deserialize<'de>
                + std::fmt::Display
                + std::fmt::Debug
                + PartialEq,
        {
            for value in values {
                let text = format!("\"{value}\"");
                let written = toml::Value::try_from(value).unwrap();
                assert_eq!(written.to_string(), text);
                assert_eq!(&written.try_into::<T>().unwrap(), value);
            }
        }
        let modes = [ModeName::Parda, ModeName::Published, ModeName::Static];
        alike(&modes);
        alike(&[ModeName::Observe, ModeName::Off]);
        alike(&[Estimation::Global, Estimation::Local]);
        alike(&[Signal::All, Signal::Reads, Signal::Writes]);
        alike(&[Source::Cluster, Source::LastGood, Source::Local]);
    }

    #[test]
    fn defaults_of_the_other_modes_are_true_too() {
        let published = parse("mode = \"published\"");
        let explicit = parse("mode = \"published\"\nbeta_per_share = 0.002");
        assert_eq!(published.resolve().unwrap(), explicit.resolve().unwrap());
    }

    #[test]
    fn a_cost_is_the_time_that_the_arrays_own_throughput_leaves_for_an_io() {
        let costs = |text: &str| parse(&format!("fairness = {text}")).resolve().unwrap().costs;
        assert_eq!(costs("\"outstanding\""), None);
        assert_eq!(
            [costs("\"iops\""), costs("\"bytes\"")],
            [Some(Costs::IOPS), Some(Costs::BYTES)]
        );
        // 2 ms for 4 KiB, of which 1/256 of 10 ms is for the bytes.
        let reads = "iops_reads = 500, bandwidth_reads = \"100MiB\"";
        let found =
            costs(&format!("{{ {reads}, iops_writes = 125, bandwidth_writes = \"50MiB\" }}"));
        let reads = Charge { io: 1_960_937, mib: 10_000_000 };
        let writes = Charge { io: 7_921_875, mib: 20_000_000 };
        assert_eq!(found, Some(Costs { reads, writes }));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (text, name) in [
            ("gamma = 1.5", "gamma"),
            ("gamma = nan", "gamma"),
            ("alpha = -0.1", "alpha"),
            ("window_min = 0", "window_min"),
            ("window_max = 0.0001", "window_max"),
            ("window_max = inf", "window_max"),
            ("latency_threshold = \"0s\"", "latency_threshold"),
            ("period = \"1ms\"", "period"),
            ("mode = \"published\"\nbeta_per_share = 0.0", "beta_per_share"),
        ] {
            assert_eq!(parse(text).resolve().unwrap_err().parameter, name, "{text}");
        }
    }

    #[test]
    fn the_signal_of_earlier_versions_is_refused_by_its_replacement() {
        let error = |value: &str| {
            let doc =
                Document::new("p.toml", format!("[control]\ngamma = 0.8\nsignal = {value}\n"));
            doc.parse::<Wrapper>().unwrap_err().to_string()
        };
        assert_eq!(
            error("\"slowest\""),
            "p.toml:3:10: signal = \"slowest\": `slowest` is gone, the law holds the mean over all IOs: leave `signal` out, \
             and give the disks that must not wait a `latency_target`"
        );
        let (unknown, expected) = ("unknown variant `most`", "`all`, `reads`, `writes`");
        let wrong = error("\"most\"");
        assert!(wrong.starts_with("p.toml:3:10: ") && wrong.contains(unknown), "{wrong}");
        assert!(wrong.ends_with(expected), "{wrong}");
        assert!(error("3").ends_with("must be a text, in quotes, not 3"), "{}", error("3"));
    }

    #[test]
    fn keys_of_earlier_versions_are_refused_by_what_replaces_them() {
        for (line, replaced) in [
            ("epsilon = 0.4", "`gamma`"),
            ("hold_periods = 5", "absent"),
            ("slot_size = \"8KiB\"", "8 KiB"),
            ("proportional = \"throughput\"", "fairness = \"iops\""),
        ] {
            let doc = Document::new("p.toml", format!("[control]\ngamma = 0.8\n{line}\n"));
            let error = doc.parse::<Wrapper>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("p.toml:3:1: {line}: ")), "{error}");
            assert!(error.contains("is gone") && error.contains(replaced), "{error}");
        }
    }

    #[test]
    fn settings_survive_being_written_and_read() {
        let text = "latency_threshold = \"12ms\"\nreference_size = \"16KiB\"\nmode = \"static\"\n\
                    size_model = { per_kib = \"20us\", fixed = \"4ms\" }";
        let written = Wrapper { control: parse(text) };
        assert_eq!(
            toml::from_str::<Wrapper>(&toml::to_string(&written).unwrap()).unwrap(),
            written
        );
    }

    #[test]
    fn overlaying_replaces_only_what_is_given() {
        let base = parse("window_max = 32\ngamma = 0.5");
        let over = base.overlaid(&parse("gamma = 0.7"));
        assert_eq!((over.window_max, over.gamma), (Some(32.0), Some(0.7)));
    }
}
