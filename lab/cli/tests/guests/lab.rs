//! Scenarios whose hosts are guests.

use std::path::Path;
use std::sync::Arc;

use parda_config::Document;
use parda_lab::LabOptions;
use parda_report::table::table;
use parda_scenario::Scenario;
use tempfile::NamedTempFile;

use crate::{LAB, PARDA, alone, host, turn};

/// What the laboratory says when its guests did not get the processor when they were due.
const SHORT: &str = "this machine was short of CPU";

/// How often a scenario is run that the machine had too little for: other programs may be beside it, too.
const RUNS: usize = 3;

/// A scenario of `scenarios/guests` holds.
fn holds(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/guests");
    holds_at(&folder.join(name).with_extension("toml"));
}

/// The scenario of a file holds. Where it does not, and the laboratory says that the machine had
/// too little for it, it is run again, and has the machine to itself among these stories: then it must.
fn holds_at(path: &Path) {
    let Some(turn) = turn() else { return };
    let (mut held, mut said) = run(path);
    drop(turn);
    println!("{said}");
    for _ in 1..RUNS {
        if held {
            return;
        }
        assert!(said.contains(SHORT), "{said}");
        let _alone = alone();
        (held, said) = run(path);
        println!("{said}");
    }
    assert!(held, "{said}");
}

/// Whether it holds, and all that was said.
fn run(path: &Path) -> (bool, String) {
    let scenario = Scenario::parse(&Document::read(path).unwrap()).unwrap();
    let options = LabOptions {
        parda: PARDA.clone(),
        parda_lab: LAB.into(),
        before: None,
        scenario: path.to_owned(),
        variant: None,
        keep_logs: false,
        live: None,
        guests: Some(host::boot),
        interrupt: Arc::default(),
    };
    let log = NamedTempFile::new().unwrap();
    let subscriber =
        tracing_subscriber::fmt().with_writer(Arc::new(log.reopen().unwrap())).finish();
    let answer = tracing::subscriber::with_default(subscriber, || {
        parda_lab::run(&scenario, &options, |_| ())
    });
    let log = std::fs::read_to_string(log.path()).unwrap();
    match answer {
        Ok(answer) => (answer.ok(), format!("{}\n{log}", table(&answer, false))),
        Err(error) => (false, format!("{error}\n{log}")),
    }
}

#[test]
#[ignore = "the same law over another transport or with more hosts: make nightly"]
fn depths_set_by_hand_give_throughput_in_proportion() {
    holds("static-depths");
}

#[test]
#[ignore = "more of what guest-and-process shows, and lab/sim/tests/sim/guests.rs of a guest that dies: make nightly"]
fn two_kernels_share_by_shares_and_again_after_one_was_killed() {
    holds("two-guests");
}

#[test]
#[ignore = "the same law over another transport or with more hosts: make nightly"]
fn four_kernels_share_by_shares() {
    holds("four-guests");
}

#[test]
#[ignore = "the same law over another transport or with more hosts: make nightly"]
fn kernels_share_over_iscsi() {
    holds("iscsi");
}

#[test]
#[ignore = "the same law over another transport or with more hosts: make nightly"]
fn kernels_share_over_nbd_clients_of_their_own() {
    holds("nbd");
}

#[test]
fn a_kernel_that_is_steered_and_a_host_that_serves_share_by_shares() {
    holds("guest-and-process");
}

/// Only here, as the simulator has no `io.max`.
#[test]
#[ignore = "the limit of a VM in cgroups.rs, and the parts of two hosts in crates/control/src/kernel.rs: make nightly"]
fn a_limit_of_a_tenant_on_two_kernels_holds_while_demand_moves() {
    holds_at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/tenant-limit.toml"));
}
