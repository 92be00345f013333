//! A policy in etcd: read, written, with its history.
//!
//! The head names the revision, and each volume has a key of its own, so that a host reads those of its volumes alone. A change writes
//! head, volumes and history in one transaction, if the head is still the one that was read.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_etcd::revisions::MOST_WRITES;
use parda_etcd::{Client, Entry, EtcdError, Fault, Keys, Lease, Settings, Write, part};
use serde::de::DeserializeOwned;

use crate::changes::{Change, changes};
use crate::document::Policy;
use crate::hosts::{HostReport, HostState, LEASE, Presence};
use crate::stored::{Head, HistoryEntry, Stored, StoredFault};

/// Revisions that the history keeps.
pub const MOST_HISTORY: u64 = 100;

/// Changes that an entry of the history names.
const MOST_CHANGES: usize = 200;

/// Revisions, or hosts, that are read with one call.
const PAGE: usize = 16;

/// A policy in etcd.
#[derive(Debug)]
pub struct Store {
    client: Client,
    prefix: String,
    /// Time that each endpoint has for an answer.
    limit: Duration,
}

/// Who makes a change, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The user and host.
    pub by: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why, in the words of the author.
    pub comment: Option<String>,
}

/// The policy as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The revision, if there is a policy.
    pub head: Option<Head>,
    /// Revision of etcd in which the head was written; 0 without one.
    pub mark: i64,
    /// Policies of the volumes that were read, by name.
    pub volumes: BTreeMap<String, Result<Stored, StoredFault>>,
}

/// Answer to a look for news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// Whether the head was written since.
    pub changed: bool,
    /// Revision of the cluster. One below the last answer's: the cluster's data may be another, or the member lags.
    pub cluster: i64,
}

/// Result of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The revision that was made; none if nothing differs.
    pub head: Option<Head>,
    /// Settings that differ from before.
    pub changes: Vec<Change>,
}

/// Reason why a policy cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A call to etcd failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A key holds what is none of ours.
    #[error("etcd: key {key}: {message}")]
    Value {
        /// Name of the key.
        key: String,
        /// What is wrong with its value.
        message: String,
    },
    /// Somebody else was faster.
    #[error("{}; nothing was changed. Look at the difference again (parda policy diff), and try again", now(.0.as_ref()))]
    Conflict(Option<Head>),
    /// The policy of a volume cannot be replaced, as it cannot be read.
    #[error("volume {volume}: {fault}")]
    Unreadable {
        /// Name of the volume.
        volume: String,
        /// Reason why it cannot be read.
        fault: StoredFault,
    },
    /// The policy of a volume cannot be replaced, as the value of its key is none.
    #[error(
        "volume {volume}: what etcd has is no policy: {why}. Remove its key below policy/volume/ (etcdctl del), and apply a policy file"
    )]
    Damaged {
        /// Name of the volume.
        volume: String,
        /// What is wrong with the value.
        why: String,
    },
    /// etcd did not answer to a write, which it may have made.
    #[error(
        "{0}; the change may have been made all the same: parda policy get shows the revision in etcd"
    )]
    Unanswered(EtcdError),
    /// It is too much for one transaction.
    #[error("{0} volumes change at once, and etcd makes {most} writes at once: change fewer volumes at a time", most = MOST_WRITES)]
    TooMany(usize),
    /// A value cannot be written.
    #[error("cannot be written: {0}")]
    Unwritable(String),
}

impl StoreError {
    fn of_a_write(error: EtcdError) -> StoreError {
        match error.fault {
            Fault::NoAnswer | Fault::NotUnderstood(_) => StoreError::Unanswered(error),
            _ => StoreError::Etcd(error),
        }
    }
}

fn now(head: Option<&Head>) -> String {
    match head {
        Some(Head { revision, by, .. }) => {
            format!("revision {revision} was made meanwhile by {by}")
        }
        None => "the policy was removed meanwhile".to_owned(),
    }
}

impl Snapshot {
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
            Err(StoredFault::Damaged(why)) => {
                Err(StoreError::Damaged { volume: name.clone(), why: why.clone() })
            }
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
    pub fn new(cluster: Settings, prefix: &str, first: u64, limit: Duration) -> Store {
        Store { client: Client::new(cluster, first), prefix: prefix.to_owned(), limit }
    }

    /// Reads certificates and password again with the next call.
    pub fn reload(&mut self) {
        self.client.reload();
    }

    /// The endpoint that is asked first.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.client.endpoint()
    }

    /// Calls and bytes since the start.
    #[must_use]
    pub fn traffic(&self) -> parda_etcd::Traffic {
        self.client.traffic()
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}policy/{name}", self.prefix).into_bytes()
    }

    fn volume_key(&self, volume: &str) -> Vec<u8> {
        self.key(&format!("volume/{}", part(volume)))
    }

    fn history_key(&self, revision: u64) -> Vec<u8> {
        self.key(&format!("history/{revision:010}"))
    }

    fn hosts_key(&self, host: &str) -> Vec<u8> {
        format!("{}in-force/{}", self.prefix, part(host)).into_bytes()
    }

    /// Looks whether the head was written after the revision `mark` of etcd. Costs the cluster one read of one member.
    pub fn news(&mut self, mark: i64) -> Result<News, StoreError> {
        let head = self.key("head");
        let found = self.client.changed_since(&head, mark + 1, self.limit)?;
        Ok(News { changed: !found.entries.is_empty(), cluster: found.revision })
    }

    /// Reads the policies of these volumes, all as they are at one time.
    pub fn read(&mut self, volumes: &[&str]) -> Result<Snapshot, StoreError> {
        let (head, keys) = (self.key("head"), volumes.iter().map(|name| self.volume_key(name)));
        let keys: Vec<_> = keys.collect();
        let mut snapshot = Snapshot::default();
        // Most hosts have a few volumes, and then this is one call.
        for keys in keys.chunks(MOST_WRITES - 1) {
            let each = keys.iter().map(|key| Keys::One(key));
            let asked: Vec<_> = std::iter::once(Keys::One(&head)).chain(each).collect();
            snapshot = self.snapshot(&asked, snapshot)?;
        }
        Ok(snapshot)
    }

    /// Reads the policies of all volumes.
    pub fn read_all(&mut self) -> Result<Snapshot, StoreError> {
        let (head, volumes) = (self.key("head"), self.key("volume/"));
        self.snapshot(&[Keys::One(&head), Keys::Prefix(&volumes)], Snapshot::default())
    }

    fn snapshot(
        &mut self,
        keys: &[Keys<'_>],
        mut so_far: Snapshot,
    ) -> Result<Snapshot, StoreError> {
        let head = self.key("head");
        for entry in self.client.read(keys, self.limit)?.entries {
            if entry.key == head {
                so_far.mark = entry.revision;
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

    /// Puts a policy in the place of the one that was read. Volumes that do not change are not written.
    pub fn apply(
        &mut self,
        read: &Snapshot,
        policy: &Policy,
        author: Author,
    ) -> Result<Applied, StoreError> {
        let before = read.policy()?;
        let changes = changes(&before, policy);
        // The first one is written though it is empty: it takes back what hosts have kept of a policy that is lost.
        if changes.is_empty() && read.head.is_some() {
            return Ok(Applied { head: None, changes });
        }
        let Author { by, at_ms, comment } = author;
        let revision = read.revision().checked_add(1).ok_or_else(|| StoreError::Value {
            key: String::from_utf8_lossy(&self.key("head")).into_owned(),
            message: "has the highest revision there is: remove the key and apply a policy file"
                .to_owned(),
        })?;
        let head = Head { revision, by, at_ms, comment };
        let entry = history_entry(policy, &head, &changes)?;
        let (puts, deletes) = self.writes(&before, policy, &entry, &changes)?;
        let oldest = head.revision.saturating_sub(MOST_HISTORY);
        let (first, last) = (self.history_key(0), self.history_key(oldest + 1));
        let each = puts.iter().map(|(key, value)| Write::Put(key, value));
        let mut writes: Vec<_> = each.collect();
        writes.extend(deletes.iter().map(|key| Write::Delete(Keys::One(key))));
        if oldest > 0 {
            writes.push(Write::Delete(Keys::Between(&first, &last)));
        }
        if writes.len() > MOST_WRITES {
            return Err(StoreError::TooMany(puts.len() + deletes.len()));
        }
        let key = self.key("head");
        let written = self.client.write_if((&key, read.mark), &writes, self.limit);
        if !written.map_err(StoreError::of_a_write)? {
            // An answer may have been lost on its way, and the call have been made again. Head and policy tell our own write.
            let made = self.revision(head.revision)?;
            if !made.is_some_and(|made| made.head == head && made.policy == entry.policy) {
                let is = self.snapshot(&[Keys::One(&key)], Snapshot::default())?.head;
                return Err(StoreError::Conflict(is));
            }
        }
        Ok(Applied { head: Some(head), changes })
    }

    /// Keys with their new values, and keys that go.
    #[allow(clippy::type_complexity, reason = "a list of keys with values, and one of keys")]
    fn writes(
        &self,
        before: &Policy,
        policy: &Policy,
        entry: &HistoryEntry,
        changes: &[Change],
    ) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, Vec<Vec<u8>>), StoreError> {
        let text = |value: serde_json::Result<Vec<u8>>| value.map_err(|error| unwritable(&error));
        let head = &entry.head;
        let mut puts = vec![
            (self.key("head"), text(serde_json::to_vec(head))?),
            (self.history_key(head.revision), text(serde_json::to_vec(entry))?),
        ];
        let differs = |name: &str| changes.iter().any(|change| change.volume == name);
        for volume in policy.volume.iter().filter(|volume| differs(&volume.name)) {
            let stored = Stored::new(head.revision, volume.clone()).text();
            let stored = stored.map_err(|error| unwritable(&error))?;
            puts.push((self.volume_key(&volume.name), stored.into_bytes()));
        }
        let gone = before.volume.iter().filter(|volume| policy.of(&volume.name).is_none());
        Ok((puts, gone.map(|volume| self.volume_key(&volume.name)).collect()))
    }

    /// Revisions that are kept, the latest first.
    pub fn history(&mut self) -> Result<Vec<HistoryEntry>, StoreError> {
        let prefix = self.key("history/");
        let found = self.client.list(&prefix, PAGE, self.limit)?;
        found.iter().rev().map(json).collect()
    }

    /// One revision of the history, if it is kept.
    pub fn revision(&mut self, revision: u64) -> Result<Option<HistoryEntry>, StoreError> {
        let key = self.history_key(revision);
        let found = self.client.read(&[Keys::One(&key)], self.limit)?;
        found.entries.first().map(json).transpose()
    }

    /// Publishes what this host has in force, on a lease that is made if there is none.
    pub fn publish(
        &mut self,
        report: &HostReport,
        lease: &mut Option<Lease>,
    ) -> Result<(), StoreError> {
        let key = self.hosts_key(&report.host);
        let value = serde_json::to_vec(report)
            .map_err(|error| StoreError::Unwritable(error.to_string()))?;
        let mut held = lease.take();
        loop {
            let (mine, is_new) = match held.take() {
                Some(held) => (held, false),
                None => (self.client.grant(LEASE, self.limit)?, true),
            };
            match self.client.put(&key, &value, &mine, self.limit) {
                // It ran out, or all of etcd's data was replaced.
                Err(EtcdError { fault: Fault::NoLease, .. }) if !is_new => {}
                put => {
                    put?;
                    *lease = Some(mine);
                    return Ok(());
                }
            }
        }
    }

    /// Renews the lease of what was published. False if it is gone, and what was published with it.
    pub fn renew(&mut self, lease: &Lease) -> Result<bool, StoreError> {
        match self.client.renew(lease, self.limit) {
            Ok(()) => Ok(true),
            Err(EtcdError { fault: Fault::NoLease, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// All hosts that have published, by name.
    pub fn hosts(&mut self) -> Result<Vec<HostState>, StoreError> {
        let prefix = format!("{}in-force/", self.prefix).into_bytes();
        let found = self.client.list(&prefix, PAGE, self.limit)?;
        let mut hosts = Vec::new();
        for entry in found {
            let time = match &entry.lease {
                Some(lease) => self.client.time_of(lease, self.limit)?,
                None => None,
            };
            let presence = time.map(|time| Presence::of(time.granted, time.left));
            hosts.push(HostState {
                host: name_of(&entry.key),
                presence: presence.unwrap_or(Presence::Silent(LEASE.as_secs())),
                report: serde_json::from_slice(&entry.value).ok(),
            });
        }
        Ok(hosts)
    }
}

fn history_entry(
    policy: &Policy,
    head: &Head,
    changes: &[Change],
) -> Result<HistoryEntry, StoreError> {
    Ok(HistoryEntry {
        head: head.clone(),
        changes: changes.iter().take(MOST_CHANGES).cloned().collect(),
        more: changes.len().saturating_sub(MOST_CHANGES),
        policy: policy.text().map_err(|error| unwritable(&error))?,
    })
}

fn unwritable(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unwritable(error.to_string())
}

fn json<T: DeserializeOwned>(entry: &Entry) -> Result<T, StoreError> {
    serde_json::from_slice(&entry.value).map_err(|error| StoreError::Value {
        key: String::from_utf8_lossy(&entry.key).into_owned(),
        message: format!(
            "is not what parda writes there: {error}. Remove the key (etcdctl del), and apply a policy file"
        ),
    })
}

/// The last part of a key, as the name that it was made from.
fn name_of(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    let last = key.rsplit('/').next().unwrap_or_default();
    last.replace("%2F", "/").replace("%25", "%")
}
