//! A host of parda: its configuration, its volumes, their control ticks, and what it says of
//! itself.
//!
//! Each volume has two threads. The ring thread ([`parda_block`]) carries IO and never waits for
//! anything else. The control thread ([`control`]) talks to the other hosts, which may block, and
//! hands what it hears to the ring once per period.

#![forbid(unsafe_code)]

pub mod config;
pub mod file;
pub mod latency;
pub mod status;
