//! The NBD protocol, both sides, as a state machine without sockets.
//!
//! Whoever owns a socket feeds received bytes in and sends the bytes that come out; nothing here
//! reads, writes, waits or keeps a payload. `docs/nbd-protocol.md` says what is supported and what
//! is refused and how. "Spec" in this crate is `doc/proto.md` of the NetworkBlockDevice project.
//!
//! | file | subject |
//! | --- | --- |
//! | [`wire`] | magics, constants and byte layouts, all of them |
//! | [`export`] | what a server exports: name, geometry, transmission flags |
//! | [`meta`] | metadata contexts: `base:allocation` |
//! | [`validate`] | the one validator of a request against an export |
//! | [`server`] | handshake and transmission, the server's side |
//! | [`client`] | handshake and transmission, the client's side |
//! | [`answer`] | the pieces of a reply, and what of a read they cover |
//! | [`outbox`] | messages that wait to be sent, with their data by reference |
#![forbid(unsafe_code)]

pub mod answer;
pub mod client;
mod error;
pub mod export;
pub mod meta;
pub mod outbox;
pub mod server;
pub mod validate;
pub mod wire;

pub use error::ProtocolError;
pub use export::Export;
pub use validate::{RequestRefusal, Terms};
pub use wire::{Cookie, Framing, TransmissionFlags};
