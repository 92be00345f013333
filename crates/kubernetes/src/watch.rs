//! Objects of the API, listed once and then watched.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::error::Error;
use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::objects::{Reduced, key};
use crate::settings::{NodeSettings, Objects};

/// Time in which changes gather before they are taken over as one.
const GATHER: Duration = Duration::from_secs(1);

/// Number of [`GATHER`]s after which all settings are handed over again, as their effects may have been changed or lost.
const AGAIN: u32 = 30;

/// Number of [`GATHER`]s in which one fault is logged once.
const QUIET: u32 = 60;

/// Seconds after which the API server ends a watch, and another begins.
const WATCH: u32 = 120;

/// Time without a byte after which a connection is given up. An API server that still lives ends a watch before.
const SILENCE: Duration = Duration::from_secs(WATCH as u64 + 30);

/// The node whose pods are followed.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Names of the StorageClasses whose claims count; empty: all claims count.
    pub storage_classes: Vec<String>,
}

/// Reason why pods cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// No thread or timer can be had.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
    /// No address of an API server is known, or its files cannot be used.
    #[error(
        "no API server is known: {0}; within a pod it takes serviceAccountName and automountServiceAccountToken: true, elsewhere KUBECONFIG"
    )]
    Config(String),
    /// No client can be made.
    #[error("the API server cannot be asked: {0}")]
    Client(String),
}

/// Follows the pods of a node and their claims, and hands over their settings. Handed over once all is known, after each change, and every
/// half a minute. `take` returns whether they are in force; if not, it gets them again a second later.
///
/// While the API server is away or refuses to answer, nothing changes. A line a minute reports that. A kind of classes that it has refused
/// from the start is left out.
///
/// # Errors
/// The API server is not known. The function never returns otherwise.
pub fn follow(
    node: &Node,
    take: impl FnMut(&NodeSettings) -> bool,
) -> Result<Infallible, FollowError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(following(node, take))
}

async fn following(
    node: &Node,
    mut take: impl FnMut(&NodeSettings) -> bool,
) -> Result<Infallible, FollowError> {
    let config = kube::Config::infer().await.map_err(|error| FollowError::Config(chain(&error)))?;
    tracing::info!(node = node.name, "following the pods of this node by {}", config.cluster_url);
    let client = client(config, SILENCE)?;
    let mut watches = Watches::start(&client, &node.name);
    let mut ticks = tokio::time::interval(GATHER);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut said = BTreeSet::new();
    let mut waits: u32 = 0;
    loop {
        tokio::select! {
            () = watches.step() => continue,
            _ = ticks.tick() => {}
        }
        let (is_changed, is_known) = watches.tick();
        waits = if is_changed { 0 } else { waits.saturating_sub(1) };
        if !is_known || waits > 0 {
            continue;
        }
        let answer = watches.answer(&node.storage_classes);
        say(answer.notes.difference(&said));
        waits = if take(&answer) { AGAIN } else { 0 };
        said = answer.notes;
    }
}

/// A client that gives up a connection after this time without a byte. An answer that the server is busy (429, 503) is a fault like others.
/// The client itself would wait silently for the time that the server asks for.
fn client(mut config: kube::Config, silence: Duration) -> Result<Client, FollowError> {
    config.read_timeout = Some(silence);
    config.default_retry = false;
    Client::try_from(config).map_err(|error| FollowError::Client(chain(&error)))
}

fn say<'a>(notes: impl Iterator<Item = &'a String>) {
    notes.for_each(|note| tracing::warn!(event = "kubernetes_setting", "{note}"));
}

/// All objects that matter.
struct Watches {
    pods: Watch<Pod>,
    claims: Watch<PersistentVolumeClaim>,
    storage: Watch<StorageClass>,
    attributes: Watch<VolumeAttributesClass>,
}

impl Watches {
    fn start(client: &Client, node: &str) -> Watches {
        let all = || watcher::Config::default().timeout(WATCH);
        let own = all().fields(&format!("spec.nodeName={node}"));
        Watches {
            pods: Watch::start(client, "pods", own),
            claims: Watch::start(client, "persistentvolumeclaims", all()),
            storage: Watch { is_optional: true, ..Watch::start(client, "storageclasses", all()) },
            attributes: Watch {
                is_optional: true,
                ..Watch::start(client, "volumeattributesclasses", all())
            },
        }
    }

    /// Waits for one event, and takes it over.
    async fn step(&mut self) {
        tokio::select! {
            () = self.pods.step() => {}
            () = self.claims.step() => {}
            () = self.storage.step() => {}
            () = self.attributes.step() => {}
        }
    }

    /// Whether something has changed since the last call, and whether all is known.
    fn tick(&mut self) -> (bool, bool) {
        let each =
            [self.pods.tick(), self.claims.tick(), self.storage.tick(), self.attributes.tick()];
        (each.iter().any(|(changed, _)| *changed), each.iter().all(|(_, known)| *known))
    }

    fn answer(&self, only: &[String]) -> NodeSettings {
        let objects = Objects {
            pods: &self.pods.kept,
            claims: &self.claims.kept,
            attributes: &self.attributes.kept,
            storage: &self.storage.kept,
        };
        NodeSettings::of(&objects, only)
    }
}

type Events<K> = Pin<Box<dyn Stream<Item = Result<Event<K>, watcher::Error>> + Send>>;

/// Objects of one kind.
struct Watch<K: Reduced> {
    /// Name of the kind as roles have it.
    kind: &'static str,
    events: Events<K>,
    kept: BTreeMap<String, K::Kept>,
    /// Objects of a list that is not complete.
    listing: BTreeMap<String, K::Kept>,
    /// Whether all objects have been listed once.
    listed: bool,
    changed: bool,
    /// Whether pods can have settings without these objects.
    is_optional: bool,
    /// Whether the cluster has none, or the role does not permit them: others are not kept waiting.
    left_out: bool,
    /// Ticks until a fault is logged again.
    quiet: u32,
}

impl<K> Watch<K>
where
    K: Reduced + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    fn start(client: &Client, kind: &'static str, config: watcher::Config) -> Watch<K> {
        let events = watcher(Api::<K>::all(client.clone()), config).default_backoff();
        Watch {
            kind,
            events: Box::pin(events),
            kept: BTreeMap::new(),
            listing: BTreeMap::new(),
            listed: false,
            changed: false,
            is_optional: false,
            left_out: false,
            quiet: 0,
        }
    }

    /// Waits for one event, and takes it over.
    async fn step(&mut self) {
        match self.events.next().await {
            Some(Ok(event)) => self.take(event),
            Some(Err(error)) => self.fail(&error),
            // The watch never ends.
            None => std::future::pending().await,
        }
    }

    fn take(&mut self, event: Event<K>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => {
                let key = key(object.meta());
                self.listing.extend(object.kept().map(|kept| (key, kept)));
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                self.changed |= !self.listed || listed != self.kept;
                (self.kept, self.listed, self.left_out) = (listed, true, false);
            }
            Event::Apply(object) => {
                let key = key(object.meta());
                let kept = object.kept();
                self.changed |= self.kept.get(&key) != kept.as_ref();
                match kept {
                    Some(kept) => drop(self.kept.insert(key, kept)),
                    None => drop(self.kept.remove(&key)),
                }
            }
            Event::Delete(object) => {
                self.changed |= self.kept.remove(&key(object.meta())).is_some()
            }
        }
    }

    fn fail(&mut self, error: &watcher::Error) {
        let kind = self.kind;
        let code = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) => status.code,
            watcher::Error::WatchError(status) => status.code,
            _ => 0,
        };
        let is_first =
            self.is_optional && !self.listed && !self.left_out && matches!(code, 403 | 404);
        self.left_out |= is_first;
        self.changed |= is_first;
        match code {
            404 if is_first => tracing::info!(kind, "this cluster has none; Kubernetes 1.34 has"),
            404 if self.is_optional => {}
            // The versions that were seen last are no longer kept there: all is listed anew.
            410 => {}
            _ if self.quiet == 0 => {
                self.quiet = QUIET;
                let why = chain(error);
                let so = match self.left_out {
                    true => "what these classes say is not used",
                    false => "settings stay as they are",
                };
                tracing::warn!(kind, event = "kubernetes_unreachable", "{why}; {so}");
            }
            _ => {}
        }
    }

    /// Whether something has changed since the last call, and whether all is known.
    fn tick(&mut self) -> (bool, bool) {
        self.quiet = self.quiet.saturating_sub(1);
        (std::mem::take(&mut self.changed), self.listed || self.left_out)
    }
}

/// An error with its causes, without repetition.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text += &format!(": {words}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const BUSY: &str =
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n";

    /// First event of a watch of pods whose server does this with each connection.
    fn first(answer: fn(&mut TcpStream)) -> Option<Result<Event<Pod>, watcher::Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for mut stream in listener.incoming().flatten() {
                answer(&mut stream);
                open.push(stream);
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = client(kube::Config::new(url), Duration::from_millis(200)).unwrap();
            let mut pods = Watch::<Pod>::start(&client, "pods", watcher::Config::default()).events;
            loop {
                let next = tokio::time::timeout(Duration::from_secs(60), pods.next()).await;
                match next.expect("a fault within a minute") {
                    Some(Ok(Event::Init)) => {}
                    event => return event,
                }
            }
        })
    }

    #[test]
    fn a_server_that_is_silent_or_busy_is_a_fault_and_nobody_waits_for_it_without_end() {
        let silent = first(|_| ());
        assert!(matches!(silent, Some(Err(watcher::Error::InitialListFailed(_)))), "{silent:?}");
        let busy = first(|stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(BUSY.as_bytes());
        });
        let Some(Err(error)) = busy else { panic!("{busy:?}") };
        assert!(chain(&error).contains("429"), "{}", chain(&error));
    }
}
