//! The model of an array against what is known of arrays.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod behaviour;
mod closed_loop;
mod contract;
mod physics;
