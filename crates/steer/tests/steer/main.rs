//! Knobs of the kernel and of devices, on devices that the tests make.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cgroups;
mod common;
mod multipath_counts;
mod named;
mod object;
mod resolve;
mod steering;
