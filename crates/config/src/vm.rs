//! Settings of a VM, which is a disk that is served or a VM of a steered device. Declared once, for the configuration, a policy, live
//! changes, the status and the reference.

use std::time::Duration;

use parda_control::{Limit, Shares, TenantId, VmConfig};
use serde::{Deserialize, Serialize};

use crate::limit::LimitSetting;
use crate::tenant::wrong_name;
use crate::threshold::{AT_MOST, MOST};

/// Shares of a VM whose configuration names none.
pub const DEFAULT_SHARES: u32 = 1000;

/// Adds the settings of a VM to a table of a file, each of them optional. `settings` returns them, and `with` sets them. They are keys of
/// the table itself: `serde(flatten)` would lose their places in the file, and the refusal of unknown keys.
#[macro_export]
macro_rules! with_vm_settings {
    (@with { $(#[$of:meta])* $vis:vis struct $name:ident { $($own:tt)* } }
        $($(#[$meta:meta])* $key:ident: $kind:ty { $($about:tt)* })*) => {
        $(#[$of])*
        $vis struct $name {
            $($own)*
            $($(#[$meta])* #[serde(default)] $vis $key: Option<$kind>,)*
        }

        #[allow(dead_code)]
        impl $name {
            /// Settings of the VM as they were written.
            #[must_use]
            $vis fn settings(&self) -> $crate::VmSettings {
                $crate::VmSettings { $($key: self.$key),* }
            }

            /// The same with these settings of the VM.
            #[must_use]
            $vis fn with(mut self, settings: $crate::VmSettings) -> Self {
                $(self.$key = settings.$key;)*
                self
            }
        }
    };
    (@table {} $($(#[$meta:meta])* $key:ident: $kind:ty {
        default: $default:expr, wrong: $wrong:path, $($about:tt)*
    })*) => {
        /// Every setting of a disk that changes while its clients stay connected.
        pub const DISK_SETTINGS: &[DiskSetting] = &[
            $(DiskSetting {
                key: stringify!($key),
                fault: |settings| settings.$key.and_then($wrong),
                of_vm: true,
                is_optional: Option::<$kind>::is_none(&$default),
                $($about)*
            },)*
            DRAINED,
        ];

        impl VmSettings {
            /// The settings, with defaults in place of those that are not set.
            #[must_use]
            pub fn or_defaults(self) -> VmSettings {
                VmSettings { $($key: self.$key.or($default)),* }
            }

            /// The settings, with those of another table in place of those that are not set.
            #[must_use]
            pub fn or(self, other: VmSettings) -> VmSettings {
                VmSettings { $($key: self.$key.or(other.$key)),* }
            }
        }
    };
    (@declare $then:ident $table:tt) => {
        $crate::with_vm_settings! { @$then $table
            /// Weight against all other VMs of the volume, on any host.
            shares: u32 {
                default: Some(DEFAULT_SHARES),
                wrong: wrong_shares,
                bounds: "1 to 1000000",
                what: "Weight against all disks of the volume, on every host ([what they divide](#what-shares-divide)).",
                also: &[Holder::Steered, Holder::Throttled, Holder::Tenant],
            }
            /// IOs that the VM may gather while idle and send ahead of its turn.
            burst: f64 {
                default: Some(0.0),
                wrong: wrong_burst,
                bounds: "to 1000000",
                what: "IOs that an idle disk may gather and send ahead.",
                also: &[],
            }
            /// Latency objective: largest mean time of its IOs at the array.
            #[serde(with = "parda_config::quantity")]
            latency_target: std::time::Duration {
                default: None,
                wrong: wrong_target,
                bounds: "up to 10s",
                what: "[Latency objective](#a-latency-objective).",
                also: &[],
            }
            /// IOs per second that the VM has whenever it asks for them, whatever its shares.
            reservation: f64 {
                default: None,
                wrong: wrong_reservation,
                bounds: "1 to 1000000000",
                what: "IO/s that it has whenever it asks for them ([guarantees](guarantees.md)).",
                also: &[Holder::Tenant],
            }
            /// Tenant whose VM it is.
            tenant: $crate::TenantName {
                default: None,
                wrong: wrong_name,
                bounds: "a name",
                what: "[Tenant](guarantees.md#tenants) whose disk it is.",
                also: &[Holder::Steered, Holder::Throttled],
            }
            /// The most IOs and bytes per second that the VM does.
            limit: $crate::LimitSetting {
                default: None,
                wrong: LimitSetting::fault,
                bounds: "a table",
                what: "The most IO/s and bytes/s that it does ([guarantees](guarantees.md)).",
                also: &[Holder::Steered, Holder::Tenant],
            }
        }
    };
    ($($table:tt)*) => {
        $crate::with_vm_settings! { @declare with { $($table)* } }
    };
}

with_vm_settings! {
    /// Settings of a VM. `None`: not set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct VmSettings {}
}

with_vm_settings! { @declare table {} }

/// A setting of a disk that changes while its clients stay connected. A test holds `docs/configuration.md` to the table of these.
#[derive(Clone, Copy, Debug)]
pub struct DiskSetting {
    /// Key of the setting.
    pub key: &'static str,
    /// Bounds of its values, or the other values.
    pub bounds: &'static str,
    /// Effect of the setting.
    pub what: &'static str,
    /// Whether the setting belongs to the VM and may be in a policy, or only to the disk on this host.
    pub of_vm: bool,
    /// Whether a disk may be without it, as it has no default.
    pub is_optional: bool,
    /// Other holders of the setting, beside disks that are served.
    pub also: &'static [Holder],
    fault: fn(&VmSettings) -> Option<String>,
}

/// Holder of a setting of a disk, beside disks that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A VM of a steered device, whose queue is the kernel's.
    Steered,
    /// A VM whose disks QEMU opens and throttles.
    Throttled,
    /// A tenant, for all of its VMs together.
    Tenant,
}

/// Key of the setting of a disk that takes no new connections.
pub const DRAIN: &str = "drain";

/// The one setting of a disk that does not belong to its VM.
const DRAINED: DiskSetting = DiskSetting {
    key: DRAIN,
    bounds: "`true`",
    what: "Takes no new connections ([draining](api.md#draining)).",
    of_vm: false,
    is_optional: false,
    also: &[],
    fault: |_| None,
};

impl DiskSetting {
    /// The setting of a key, if there is one.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static DiskSetting> {
        DISK_SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Default, if there is one, in TOML.
    #[must_use]
    pub fn default(&self) -> Option<String> {
        let defaults = toml::Table::try_from(VmSettings::default().or_defaults());
        match defaults.ok()?.get(self.key) {
            Some(toml::Value::Float(number)) => Some(number.to_string()),
            Some(value) => Some(value.to_string()),
            None => (!self.of_vm).then(|| "false".to_owned()),
        }
    }
}

impl VmSettings {
    /// The first setting that is out of bounds: its key and its fault.
    #[must_use]
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let one =
            DISK_SETTINGS.iter().find_map(|setting| Some((setting.key, (setting.fault)(self)?)));
        one.or_else(|| {
            let (most, iops) = (Limit::from(&self.limit?).iops.total?.mean, self.reservation?);
            let fault = format!("must be at most the `iops` of the limit, {most}");
            (iops > most).then_some(("reservation", fault))
        })
    }

    /// The first setting that a VM of a steered device cannot have as it is: its key and its fault.
    #[must_use]
    pub fn fault_steered(&self) -> Option<(&'static str, String)> {
        self.fault().or_else(|| Some(("limit", self.limit?.fault_steered()?)))
    }

    /// These settings with the default of the shares.
    #[must_use]
    pub fn with_shares(self) -> VmSettings {
        VmSettings { shares: Some(self.shares().0), ..self }
    }

    /// Shares, with their default.
    #[must_use]
    pub fn shares(&self) -> Shares {
        Shares(self.shares.unwrap_or(DEFAULT_SHARES))
    }
}

/// The VM's part in its host.
impl From<&VmSettings> for VmConfig {
    fn from(settings: &VmSettings) -> VmConfig {
        let VmSettings { shares: _, burst, latency_target, reservation, tenant, limit } = settings;
        VmConfig {
            shares: settings.shares(),
            burst: burst.unwrap_or_default(),
            target: latency_target.map(Into::into),
            reservation: reservation.unwrap_or_default(),
            limit: limit.as_ref().map_or_else(Default::default, Into::into),
            tenant: tenant.map(|tenant| TenantId::of(&tenant)),
        }
    }
}

/// The fault of a VM's `shares`, if they are out of bounds.
#[must_use]
pub fn wrong_shares(shares: u32) -> Option<String> {
    let good = (1..=VmConfig::MAX_SHARES).contains(&shares);
    (!good).then(|| format!("must be from 1 to {}", VmConfig::MAX_SHARES))
}

fn wrong_burst(burst: f64) -> Option<String> {
    (!(0.0..=1e6).contains(&burst)).then(|| "must be from 0 to 1000000 IOs".to_owned())
}

fn wrong_reservation(iops: f64) -> Option<String> {
    let good = (1.0..=1e9).contains(&iops);
    (!good).then(|| "must be from 1 to 1000000000 IOs per second".to_owned())
}

/// The fault of a VM's `latency_target`, if it is outside the bounds of a threshold.
#[must_use]
pub fn wrong_target(target: Duration) -> Option<String> {
    if target.is_zero() {
        return Some("must be above zero".into());
    }
    (target > MOST).then(|| format!("must be {AT_MOST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    with_vm_settings! {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {}
    }

    #[test]
    fn each_setting_of_a_vm_is_bounded() {
        for (text, fault) in [
            ("shares = 0", ("shares", "must be from 1 to 1000000")),
            ("shares = 5\nburst = -1", ("burst", "must be from 0 to 1000000 IOs")),
            ("burst = nan", ("burst", "must be from 0 to 1000000 IOs")),
            ("latency_target = \"0s\"", ("latency_target", "must be above zero")),
            ("reservation = 0.5", ("reservation", "must be from 1 to 1000000000 IOs per second")),
            (
                "reservation = 9\nlimit = { iops = 8 }",
                ("reservation", "must be at most the `iops` of the limit, 8"),
            ),
            (
                "limit = { iops = 8, burst = 2 }",
                ("limit", "must have `burst` and `burst_for` together"),
            ),
        ] {
            let settings = toml::from_str::<Table>(text).unwrap().settings();
            assert_eq!(settings.fault(), Some((fault.0, fault.1.to_owned())), "{text}");
        }
    }

    /// A setting that its host does not get would be shown as in force.
    #[test]
    fn each_setting_of_a_vm_reaches_its_host() {
        let all = "shares = 5\nburst = 2\nlatency_target = \"5ms\"\nreservation = 9\n\
                   tenant = \"gold\"\nlimit = { iops = 80 }";
        let all: toml::Table = toml::from_str(all).unwrap();
        for DiskSetting { key, .. } in DISK_SETTINGS.iter().filter(|setting| setting.of_vm) {
            let one = toml::Table::from_iter([((*key).to_owned(), all[*key].clone())]);
            let one: Table = one.try_into().unwrap();
            let none = VmConfig::from(&VmSettings::default());
            assert_ne!(VmConfig::from(&one.settings()), none, "{key}");
        }
    }
}
