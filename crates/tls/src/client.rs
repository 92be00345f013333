//! TLS with the NBD server that a URI names.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parda_nbd::uri::{Certificates, UriTls};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::channel::TlsError;
use crate::files::{ClientFiles, Connector, FileError};
use crate::relay::{Relay, RelayError};

/// Why TLS with a server cannot be tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Nobody says where the certificates are.
    #[error(
        "TLS needs the CA that the server's certificate must come from: add \
         ?tls-certificates=DIRECTORY to the URI, with ca-cert.pem in the directory"
    )]
    NoAuthority,
    /// One of the files is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ClientFiles {
    /// The files that a URI names.
    ///
    /// # Errors
    /// It names none: there is no CA that is trusted unless it is named.
    pub fn of(tls: &UriTls) -> Result<ClientFiles, ClientError> {
        let (ca, identity) = match &tls.certificates {
            Certificates::Unsaid => return Err(ClientError::NoAuthority),
            Certificates::Files { ca, identity } => (ca.clone(), identity.clone()),
            Certificates::Directory(directory) => {
                let file = |name| directory.join(name);
                let (certificate, key) = (file("client-cert.pem"), file("client-key.pem"));
                // One without the other is a mistake, which reading them will show.
                let any = certificate.exists() || key.exists();
                (file("ca-cert.pem"), any.then_some((certificate, key)))
            }
        };
        Ok(ClientFiles { ca, identity, name: tls.name.clone() })
    }
}

/// Reads the files that a URI names, and says what is wrong with them.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(tls: &UriTls) -> Result<(), ClientError> {
    Connector::new(&ClientFiles::of(tls)?)?;
    Ok(())
}

/// Why TLS has ended, for those who see only that the connection was closed.
#[derive(Clone, Debug, Default)]
pub struct End(Arc<OnceLock<String>>);

impl End {
    /// The reason, if there was one. It is known when the connection is seen to be closed.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// The same error, or what is behind it if it only says that the connection was closed.
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

/// Begins TLS with a server that has answered STARTTLS. Nobody else may send or receive on its
/// socket any more: returns where its plaintext comes and goes from now on. A thread carries it
/// until either side is closed.
///
/// The files are read each time, so certificates that were renewed hold for the next connection.
///
/// # Errors
/// The certificates cannot be used, the server is not to be trusted, or it does not answer within
/// `limit`.
pub fn secure(tls: &UriTls, server: OwnedFd, limit: Duration) -> io::Result<(OwnedFd, End)> {
    let files = ClientFiles::of(tls).map_err(io::Error::other)?;
    let connector = Connector::new(&files).map_err(io::Error::other)?;
    let channel = connector.connect().map_err(io::Error::other)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let (ours, inside) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    let mut relay = Relay::new(channel, server, inside, Vec::new());
    relay.handshake(limit).map_err(|error| match error {
        RelayError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "it closed the connection in the TLS handshake")
        }
        RelayError::Io(error) if error.kind() == ErrorKind::TimedOut => {
            io::Error::new(error.kind(), "it does not answer in time in the TLS handshake")
        }
        RelayError::Io(error) => error,
        RelayError::Tls(error) => {
            io::Error::new(ErrorKind::InvalidData, explained(&error, &files).to_string())
        }
    })?;
    let end = End::default();
    let note = end.clone();
    relay.spawn(move |ended| {
        if let Err(error) = ended {
            let reason = match &error {
                RelayError::Tls(error) => explained(error, &files).to_string(),
                RelayError::Io(error) => error.to_string(),
            };
            // Nobody else sets it.
            let _ = note.0.set(reason);
        }
    })?;
    Ok((ours, end))
}

/// The error in the words of whoever has to mend it.
fn explained<'a>(error: &'a TlsError, files: &'a ClientFiles) -> impl fmt::Display + 'a {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error};
    struct Words<'a>(&'a TlsError, &'a ClientFiles);
    impl fmt::Display for Words<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Words(error, files) = self;
            match error {
                // The signature is wrong where another CA has the name of one of ours.
                TlsError::Peer(Error::InvalidCertificate(
                    Bad::UnknownIssuer | Bad::BadSignature,
                )) => {
                    write!(f, "TLS: its certificate comes from no CA in {}", files.ca.display())
                }
                TlsError::Peer(Error::AlertReceived(Alert::CertificateRequired)) => {
                    f.write_str("TLS: it asks for a client certificate")
                }
                TlsError::Peer(Error::AlertReceived(alert)) => {
                    write!(f, "TLS: it refuses us: {alert:?}")
                }
                other => write!(f, "{other}"),
            }
        }
    }
    Words(error, files)
}
