//! TLS for NBD: certificates from files, a connection as bytes in and bytes out, and a relay between
//! a socket with TLS and one without.
//!
//! TLS 1.3 and 1.2 by rustls. No session is resumed: each connection shows its certificate anew,
//! so that a changed CA holds for all that connect from then on. There is no renegotiation.
//!
//! | file | subject |
//! | --- | --- |
//! | [`channel`] | one connection: handshake, records |
//! | [`relay`] | TLS on one socket, plaintext on another |
//! | `running` | the threads of relays, and waiting for their end |
//! | [`files`] | certificates, keys and CAs, checked when they are read |
//! | `kind` | kinds of keys that can be used |
//! | [`client`] | TLS with the server that an NBD URI names |
//! | [`secret`] | text files that hold passwords, tokens and other keys |
#![forbid(unsafe_code)]

pub mod channel;
pub mod client;
pub mod files;
mod kind;
pub mod relay;
mod running;
pub mod secret;

pub use channel::{Channel, TlsError, fault, io_fault, is_of_tls};
pub use client::{ClientError, CloseReason, check, secure};
pub use files::{
    Acceptor, ClientFiles, Connector, FileError, FileRole, ServerFiles, certificates, is_name,
};
pub use relay::{RelayError, TlsRelay};
pub use running::settle;
pub use secret::{SecretFault, read_secret};
