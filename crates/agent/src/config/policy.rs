//! `[policy]`: the etcd in which settings live for all hosts, checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parda_config::{Document, Error};

use super::etcd::{self, Etcd};
use super::exchange::Exchange;
use super::own;
use super::volume::Volume;
use crate::file;

/// Interval of looks for a changed policy, unless the file sets it.
const PERIOD: Duration = Duration::from_secs(10);

/// Shortest and longest time between two looks.
const BOUNDS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);

/// Source of a host's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The cluster, and this host's credentials there.
    pub etcd: Etcd,
    /// Whether it is not the cluster of an exchange.
    pub is_apart: bool,
    /// Interval of looks for a changed policy.
    pub period: Duration,
    /// File in which the policy in force is kept over restarts.
    pub kept: PathBuf,
}

pub(super) fn check(
    doc: &Document,
    written: &file::PolicyTable,
    state: Option<&Path>,
    volumes: &[Volume],
) -> Result<Policy, Error> {
    let period = written.period.unwrap_or(PERIOD);
    let at = doc.part("policy");
    at.refuse_if(!BOUNDS.contains(&period), "period", "must be from 100ms to 1h")?;
    let Some(state) = state else {
        let message = "needs state = \"/var/lib/parda/state.toml\": what was last in force is kept beside that file, and \
                       counts while etcd cannot be reached";
        return Err(doc.error("policy", message));
    };
    let kept = own::policy_beside(state);
    let (etcd, is_apart) = (cluster(doc, written, volumes)?, written.etcd.is_some());
    Ok(Policy { etcd, is_apart, period, kept })
}

/// Its own cluster, or else that in which the hosts of the volumes meet.
fn cluster(doc: &Document, written: &file::PolicyTable, volumes: &[Volume]) -> Result<Etcd, Error> {
    let at = doc.part("policy");
    let file::PolicyTable { period: _, etcd, prefix, tls, plain, user, password_file } =
        written.clone();
    let own = file::ExchangeTable { prefix, tls, plain, user, password_file, ..Default::default() };
    if let Some(urls) = &etcd {
        return etcd::check(&at, urls, &own);
    }
    for (key, is_there) in own.keys_of_etcd() {
        at.refuse_if(is_there, key, "belongs to a cluster of its own: add etcd")?;
    }
    let mut found =
        volumes.iter().filter_map(|volume| volume.exchange.as_ref().and_then(Exchange::etcd));
    let missing = "names no cluster: add etcd, as no volume has it in [volume.exchange]";
    let first = found.next().ok_or_else(|| doc.error("policy", missing))?;
    if found.any(|other| other.cluster != first.cluster || other.prefix != first.prefix) {
        let message = "names no cluster, and the exchanges of the volumes are in several: add etcd";
        return Err(doc.error("policy", message));
    }
    Ok(first.clone())
}

/// A cluster that is named without a configuration file.
///
/// # Errors
/// A fault in the policy table.
pub fn named_cluster(written: &file::PolicyTable) -> Result<Etcd, Error> {
    cluster(&Document::new("command line", ""), written, &[])
}
