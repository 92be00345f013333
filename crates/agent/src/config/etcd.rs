//! `[volume.exchange]` with `etcd`: endpoints, certificates and the user, checked.

use std::fmt;
use std::path::{Path, PathBuf};

use parda_config::{Error, TablePart};
use parda_etcd::{Endpoint, EtcdAccess, Login, Tls};

use super::server_tls::identity;
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
    /// The cluster, and this host's credentials there.
    pub cluster: EtcdAccess,
    /// Beginning of all keys.
    pub prefix: String,
    /// Data directory of a member on this host, if the configuration names it.
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
    at: &TablePart<'_>,
    urls: &[String],
    exchange: &file::ExchangeTable,
) -> Result<Etcd, Error> {
    let message = format!("must be the URLs of 1 to {MOST_ENDPOINTS} members of etcd");
    at.refuse_if(!(1..=MOST_ENDPOINTS).contains(&urls.len()), "etcd", message)?;
    let mut endpoints = Vec::new();
    for (i, url) in urls.iter().enumerate() {
        let key = format!("etcd.{i}");
        let endpoint = at.read(&key, Endpoint::parse(url))?;
        let message = "would be used without TLS: anybody on the network could speak for the hosts or change their \
                       policy. Use https://, or say plain = true";
        let is_open = !endpoint.has_tls() && !endpoint.is_loopback() && !exchange.plain;
        at.refuse_if(is_open, &key, message)?;
        endpoints.push(endpoint);
    }
    let tls = check_tls(at, &endpoints, exchange.tls.as_ref())?;
    let login = match (&exchange.user, &exchange.password_file) {
        (None, None) => None,
        (Some(user), Some(password_file)) => {
            at.refuse_if(user.is_empty(), "user", "must not be empty")?;
            Some(Login { user: user.clone(), password_file: password_file.clone() })
        }
        (Some(_), None) => return Err(at.error("user", "needs a password: add password_file")),
        (None, Some(_)) => {
            return Err(at.error("password_file", "is a password without a user: add user"));
        }
    };
    let prefix = exchange.prefix.clone().unwrap_or_else(|| PREFIX.to_owned());
    let plain = prefix.ends_with('/') && !prefix.chars().any(char::is_control);
    let message = format!("must end with /, and have at most {MOST_PREFIX} bytes");
    at.refuse_if(!plain || prefix.len() > MOST_PREFIX, "prefix", message)?;
    let cluster = EtcdAccess { endpoints, tls, login };
    Ok(Etcd { cluster, prefix, data_dir: exchange.data_dir.clone() })
}

fn check_tls(
    at: &TablePart<'_>,
    endpoints: &[Endpoint],
    written: Option<&file::EtcdTls>,
) -> Result<Option<Tls>, Error> {
    let any = endpoints.iter().any(Endpoint::has_tls);
    let Some(file::EtcdTls { ca, certificate, key }) = written else {
        let message = "is missing: tls = { ca = \"ca.pem\" }, the CA that the members' certificates must \
                       come from. No CA is trusted unless it is named";
        at.refuse_if(any, "tls", message)?;
        return Ok(None);
    };
    at.refuse_if(!any, "tls", "is for endpoints that begin with https://, and none does")?;
    let identity = identity(&at.part("tls"), certificate.as_ref(), key.as_ref())?;
    Ok(Some(Tls { ca: ca.clone(), identity }))
}
