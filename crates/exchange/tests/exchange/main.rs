//! The exchange on files, devices and NBD exports; `conformance` holds what all transports have in common.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../common/mod.rs"]
mod common;
mod concurrency;
mod device;
mod foreign;
mod full_and_read_only;
mod nbd;
