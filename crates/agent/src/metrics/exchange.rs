//! Families of an exchange (label `volume`), and of the other hosts in it (labels `volume`, `peer`).

use parda_api::Host;
use parda_exchange::Liveness;
use parda_exchange::etcd::EtcdStanding;
use parda_exchange::udp::DatagramStanding;

use super::table::{
    Family, Labels, Value, by, count, counter, counts, gauge, maybe, ms, one, seconds,
};
use crate::status::ExchangeStatus;

pub(super) const FAMILIES: &[Family<ExchangeStatus>] = &[
    gauge(
        "exchange_up",
        "1 if the exchange worked in the last period and any host expected is heard",
        |e| one(e.fault.is_none() && e.silence.is_none()),
    ),
    gauge("exchange_fallback_in_force", "1 if the exchange's fall-back is in force", |e| {
        maybe(e.fallback.as_ref().map(|f| f.in_force))
    }),
    counter("exchange_switches", "How often an exchange went to its fall-back or back", |e| {
        e.fallback.as_ref().map(|f| count(f.switches)).unwrap_or_default()
    }),
    counter("exchange_failures", "Periods in which the exchange failed", |e| count(e.failures)),
    counter("exchange_ignored", "Slots, datagrams or values ignored, for any reason", |e| {
        count(e.ignored)
    }),
    counter(
        "exchange_slot_conflicts",
        "Looks at which another host had written to our slot",
        |e| e.slots.as_ref().map(|own| count(own.slot_conflicts)).unwrap_or_default(),
    ),
    counter("exchange_datagrams", "Datagrams of an exchange over UDP, by their fate", |e| {
        e.udp.as_ref().map(datagrams).unwrap_or_default()
    }),
    counter("exchange_etcd_calls", "Calls to etcd, by their fate", |e| {
        let Some(EtcdStanding { traffic, .. }) = &e.etcd else { return Vec::new() };
        counts("fate", [("answered", traffic.calls), ("failed", traffic.failed_calls)])
    }),
    counter("exchange_etcd_bytes", "Bytes of calls to etcd and of its answers", |e| {
        let Some(EtcdStanding { traffic, .. }) = &e.etcd else { return Vec::new() };
        counts("fate", [("sent", traffic.sent_bytes), ("received", traffic.received_bytes)])
    }),
    counter("exchange_duplicate_hosts", "Periods in which another live host had our name", |e| {
        count(e.duplicate_hosts)
    }),
    gauge(
        "exchange_doubted_hosts",
        "Live hosts that are not believed, or ignored, by state",
        |e| {
            let hosts = |of: fn(&Host) -> bool| e.peers.iter().filter(|p| of(p)).count() as f64;
            let counts = [
                ("doubted", hosts(|host| host.doubt.is_some() && !host.ignored)),
                ("ignored", hosts(|host| host.ignored)),
            ];
            by("state", Value::Gauge, counts)
        },
    ),
    gauge("exchange_one_way_hosts", "Hosts that are heard and do not hear this one", |e| {
        maybe(e.udp.as_ref().map(|udp| udp.one_way_hosts as f64))
    }),
    seconds("exchange_period", "Time between two rounds of this host", |e| maybe(e.period_s)),
    gauge("exchange_load_ratio", "Part of the array's IOs that the rounds of all hosts are", |e| {
        maybe(e.part)
    }),
    gauge("exchange_peers", "Other hosts, by liveness", |e| {
        let peers = |liveness| e.peers.iter().filter(|p| p.liveness == liveness).count() as f64;
        by("liveness", Value::Gauge, LIVENESS.map(|of| (of, peers(of))))
    }),
];

/// Datagrams since the start: `sent`, `unsent`, `heard`, `own`, and each reason for which some were refused.
fn datagrams(udp: &DatagramStanding) -> Vec<(Labels, Value)> {
    let sent = [("sent", udp.sent), ("unsent", udp.unsent), ("heard", udp.heard), ("own", udp.own)];
    counts(
        "fate",
        sent.into_iter().chain(udp.refused.iter().map(|(why, count)| (why.as_str(), *count))),
    )
}

const LIVENESS: [Liveness; 5] =
    [Liveness::Unproven, Liveness::Live, Liveness::Stale, Liveness::Gone, Liveness::Left];

pub(super) const OF_PEERS: &[Family<Host>] = &[
    gauge("peer_up", "1 if the host is alive, as far as this one can see", |p| {
        one(p.liveness == Liveness::Live)
    }),
    seconds("peer_age", "Time since the host was last seen to change", |p| one(p.age_s)),
    gauge("peer_window_ios", "Window of the host", |p| maybe(p.window)),
    seconds("peer_latency", "Mean device latency of the host in its last interval", |p| {
        ms(p.latency_ms)
    }),
    seconds("peer_latency_threshold", "Latency threshold of the host", |p| {
        ms(p.latency_threshold_ms)
    }),
    gauge("peer_shares", "Shares of the host's VMs together", |p| one(p.shares)),
];
