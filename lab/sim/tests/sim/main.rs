//! Whole clusters in virtual time: scenarios, events, traces, guests, and the automatic threshold.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod auto;
#[path = "../common/mod.rs"]
mod common;
mod events;
mod guests;
mod scenarios;
mod tenants;
mod traces;
mod variants;
mod workloads;
