//! Families of an exchange (label `volume`), and of the other hosts in it (labels `volume`, `peer`).

use parda_exchange::Liveness;

use super::table::{Family, count, counter, gauge, gauges, maybe, ms, one, seconds};
use crate::status::{ExchangeStatus, PeerStatus};

pub(super) fn families() -> Vec<Family<ExchangeStatus>> {
    vec![
        gauge("exchange_up", "1 if the exchange worked in the last period", |e| {
            one(u8::from(e.fault.is_none()))
        }),
        counter("exchange_failures", "Periods in which the exchange failed", |e| count(e.failures)),
        counter("exchange_ignored", "Slots ignored: damaged, foreign or of another version", |e| {
            count(e.ignored)
        }),
        counter(
            "exchange_slot_conflicts",
            "Looks at which another host had written to our slot",
            |e| e.slots.as_ref().map(|own| count(own.slot_conflicts)).unwrap_or_default(),
        ),
        counter("exchange_duplicate_hosts", "Looks at which another live host had our name", |e| {
            count(e.duplicate_hosts)
        }),
        seconds("exchange_period", "Time between two rounds of this host", |e| maybe(e.period_s)),
        gauge(
            "exchange_load_ratio",
            "Part of the array's IOs that the rounds of all hosts are",
            |e| maybe(e.part),
        ),
        gauge("exchange_peers", "Other hosts, by liveness", |e| {
            let peers = |liveness| e.peers.iter().filter(|p| p.liveness == liveness).count() as f64;
            gauges("liveness", LIVENESS.map(|(name, liveness)| (name, peers(liveness))))
        }),
    ]
}

/// Liveness of other hosts, by its names in the status.
const LIVENESS: [(&str, Liveness); 5] = [
    ("unproven", Liveness::Unproven),
    ("live", Liveness::Live),
    ("stale", Liveness::Stale),
    ("gone", Liveness::Gone),
    ("left", Liveness::Left),
];

pub(super) fn peer_families() -> Vec<Family<PeerStatus>> {
    vec![
        gauge("peer_up", "1 if the host is alive, as far as this one can see", |p| {
            one(u8::from(p.liveness == Liveness::Live))
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
    ]
}
