//! TLS with the NBD server that a URI names.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parda_address::{Certificates, UriTls};

use crate::channel::TlsError;
use crate::files::{ClientFiles, Connector, FileError};
use crate::kind::THEIRS;
use crate::relay::{RelayError, TlsRelay};

/// Reason why TLS with a server cannot be attempted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No CA is configured for the server.
    #[error(
        "TLS needs the CA that the server's certificate must come from: add \
         ?tls-certificates=DIRECTORY to the URI, with ca-cert.pem in the directory"
    )]
    NoAuthority,
    /// A certificate, key or CA file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ClientFiles {
    /// The certificate files that an NBD URI names.
    ///
    /// # Errors
    /// The URI names none. No CA is trusted unless it is named.
    pub fn of(tls: &UriTls) -> Result<ClientFiles, ClientError> {
        let (ca, identity) = match &tls.certificates {
            Certificates::Unsaid => return Err(ClientError::NoAuthority),
            Certificates::Files { ca, identity } => (ca.clone(), identity.clone()),
            Certificates::Directory(directory) => {
                let file = |name| directory.join(name);
                let (certificate, key) = (file("client-cert.pem"), file("client-key.pem"));
                // A certificate without a key, or the reverse, is an error that reading the files
                // reports.
                let any = certificate.exists() || key.exists();
                (file("ca-cert.pem"), any.then_some((certificate, key)))
            }
        };
        Ok(ClientFiles { ca, identity, name: tls.name.clone() })
    }
}

/// Reads the files that a URI names, to report errors before any connection is made.
///
/// # Errors
/// The first file that cannot be used.
pub fn check(tls: &UriTls) -> Result<(), ClientError> {
    Connector::new(&ClientFiles::of(tls)?)?;
    Ok(())
}

/// Reason for the end of a TLS connection, for a caller who sees only that its socket was closed.
#[derive(Clone, Debug, Default)]
pub struct CloseReason(Arc<OnceLock<String>>);

impl CloseReason {
    /// The reason, if there is one. The reason is set before the socket is seen to be closed.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Replaces an error that says only that the connection was closed by its reason. Other errors are
    /// returned unchanged.
    #[must_use]
    pub fn explain(&self, error: io::Error) -> io::Error {
        let closed = matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        );
        match self.reason() {
            Some(reason) if closed => io::Error::new(error.kind(), reason.to_owned()),
            _ => error,
        }
    }
}

/// Begins TLS with a server that has answered STARTTLS. Returns the socket on which plaintext is
/// sent and received from now on. A thread relays between the two sockets until either side is
/// closed, so nobody else may use the server's socket.
///
/// The files are read on each call, so that renewed certificates hold for the next connection.
///
/// # Errors
/// The certificates cannot be used, the server is not trusted, or it does not answer within
/// `limit`.
pub fn secure(
    tls: &UriTls,
    server: OwnedFd,
    limit: Duration,
) -> io::Result<(OwnedFd, CloseReason)> {
    let files = ClientFiles::of(tls).map_err(io::Error::other)?;
    let connector = Connector::new(&files).map_err(io::Error::other)?;
    let channel = connector.connect().map_err(io::Error::other)?;
    let (ours, mut relay) = TlsRelay::beside(channel, server)?;
    relay.handshake(limit).map_err(|error| match error {
        RelayError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "it closed the connection in the TLS handshake")
        }
        RelayError::Io(error) if error.kind() == ErrorKind::TimedOut => {
            io::Error::new(error.kind(), "it does not answer in time in the TLS handshake")
        }
        RelayError::Io(error) => error,
        RelayError::Tls(error) => {
            io::Error::new(ErrorKind::InvalidData, explained(&error, &files.ca))
        }
    })?;
    let end = CloseReason::default();
    let note = end.clone();
    relay.spawn(move |ended| {
        if let Err(error) = ended {
            let reason = match &error {
                RelayError::Tls(error) => explained(error, &files.ca),
                RelayError::Io(error) => error.to_string(),
            };
            // Only this thread sets the reason.
            let _ = note.0.set(reason);
        }
    })?;
    Ok((ours, end))
}

/// The error, with the setting or file that has to be changed.
pub(crate) fn explained(error: &TlsError, ca: &Path) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error, InvalidMessage};
    match error {
        // A bad signature is how a server appears whose CA has the same name as one of the configured CAs.
        TlsError::Peer(Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
            format!("TLS: its certificate comes from no CA in {}", ca.display())
        }
        TlsError::Peer(Error::AlertReceived(Alert::CertificateRequired)) => {
            "TLS: it asks for a client certificate".to_owned()
        }
        TlsError::Peer(Error::AlertReceived(alert @ Alert::HandshakeFailure)) => format!(
            "TLS: it refuses us: {alert:?}. Its certificate may have a key of a kind that cannot be checked here: {THEIRS} can"
        ),
        TlsError::Peer(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "TLS: what answers there does not speak TLS".to_owned()
        }
        TlsError::Peer(Error::AlertReceived(alert)) => format!("TLS: it refuses us: {alert:?}"),
        other => other.to_string(),
    }
}
