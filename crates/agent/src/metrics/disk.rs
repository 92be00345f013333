//! Families of a disk that is served. Labels: `volume`, `disk`, `listen`.

use std::sync::Arc;

use parda_block::Latencies;

use super::table::{
    Family, Labels, Value, bounded, count, counter, counts, gauge, histogram, maybe, ms, one,
    seconds, time, times_by,
};
use crate::latency::occupied;
use crate::status::{Counter, DiskState, DiskStatus, HeldByStatus, Recorded};

/// A disk as its families see it.
#[derive(Debug)]
pub(super) struct DiskNow {
    pub(super) counted: Counted,
    /// Distributions, which change with the times that are counted and not otherwise.
    recorded: Option<Recorded>,
}

/// Values that tell whether a disk's samples are as before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counted {
    volume: Arc<str>,
    name: String,
    listen: String,
    up: bool,
    shares: u32,
    burst: f64,
    reads: Counter,
    writes: Counter,
    others: u64,
    errors: u64,
    overdue: u64,
    /// Latency objective in milliseconds, and whether it is missed for want of shares.
    target: Option<(f64, bool)>,
    held_s: f64,
    held_by: HeldByStatus,
    device_s: f64,
}

impl DiskNow {
    pub(super) fn new(volume: &Arc<str>, disk: DiskStatus) -> DiskNow {
        let target = disk.latency_target.as_ref();
        let counted = Counted {
            volume: Arc::clone(volume),
            up: disk.state == DiskState::Serving && disk.fault.is_none(),
            shares: disk.shares,
            burst: disk.burst,
            reads: disk.reads,
            writes: disk.writes,
            others: disk.others,
            errors: disk.errors,
            overdue: disk.overdue,
            target: target.map(|target| (target.target_ms, target.short_of_shares)),
            held_s: disk.time_held_s,
            held_by: disk.time_held_by,
            device_s: disk.time_at_device_s,
            name: disk.name,
            listen: disk.listen,
        };
        DiskNow { counted, recorded: disk.recorded }
    }

    pub(super) fn labels(&self) -> Labels {
        let Counted { volume, name, listen, .. } = &self.counted;
        let labels = [("volume", volume.to_string()), ("disk", name.clone())];
        labels.into_iter().chain([("listen", listen.clone())]).collect()
    }

    /// One of the distributions, with the sum of all its times.
    fn times(&self, of: fn(&Recorded) -> &Latencies, sum: f64) -> Vec<(Labels, Value)> {
        let recorded = self.recorded.as_ref().map(of);
        let times = recorded.into_iter().flat_map(occupied);
        vec![(Vec::new(), Value::Histogram(bounded(times), sum))]
    }
}

pub(super) fn families() -> Vec<Family<DiskNow>> {
    vec![
        gauge("disk_up", "1 if clients find the disk and its IOs can be done", |d| {
            one(u8::from(d.counted.up))
        }),
        gauge("disk_shares", "Shares of the disk", |d| one(d.counted.shares)),
        gauge(
            "disk_burst_ios",
            "IOs that the disk may gather while idle and spend ahead of its neighbours",
            |d| one(d.counted.burst),
        ),
        counter(
            "disk_ios",
            "Requests completed; op is read, write or other (flush, trim, zeroes)",
            |DiskNow { counted: d, .. }| {
                counts("op", [("read", d.reads.ios), ("write", d.writes.ios), ("other", d.others)])
            },
        ),
        counter(
            "disk_transferred_bytes",
            "Bytes read and written",
            |DiskNow { counted: d, .. }| {
                counts("op", [("read", d.reads.bytes), ("write", d.writes.bytes)])
            },
        ),
        counter("disk_failed_ios", "IOs that failed at the array", |d| count(d.counted.errors)),
        counter(
            "disk_overdue_ios",
            "IOs sent out of turn, as the disk had been held for hold_max",
            |d| count(d.counted.overdue),
        ),
        seconds("disk_latency_target", "Latency objective of the disk", |d| {
            ms(d.counted.target.map(|(ms, _)| ms))
        }),
        gauge(
            "disk_short_of_shares",
            "1 if the disk misses its objective for want of shares",
            |d| maybe(d.counted.target.map(|(_, short)| f64::from(u8::from(short)))),
        ),
        histogram("disk_device", "Time of reads and writes at the array", |d| {
            d.times(|recorded| &recorded.device, d.counted.device_s)
        }),
        histogram("disk_held", "Time that reads and writes were held in the host's queue", |d| {
            d.times(|recorded| &recorded.held, d.counted.held_s)
        }),
        time(
            "disk_held_by",
            "The same time by cause; cause is share, window, turn or limit",
            |DiskNow { counted: d, .. }| {
                let HeldByStatus { share_s, window_s, turn_s, limit_s } = d.held_by;
                let causes = [("share", share_s), ("window", window_s), ("turn", turn_s), ("limit", limit_s)];
                times_by("cause", causes)
            },
        ),
    ]
}
