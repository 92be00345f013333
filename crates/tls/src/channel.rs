//! One TLS connection: bytes from the peer in, bytes for the peer out.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
};

use crate::kind::THEIRS;

/// Reason why a TLS connection failed. Bytes that wait to be sent, such as an alert, are sent
/// before the connection is closed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The handshake or a record failed: the peer broke the protocol, or its certificate is not
    /// accepted.
    #[error("TLS: {}", fault(.0))]
    Peer(#[from] rustls::Error),
    /// A message of the peer exceeds the largest that is accepted.
    #[error("TLS: the peer's message is longer than any that is accepted")]
    TooLong,
}

/// A fault of TLS in words.
#[must_use]
pub fn fault(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(refused) = error else { return error.to_string() };
    if let Some(why) = out_of_force(refused) {
        return format!("the peer's certificate {why}");
    }
    match refused {
        CertificateError::Other(other)
            if other.to_string() == "CaUsedAsEndEntity" =>
        {
            "the peer's certificate is a CA's own, as `openssl req -x509` makes a self-signed one, and a CA's may be \
             that of no server or client. Make a CA, sign a certificate with it for the peer (openssl req -x509, openssl \
             x509 -req -CA: /usr/share/doc/parda/docs/configuration.md, TLS, has the commands), and trust the CA"
                .to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "the peer's certificate, or one above it, has a key or a signature of a kind that cannot be checked: {THEIRS} can, \
             with SHA-256, SHA-384 or SHA-512"
        ),
        _ => error.to_string(),
    }
}

/// Fault of a certificate that has expired or is not valid yet; `None` for another fault.
pub(crate) fn out_of_force(error: &CertificateError) -> Option<String> {
    match error {
        CertificateError::ExpiredContext { not_after, .. } => {
            Some(format!("has expired at {}", date(*not_after)))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            Some(format!("is not valid yet, but from {} on", date(*not_before)))
        }
        CertificateError::Expired => Some("has expired".to_owned()),
        CertificateError::NotValidYet => Some("is not valid yet".to_owned()),
        _ => None,
    }
}

/// A time of a certificate. Messages have no other time, so that the same fault has the same message at any time.
fn date(at: UnixTime) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at.as_secs()))
}

/// The same of an error of a socket below which rustls speaks TLS. Other errors are left as they are.
#[must_use]
pub fn io_fault(error: &std::io::Error) -> String {
    of_tls(error).map_or_else(|| error.to_string(), fault)
}

/// Whether an error of IO is one of TLS.
#[must_use]
pub fn is_of_tls(error: &std::io::Error) -> bool {
    of_tls(error).is_some()
}

pub(crate) fn of_tls(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// One TLS connection, as client or as server.
pub struct Channel {
    tls: Connection,
    peer_closed: bool,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("peer_closed", &self.peer_closed).finish_non_exhaustive()
    }
}

impl Channel {
    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        Ok(Self::new(ServerConnection::new(config)?.into()))
    }

    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, TlsError> {
        Ok(Self::new(ClientConnection::new(config, name)?.into()))
    }

    fn new(mut tls: Connection) -> Self {
        // Callers take the bytes to be sent after each call, so the buffer stays small without a limit.
        tls.set_buffer_limit(None);
        Self { tls, peer_closed: false }
    }

    /// Whether the handshake is complete, so that data may be sent.
    #[must_use]
    pub fn is_established(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Whether the peer has closed its direction (`close_notify`).
    #[must_use]
    pub fn peer_has_closed(&self) -> bool {
        self.peer_closed
    }

    /// Takes received bytes off the front of `input`, at most as many as rustls reads at once.
    /// Decrypted data is appended to `plain`; bytes to be sent are appended to `out`, also on failure.
    /// Returns the number of bytes taken.
    ///
    /// # Errors
    /// The peer's certificate is not accepted, the peer broke the protocol, or a record was tampered
    /// with.
    pub fn receive(
        &mut self,
        mut input: &[u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<usize, TlsError> {
        let before = input.len();
        // Reading from memory fails only where the buffer for one message is full.
        self.tls.read_tls(&mut input).map_err(|_| TlsError::TooLong)?;
        let processed = self.tls.process_new_packets();
        // The reader has no error to report that `process_new_packets` did not.
        let _ = self.tls.reader().read_to_end(plain);
        self.put_records(out);
        self.peer_closed |= processed?.peer_has_closed();
        Ok(before - input.len())
    }

    /// Encrypts `plain` and appends the records to `out`.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        // Without a limit the writer takes everything.
        let _ = self.tls.writer().write_all(plain);
        self.put_records(out);
    }

    /// Appends `close_notify`: no more data follows.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.tls.send_close_notify();
        self.put_records(out);
    }

    /// Appends to `out` what is to be sent without data, such as a client's hello.
    pub fn put_records(&mut self, out: &mut Vec<u8>) {
        while self.tls.wants_write() {
            // Writing to memory does not fail.
            if self.tls.write_tls(out).is_err() {
                return;
            }
        }
    }
}
