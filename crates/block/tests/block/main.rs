//! A volume and its backends, as clients and servers meet them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cached_writes;
mod common;
mod control;
mod data;
mod extended;
mod extents;
mod faults;
mod floods;
mod front_ends;
mod guest_memory;
mod guests;
mod hostile;
mod hostile_server;
mod long_requests;
mod lost_writes;
mod members;
mod resize;
mod silent_server;
mod simulated_backend;
mod tls;
mod tls_server;
mod unaligned;
