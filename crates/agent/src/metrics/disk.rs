//! Families of a disk that is served. Labels: `volume`, `disk`, `listen`.

use super::table::{Family, count, counter, counts, gauge, histogram, ms, one, seconds, times};
use crate::status::{DiskState, DiskStatus};

pub(super) fn families() -> Vec<Family<DiskStatus>> {
    vec![
        gauge("disk_up", "1 if clients find the disk and its IOs can be done", |d| {
            one(u8::from(d.state == DiskState::Serving && d.fault.is_none()))
        }),
        gauge("disk_shares", "Shares of the disk", |d| one(d.shares)),
        counter(
            "disk_ios",
            "Requests completed; op is read, write or other (flush, trim, zeroes)",
            |d| counts("op", [("read", d.reads.ios), ("write", d.writes.ios), ("other", d.others)]),
        ),
        counter("disk_transferred_bytes", "Bytes read and written", |d| {
            counts("op", [("read", d.reads.bytes), ("write", d.writes.bytes)])
        }),
        counter("disk_failed_ios", "IOs that failed at the array", |d| count(d.errors)),
        counter(
            "disk_overdue_ios",
            "IOs sent out of turn, as the disk had been held for hold_max",
            |d| count(d.overdue),
        ),
        seconds("disk_latency_target", "Latency objective of the disk", |d| {
            ms(d.latency_target.as_ref().map(|target| target.target_ms))
        }),
        gauge(
            "disk_short_of_shares",
            "1 if the disk misses its objective for want of shares",
            |d| {
                d.latency_target
                    .as_ref()
                    .map(|target| one(u8::from(target.short_of_shares)))
                    .unwrap_or_default()
            },
        ),
        histogram("disk_device", "Time of reads and writes at the array", |d| {
            vec![(Vec::new(), times(&d.device))]
        }),
        histogram("disk_held", "Time that reads and writes were held in the host's queue", |d| {
            vec![(Vec::new(), times(&d.held))]
        }),
    ]
}
