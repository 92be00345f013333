//! A trace from its file to an answer.

use crate::stage::{LAB, Stage};

/// What docs/workloads.md walks through.
#[test]
fn a_trace_answers_what_the_array_would_do_with_twelve_hosts() {
    let stage = Stage::new();
    let twelve = format!("{}/../../scenarios/traces/twelve-hosts.toml", env!("CARGO_MANIFEST_DIR"));
    let answer = stage.ok(&[LAB, "sim", &twelve]);
    assert!(answer.contains("6 passed, 0 missed, 0 exempt"), "{answer}");
    let done = stage.lab(&["lab", "--check", &twelve]);
    assert!(done.err.contains("`trace`, of db-001, is beyond the laboratory"), "{}", done.err);
}
