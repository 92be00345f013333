//! The command, its manual, and the documents of the project.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod links;
mod manual;
mod rooms;
mod version;
