//! A client of etcd beside real members and strangers.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod members;
mod strangers;
