//! Calls to a cluster, at one member after the other until one answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parda_awake::Instant;
use parda_input::Pipe;
use parda_tls::{ClientFiles, Connector, FileError, FileRole};
use rustls::crypto::ring;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::endpoint::Endpoint;
use crate::error::{EtcdError, EtcdFault};
use crate::{password, wire};

/// Most bytes of a private key's file.
const MOST_KEY: u64 = 1 << 20;

/// Most bytes of an answer, as an endpoint may be another server than etcd.
const MOST_BYTES: u64 = 16 << 20;

/// Endpoints of a cluster, and this client's certificates and user there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAccess {
    /// Client URLs of members of the cluster, at least one.
    pub endpoints: Vec<Endpoint>,
    /// Certificates for endpoints with TLS.
    pub tls: Option<Tls>,
    /// User of the cluster, if it asks for one.
    pub login: Option<Login>,
}

/// PEM files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The CAs that the members' certificates must come from.
    pub ca: PathBuf,
    /// Our certificate and its key, if the members ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A user of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Name of the user.
    pub user: String,
    /// File that holds the password.
    pub password_file: PathBuf,
}

/// A lease. etcd removes the keys attached to it when it was not renewed for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    id: String,
    /// Time after which the lease ends if it is not renewed.
    pub ttl: Duration,
}

/// Traffic with the cluster since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that failed, once for each endpoint that was tried.
    pub failed_calls: u64,
    /// Bytes of bodies that were sent.
    pub sent_bytes: u64,
    /// Bytes of bodies that were received.
    pub received_bytes: u64,
}

/// A client of one cluster.
pub struct EtcdClient {
    settings: EtcdAccess,
    /// Index of the endpoint that is asked first.
    current: usize,
    /// Made with the first call, and anew after a failure, so that renewed certificate files are read.
    agent: Option<Agent>,
    token: Option<String>,
    /// Whether the cluster has no users, so that calls need no token.
    open: bool,
    traffic: Traffic,
}

impl std::fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files, to report errors before any connection is made.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn check(&self) -> Result<(), FileError> {
        let files = ClientFiles {
            ca: self.ca.clone(),
            identity: self.identity.clone(),
            // Any name: the endpoints' hosts are compared where they are connected to.
            name: "etcd".to_owned(),
        };
        Connector::new(&files).map(|_| ())
    }

    fn config(&self) -> Result<TlsConfig, FileError> {
        self.check()?;
        let certificates = |role, path: &Path| -> Result<Vec<_>, FileError> {
            let all = parda_tls::certificates(role, path)?;
            Ok(all.iter().map(|der| Certificate::from_der(der).to_owned()).collect())
        };
        let roots = certificates(FileRole::Authorities, &self.ca)?;
        let identity = match &self.identity {
            None => None,
            Some((certificate, key)) => {
                let chain = certificates(FileRole::Certificate, certificate)?;
                Some(ClientCert::new_with_certs(&chain, private_key(key)?))
            }
        };
        Ok(TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .client_cert(identity)
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .build())
    }
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, FileError> {
    let bytes = parda_input::read(path, MOST_KEY, Pipe::Refused).map_err(|e| e.to_string());
    let key = bytes.and_then(|bytes| PrivateKey::from_pem(&bytes).map_err(|e| e.to_string()));
    key.map_err(|message| FileError { role: FileRole::Key, path: path.to_owned(), message })
}

impl EtcdClient {
    /// A client that has not connected yet. `first` chooses the endpoint that is asked first, so that many
    /// clients do not all ask the same one.
    #[must_use]
    pub fn new(settings: EtcdAccess, first: u64) -> EtcdClient {
        let current = (first % settings.endpoints.len().max(1) as u64) as usize;
        let traffic = Traffic::default();
        EtcdClient { settings, current, agent: None, token: None, open: false, traffic }
    }

    /// The endpoint that is asked first.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.settings.endpoints.get(self.current).map(ToString::to_string).unwrap_or_default()
    }

    /// Traffic since the start.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Reads certificates and password again with the next call.
    pub fn reload(&mut self) {
        self.agent = None;
        self.token = None;
        self.open = false;
    }

    /// Writes a key and attaches it to a lease.
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        lease: &Lease,
        limit: Duration,
    ) -> Result<(), EtcdError> {
        let put =
            json!({ "key": wire::base64(key), "value": wire::base64(value), "lease": lease.id });
        self.call::<wire::WriteAnswer>("kv/put", &put, limit).map(|_| ())
    }

    /// A new lease of this time, rounded up to whole seconds.
    pub fn grant(&mut self, ttl: Duration, limit: Duration) -> Result<Lease, EtcdError> {
        let seconds = ttl.as_secs_f64().ceil().max(1.0) as u64;
        let granted: wire::Granted =
            self.call("lease/grant", &json!({ "TTL": seconds.to_string() }), limit)?;
        match (granted.ttl.parse::<u64>(), granted.id.is_empty()) {
            (Ok(ttl), false) => Ok(Lease { id: granted.id, ttl: Duration::from_secs(ttl) }),
            _ => Err(self.error(EtcdFault::NotUnderstood("a lease without a time".to_owned()))),
        }
    }

    /// Renews a lease for the whole of its time, from now.
    ///
    /// # Errors
    /// [`EtcdFault::NoLease`]: the lease ran out before.
    pub fn renew(&mut self, lease: &Lease, limit: Duration) -> Result<(), EtcdError> {
        let renewed: wire::Renewed =
            self.call("lease/keepalive", &json!({ "ID": lease.id }), limit)?;
        match renewed.result.ttl.parse::<i64>() {
            Ok(ttl) if ttl > 0 => Ok(()),
            _ => Err(self.error(EtcdFault::NoLease)),
        }
    }

    pub(crate) fn error(&self, fault: EtcdFault) -> EtcdError {
        let may_be_done = fault.leaves_open();
        EtcdError { endpoint: self.endpoint(), fault, may_be_done }
    }

    /// Makes a call at one endpoint after the other, until one answers or all have failed.
    pub(crate) fn call<Answer: serde::de::DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Answer, EtcdError> {
        let mut tries = self.settings.endpoints.len();
        let mut may_be_done = false;
        let mut begun = Instant::now();
        loop {
            match self.call_here(path, body, limit) {
                Ok(answer) => return Ok(answer),
                // The time-out of the call counts also while this process is stopped: the endpoint had less than `limit`.
                Err(EtcdFault::NoAnswer) if begun.elapsed() < limit => {
                    may_be_done = true;
                    self.agent = None;
                }
                Err(fault) => {
                    may_be_done |= fault.leaves_open();
                    let error = EtcdError { may_be_done, ..self.error(fault) };
                    self.traffic.failed_calls += 1;
                    tries = tries.saturating_sub(1);
                    if !error.fault.is_of_the_endpoint() {
                        return Err(error);
                    }
                    self.current = (self.current + 1) % self.settings.endpoints.len().max(1);
                    // The next connection reads certificates again, which may have been renewed.
                    self.agent = None;
                    if tries == 0 {
                        return Err(error);
                    }
                    begun = Instant::now();
                }
            }
        }
    }

    /// Makes a call at the current endpoint. If the token is refused, it is renewed once.
    fn call_here<Answer: serde::de::DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Answer, EtcdFault> {
        let had_token = self.token.is_some();
        self.log_in(limit)?;
        match self.ask(path, body, limit) {
            Err(EtcdFault::Token(_)) if had_token => {
                self.token = None;
                self.log_in(limit)?;
                self.ask(path, body, limit)
            }
            // Authentication was turned on since.
            Err(fault @ EtcdFault::Denied(_)) => {
                self.open = false;
                Err(fault)
            }
            answer => answer,
        }
    }

    fn log_in(&mut self, limit: Duration) -> Result<(), EtcdFault> {
        let Some(login) = self.settings.login.clone() else { return Ok(()) };
        if self.token.is_some() || self.open {
            return Ok(());
        }
        let password = password::read(&login.password_file)?;
        let who = json!({ "name": login.user, "password": password });
        match self.ask::<wire::Token>("auth/authenticate", &who, limit) {
            Ok(answer) => {
                self.token = Some(answer.token);
                Ok(())
            }
            Err(fault) if wire::has_no_users(&fault) => {
                self.open = true;
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    fn ask<Answer: serde::de::DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Answer, EtcdFault> {
        let agent = self.agent()?;
        let Some(endpoint) = self.settings.endpoints.get(self.current) else {
            return Err(EtcdFault::Connection("no endpoint".to_owned()));
        };
        let body = body.to_string();
        let mut request = agent.post(format!("{}/v3/{path}", endpoint.url()));
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let request = request.config().timeout_global(Some(limit)).build();
        let mut answer = request.send(&body).map_err(|error| fault_of(&error))?;
        let status = answer.status().as_u16();
        let read = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
        let bytes = read.map_err(|error| fault_of(&error))?;
        self.traffic.calls += 1;
        self.traffic.sent_bytes += body.len() as u64;
        self.traffic.received_bytes += bytes.len() as u64;
        if status != 200 {
            return Err(wire::refusal(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|error| EtcdFault::NotUnderstood(error.to_string()))
    }

    fn agent(&mut self) -> Result<Agent, EtcdFault> {
        if let Some(agent) = &self.agent {
            return Ok(agent.clone());
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("parda");
        if let Some(tls) = &self.settings.tls {
            config = config.tls_config(tls.config()?);
        }
        let agent = Agent::new_with_config(config.build());
        self.agent = Some(agent.clone());
        Ok(agent)
    }
}

fn fault_of(error: &ureq::Error) -> EtcdFault {
    match error {
        ureq::Error::Timeout(_) => EtcdFault::NoAnswer,
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            EtcdFault::NoAnswer
        }
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            EtcdFault::Connection(format!("{error}: does etcd run there?"))
        }
        // The request was not sent, or not read: a member reads none from a client whose certificate it refuses.
        ureq::Error::Io(error) if parda_tls::is_of_tls(error) || is_of_lookup(error) => {
            EtcdFault::Connection(parda_tls::io_fault(error))
        }
        ureq::Error::Io(error) => EtcdFault::Lost(error.to_string()),
        ureq::Error::HostNotFound | ureq::Error::Tls(_) | ureq::Error::Rustls(_) => {
            EtcdFault::Connection(error.to_string())
        }
        other => EtcdFault::Lost(other.to_string()),
    }
}

/// Whether a name was not found. The standard library has no kind for it.
fn is_of_lookup(error: &std::io::Error) -> bool {
    error.to_string().starts_with("failed to lookup address")
}
