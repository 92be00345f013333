//! A policy in etcd: read and written, with its history.
//!
//! The head has the number of the revision. Each volume has a key of its own: a host reads the policies of its own volumes only. A
//! change writes head, volumes and history in one transaction. Condition: the head is unchanged since it was read.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_config::short;
use parda_etcd::revisions::MOST_WRITES;
use parda_etcd::{
    Entry, EtcdAccess, EtcdClient, EtcdError, EtcdFault, EtcdKeys, Lease, Write, segment,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::changes::{PolicyChange, changes};
use crate::document::Policy;
use crate::hosts::{HostRecord, HostReport, LEASE, Presence};
use crate::stored::{HistoryEntry, PolicyHead, Stored, StoredFault};

/// Revisions that the history keeps.
pub const MOST_HISTORY: u64 = 100;

/// Most changes that an entry of the history lists.
const MOST_CHANGES: usize = 200;

/// Number of revisions or hosts that one call reads.
const PAGE: usize = 16;

/// Keys with their values; none for a key to delete.
type Values = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A policy in etcd, and the client that reads and writes it.
#[derive(Debug)]
pub struct Store {
    client: EtcdClient,
    prefix: String,
    /// Time that each endpoint has for an answer.
    limit: Duration,
}

/// Author of a change, with time and comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The user and host.
    pub by: String,
    /// Time of the change, in milliseconds since 1970.
    pub at_ms: u64,
    /// Comment of the author: why.
    pub comment: Option<String>,
}

/// The policy at the time of a read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySnapshot {
    /// The revision, if there is a policy.
    pub head: Option<PolicyHead>,
    /// Revision of etcd (not of the policy) in which the head was written; 0 without a head.
    pub etcd_revision: i64,
    /// Policies of the volumes that were read, by name.
    pub volumes: BTreeMap<String, Result<Stored, StoredFault>>,
}

/// Changes that [`Store::news`] finds since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// Whether the head was written since.
    pub changed: bool,
    /// Revision of etcd now. If it is less than in an earlier answer, the cluster lost data, or the member that answered lags.
    pub cluster: i64,
}

/// Result of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The revision that was made; none if nothing differs.
    pub head: Option<PolicyHead>,
    /// Settings that differ from before.
    pub changes: Vec<PolicyChange>,
}

/// Reason why a policy cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A call to etcd failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A key holds a value that parda did not write.
    #[error("etcd: key {key}: {message}")]
    Value {
        /// Name of the key.
        key: String,
        /// Fault of its value.
        message: String,
    },
    /// A policy is in force that etcd has lost.
    #[error("etcd has no policy any more (parda policy apply writes it, or an empty one)")]
    Gone,
    /// Another author has changed the policy since it was read.
    #[error("{}; nothing was changed. Look at the difference again (parda policy diff), and try again", now(.0.as_ref()))]
    Conflict(Option<PolicyHead>),
    /// The stored policy of a volume cannot be read, so it cannot be replaced.
    #[error("volume {volume}: {fault}{}", fault.remedy())]
    Unreadable {
        /// Name of the volume.
        volume: String,
        /// Reason why it cannot be read.
        fault: StoredFault,
    },
    /// etcd did not answer a write, which may have taken effect.
    #[error(
        "{0}; the change may have been made all the same: parda policy get shows the revision in etcd"
    )]
    Unanswered(EtcdError),
    /// More volumes change than one transaction can write.
    #[error("{0} volumes change at once, and etcd makes {most} writes at once: change fewer volumes at a time", most = MOST_WRITES)]
    TooMany(usize),
    /// A value cannot be written.
    #[error("cannot be written: {0}")]
    Unwritable(String),
}

impl StoreError {
    fn of_a_write(error: EtcdError) -> StoreError {
        match error.may_be_done {
            true => StoreError::Unanswered(error),
            false => StoreError::Etcd(error),
        }
    }
}

fn now(head: Option<&PolicyHead>) -> String {
    match head {
        Some(PolicyHead { revision, by, .. }) => {
            format!("revision {revision} was made meanwhile by {}", short(by))
        }
        None => "the policy was removed meanwhile".to_owned(),
    }
}

impl PolicySnapshot {
    /// Number of the revision; 0 without a policy.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.revision)
    }

    /// The whole policy.
    ///
    /// # Errors
    /// A volume's policy that this version cannot read.
    pub fn policy(&self) -> Result<Policy, StoreError> {
        let each = self.volumes.iter().map(|(name, stored)| match stored {
            Ok(stored) => Ok(stored.volume.clone()),
            Err(fault) => {
                Err(StoreError::Unreadable { volume: name.clone(), fault: fault.clone() })
            }
        });
        Ok(Policy { volume: each.collect::<Result<_, _>>()? })
    }
}

impl Store {
    /// A policy below a prefix. Nothing is connected yet. `first` chooses the endpoint that is asked first.
    #[must_use]
    pub fn new(cluster: EtcdAccess, prefix: &str, first: u64, limit: Duration) -> Store {
        Store { client: EtcdClient::new(cluster, first), prefix: prefix.to_owned(), limit }
    }

    /// Reads certificates and password again with the next call.
    pub fn reload(&mut self) {
        self.client.reload();
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}policy/{name}", self.prefix).into_bytes()
    }

    fn volume_key(&self, volume: &str) -> Vec<u8> {
        self.key(&format!("volume/{}", segment(volume)))
    }

    fn history_key(&self, revision: u64) -> Vec<u8> {
        self.key(&format!("history/{revision:010}"))
    }

    fn hosts_key(&self, host: &str) -> Vec<u8> {
        format!("{}in-force/{}", self.prefix, segment(host)).into_bytes()
    }

    /// Looks whether the head was written after a revision of etcd. Costs the cluster one read at one member.
    pub fn news(&mut self, since: i64) -> Result<News, StoreError> {
        let head = self.key("head");
        let found = self.client.changed_since(&head, since + 1, self.limit)?;
        Ok(News { changed: !found.entries.is_empty(), cluster: found.revision })
    }

    /// Reads the policies of these volumes. One call reads all of them, at one revision of etcd, unless there are very many.
    pub fn read(&mut self, volumes: &[&str]) -> Result<PolicySnapshot, StoreError> {
        let (head, keys) = (self.key("head"), volumes.iter().map(|name| self.volume_key(name)));
        let keys: Vec<_> = keys.collect();
        let mut snapshot = PolicySnapshot::default();
        for keys in keys.chunks(MOST_WRITES - 1) {
            let each = keys.iter().map(|key| EtcdKeys::One(key));
            let asked: Vec<_> = std::iter::once(EtcdKeys::One(&head)).chain(each).collect();
            snapshot = self.snapshot(&asked, snapshot)?;
        }
        Ok(snapshot)
    }

    /// Reads the policies of all volumes.
    pub fn read_all(&mut self) -> Result<PolicySnapshot, StoreError> {
        let (head, volumes) = (self.key("head"), self.key("volume/"));
        self.snapshot(
            &[EtcdKeys::One(&head), EtcdKeys::Prefix(&volumes)],
            PolicySnapshot::default(),
        )
    }

    fn snapshot(
        &mut self,
        keys: &[EtcdKeys<'_>],
        mut so_far: PolicySnapshot,
    ) -> Result<PolicySnapshot, StoreError> {
        let head = self.key("head");
        for entry in self.client.read(keys, self.limit)?.entries {
            if entry.key == head {
                so_far.etcd_revision = entry.revision;
                so_far.head = Some(json(&entry)?);
                continue;
            }
            let name = name_of(&entry.key);
            let stored =
                Stored::read(&entry.value).and_then(|stored| match stored.volume.name == name {
                    true => Ok(stored),
                    false => Err(StoredFault::Damaged("it is of another volume".to_owned())),
                });
            so_far.volumes.insert(name, stored);
        }
        Ok(so_far)
    }

    /// Replaces the policy that was read with another one. Volumes that do not change are not written.
    pub fn apply(
        &mut self,
        read: &PolicySnapshot,
        policy: &Policy,
        author: Author,
    ) -> Result<Applied, StoreError> {
        let before = read.policy()?;
        let changes = changes(&before, policy);
        // The first revision is written even if it is empty. Hosts may have kept an older policy that etcd lost, and drop it then.
        if changes.is_empty() && read.head.is_some() {
            return Ok(Applied { head: None, changes });
        }
        let Author { by, at_ms, comment } = author;
        let revision = read.revision().checked_add(1).ok_or_else(|| StoreError::Value {
            key: String::from_utf8_lossy(&self.key("head")).into_owned(),
            message: "has the highest revision there is: remove the key and apply a policy file"
                .to_owned(),
        })?;
        let head = PolicyHead { revision, by, at_ms, comment };
        let entry = HistoryEntry {
            head: head.clone(),
            changes: changes.iter().take(MOST_CHANGES).cloned().collect(),
            more: changes.len().saturating_sub(MOST_CHANGES),
            policy: policy.text().map_err(unwritable)?,
        };
        let values = self.values(&before, policy, &entry, &changes)?;
        let oldest = head.revision.saturating_sub(MOST_HISTORY);
        let (first, last) = (self.history_key(0), self.history_key(oldest + 1));
        let each = values.iter().map(|(key, value)| match value {
            Some(value) => Write::Put(key, value),
            None => Write::Delete(EtcdKeys::One(key)),
        });
        let mut writes: Vec<_> = each.collect();
        if oldest > 0 {
            writes.push(Write::Delete(EtcdKeys::Between(&first, &last)));
        }
        if writes.len() > MOST_WRITES {
            return Err(StoreError::TooMany(values.len()));
        }
        let key = self.key("head");
        let written = self.client.write_if((&key, read.etcd_revision), &writes, self.limit);
        if !written.map_err(StoreError::of_a_write)? {
            // The client repeats a call whose answer was lost, and then meets its own write. Head and policy show whether it is ours.
            let made = self.revision(head.revision)?;
            if !made.is_some_and(|made| made.head == head && made.policy == entry.policy) {
                let is = self.snapshot(&[EtcdKeys::One(&key)], PolicySnapshot::default())?.head;
                return Err(StoreError::Conflict(is));
            }
        }
        Ok(Applied { head: Some(head), changes })
    }

    /// Keys to write with their new values, and keys to delete, which have none.
    fn values(
        &self,
        before: &Policy,
        policy: &Policy,
        entry: &HistoryEntry,
        changes: &[PolicyChange],
    ) -> Result<Values, StoreError> {
        let head = &entry.head;
        let mut values = vec![
            (self.key("head"), Some(value_of(head)?)),
            (self.history_key(head.revision), Some(value_of(entry)?)),
        ];
        let differs = |name: &str| changes.iter().any(|change| change.volume == name);
        for volume in policy.volume.iter().filter(|volume| differs(&volume.name)) {
            let stored = Stored::new(head.revision, volume.clone()).text().map_err(unwritable)?;
            values.push((self.volume_key(&volume.name), Some(stored.into_bytes())));
        }
        let gone = before.volume.iter().filter(|volume| policy.of(&volume.name).is_none());
        values.extend(gone.map(|volume| (self.volume_key(&volume.name), None)));
        Ok(values)
    }

    /// Revisions of the history, the latest first, and faults of keys that do not hold a revision.
    pub fn history(&mut self) -> Result<(Vec<HistoryEntry>, Vec<StoreError>), StoreError> {
        let prefix = self.key("history/");
        let found = self.client.list(&prefix, PAGE, self.limit)?;
        let (mut entries, mut faults) = (Vec::new(), Vec::new());
        for entry in found.iter().rev() {
            match json(entry) {
                Ok(entry) => entries.push(entry),
                Err(fault) => faults.push(fault),
            }
        }
        Ok((entries, faults))
    }

    /// One revision, if the history still holds it.
    pub fn revision(&mut self, revision: u64) -> Result<Option<HistoryEntry>, StoreError> {
        let key = self.history_key(revision);
        let found = self.client.read(&[EtcdKeys::One(&key)], self.limit)?;
        found.entries.first().map(json).transpose()
    }

    /// Publishes the report of this host with the given lease. Without one, or if the lease ran out, with a new one.
    pub fn publish(
        &mut self,
        report: &HostReport,
        lease: &mut Option<Lease>,
    ) -> Result<(), StoreError> {
        let key = self.hosts_key(&report.host);
        let value = value_of(report)?;
        if let Some(held) = lease.take() {
            match self.client.put(&key, &value, &held, self.limit) {
                // The lease ran out, or all of etcd's data was replaced.
                Err(EtcdError { fault: EtcdFault::NoLease, .. }) => {}
                put => {
                    put?;
                    *lease = Some(held);
                    return Ok(());
                }
            }
        }
        let new = self.client.grant(LEASE, self.limit)?;
        self.client.put(&key, &value, &new, self.limit)?;
        *lease = Some(new);
        Ok(())
    }

    /// Renews the lease of a published report. False if the lease ran out, and etcd has removed the report.
    pub fn renew(&mut self, lease: &Lease) -> Result<bool, StoreError> {
        match self.client.renew(lease, self.limit) {
            Ok(()) => Ok(true),
            Err(EtcdError { fault: EtcdFault::NoLease, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// All hosts that have published, by name.
    pub fn hosts(&mut self) -> Result<Vec<HostRecord>, StoreError> {
        let prefix = format!("{}in-force/", self.prefix).into_bytes();
        let found = self.client.list(&prefix, PAGE, self.limit)?;
        let mut hosts = Vec::new();
        for entry in found {
            let time = match &entry.lease {
                Some(lease) => self.client.time_of(lease, self.limit)?,
                None => None,
            };
            let presence = time.map(|time| Presence::of(time.granted, time.left));
            hosts.push(HostRecord {
                host: name_of(&entry.key),
                presence: presence.unwrap_or(Presence::Silent(LEASE.as_secs())),
                report: serde_json::from_slice(&entry.value).ok(),
            });
        }
        Ok(hosts)
    }
}

fn unwritable(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unwritable(error.to_string())
}

fn value_of(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(unwritable)
}

fn json<T: DeserializeOwned>(entry: &Entry) -> Result<T, StoreError> {
    serde_json::from_slice(&entry.value).map_err(|error| StoreError::Value {
        key: short(&String::from_utf8_lossy(&entry.key)).into_owned(),
        message: format!(
            "is not what parda writes there: {}. Remove the key (etcdctl del), and apply a policy file",
            short(&error.to_string())
        ),
    })
}

/// The last part of a key, as the name that it was made from.
fn name_of(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    let last = key.rsplit('/').next().unwrap_or_default();
    last.replace("%2F", "/").replace("%25", "%")
}
