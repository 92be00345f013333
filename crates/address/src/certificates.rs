//! Certificates for a connection with TLS, by the names of their files.

use std::path::PathBuf;

/// TLS with the server of a URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UriTls {
    /// Trusted CAs, and the identity of the client.
    pub certificates: Certificates,
    /// The name or address that the server's certificate must be for.
    pub name: String,
}

/// Source of the certificates for a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Certificates {
    /// The URI does not say: its user must know, or refuse it.
    Unsaid,
    /// A directory as GnuTLS's clients use it: `ca-cert.pem`, and `client-cert.pem` with
    /// `client-key.pem` if the server asks for a certificate.
    Directory(PathBuf),
    /// Certificates and keys in files.
    Files {
        /// The CAs that the server's certificate must come from.
        ca: PathBuf,
        /// The client's certificate and its key.
        identity: Option<(PathBuf, PathBuf)>,
    },
}
