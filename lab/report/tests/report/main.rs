//! Reports as pictures and tables.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod pictures;
mod table;
