//! The language of scenarios and what it answers.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod answer;
mod events;
mod language;
mod study;
mod workloads;
