//! The status of an agent as OpenMetrics text, for Prometheus and other readers of its format.
//!
//! Everything comes from one [`Status`], so a scrape and `parda status` never disagree. Each subject has a table of
//! families; `docs/metrics.md` lists them, and a test compares it with the tables.

mod disk;
mod exchange;
mod kept;
mod steer;
mod table;
mod volume;

use std::fmt;
use std::sync::Arc;

use parda_api::VolumePolicy;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::registry::Registry;

use crate::status::{Status, VolumeStatus};
use disk::DiskNow;
use kept::Kept;
use table::{Family, Labels, Value, by, gauge, one, seconds};

/// An object with the labels that all of its samples have.
struct Labelled<'a, T>(Labels, &'a T);

/// Prefix of all names.
const PREFIX: &str = "parda";

/// Statuses as OpenMetrics text, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    disks: Kept,
}

impl Exposition {
    /// The status as text. Samples of disks are kept for the next one.
    pub(crate) fn text(&mut self, status: Status) -> String {
        let mut shown = Arc::new(status);
        let mut text = text_of(Snapshot(Arc::clone(&shown)));
        let volumes = &mut Arc::make_mut(&mut shown).volumes;
        self.disks.write(&mut text, volumes.iter_mut().flat_map(disks));
        written(encode_eof(&mut text));
        text
    }
}

/// Disks of a volume, which it has no more.
fn disks(volume: &mut VolumeStatus) -> impl Iterator<Item = DiskNow> + use<> {
    let name: Arc<str> = volume.name.as_str().into();
    let disks = std::mem::take(&mut volume.disks);
    disks.into_iter().map(move |disk| DiskNow { volume: Arc::clone(&name), disk })
}

fn written(result: fmt::Result) {
    // Writing to a string does not fail.
    if let Err(error) = result {
        tracing::error!("metrics cannot be written: {error}");
    }
}

fn text_of(collector: impl Collector) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    written(encode_registry(&mut text, &registry));
    text
}

/// Status of all but its disks.
#[derive(Debug)]
struct Snapshot(Arc<Status>);

impl Collector for Snapshot {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let Snapshot(status) = self;
        write(&mut to, AGENT, &[Labelled(Vec::new(), &**status)])?;
        let volumes: Vec<_> = status.volumes.iter().map(|v| Labelled(of(v), v)).collect();
        write(&mut to, volume::FAMILIES, &volumes)?;
        let exchanges = status.volumes.iter().filter_map(|v| Some((v, v.exchange.as_ref()?)));
        let exchanges: Vec<_> = exchanges.map(|(v, e)| Labelled(of(v), e)).collect();
        write(&mut to, exchange::FAMILIES, &exchanges)?;
        let peers = exchanges.iter().flat_map(|Labelled(labels, exchange)| {
            exchange.peers.iter().map(|peer| Labelled(with(labels, "peer", &peer.name), peer))
        });
        write(&mut to, exchange::OF_PEERS, &peers.collect::<Vec<_>>())?;
        let steered = status.volumes.iter().filter_map(|v| Some((v, v.steer.as_ref()?)));
        let steered: Vec<_> = steered.map(|(v, s)| Labelled(of(v), s)).collect();
        write(&mut to, steer::FAMILIES, &steered)?;
        let vms = steered.iter().flat_map(|Labelled(labels, steer)| {
            steer.vms.iter().map(|vm| {
                let labels = with(labels, "vm", &vm.name);
                Labelled(with(&labels, "cgroup", &vm.cgroup), vm)
            })
        });
        write(&mut to, steer::OF_VMS, &vms.collect::<Vec<_>>())
    }
}

fn of(volume: &VolumeStatus) -> Labels {
    vec![("volume", volume.name.clone())]
}

fn with(labels: &Labels, key: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((key, value.to_owned()));
    labels
}

/// Writes families one after the other, each with the samples of all objects, as the format wants it.
fn write<T>(
    to: &mut DescriptorEncoder<'_>,
    families: &[Family<T>],
    objects: &[Labelled<'_, T>],
) -> fmt::Result {
    for family in families {
        let mut samples = objects
            .iter()
            .flat_map(|Labelled(labels, object)| {
                (family.samples)(object).into_iter().map(move |(more, value)| {
                    (labels.iter().cloned().chain(more).map(escaped).collect::<Labels>(), value)
                })
            })
            .peekable();
        if samples.peek().is_none() {
            continue;
        }
        let mut metric =
            to.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.kind)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                sample(&mut metric, &value)?;
            } else {
                sample(&mut metric.encode_family(&labels)?, &value)?;
            }
        }
    }
    Ok(())
}

/// A label whose value is escaped for the format, which the encoder leaves to its caller. Names of disks and of other hosts may hold any
/// character.
fn escaped((name, value): (&'static str, String)) -> (&'static str, String) {
    (name, value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn sample(to: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Gauge(value) => to.encode_gauge(value),
        Value::Counter(value) => to.encode_counter::<NoLabelSet, u64, f64>(value, None),
        Value::Time(value) => to.encode_counter::<NoLabelSet, f64, f64>(value, None),
        Value::Histogram(buckets, sum) => {
            let count = buckets.iter().map(|bucket| bucket.1).sum();
            to.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

const AGENT: &[Family<Status>] = &[
    gauge("agent_info", "Host name of the configuration, and version of the agent", |status| {
        let labels = vec![("host", status.host.clone()), ("version", status.version.clone())];
        vec![(labels, Value::Gauge(1.0))]
    }),
    seconds("agent_uptime", "Time since the agent started", |status| one(status.uptime_s)),
    gauge("reload_refused", "Whether the configuration that was read last is refused", |status| {
        status.reload.iter().flat_map(|reload| one(reload.refused.is_some())).collect()
    }),
    gauge("http_up", "1 if HTTP is served at an address of the configuration", |status| {
        let each = status.http.iter().map(|place| (&place.address, f64::from(place.up)));
        by("address", Value::Gauge, each)
    }),
    gauge(
        "policy_up",
        "Whether etcd could be read for the policy at the last try; no sample without [policy]",
        |status| status.policy.iter().flat_map(|of| one(of.fault.is_none())).collect(),
    ),
    gauge(
        "policy_refused",
        "Whether the policy that was read last is not in force for a volume, by `volume`",
        |status| {
            let volumes = status.policy.iter().flat_map(|policy| &policy.volumes);
            let refused = |of: &VolumePolicy| f64::from(of.fault.is_some());
            by("volume", Value::Gauge, volumes.map(|volume| (&volume.name, refused(volume))))
        },
    ),
];

#[cfg(test)]
mod tests;
