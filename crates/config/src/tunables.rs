//! The law's settings, each declared once: key, type, unit, default, reason and source.

use std::time::Duration;

use bytesize::ByteSize;
use parda_control::latency::Signal;
use parda_control::law::Estimation;
use parda_control::{ModeName, Prefer};
use serde::{Deserialize, Serialize};

use crate::threshold::ThresholdSetting;
use crate::values::{Fairness, OutsiderSetting, SizeModelSetting};

/// Documentation of one setting. `docs/tunables.md` is held to this table by a test.
#[derive(Clone, Copy, Debug)]
pub struct Tunable {
    /// Key of the setting in the configuration.
    pub key: &'static str,
    /// Kind of its value, or its unit.
    pub unit: &'static str,
    /// Value if it is left out.
    pub default: &'static str,
    /// Effect of the setting, and reason for its default.
    pub why: &'static str,
    /// Paper or page that the setting or its default comes from.
    pub source: &'static str,
}

/// Declares the settings: the type that files are read into, and the table.
macro_rules! settings {
    ($($(#[$meta:meta])* $key:ident: $kind:ty { $($about:tt)* })*) => {
        /// The settings of the law, each optional. [`TUNABLES`] explains them.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs)] // TUNABLES is the one place that says what each means.
        pub struct ControlSettings {
            $($(#[$meta])* pub $key: Option<$kind>,)*
        }

        impl ControlSettings {
            /// These settings, overridden by those that `over` has.
            #[must_use]
            #[allow(clippy::clone_on_copy)]
            pub fn overlaid(&self, over: &ControlSettings) -> ControlSettings {
                ControlSettings { $($key: over.$key.as_ref().or(self.$key.as_ref()).cloned(),)* }
            }
        }

        /// Every setting of the law.
        pub const TUNABLES: &[Tunable] = &[$(Tunable { key: stringify!($key), $($about)* }),*];
    };
}

settings! {
    mode: ModeName {
        unit: "\"parda\", \"published\", \"static\", \"observe\" or \"off\"",
        default: "\"parda\"",
        why: "Law of the window. parda: eq. 2 normalised so that latency lands on the threshold. published: eq. 2 to the letter. \
              static: always window_max. observe: holds nothing back, and `parda status` reports what parda would do. off: no window \
              and no queue.",
        source: "FAST '09 eq. 2; docs/control.md",
    }
    latency_threshold: ThresholdSetting {
        unit: "duration from 10us to 10s, \"auto\" or { probe, start, at_least, at_most, step, learn, idle_probe }",
        default: "30ms",
        why: "Device latency at which the array is held. The knee of its throughput: higher wastes latency, lower wastes throughput. \
              Automatic: found while working, from what the stored probe recommends or from start (30ms), between at_least (100us) \
              and at_most (100ms), by steps of at most step (0.2, a fifth). learn = false keeps it where it begins; idle_probe = \
              \"daily\" probes an idle volume. One number on any host pins all of them.",
        source: "FAST '09 §5.4; docs/control.md",
    }
    #[serde(with = "crate::quantity")]
    period: Duration {
        unit: "duration from 50ms to 1h",
        default: "1s",
        why: "Time between two rounds of publishing, reading and adjusting. A round costs the array two IOs per host with an exchange \
              on the volume; convergence takes a number of rounds. The same on every host.",
        source: "FAST '09 used 2 s, SIOC 4 s",
    }
    window_min: f64 {
        unit: "outstanding IOs, may be below 1, at most 1000000",
        default: "0.001",
        why: "Smallest window. Below 1 so that hundreds of hosts can share one array.",
        source: "docs/control.md",
    }
    window_max: f64 {
        unit: "outstanding IOs, at most 1000000",
        default: "256",
        why: "Largest window of a host, at most the depth of the queue behind it. A host that reaches it has less than its shares. \
              With mode published or static the default is 64.",
        source: "a hundred light VMs of a host; 64: eq. 2, typical LUN queue depths",
    }
    window_start: f64 {
        unit: "outstanding IOs, at most 1000000",
        default: "4",
        why: "Window before anything is known. A host that hears others takes their window per share at once.",
        source: "docs/control.md",
    }
    cluster_min: f64 {
        unit: "outstanding IOs from 0 to 1000000",
        default: "1",
        why: "Mode parda: what all hosts together may have outstanding however high the latency. Below one IO smaller windows only \
              lose throughput. More, such as one for each drive, guards against a threshold that is too low and against outsiders.",
        source: "docs/control.md",
    }
    alpha: f64 {
        unit: "0 to below 1",
        default: "0.002",
        why: "Weight of the past in the latency average. Low, as latencies are means over a period.",
        source: "FAST '09 eq. 1 and §5",
    }
    gamma: f64 {
        unit: "above 0, at most 1",
        default: "0.5",
        why: "How far the window moves towards its target in one period; in a round that comes late, as far as in the periods that it \
              took. Where a write cache fills and drains within seconds, more makes latency swing. With mode published the default is 0.8.",
        source: "FAST '09 eq. 2 and §5: 0.8 in 2 s",
    }
    beta_per_share: f64 {
        unit: "outstanding IOs per share, at most 1000000",
        default: "0.002",
        why: "Mode published: K of β = K · shares. Latency settles above the threshold by \
              Σβ / throughput.",
        source: "FAST '09 §3; the papers leave K open",
    }
    estimation: Estimation {
        unit: "\"global\" or \"local\"",
        default: "\"global\"",
        why: "Whose latency drives the window. Local needs no exchange and diverges where the \
              array treats hosts differently.",
        source: "FAST '09 §4",
    }
    #[serde(deserialize_with = "crate::values::signal")]
    signal: Signal {
        unit: "\"all\", \"reads\" or \"writes\"",
        default: "\"all\"",
        why: "IOs whose mean latency drives the window: all, as in the papers; or reads or writes alone, where there are any.",
        source: "docs/control.md; SPEED '08 §3.1",
    }
    size_model: SizeModelSetting {
        unit: "\"off\", \"learned\" or { per_kib, up to 1s, fixed, up to 10s }",
        default: "\"off\"",
        why: "Scales latencies to reference_size by latency = m · size + C. Off, so that the threshold is the latency that is seen; \
              learned where sizes are mixed widely.",
        source: "SPEED '08 §3.1",
    }
    #[serde(with = "crate::quantity")]
    reference_size: ByteSize {
        unit: "size up to 1GiB",
        default: "8KiB",
        why: "The size that size_model scales to.",
        source: "FAST '09 used 8 KB, SPEED '08 4 KB",
    }
    fairness: Fairness {
        unit: "\"outstanding\", \"iops\", \"bytes\" or { iops_reads, bandwidth_reads, iops_writes, bandwidth_writes }",
        default: "\"outstanding\"",
        why: "What shares divide: IOs outstanding at the array, which costs no throughput, IO/s, bytes/s, or with a cost the array's \
              time (docs/configuration.md). The same on every host.",
        source: "SPEED '08 §2; docs/control.md",
    }
    #[serde(with = "crate::quantity")]
    latency_target_min: Duration {
        unit: "duration up to 10s",
        default: "1ms",
        why: "No disk's `latency_target`, on any host, brings the threshold below this. The largest value of all hosts counts.",
        source: "docs/control.md",
    }
    ignore: String {
        unit: "names of hosts, separated by commas",
        default: "\"\"",
        why: "Hosts whose reports count for nothing here (docs/faults.md). `parda exchange ignore` sets it live, a policy \
              for all hosts.",
        source: "docs/control.md",
    }
    min_ios: u32 {
        unit: "IOs, at most 1000000",
        default: "4",
        why: "Fewer completed IOs do not move the latency estimate; they wait for more.",
        source: "docs/control.md",
    }
    #[serde(with = "crate::quantity")]
    hold_max: Duration {
        unit: "duration from 100ms to 1h",
        default: "10s",
        why: "A VM whose IOs wait gets one through in about that time, whatever its shares. Below the time after which guests give an \
              IO up, 30 s with Linux.",
        source: "docs/control.md",
    }
    outsider: OutsiderSetting {
        unit: "\"compete\" or \"hold\"",
        default: "\"compete\"",
        why: "Answer to an outsider, load that is not under control. compete: VMs under control together keep nine tenths of the throughput \
              that they would have without control, above the threshold. hold: the threshold stays, as in the papers, and VMs under \
              control make room, down to cluster_min. An automatic threshold does not compete.",
        source: "docs/control.md",
    }
    prefer: Prefer {
        unit: "\"reservations\" or \"threshold\"",
        default: "\"reservations\"",
        why: "What is held where disks with a reservation would take latency above the threshold. reservations: they are met, with up to \
              four times the threshold. threshold: all reservations are short alike.",
        source: "docs/guarantees.md",
    }
}
