//! TLS for the clients of a listener.
//!
//! A connection negotiates on the ring until its client asks for TLS. From then on a relay with a
//! thread of its own has the client's socket, and the ring has a socket to the relay. So handshakes
//! and encryption delay no neighbour, and the ring's code knows one kind of connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parda_tls::{Acceptor, TlsRelay};

use super::budget::Charge;

/// Charge for a relay, in bytes: its buffers when both directions are full, the TLS state, and
/// thread stack for a handshake.
pub(crate) const RELAY: usize = 256 << 10;

/// TLS as a listener offers it.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// Its certificate, and whose clients it takes.
    pub acceptor: Arc<Acceptor>,
    /// Nothing but STARTTLS is answered without it.
    pub required: bool,
}

impl ListenerTls {
    /// Begins TLS on a client's socket, of which nobody else may receive or send any more. Returns
    /// where its plaintext comes and goes from now on.
    ///
    /// `memory` is what the relay is charged for, until it ends.
    pub(crate) fn begin(&self, client: OwnedFd, memory: Charge) -> io::Result<OwnedFd> {
        let channel = self.acceptor.accept().map_err(io::Error::other)?;
        let (ring, relay) = TlsRelay::beside(channel, client)?;
        relay.spawn(move |ended| {
            if let Err(error) = ended {
                tracing::info!("gave up a client's connection: {error}");
            }
            drop(memory);
        })?;
        Ok(ring)
    }
}
