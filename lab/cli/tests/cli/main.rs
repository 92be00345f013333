//! The laboratory's commands that compute.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod reproduce;
mod sim;
