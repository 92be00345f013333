//! Configuration of a host at one volume, and the checks of its values.

use crate::io::Costs;
use crate::law::{LawConfig, Mode};
use crate::outsider::OutsiderPolicy;
use crate::reservation::Prefer;
use crate::settings::Settings;
use crate::size::SizeModel;
use crate::threshold::Auto;
use crate::units::{Bytes, Span};

/// A host's parameters at one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Parameters of the law itself.
    pub law: LawConfig,
    /// Scaling of latencies to one size.
    pub size_model: SizeModel,
    /// Size to which `size_model` scales: 4 KB in SPEED'08, 8 KB in FAST '09.
    pub reference_size: Bytes,
    /// Costs of IOs: shares divide costs per second. `None`: shares divide outstanding IOs.
    pub costs: Option<Costs>,
    /// Lower bound of the threshold that a VM's latency objective can ask for.
    pub objective_floor: Span,
    /// Search for the threshold, which begins at `law.threshold`. `None`: the threshold stays there.
    pub auto: Option<Auto>,
    /// Response to an outsider.
    pub outsider: OutsiderPolicy,
    /// Precedence where reservations would take latency above the threshold.
    pub prefer: Prefer,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            law: LawConfig::default(),
            size_model: SizeModel::Off,
            reference_size: Bytes::kib(8),
            costs: None,
            objective_floor: Span::from_millis(1),
            auto: None,
            outsider: OutsiderPolicy::Hold,
            prefer: Prefer::default(),
        }
    }
}

/// A parameter that cannot work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigError {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Requirement on the value.
    pub must_be: &'static str,
    /// Value of the parameter.
    pub value: f64,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} must be {}", self.parameter, self.must_be)?;
        // NaN stands for a setting without a number, such as a name.
        if self.value.is_nan() { Ok(()) } else { write!(f, ", but is {}", self.value) }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Settings that all hosts must have alike, beside the threshold.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings { costs: self.costs, signal: self.law.signal }
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The first one that cannot work.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let law = &self.law;
        let check = |ok: bool, parameter, must_be, value| {
            if ok { Ok(()) } else { Err(ConfigError { parameter, must_be, value }) }
        };
        let (min, max) = (law.window_min.0, law.window_max.0);
        let threshold = law.threshold.secs();
        check(threshold > 0.0, "latency_threshold", "above zero", threshold)?;
        check((0.0..1.0).contains(&law.alpha), "alpha", "at least 0 and below 1", law.alpha)?;
        check(law.gamma > 0.0 && law.gamma <= 1.0, "gamma", "above 0, at most 1", law.gamma)?;
        let period = law.period.secs();
        check(period > 0.0, "period", "above zero", period)?;
        check(min > 0.0 && min.is_finite(), "window_min", "above zero", min)?;
        check(max >= min && max.is_finite(), "window_max", "at least window_min", max)?;
        check(law.window_start.0 > 0.0, "window_start", "above zero", law.window_start.0)?;
        let cluster = law.cluster_min;
        check(cluster >= 0.0 && cluster.is_finite(), "cluster_min", "zero or more", cluster)?;
        let hold_max = law.hold_max.secs();
        check(hold_max > 0.0, "hold_max", "above zero", hold_max)?;
        match law.mode {
            Mode::Published { beta_per_share: k } => {
                check(k > 0.0 && k.is_finite(), "beta_per_share", "above zero", k)?;
            }
            Mode::Parda | Mode::Off | Mode::Static | Mode::Observe => {}
        }
        let reference = self.reference_size.0;
        check(reference > 0, "reference_size", "above zero", reference as f64)?;
        let slot = self.costs.map_or(1.0, Costs::slot);
        check(slot > 0.0, "cost", "above zero", slot)?;
        let floor = self.objective_floor.secs();
        check(floor > 0.0, "latency_target_min", "above zero", floor)?;
        let Some(auto) = &self.auto else { return Ok(()) };
        check_bounds(auto)?;
        let within = (auto.at_least..=auto.at_most).contains(&law.threshold);
        check(within, "latency_threshold.start", "from at_least to at_most", threshold)?;
        let published = matches!(law.mode, Mode::Published { .. });
        let must_be = "a number in this mode: it settles above the threshold";
        check(!published, "latency_threshold", must_be, threshold)
    }
}

/// Checks the bounds of a search for the threshold, and its step.
///
/// # Errors
/// The first one that cannot work.
pub fn check_bounds(auto: &Auto) -> Result<(), ConfigError> {
    let (least, most) = (auto.at_least.secs(), auto.at_most.secs());
    for (ok, parameter, must_be, value) in [
        (least > 0.0, "latency_threshold.at_least", "above zero", least),
        (most >= least, "latency_threshold.at_most", "at_least or more", most),
        (
            (0.02..=0.5).contains(&auto.step),
            "latency_threshold.step",
            "from 0.02 to 0.5",
            auto.step,
        ),
    ] {
        if !ok {
            return Err(ConfigError { parameter, must_be, value });
        }
    }
    Ok(())
}
