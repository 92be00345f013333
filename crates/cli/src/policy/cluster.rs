//! Options that find the etcd with the policy, and the author of a change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use parda_agent::config::{Config, Etcd, Exchange, named_cluster};
use parda_agent::file;
use parda_config::Document;
use parda_policy::{Author, Store};
use parda_terminal::Failure;

use super::now_ms;

/// Time that each endpoint has for an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Options that find the policy.
#[derive(Args)]
pub(crate) struct Cluster {
    /// Configuration of an agent, which names the cluster
    #[arg(short, long, value_name = "FILE", default_value = crate::service::CONFIGURATION)]
    config: PathBuf,
    /// URLs of the cluster's members, in place of a configuration
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with = "config")]
    etcd: Vec<String>,
    /// Beginning of all keys
    #[arg(long, value_name = "PREFIX", requires = "etcd")]
    prefix: Option<String>,
    /// CA that the members' certificates must come from
    #[arg(long, value_name = "FILE", requires = "etcd")]
    ca: Option<PathBuf>,
    /// Client certificate, if the members ask for one
    #[arg(long, value_name = "FILE", requires = "ca", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Use members on other hosts without TLS
    #[arg(long, requires = "etcd")]
    plain: bool,
    /// User of etcd, as the agent's user may not write the policy
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
}

impl Cluster {
    fn etcd(&self) -> Result<Etcd, Failure> {
        if !self.etcd.is_empty() {
            let tls = self.ca.clone().map(|ca| file::EtcdTls {
                ca,
                certificate: self.certificate.clone(),
                key: self.key.clone(),
            });
            return Ok(named_cluster(&file::PolicyTable {
                period: None,
                etcd: Some(self.etcd.clone()),
                prefix: self.prefix.clone(),
                tls,
                plain: self.plain,
                user: self.user.clone(),
                password_file: self.password_file.clone(),
            })?);
        }
        let mut etcd = of_agent(&self.config)?;
        if let (Some(user), Some(password_file)) = (&self.user, &self.password_file) {
            etcd.log_in(user, password_file);
        }
        Ok(etcd)
    }

    /// The policy's store, not connected yet.
    pub(super) fn store(&self) -> Result<Store, Failure> {
        let etcd = self.etcd()?;
        Ok(Store::new(etcd.cluster, &etcd.prefix, 0, LIMIT))
    }

    /// Author of a change that is made now.
    pub(super) fn author(&self, comment: Option<String>) -> Result<Author, Failure> {
        let user = uzers::get_current_username().map(|name| name.to_string_lossy().into_owned());
        let user = user.unwrap_or_else(|| format!("uid {}", uzers::get_current_uid()));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut by = format!("{user}@{}", host.trim());
        if let Some(before) = std::env::var("SUDO_USER").ok().filter(|before| *before != user) {
            by += &format!(" (sudo by {before})");
        }
        if let Some(login) = self.etcd()?.cluster.login {
            by += &format!(", user {} of etcd", login.user);
        }
        Ok(Author { by, at_ms: now_ms(), comment })
    }
}

/// The cluster that a configuration names for the policy, with or without `[policy]`.
fn of_agent(path: &Path) -> Result<Etcd, Failure> {
    let config = Config::settings(&Document::read(path)?)?;
    if let Some(policy) = config.policy {
        return Ok(policy.etcd);
    }
    let exchanges = config.volumes.iter().filter_map(|volume| volume.exchange.as_ref());
    exchanges.filter_map(Exchange::etcd).next().cloned().ok_or_else(|| {
        Failure::usage(format!(
            "{}: policy: is missing: add [policy], or name the cluster with --etcd",
            path.display()
        ))
    })
}
