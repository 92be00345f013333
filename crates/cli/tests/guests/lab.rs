//! Scenarios whose hosts are guests.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{PARDA, turn};

/// A scenario of `scenarios/guests` holds.
fn holds(name: &str) {
    let Some(_turn) = turn() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/guests");
    let mut lab = Command::new(PARDA);
    lab.arg("lab").arg(folder.join(name).with_extension("toml")).stdin(Stdio::null());
    let output = lab.output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    println!("{said}");
    assert!(output.status.success(), "{said}\n{errors}");
}

#[test]
fn depths_set_by_hand_give_throughput_in_proportion() {
    holds("static-depths");
}

#[test]
fn two_kernels_share_by_shares_and_again_after_one_was_killed() {
    holds("two-guests");
}

#[test]
fn four_kernels_share_by_shares() {
    holds("four-guests");
}

#[test]
fn kernels_share_over_iscsi() {
    holds("iscsi");
}

#[test]
fn kernels_share_over_nbd_clients_of_their_own() {
    holds("nbd");
}

#[test]
fn a_kernel_that_is_steered_and_a_host_that_serves_share_by_shares() {
    holds("guest-and-process");
}
