//! fio's counters in JSON (`json+`), with all bins of its histograms.

use std::collections::BTreeMap;

use serde::Deserialize;

use parda_probe::{Bin, KindTotals, LoadSnapshot};

/// Binary logarithm of the number of fio's histogram bins for each factor of two (its `FIO_IO_U_PLAT_BITS`, 6).
const STEP_BITS: u32 = 6;

#[derive(Deserialize)]
struct Document {
    jobs: (Job,),
}

#[derive(Deserialize)]
struct Job {
    /// `errno`: 0 unless an IO failed.
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    /// Run time in milliseconds.
    runtime: f64,
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    max: f64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    /// Histogram of latencies. fio leaves it out if there were no IOs.
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

/// The counters of fio's one job. `None` if an IO of it failed.
pub(super) fn snapshot(text: &str) -> serde_json::Result<Option<LoadSnapshot>> {
    let Document { jobs: (job,) } = serde_json::from_str(text)?;
    let at_s = job.read.runtime.max(job.write.runtime) / 1e3;
    let (reads, writes) = (totals(job.read.lat_ns), totals(job.write.lat_ns));
    Ok((job.error == 0).then_some(LoadSnapshot { at_s, reads, writes, unwritten: 0 }))
}

fn totals(latency: Latency) -> KindTotals {
    let Latency { max, mean, stddev, count, bins } = latency;
    let ios = count as f64;
    let (mean, stddev) = (mean / 1e6, stddev / 1e6);
    let bin = |(middle, ios): (String, u64)| {
        let middle = middle.parse().ok().filter(|_| ios > 0)?;
        Some(Bin { middle, up_to: up_to(middle), ios })
    };
    let mut bins: Vec<Bin> = bins.into_iter().filter_map(bin).collect();
    bins.sort_unstable_by_key(|bin| bin.middle);
    KindTotals {
        ios: count,
        sum_ms: mean * ios,
        // fio divides the variance by one less than the number of IOs.
        squares: stddev * stddev * (ios - 1.0).max(0.0) + mean * mean * ios,
        max_ms: max / 1e6,
        bins,
    }
}

/// The upper end of the bin with this middle, in nanoseconds. The first bins are one
/// nanosecond wide.
fn up_to(middle: u64) -> u64 {
    let top = u64::BITS - 1 - middle.max(1).leading_zeros();
    if top <= STEP_BITS { middle } else { middle + (1 << (top - STEP_BITS)) / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "probe", "error": 0,
        "read": {"runtime": 463, "total_ios": 5, "slat_ns": {"min": 1},
            "lat_ns": {"min": 90, "max": 10100000, "mean": 3000000.0, "stddev": 1000000.0, "N": 4,
                "percentile": {"1.000000": 1}, "bins": {"10000000": 1, "600000": 3}}},
        "write": {"runtime": 0, "lat_ns": {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}}
    }]}"#;

    #[test]
    fn fios_numbers_become_ours() {
        let snapshot = snapshot(TEXT).unwrap().unwrap();
        assert_eq!(snapshot.at_s, 0.463);
        assert_eq!(snapshot.writes, KindTotals::default());
        let reads = snapshot.reads;
        assert_eq!((reads.ios, reads.sum_ms, reads.max_ms), (4, 12.0, 10.1));
        assert_eq!(reads.squares, 3.0 + 36.0);
        let bins: Vec<_> = reads.bins.iter().map(|bin| (bin.middle, bin.up_to, bin.ios)).collect();
        assert_eq!(bins, [(600_000, 604_096, 3), (10_000_000, 10_065_536, 1)]);
    }

    #[test]
    fn what_is_no_report_is_said_to_be_none() {
        assert!(snapshot("{}").is_err());
        assert!(snapshot("{\"jobs\": []}").is_err());
        assert_eq!(snapshot(&TEXT.replace("\"error\": 0", "\"error\": 5")).unwrap(), None);
    }
}
