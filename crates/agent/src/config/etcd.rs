//! `[volume.exchange]` with `etcd`: endpoints, certificates and the user, checked.

use std::fmt;
use std::path::{Path, PathBuf};

use parda_config::Error;
use parda_etcd::{Endpoint, Login, Settings, Tls};

use crate::file;

/// Most endpoints that are tried one after the other.
const MOST_ENDPOINTS: usize = 16;

/// Beginning of all keys, unless another one is configured.
const PREFIX: &str = "/parda/";

/// Longest beginning of keys.
const MOST_PREFIX: usize = 256;

/// An exchange over etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// The cluster, and who we are there.
    pub cluster: Settings,
    /// Beginning of all keys.
    pub prefix: String,
    /// Where a member on this host has its data, if it is said.
    pub data_dir: Option<PathBuf>,
}

impl Etcd {
    /// Uses another user of the cluster.
    pub fn log_in(&mut self, user: &str, password_file: &Path) {
        let (user, password_file) = (user.to_owned(), password_file.to_owned());
        self.cluster.login = Some(Login { user, password_file });
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("etcd")?;
        if let Some((first, others)) = self.cluster.endpoints.split_first() {
            write!(f, " {first}")?;
            match others.len() {
                0 => {}
                1 => f.write_str(" and 1 other")?,
                others => write!(f, " and {others} others")?,
            }
        }
        Ok(())
    }
}

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    urls: &[String],
    exchange: &file::Exchange,
) -> Result<Etcd, Error> {
    if urls.is_empty() || urls.len() > MOST_ENDPOINTS {
        let message = format!("must be the URLs of 1 to {MOST_ENDPOINTS} members of etcd");
        return Err(wrong("exchange.etcd", message));
    }
    let mut endpoints = Vec::new();
    for (i, url) in urls.iter().enumerate() {
        let key = format!("exchange.etcd.{i}");
        let endpoint = Endpoint::parse(url).map_err(|fault| wrong(&key, fault.to_string()))?;
        if !endpoint.has_tls() && !endpoint.is_loopback() && !exchange.plain {
            let message = "would be used without TLS: anybody on the network could speak for the hosts or change their \
                           policy. Use https://, or say plain = true";
            return Err(wrong(&key, message.into()));
        }
        endpoints.push(endpoint);
    }
    let tls = check_tls(wrong, &endpoints, exchange.tls.as_ref())?;
    let login = match (&exchange.user, &exchange.password_file) {
        (None, None) => None,
        (Some(user), Some(password_file)) if !user.is_empty() => {
            Some(Login { user: user.clone(), password_file: password_file.clone() })
        }
        (Some(_), Some(_)) => return Err(wrong("exchange.user", "must not be empty".into())),
        (Some(_), None) => {
            return Err(wrong("exchange.user", "needs a password: add password_file".into()));
        }
        (None, Some(_)) => {
            let message = "is a password without a user: add user";
            return Err(wrong("exchange.password_file", message.into()));
        }
    };
    let prefix = exchange.prefix.clone().unwrap_or_else(|| PREFIX.to_owned());
    if prefix.len() > MOST_PREFIX || !prefix.ends_with('/') || prefix.chars().any(char::is_control)
    {
        let message = format!("must end with /, and have at most {MOST_PREFIX} bytes");
        return Err(wrong("exchange.prefix", message));
    }
    let cluster = Settings { endpoints, tls, login };
    Ok(Etcd { cluster, prefix, data_dir: exchange.data_dir.clone() })
}

fn check_tls(
    wrong: &dyn Fn(&str, String) -> Error,
    endpoints: &[Endpoint],
    written: Option<&file::EtcdTls>,
) -> Result<Option<Tls>, Error> {
    let any = endpoints.iter().any(Endpoint::has_tls);
    let Some(written) = written else {
        if any {
            let message = "is missing: tls = { ca = \"ca.pem\" }, the CA that the members' certificates must \
                           come from. No CA is trusted unless it is named";
            return Err(wrong("exchange.tls", message.into()));
        }
        return Ok(None);
    };
    if !any {
        let message = "is for endpoints that begin with https://, and none does";
        return Err(wrong("exchange.tls", message.into()));
    }
    let file::EtcdTls { ca, certificate, key } = written;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        (Some(_), None) => {
            let message = "needs its private key: add key";
            return Err(wrong("exchange.tls.certificate", message.into()));
        }
        (None, Some(_)) => {
            let message = "is the key of no certificate: add certificate";
            return Err(wrong("exchange.tls.key", message.into()));
        }
    };
    Ok(Some(Tls { ca: ca.clone(), identity }))
}
