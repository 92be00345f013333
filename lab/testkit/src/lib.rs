#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a panic is how a test fails"
)]
//! What tests of several crates need. Nothing but tests imports it.

mod client;
pub mod disk;
mod etcd;
mod loop_device;
pub mod manual;
mod monitor;

pub use client::{Answer, Client, ConnectError, at, read, write};
pub use etcd::{TestEtcd, TestEtcdTls};
pub use loop_device::LoopDevice;
pub use monitor::Monitor;
