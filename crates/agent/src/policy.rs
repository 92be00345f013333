//! Settings that live in etcd for all hosts: read, put in force, and read back.
//!
//! A thread of its own makes all calls to etcd. The thread puts a policy in force by the path of live changes. Neither the control thread
//! nor IO waits for this thread. This thread waits for etcd and for the agent's main thread only.

mod report;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parda_config::short;
use parda_etcd::Lease;
use parda_exchange::HostName;
use parda_policy::hosts::RENEWAL;
use parda_policy::{HostReport, PolicyHead, PolicySnapshot, Store, StoreError};

use crate::api::Api;
use crate::config::{self, Config};
use crate::live::Policies;

/// Time that each endpoint has for an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Part of the period by which the rounds of a host vary. Hosts that start together thus do not ask together.
const SPREAD: f64 = 0.2;

/// The thread that follows the policy, as the main thread sees it. The thread ends by itself after this value is dropped.
pub(crate) struct Follower {
    config: config::Policy,
    volumes: Vec<String>,
    orders: Sender<()>,
    /// While this exists, the thread's results are wanted.
    _wanted: Arc<()>,
}

impl Follower {
    /// Begins to follow the policy that a configuration names, if it names one.
    pub(crate) fn start(
        config: &Config,
        host: &HostName,
        api: &Api,
    ) -> std::io::Result<Option<Follower>> {
        let volumes = names(config);
        let Some(config) = config.policy.clone() else {
            api.views.about().policy = None;
            return Ok(None);
        };
        let (orders, waits) = channel();
        let wanted = Arc::new(());
        let (cluster, prefix) = (config.etcd.cluster.clone(), &config.etcd.prefix);
        let following = Following {
            store: Store::new(cluster, prefix, host.id().0, LIMIT),
            host: host.clone(),
            api: api.clone(),
            volumes: volumes.clone(),
            seen: None,
            unknown: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            fault: None,
            published: None,
            kept: None,
            wanted: Arc::downgrade(&wanted),
        };
        let period = config.period;
        // Never joined: a call that is under way ends within its limit, and the thread with it.
        std::thread::Builder::new()
            .name("parda-policy".to_owned())
            .spawn(move || following.run(&waits, period))?;
        Ok(Some(Follower { config, volumes, orders, _wanted: wanted }))
    }

    /// Whether it follows the policy that a configuration names.
    pub(crate) fn follows(&self, config: &Config) -> bool {
        config.policy.as_ref() == Some(&self.config) && names(config) == self.volumes
    }

    /// Has certificates and password, and then the policy, read again.
    pub(crate) fn reload(&self) {
        let _ = self.orders.send(());
    }
}

fn names(config: &Config) -> Vec<String> {
    config.volumes.iter().map(|volume| volume.name.clone()).collect()
}

/// Revisions of etcd at the last look.
#[derive(Clone, Copy)]
struct Seen {
    /// Revision in which the policy's head was written; 0 if there is none.
    head: i64,
    /// Latest revision of the cluster.
    cluster: i64,
}

/// The report that was published, and its lease.
struct Published {
    report: HostReport,
    lease: Lease,
    renewed: Instant,
}

/// The thread's own state.
struct Following {
    store: Store,
    host: HostName,
    api: Api,
    volumes: Vec<String>,
    /// `None`: the next look reads head and policies in any case.
    seen: Option<Seen>,
    /// Keys that this version does not know, by volume.
    unknown: BTreeMap<String, Vec<String>>,
    /// Volumes whose policy cannot be read, with the reason.
    unreadable: BTreeMap<String, String>,
    /// Fault of the last round; the first one of several is logged.
    fault: Option<String>,
    published: Option<Published>,
    /// Policies in the file for the next start, or why they could not be written.
    kept: Option<Result<Policies, String>>,
    /// Can be upgraded until the main thread follows another policy, or none.
    wanted: Weak<()>,
}

impl Following {
    fn run(mut self, waits: &Receiver<()>, period: Duration) {
        self.show();
        loop {
            self.round();
            let part = 1.0 + SPREAD * (fastrand::f64() - 0.5);
            match waits.recv_timeout(period.mul_f64(part)) {
                Ok(()) => {
                    self.store.reload();
                    self.seen = None;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks for a change, puts it in force, and publishes the policies in force.
    fn round(&mut self) {
        let looked = self.look();
        if looked.is_err() {
            // Another cluster, or other data, may answer next.
            self.seen = None;
        }
        if !self.api.live.in_force().refused.is_empty() {
            // The setting that the policy conflicted with may have been reset.
            let policy = self.api.live.layers().policy;
            self.put_in_force(policy);
        }
        // A reload may have ended this policy during the call: then there is nothing to publish.
        if !self.is_wanted() {
            return;
        }
        self.keep();
        let done = match looked {
            // `Gone` is an answer of etcd, so the policy in force is published all the same.
            Err(StoreError::Gone) => self.publish().and(looked),
            _ => looked.and_then(|()| self.publish()),
        };
        self.say(done.err());
        self.show();
    }

    /// Reads the head if it was written since, and then the policies.
    fn look(&mut self) -> Result<(), StoreError> {
        if let Some(seen) = &mut self.seen {
            let news = self.store.news(seen.head)?;
            let back = news.cluster < seen.cluster;
            seen.cluster = news.cluster;
            // If the cluster's revision went back, the cluster has lost data or the answering member lags. A read by a majority decides.
            if !news.changed && !back {
                return Ok(());
            }
        }
        let names: Vec<_> = self.volumes.iter().map(String::as_str).collect();
        let snapshot = self.store.read(&names)?;
        if !self.is_wanted() {
            return Ok(());
        }
        let cluster = self.seen.map_or(0, |seen| seen.cluster);
        let head = snapshot.etcd_revision;
        self.seen = Some(Seen { head, cluster: cluster.max(head) });
        if snapshot.head.is_none() && self.api.live.layers().policy.head.is_some() {
            return Err(StoreError::Gone);
        }
        self.take_in(snapshot);
        Ok(())
    }

    fn take_in(&mut self, snapshot: PolicySnapshot) {
        let Some(head) = snapshot.head else { return };
        let before = self.api.live.layers().policy;
        self.unreadable.clear();
        let mut unknown = BTreeMap::new();
        let mut volumes = Vec::new();
        for (name, stored) in snapshot.volumes {
            match stored {
                Ok(mut stored) => {
                    let (volume, keys) = stored.volume.known();
                    stored.volume = volume;
                    volumes.push(stored);
                    if !keys.is_empty() {
                        unknown.insert(name, keys);
                    }
                }
                Err(fault) => {
                    // A volume's policy counts as a whole or not at all: the one that was read before stays.
                    volumes.extend(before.of(&name).cloned());
                    tracing::error!(
                        volume = name,
                        event = "policy_refused",
                        "{fault}; the policy from before stays"
                    );
                    self.unreadable.insert(name, fault.to_string());
                }
            }
        }
        for (volume, keys) in &unknown {
            if self.unknown.get(volume) != Some(keys) {
                tracing::warn!(
                    volume,
                    event = "policy_unknown",
                    "policy revision {}: {} is not known to this version, and has no effect; the rest is in force",
                    head.revision,
                    short(&keys.join(", "))
                );
            }
        }
        self.unknown = unknown;
        self.put_in_force(Policies { head: Some(head), volumes });
    }

    fn put_in_force(&self, policy: Policies) {
        let live = &self.api.live;
        let (before, head) = (live.in_force(), policy.head.clone());
        match live.adopt(policy, &self.api.agent, || self.is_wanted()) {
            Ok(true) => {
                if let Some(PolicyHead { revision, by, comment, .. }) = &head {
                    let why = comment.as_ref().map(|comment| format!(": {}", short(comment)));
                    let why = why.unwrap_or_default();
                    tracing::info!(
                        revision,
                        by = &*short(by),
                        event = "policy_applied",
                        "policy is in force{why}"
                    );
                }
            }
            Ok(false) => {}
            Err(error) => {
                tracing::error!(event = "policy_refused", "no policy is put in force: {error}")
            }
        }
        let now = live.in_force();
        for (volume, why) in &now.refused {
            if before.refused.get(volume) != Some(why) {
                tracing::error!(
                    volume,
                    event = "policy_refused",
                    "the policy is not in force: {why}; the one from before stays, if there was one"
                );
            }
        }
    }

    /// Stores the policy in force for the next start. Tried again each round until it is done: a full disk has room again.
    fn keep(&mut self) {
        let layers = self.api.live.in_force().layers;
        if layers.policy.head.is_none() || self.kept.as_ref() == Some(&Ok(layers.policy.clone())) {
            return;
        }
        let kept = layers.keep_policy().map(|()| layers.policy);
        if let Err(error) = &kept
            && self.kept.as_ref() != Some(&kept)
        {
            tracing::error!(
                event = "policy_not_kept",
                "{error}; tried again each period; until then the policy counts after a restart once etcd has been read"
            );
        }
        self.kept = Some(kept);
    }

    /// Logs a fault of etcd once, that it has lost the policy also after another one, and once its end.
    fn say(&mut self, error: Option<StoreError>) {
        let fault = error.as_ref().map(ToString::to_string);
        let is_lost = matches!(error, Some(StoreError::Gone)) && self.fault != fault;
        match (&self.fault, &fault) {
            (before, Some(fault)) if before.is_none() || is_lost => {
                tracing::warn!(
                    event = "policy_unreachable",
                    "policy: {fault}; what was read last stays in force"
                );
            }
            (Some(_), None) => {
                tracing::info!(event = "policy_reachable", "policy: etcd can be read again");
            }
            _ => {}
        }
        self.fault = fault;
    }

    fn report(&self) -> HostReport {
        report::of(&self.host, &self.api.live, &self.unknown, &self.unreadable)
    }

    fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }

    fn show(&self) {
        let policy =
            report::shown(&self.report(), &self.api.live.layers().policy, self.fault.as_ref());
        let mut about = self.api.views.about();
        // A reload may have ended this follower before.
        if self.is_wanted() {
            about.policy = Some(policy);
        }
    }

    /// Publishes the policy in force if it differs from the published one, and renews the lease when due.
    fn publish(&mut self) -> Result<(), StoreError> {
        let report = self.report();
        let begun = Instant::now();
        if let Some(published) = &mut self.published
            && published.report == report
        {
            if begun - published.renewed < RENEWAL {
                return Ok(());
            }
            if self.store.renew(&published.lease)? {
                published.renewed = begun;
                return Ok(());
            }
        }
        let mut lease = self.published.take().map(|published| published.lease);
        self.store.publish(&report, &mut lease)?;
        self.published = lease.map(|lease| Published { report, lease, renewed: begun });
        Ok(())
    }
}
