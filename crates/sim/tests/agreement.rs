//! The same scenario in virtual time and with real processes gives the same answer.
//!
//! What the laboratory measured is written down here, so that this runs everywhere and in no time.
//! To measure it again: `parda lab scenarios/demo.toml`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::{answer, scenario};

/// Throughput and device latency of one phase of `scenarios/demo.toml` in the laboratory.
struct Measured {
    phase: usize,
    iops: f64,
    device_latency_ms: f64,
}

/// `parda lab scenarios/demo.toml` on a machine with two CPUs.
const DEMO: [Measured; 2] = [
    Measured { phase: 0, iops: 1499.0, device_latency_ms: 164.7 },
    Measured { phase: 1, iops: 1450.0, device_latency_ms: 50.0 },
];

const TOLERANCE: f64 = 0.1;

fn near(what: &str, sim: f64, lab: f64) {
    assert!((sim / lab - 1.0).abs() <= TOLERANCE, "{what}: {sim} here, {lab} in the laboratory");
}

#[test]
fn the_demo_is_as_the_laboratory_measured_it() {
    let answer = answer(&scenario("demo.toml"));
    for Measured { phase, iops, device_latency_ms } in DEMO {
        let total = answer.phases[phase].total;
        near("IOPS", total.iops, iops);
        near("device latency", total.device_latency_ms.unwrap(), device_latency_ms);
    }
}
