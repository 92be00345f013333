//! Certificates, keys and CAs from PEM files. Reading a file checks it. A missing file, a file that
//! is not PEM, a key of another certificate and an expired certificate fail here instead of in
//! every handshake.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use parda_input::{InputFault, Pipe};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::channel::{Channel, TlsError, of_tls, out_of_force};
use crate::client::explained;
use crate::kind::{self, Kind, OURS, THEIRS};

/// Role of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// The certificate, followed by its intermediate certificates.
    Certificate,
    /// The certificate's private key.
    Key,
    /// The CAs that the peer's certificate must come from.
    Authorities,
}

/// A certificate, key or CA file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct FileError {
    /// Role of the file.
    pub role: FileRole,
    /// Path of the file, as configured.
    pub path: PathBuf,
    /// The fault, as a sentence.
    pub message: String,
}

/// Paths of a server's certificate and key, and of the CA of its clients, as in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerFiles {
    /// The server's certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// Private key of [`certificate`](Self::certificate).
    pub key: PathBuf,
    /// The CAs of clients. If absent, clients need no certificate.
    pub clients: Option<PathBuf>,
}

/// Path of the CA of a server, and the identity that the client presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The CAs of the server.
    pub ca: PathBuf,
    /// The client's own certificate and key, if the server asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name or address that the server's certificate must be valid for.
    pub name: String,
}

/// Server side of TLS: makes a [`Channel`] for each connection. Its certificates can be replaced
/// while it is in use.
pub struct Acceptor {
    files: ServerFiles,
    current: RwLock<Identity>,
}

/// Certificate chain for new connections, with its configuration.
#[derive(Clone)]
struct Identity {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Two acceptors are equal if they read the same files.
impl PartialEq for Acceptor {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Acceptor {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn new(files: ServerFiles) -> Result<Self, FileError> {
        let current = RwLock::new(server_config(&files)?);
        Ok(Self { files, current })
    }

    /// Takes over the certificates of `other`. Connections that exist keep what they negotiated.
    pub fn renew(&self, other: &Acceptor) {
        let new = other.shown();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Whether the certificate that is shown has neither expired nor still to become valid, `ahead` from now. Reads no file.
    #[must_use]
    pub fn is_in_force(&self, ahead: Duration) -> bool {
        let Identity { config, chain } = self.shown();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()) + ahead);
        in_force(&chain, config.crypto_provider(), at).is_ok()
    }

    /// Paths of the files.
    #[must_use]
    pub fn files(&self) -> &ServerFiles {
        &self.files
    }

    /// Settings of the next connection, with the certificates of now.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.shown().config
    }

    fn shown(&self) -> Identity {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection that waits for the client's hello.
    ///
    /// # Errors
    /// rustls refuses the configuration. No configuration that [`Acceptor::new`] accepts is known to
    /// cause this.
    pub fn accept(&self) -> Result<Channel, TlsError> {
        Channel::server(self.config())
    }
}

/// Client side of TLS with one server.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// File of the CAs, for messages.
    ca: PathBuf,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn new(files: &ClientFiles) -> Result<Self, FileError> {
        let fail = |message: String| wrong(FileRole::Authorities, &files.ca, message);
        let name = ServerName::try_from(files.name.clone()).map_err(|_| {
            fail(format!("{:?} is no name that a certificate can have", files.name))
        })?;
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|e| fail(e.to_string()))?
            .with_root_certificates(authorities(&files.ca)?);
        let mut config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, key_der) = identity(certificate, key, &provider)?;
                let certificate = kind(&chain);
                builder
                    .with_client_auth_cert(chain, key_der)
                    .map_err(|e| wrong(FileRole::Key, key, unusable(&e, certificate)))?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name, ca: files.ca.clone() })
    }

    /// Settings of a connection, and the name that the server's certificate must be valid for.
    #[must_use]
    pub fn parts(&self) -> (Arc<ClientConfig>, ServerName<'static>) {
        (Arc::clone(&self.config), self.name.clone())
    }

    /// A failed handshake in words, as another rustls implementation reports it: the fault, and the file to change.
    #[must_use]
    pub fn explain(&self, error: &std::io::Error) -> String {
        match of_tls(error) {
            Some(inner) => explained(&TlsError::Peer(inner.clone()), &self.ca),
            None => format!("TLS: {error}"),
        }
    }

    /// A connection whose hello is ready to be sent.
    ///
    /// # Errors
    /// The system provides no randomness.
    pub fn connect(&self) -> Result<Channel, TlsError> {
        Channel::client(Arc::clone(&self.config), self.name.clone())
    }
}

/// Whether a certificate can be issued for this name or address.
#[must_use]
pub fn is_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_config(files: &ServerFiles) -> Result<Identity, FileError> {
    let provider = provider();
    let fail = |role, path: &Path, e: &dyn fmt::Display| wrong(role, path, e.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|e| fail(FileRole::Certificate, &files.certificate, &e))?;
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .map_err(|e| fail(FileRole::Authorities, path, &e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = identity(&files.certificate, &files.key, &provider)?;
    let mut config = builder
        .with_single_cert(chain.clone(), key)
        .map_err(|e| wrong(FileRole::Key, &files.key, unusable(&e, kind(&chain))))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Identity { config: Arc::new(config), chain })
}

/// The kind of key of a certificate with its chain.
fn kind(chain: &[CertificateDer<'static>]) -> Option<Kind> {
    let parsed = ParsedCertificate::try_from(chain.first()?).ok()?;
    let info = parsed.subject_public_key_info();
    kind::contents(&info).map(Kind::of)
}

/// The fault of a key, where the certificate has one of that kind.
fn unusable(error: &rustls::Error, certificate: Option<Kind>) -> String {
    let of = certificate.map(|kind| format!(": that of the certificate is {kind}"));
    match error {
        rustls::Error::InconsistentKeys(_) => "this is the key of another certificate".to_owned(),
        // The file is PEM, and cannot be read as any key.
        rustls::Error::General(_) => {
            let of = of.unwrap_or_default();
            format!(
                "a key of this kind cannot be used{of}. {OURS} can; then the certificate has to be issued anew"
            )
        }
        other => other.to_string(),
    }
}

fn wrong(role: FileRole, path: &Path, message: impl Into<String>) -> FileError {
    FileError { role, path: path.to_owned(), message: message.into() }
}

/// All certificates of a file, of which there is one at least.
///
/// # Errors
/// The file cannot be read, or holds none.
pub fn certificates(
    role: FileRole,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let bytes = read(role, path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(wrong(role, path, "there is no certificate in it (PEM)")),
        Err(e) => Err(wrong(role, path, format!("is not PEM: {e}"))),
    }
}

/// Largest file that is read, in bytes. Certificates and keys are smaller; a larger file is the
/// wrong one.
const MAX_FILE: u64 = 1 << 20;

fn read(role: FileRole, path: &Path) -> Result<Vec<u8>, FileError> {
    parda_input::read(path, MAX_FILE, Pipe::Refused).map_err(|fault| match fault {
        InputFault::Io(_) => wrong(role, path, fault.to_string()),
        _ => wrong(role, path, "is not a regular file of at most 1 MiB"),
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(FileRole::Authorities, path)? {
        roots.add(certificate).map_err(|e| wrong(FileRole::Authorities, path, e.to_string()))?;
    }
    let kinds = || roots.roots.iter().map(|root| Kind::of(&root.subject_public_key_info));
    match kinds().next() {
        // Of a bundle, others may do.
        Some(first) if !kinds().any(Kind::is_checked) => {
            let why = format!(
                "signatures by a CA with a key of this kind, {first}, cannot be checked. Those by {THEIRS} can"
            );
            Err(wrong(FileRole::Authorities, path, why))
        }
        _ => Ok(roots),
    }
}

/// In the first line of a key with a passphrase, or the second.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

fn identity(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), FileError> {
    let chain = certificates(FileRole::Certificate, certificate)?;
    in_force(&chain, provider, UnixTime::now())
        .map_err(|e| wrong(FileRole::Certificate, certificate, e))?;
    let bytes = read(FileRole::Key, key)?;
    let key_der = PrivateKeyDer::from_pem_slice(&bytes).map_err(|e| {
        let encrypted = bytes.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED);
        let why = if encrypted {
            "the key is encrypted, and the agent has nobody to ask for its passphrase: openssl pkey -in FILE -out PLAIN".to_owned()
        } else {
            format!("there is no private key in it (PEM): {e}")
        };
        wrong(FileRole::Key, key, why)
    })?;
    Ok((chain, key_der))
}

/// Refuses a certificate that has expired by `now` or is not valid yet. Its issuer is for the peers to
/// judge.
fn in_force(
    chain: &[CertificateDer<'static>],
    provider: &CryptoProvider,
    now: UnixTime,
) -> Result<(), String> {
    let Some(first) = chain.first() else { return Ok(()) };
    let parsed = ParsedCertificate::try_from(first).map_err(|e| e.to_string())?;
    // Validity is checked before the issuer, so any trust anchor serves.
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(chain.iter().cloned());
    let algorithms = provider.signature_verification_algorithms.all;
    let judged =
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &chain[1..], now, algorithms);
    let Err(rustls::Error::InvalidCertificate(error)) = judged else { return Ok(()) };
    match out_of_force(&error) {
        Some(why) => Err(format!("the certificate {why}")),
        None => Ok(()),
    }
}
