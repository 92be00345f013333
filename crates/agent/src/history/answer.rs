//! Answers to queries of the history.

use std::collections::BTreeMap;

use parda_api::{self as api, DiskHistory, HistoryQuery, HostHistory, VolumeHistory};
use parda_http::ApiRefusal;

use super::quantity::unpacked;
use super::series::Series;
use super::{HOUR, History};
use crate::locked::locked;

/// Seconds of an answer, if the query does not say.
const SECONDS: u64 = 60;

/// Most values of an answer, of about six bytes each.
const MOST: u64 = 2_000_000;

impl History {
    /// The answer to a query.
    ///
    /// # Errors
    /// There is no such volume, disk or host, or the answer would be too long.
    pub(crate) fn answer(&self, query: &HistoryQuery) -> Result<api::History, ApiRefusal> {
        let volumes = locked(&self.volumes);
        let Some(kept) = volumes.get(&query.volume) else {
            let message = format!(
                "volume {:?}: there is no such volume, or it was added within this second",
                query.volume
            );
            return Err(ApiRefusal::NotFound(message));
        };
        let missing = |what: &str, name: &String| {
            ApiRefusal::NotFound(format!("{what} {name:?}: volume {:?} has none", query.volume))
        };
        let disks = query.disk.clone().unwrap_or_else(|| kept.disks.keys().cloned().collect());
        if let Some(name) = disks.iter().find(|name| !kept.disks.contains_key(*name)) {
            return Err(missing("disk", name));
        }
        let hosts = query.host.clone().unwrap_or_else(|| kept.hosts.keys().cloned().collect());
        if let Some(name) = hosts.iter().find(|name| !kept.hosts.contains_key(*name)) {
            return Err(missing("host", name));
        }
        let correction = self.calendar.correction();
        // The second that is not over yet is not known.
        let end = self.calendar.now() / 1000;
        let asked = query.seconds.map_or(SECONDS, u64::from);
        let mut from = end.saturating_sub(asked);
        if let Some(since_ms) = query.since_ms {
            let after = (since_ms / 1000 + 1).saturating_add_signed(-correction);
            let oldest = end.saturating_sub(query.seconds.map_or(HOUR, u64::from));
            from = after.clamp(oldest, end);
        }
        let objects = 2 + disks.len() as u64 + hosts.len() as u64 / 2;
        if (end - from) * objects * 6 > MOST {
            let message = format!(
                "{} s of {} disks and {} hosts are too much for an answer: ask for fewer seconds, \
                 or name disks and hosts",
                end - from,
                disks.len(),
                hosts.len()
            );
            return Err(ApiRefusal::Invalid(message));
        }
        let told = disks.into_iter().filter_map(|name| {
            let told = disk(kept.disks.get(&name)?, from, end);
            Some((name, told))
        });
        let hosts = hosts.into_iter().filter_map(|name| {
            let told = host(kept.hosts.get(&name)?, from, end);
            Some((name, told))
        });
        Ok(api::History {
            step_ms: 1000,
            start_ms: from.saturating_add_signed(correction).saturating_mul(1000),
            volume: volume(&kept.volume, from, end),
            disks: told.collect::<BTreeMap<_, _>>(),
            hosts: hosts.collect::<BTreeMap<_, _>>(),
        })
    }
}

/// A column of each value that every second from `from` to before `end` has.
fn columns<const N: usize>(series: &Series<N>, from: u64, end: u64) -> [Vec<Option<f64>>; N] {
    let rows: Vec<_> = (from..end).map(|second| series.at(second).map(unpacked)).collect();
    std::array::from_fn(|column| rows.iter().map(|row| row[column]).collect())
}

fn volume(series: &Series<8>, from: u64, end: u64) -> VolumeHistory {
    let [window, latency_ms, own_latency_ms, threshold_ms, iops, bytes_per_s, outstanding, held] =
        columns(series, from, end);
    VolumeHistory {
        window,
        latency_ms,
        own_latency_ms,
        threshold_ms,
        iops,
        bytes_per_s,
        outstanding,
        held,
    }
}

fn disk(series: &Series<6>, from: u64, end: u64) -> DiskHistory {
    let [iops, bytes_per_s, device_ms, held_ms, outstanding, slice] = columns(series, from, end);
    DiskHistory { iops, bytes_per_s, device_ms, held_ms, outstanding, slice }
}

fn host(series: &Series<3>, from: u64, end: u64) -> HostHistory {
    let [window, latency_ms, iops] = columns(series, from, end);
    HostHistory { window, latency_ms, iops }
}
