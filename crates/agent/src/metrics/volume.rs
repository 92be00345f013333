//! Families of a volume. Label: `volume`.

use parda_api::{Limit, Tenant};
use parda_control::Source;

use super::table::{
    Family, Labels, Value, bytes, count, counter, counts, gauge, maybe, ms, one, one_of, seconds,
};
use crate::status::VolumeStatus;

pub(super) const FAMILIES: &[Family<VolumeStatus>] = &[
    gauge("volume_up", "1 if the volume runs, 0 if it does not start or ended by itself", |v| {
        one(v.fault.is_none())
    }),
    gauge("volume_mode", "1 for the mode of control in force", |v| {
        vec![(vec![("mode", v.mode.to_string())], Value::Gauge(1.0))]
    }),
    seconds("volume_latency_threshold", "Latency threshold in force", |v| {
        ms(Some(v.latency_threshold_ms))
    }),
    gauge(
        "volume_latency_threshold_source",
        "1 for where the threshold in force comes from",
        |v| vec![(vec![("from", v.threshold_from().to_string())], Value::Gauge(1.0))],
    ),
    seconds("volume_latency", "Device latency that the window rests on", |v| {
        ms(v.cluster_latency_ms)
    }),
    gauge(
        "volume_latency_source",
        "1 for where that latency comes from: cluster, last-good or local",
        |v| {
            // Before the first IO there is no latency, from nowhere.
            let latency = v.cluster_latency_ms.iter();
            latency.flat_map(|_| one_of("source", &v.source, &SOURCES)).collect()
        },
    ),
    seconds(
        "volume_own_latency",
        "Mean device latency of this host's IOs in the last period",
        |v| ms(v.own.as_ref().and_then(|own| own.latency_ms)),
    ),
    gauge("volume_window_ios", "Window: IOs that the host may have outstanding", |v| {
        maybe(v.window)
    }),
    gauge("volume_window_max_ios", "Largest window that the law may set", |v| maybe(v.window_max)),
    gauge("volume_beta_ios", "Constant term β of the equation of the window", |v| one(v.beta)),
    gauge(
        "volume_limited_by",
        "1 for what limits the host: nothing, the slices of its VMs, or its largest window",
        |v| {
            let limit = v.own.iter().filter_map(|own| own.limited_by);
            limit.flat_map(|limit| one_of("limit", &limit, &LIMITS)).collect()
        },
    ),
    gauge("volume_outstanding_ios", "Mean outstanding IOs at the array in the last period", |v| {
        one(v.outstanding)
    }),
    gauge("volume_held_ios", "IOs held in the host's queue now", |v| one(v.held as f64)),
    gauge("volume_shares", "Shares of this host's disks or VMs together", |v| one(v.shares)),
    gauge("volume_active_shares", "The same, less for those that use less than their slice", |v| {
        one(v.active_shares)
    }),
    counter("volume_periods", "Control periods", |v| count(v.ticks)),
    counter(
        "volume_overdue_ios",
        "IOs sent beyond the window, as they had been held for hold_max",
        |v| count(v.overdue),
    ),
    counter("volume_restarts", "Starts after the volume had ended by itself", |v| {
        count(v.restarts)
    }),
    gauge("volume_settings_differing", "Settings in which live hosts differ", |v| {
        maybe(v.settings.as_ref().map(|settings| settings.differ.len() as f64))
    }),
    gauge("tenant_iops", "IO/s of the tenant on all hosts that are heard", |v| {
        of_tenants(v, |tenant| Some(tenant.iops))
    }),
    gauge("tenant_own_iops", "IO/s of the tenant on this host", |v| {
        of_tenants(v, |tenant| Some(tenant.own_iops))
    }),
    gauge("tenant_limit_ratio", "This host's part of the tenant's limit", |v| {
        of_tenants(v, |tenant| tenant.limit_part)
    }),
    gauge("tenant_short", "1 if the tenant asks for its reservation and has less", |v| {
        let short = |tenant: &Tenant| f64::from(tenant.short);
        of_tenants(v, |tenant| tenant.settings.get("reservation").map(|_| short(tenant)))
    }),
    // Other users of the drives.
    gauge("volume_pool", "1 for the pool that the volume belongs to", |v| {
        let pool = |pool: &String| (vec![("pool", pool.clone())], Value::Gauge(1.0));
        v.pool.iter().map(pool).collect()
    }),
    gauge(
        "volume_outsider",
        "1 while load that is not under control uses the array, or the array has become slower",
        |v| one(v.outsider.is_some()),
    ),
    gauge("volume_outsider_ios", "Outstanding IOs of an outsider that would explain it", |v| {
        maybe(v.outsider.map(|found| found.outstanding))
    }),
    gauge("volume_connections", "Clients that are connected", |v| one(v.connections as f64)),
    bytes("volume_buffers", "Memory in buffers of clients", |v| {
        maybe(v.memory.as_ref().map(|memory| (memory.buffers + memory.idle) as f64))
    }),
    bytes("volume_buffers_limit", "Memory that may be granted to requests of clients", |v| {
        maybe(v.memory.as_ref().map(|memory| memory.limit as f64))
    }),
    counter("volume_memory_waits", "Requests that had to wait for memory", |v| {
        v.memory.as_ref().map(|memory| count(memory.waits)).unwrap_or_default()
    }),
    counter("volume_dropped_connections", "Connections given up or turned away", |v| {
        let d = &v.dropped;
        counts(
            "reason",
            [
                ("handshake", d.handshake),
                ("stalled", d.stalled),
                ("protocol", d.protocol),
                ("turned_away", d.turned_away),
                ("socket", d.socket),
            ],
        )
    }),
    gauge(
        "volume_window_per_share_ios",
        "Slice of a disk for each of its shares: IOs that the disk may have outstanding",
        |v| maybe(per_share(v)),
    ),
];

/// A number of each tenant.
fn of_tenants(volume: &VolumeStatus, of: impl Fn(&Tenant) -> Option<f64>) -> Vec<(Labels, Value)> {
    let sample =
        |tenant: &Tenant| Some((vec![("tenant", tenant.name.clone())], Value::Gauge(of(tenant)?)));
    volume.tenants.iter().filter_map(sample).collect()
}

/// The slice of a disk for each of its shares. A disk of a tenant may have less.
fn per_share(volume: &VolumeStatus) -> Option<f64> {
    let slices = volume.disks.iter().filter_map(|disk| Some(disk.slice? / f64::from(disk.shares)));
    slices.reduce(f64::max)
}

/// Limits of a host, by their names.
const LIMITS: [(&str, Limit); 3] =
    [("nothing", Limit::Depth), ("slices", Limit::Slice), ("window", Limit::WindowMax)];

/// Sources of the latency, by their names in the status.
const SOURCES: [(&str, Source); 3] =
    [("cluster", Source::Cluster), ("last-good", Source::LastGood), ("local", Source::Local)];
