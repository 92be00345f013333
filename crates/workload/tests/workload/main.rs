//! Jobs of fio, and traces.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod fio;
mod traces;
