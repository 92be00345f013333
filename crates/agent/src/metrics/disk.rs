//! Families of a disk that is served. Labels: `volume`, `disk`, `listen`.

use std::sync::Arc;

use parda_block::Latencies;

use super::table::{
    Family, Labels, Value, bounded, by, count, counter, counts, gauge, histogram, maybe, ms, one,
    seconds, time,
};
use crate::latency::occupied;
use crate::status::{DiskState, DiskStatus, HeldByStatus, Recorded};

/// A disk, with the name of its volume.
#[derive(Clone, Debug)]
pub(super) struct DiskNow {
    pub(super) volume: Arc<str>,
    pub(super) disk: DiskStatus,
}

impl DiskNow {
    /// The disk without its distributions, of which the next IO would make a copy.
    pub(super) fn without_times(&self) -> DiskNow {
        let mut kept = self.clone();
        kept.disk.recorded = None;
        kept
    }

    /// Values that tell whether the samples are as before. Distributions change with the times that are counted and not otherwise.
    pub(super) fn counted(&self) -> impl PartialEq + use<'_> {
        // All fields by their names: whether a new one has a family is decided here, too.
        #[rustfmt::skip]
        let DiskStatus {
            name, listen, shares, burst, state: _, fault: _, latency_target: _,
            reads, writes, others, errors, guest_faults, client_faults, overdue, time_held_s, time_held_by, time_at_device_s,
            // No family shows these.
            settings_from: _, from: _, settings: _, slice: _, held_now: _, limited_now: _, state_s: _, drain: _,
            clients: _, page_cache: _, replaced: _, reservation: _, held: _, device: _, total: _, recorded: _,
        } = &self.disk;
        (
            (&self.volume, name, listen, self.is_up(), shares, burst, self.target()),
            (
                reads,
                writes,
                others,
                errors,
                guest_faults,
                client_faults,
                overdue,
                time_held_s,
                time_held_by,
                time_at_device_s,
            ),
        )
    }

    fn is_up(&self) -> bool {
        self.disk.state == DiskState::Serving && self.disk.fault.is_none()
    }

    /// Latency objective in milliseconds, and whether it is missed for want of shares.
    fn target(&self) -> Option<(f64, bool)> {
        let target = self.disk.latency_target.as_ref()?;
        Some((target.target_ms, target.short_of_shares))
    }

    pub(super) fn labels(&self) -> Labels {
        let (name, listen) = (self.disk.name.clone(), self.disk.listen.clone());
        vec![("volume", self.volume.to_string()), ("disk", name), ("listen", listen)]
    }

    /// One of the distributions, with the sum of all its times.
    fn times(&self, of: fn(&Recorded) -> &Latencies, sum: f64) -> Vec<(Labels, Value)> {
        let recorded = self.disk.recorded.as_ref().map(of);
        let times = recorded.into_iter().flat_map(occupied);
        vec![(Vec::new(), Value::Histogram(bounded(times), sum))]
    }
}

pub(super) const FAMILIES: &[Family<DiskNow>] = &[
    gauge("disk_up", "1 if clients find the disk and its IOs can be done", |d| one(d.is_up())),
    gauge("disk_shares", "Shares of the disk", |d| one(d.disk.shares)),
    gauge(
        "disk_burst_ios",
        "IOs that the disk may gather while idle and spend ahead of its neighbours",
        |d| one(d.disk.burst),
    ),
    counter(
        "disk_ios",
        "Requests completed; op is read, write or other (flush, trim, zeroes)",
        |DiskNow { disk: d, .. }| {
            counts("op", [("read", d.reads.ios), ("write", d.writes.ios), ("other", d.others)])
        },
    ),
    counter("disk_transferred_bytes", "Bytes read and written", |DiskNow { disk: d, .. }| {
        counts("op", [("read", d.reads.bytes), ("write", d.writes.bytes)])
    }),
    counter("disk_failed_ios", "IOs that failed at the array", |d| count(d.disk.errors)),
    counter(
        "disk_guest_faults",
        "Requests that failed by the fault of the guest: invalid, or in memory that is gone",
        |d| count(d.disk.guest_faults),
    ),
    counter(
        "disk_client_faults",
        "Requests that failed by the fault of an NBD client: invalid, or not what the disk can do",
        |d| count(d.disk.client_faults),
    ),
    counter(
        "disk_overdue_ios",
        "IOs sent out of turn, as the disk had been held for hold_max",
        |d| count(d.disk.overdue),
    ),
    seconds("disk_latency_target", "Latency objective of the disk", |d| {
        ms(d.target().map(|(ms, _)| ms))
    }),
    gauge("disk_short_of_shares", "1 if the disk misses its objective for want of shares", |d| {
        maybe(d.target().map(|(_, short)| short))
    }),
    histogram("disk_device", "Time of reads and writes at the array", |d| {
        d.times(|recorded| &recorded.device, d.disk.time_at_device_s)
    }),
    histogram("disk_held", "Time that reads and writes were held in the host's queue", |d| {
        d.times(|recorded| &recorded.held, d.disk.time_held_s)
    }),
    time(
        "disk_held_by",
        "The same time by cause; cause is share, window, turn or limit",
        |DiskNow { disk: d, .. }| {
            let HeldByStatus { share_s, window_s, turn_s, limit_s } = d.time_held_by;
            by(
                "cause",
                Value::Time,
                [("share", share_s), ("window", window_s), ("turn", turn_s), ("limit", limit_s)],
            )
        },
    ),
];
