//! The law: a host, its queue, a cluster and its threshold.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cluster;
mod common;
mod fair_queue;
mod host;
mod limits;
mod qemu_throttle;
mod threshold;
