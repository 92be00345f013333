//! Both sides of the protocol, byte by byte.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod drive;
mod extended;
mod handshake;
mod starttls;
mod transmission;
