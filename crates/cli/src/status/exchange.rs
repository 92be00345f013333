//! Lines of `parda status` on a volume's exchange.

use std::collections::BTreeMap;

use comfy_table::Table;
use parda_agent::status::{ExchangeStatus, FallbackStatus};
use parda_api::Host;
use parda_exchange::etcd::EtcdStanding;
use parda_exchange::udp::DatagramStanding;
use parda_terminal::output::{count, number, numbers};

use super::slots;

pub(super) fn lines(exchange: &ExchangeStatus) -> String {
    let mut text = format!("exchange {}", exchange.place);
    if let Some(own) = &exchange.slots {
        let slot = own.slot.map_or("none yet".to_owned(), |slot| slot.to_string());
        text += &format!(", slot {slot}");
        if exchange.ignored + own.slot_conflicts + exchange.duplicate_hosts > 0 {
            text += &format!(
                "; {} ignored, {}, {} seen",
                count(exchange.ignored, "slot"),
                count(own.slot_conflicts, "slot conflict"),
                count(exchange.duplicate_hosts, "duplicate host")
            );
        }
    }
    if let Some(udp) = &exchange.udp {
        text += &datagrams(udp, exchange.duplicate_hosts);
    }
    if let Some(etcd) = &exchange.etcd {
        text += &calls(etcd, exchange);
    }
    if let (Some(period), Some(part)) = (exchange.period_s, exchange.part) {
        text += &format!("; every {period:.2} s, {:.2} % of the array's IOs", part * 1e2);
    }
    if let Some(fallback) = &exchange.fallback {
        text += &in_force(fallback);
    }
    if let Some(why) = &exchange.slowed {
        text += &format!("\n  less often than configured, as {why}");
    }
    for fault in exchange.faults() {
        text += &format!("\n  FAULT: {fault}");
    }
    text.push('\n');
    if !exchange.peers.is_empty() {
        text += &format!("{}\n", peers(&exchange.peers));
    }
    if !exchange.leaves_out.is_empty() {
        let hosts = exchange.leaves_out.join(", ");
        text += &format!("  left out by ignore: {hosts}; parda exchange heed takes one back\n");
    }
    for peer in &exchange.peers {
        let host = &peer.name;
        if let Some(why) = &peer.doubt {
            text +=
                &format!("  NOT BELIEVED: {host}: {why}; parda exchange ignore leaves it out\n");
        }
        if let Some(period) = peer.slowed_to_s {
            text += &format!(
                "  {host} meets every {period:.2} s, less often than it was told, as more would load the array or etcd\n"
            );
        }
    }
    text
}

fn peers(peers: &[Host]) -> Table {
    let rows = peers.iter().map(|peer| {
        [
            peer.name.clone(),
            peer.liveness.to_string(),
            format!("{:.1}", peer.age_s),
            peer.shares.to_string(),
            match peer.would_be {
                Some(window) => format!("none (would be {window:.2})"),
                None => slots(peer.window),
            },
            number(peer.latency_ms, 2),
        ]
    });
    numbers("peer|state|seen s ago|shares|window|latency ms", rows)
}

/// Which of two transports is in force.
fn in_force(fallback: &FallbackStatus) -> String {
    let mut text = match (fallback.in_force, &fallback.first_fault) {
        (false, _) if fallback.fault.is_some() => "\n  in force: the first".to_owned(),
        (false, _) => "\n  in force: the first, with the fall-back ready".to_owned(),
        (true, None) => "\n  in force: the FALL-BACK".to_owned(),
        (true, Some(fault)) => format!("\n  in force: the FALL-BACK, as {fault}"),
    };
    if fallback.switches > 0 {
        text += &format!("; changed {} since the start", count(fallback.switches, "time"));
    }
    if let Some(fault) = &fallback.fault {
        text += &format!("\n  FAULT of the fall-back: {fault}");
    }
    text
}

/// Calls to etcd, their period, and values that were ignored.
fn calls(etcd: &EtcdStanding, exchange: &ExchangeStatus) -> String {
    let mut text = format!("; {} asked, {}", etcd.endpoint, count(etcd.traffic.calls, "call"));
    if etcd.traffic.failed_calls > 0 {
        text += &format!(", {} failed", etcd.traffic.failed_calls);
    }
    // Rounds in slots have a part of the array's IOs, and say their period with it.
    if let (Some(period), None) = (exchange.period_s, exchange.part) {
        text += &format!("; every {period:.2} s");
    }
    let ignored = named(&etcd.ignored);
    if !ignored.is_empty() {
        let last = etcd.ignored_key.as_deref().unwrap_or_default();
        text += &format!("\n  ignored values: {ignored}; the last one at the key {last}");
    }
    if exchange.duplicate_hosts > 0 {
        text += &format!(
            "\n  DUPLICATE HOST: {} that showed another host with this host's name",
            count(exchange.duplicate_hosts, "look")
        );
    }
    text
}

/// Numbers of what was ignored, with the reasons.
fn named(ignored: &BTreeMap<String, u64>) -> String {
    let ignored = ignored.iter().filter(|(_, count)| **count > 0);
    let ignored = ignored.map(|(why, count)| format!("{count} {}", why.replace('_', " ")));
    ignored.collect::<Vec<_>>().join(", ")
}

/// Numbers of datagrams sent, heard and ignored, and of hosts that are not proven.
fn datagrams(udp: &DatagramStanding, duplicate_hosts: u64) -> String {
    let mut text =
        format!(", {}: {} sent, {} heard", count(udp.keys as u64, "key"), udp.sent, udp.heard);
    if udp.unsent > 0 {
        text += &format!(", {} not sent", udp.unsent);
    }
    let refused = named(&udp.refused);
    if !refused.is_empty() {
        text += &format!("\n  ignored datagrams: {refused}");
    }
    if duplicate_hosts > 0 {
        text += &format!(
            "\n  DUPLICATE HOST: {} with this host's name",
            count(duplicate_hosts, "look")
        );
    }
    for host in &udp.one_way {
        text += &format!("\n  ONE WAY: {host}");
    }
    let more = udp.unproven.saturating_sub(udp.one_way.len());
    if more > 0 {
        text += &format!(
            "\n  {} heard that {} not shown to hear this host",
            count(more as u64, "host"),
            if more == 1 { "has" } else { "have" }
        );
    }
    text
}
