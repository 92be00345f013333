//! Reason codes of a probe: each with its numbers, none with words.

use serde::{Deserialize, Serialize};

use crate::findings::IntervalEstimate;
use crate::load::{LoadMix, ProbeLoad};

/// Something that may be between the probe and the medium, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspicion {
    /// Component or effect that the evidence speaks for.
    pub what: Suspect,
    /// Observations that speak for it, at least one.
    pub evidence: Vec<Evidence>,
}

/// Something that makes a medium look like another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suspect {
    /// Reads come from memory.
    Memory,
    /// Some IOs wait for something else than their own turn.
    Stalls,
    /// Some reads come from a cache.
    ReadCache,
    /// Writes are acknowledged before they are on the medium.
    WriteCache,
    /// Sequential reads are read ahead.
    Prefetch,
    /// Throughput is held to a number that somebody set.
    Limit,
}

/// Observation that speaks for a [`Suspect`]. Latencies are means, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[allow(missing_docs)] // The names of the fields say it.
pub enum Evidence {
    /// One IO at a time takes less than any medium does.
    TooFast { mix: LoadMix, mean_ms: f64 },
    /// A part of the IOs takes up to `up_to_ms`, and all others at least `from_ms`.
    TwoKinds { mix: LoadMix, outstanding: u32, fast: f64, up_to_ms: f64, from_ms: f64 },
    /// Latency falls while one load runs.
    LatencyFalls { mix: LoadMix, outstanding: u32, first_ms: f64, last_ms: f64 },
    /// Writes take far less than the same reads.
    WritesBeforeReads { mix: LoadMix, outstanding: u32, writes_ms: f64, reads_ms: f64 },
    /// Throughput falls while one load runs, in IOPS.
    ThroughputFalls { outstanding: u32, first_iops: f64, last_iops: f64 },
    /// Sequential reads take far less than random ones.
    ReadAhead { mix: LoadMix, outstanding: u32, sequential_ms: f64, random_ms: f64 },
    /// Throughput stays at a round number of IOPS from a number of outstanding IOs on.
    RoundIops { mix: LoadMix, from_outstanding: f64, iops: f64 },
    /// Throughput stays at a round number of bytes a second from a number of outstanding IOs on.
    RoundRate { mix: LoadMix, from_outstanding: f64, bytes_per_s: f64 },
}

/// Question that the points of a probe cannot answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[allow(missing_docs)] // The names of the fields say it.
pub enum OpenQuestion {
    /// The knee: no mix was run with more than one number outstanding.
    NoSweep,
    /// The knee of a mix: the sweep did not go far enough beyond it.
    KneeBeyond { mix: LoadMix, deepest: f64, growth: Option<Growth> },
    /// Exact position of the knee of a mix: `part` of the peak is reached within a wide interval of latency.
    KneeUnsure { mix: LoadMix, part: f64, within: f64 },
    /// Behaviour of writes: none were allowed.
    Writes,
    /// Cost of size: too few sizes were run.
    Sizes,
    /// Cost of sizes between those that were run: a straight line misses one by this part.
    SizesBetween { off: f64 },
    /// Long-term result of some loads: they never settled. The first, and the number of others.
    Unsettled { load: ProbeLoad, more: u32 },
    /// Whether the load was the one asked for: another number was outstanding.
    OtherLoad { load: ProbeLoad, outstanding: f64 },
    /// Repeatability of the probe: nothing was run twice.
    Repeatability,
    /// Joint throughput of several hosts.
    OtherHosts,
    /// Load of others on the array meanwhile.
    OtherLoads,
    /// Experiments that were left out, as the time was too short.
    LeftOut { time_s: f64, what: Vec<LeftOut> },
    /// The loads that were left when the time was up.
    TimeUp,
    /// Loads after one at which the target failed.
    TargetFailed { load: ProbeLoad, error: String },
}

/// Growth of throughput over the second half of a sweep, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Outstanding IOs at which it is compared with the deepest load.
    pub from_outstanding: f64,
    /// Throughput at the deepest load over that, less 1.
    pub by: f64,
}

/// Part of a plan that is left out when time is short, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// All but one load beside the knee.
    LoadsNearKnee,
    /// The mixes, as a whole.
    Mixes,
    /// All but three sizes.
    InnerSizes,
    /// All swept mixes but the first.
    OtherSweeps,
    /// The sizes, as a whole.
    Sizes,
    /// The repeats, as a whole.
    Repeats,
    /// Every other depth.
    Depths,
}

/// Reason for an [`crate::Advice`]. Latencies are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[allow(missing_docs)] // The names of the fields say it.
pub enum AdviceReason {
    /// The knee: `part` of the peak's throughput.
    Knee { mix: LoadMix, part: f64, peak_iops: f64, latency_ms: IntervalEstimate, outstanding: f64 },
    /// Gain of the deepest load in throughput over the threshold, as a fraction, and its latency over the
    /// threshold.
    LittleBeyond { outstanding: f64, gain: f64, latency_ratio: f64 },
    /// Wait of an IO at the threshold, beyond its time alone.
    Waits { service_ms: f64, waits_ms: f64, threshold_ms: f64 },
    /// Distance of the threshold above the knee, as a fraction.
    AboveKnee { by: f64 },
    /// Outstanding IOs at the threshold, of the whole cluster, and the window that leaves room for them.
    Outstanding { outstanding: f64, window: f64 },
    /// Several mixes were swept; the advice is for the first.
    FirstMix { mix: LoadMix },
    /// The knee of another mix.
    OtherKnee { mix: LoadMix, latency_ms: f64, outstanding: f64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: LoadMix = LoadMix { size: 4096, read_percent: 100, random_percent: 100 };

    fn again<T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug>(value: &T) {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
    }

    #[test]
    fn reasons_are_written_as_codes_and_read_again() {
        let rows = Evidence::RoundIops { mix: MIX, from_outstanding: 8.0, iops: 2000.0 };
        let suspicion = Suspicion { what: Suspect::Limit, evidence: vec![rows] };
        again(&suspicion);
        let text = serde_json::to_string(&suspicion).unwrap();
        assert!(text.contains(r#""what":"limit","evidence":[{"reason":"round-iops","#), "{text}");
        again(&OpenQuestion::KneeBeyond { mix: MIX, deepest: 4.0, growth: None });
        again(&OpenQuestion::LeftOut { time_s: 20.0, what: vec![LeftOut::Mixes] });
        again(&AdviceReason::FirstMix { mix: MIX });
        assert_eq!(
            serde_json::to_string(&OpenQuestion::NoSweep).unwrap(),
            r#"{"reason":"no-sweep"}"#
        );
    }
}
