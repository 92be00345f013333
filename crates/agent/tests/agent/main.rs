//! What an agent reads before it serves.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod config;
mod mutated;
mod server_tls;
