use parda_api::ValueFrom;

use prometheus_client::metrics::MetricType;

use super::table::{Family, times};
use super::*;
use crate::latency::Latency;
use crate::status::{Recorded, TargetStatus};

/// A family as it is exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Described {
    /// Name of its samples; of a histogram without `_bucket`, `_count` and `_sum`.
    name: String,
    /// Type: `gauge`, `counter` or `histogram`.
    kind: String,
    /// Meaning of the value.
    help: &'static str,
}

/// All families, in the order in which they are exposed.
fn families() -> Vec<Described> {
    let mut all = Vec::new();
    list(AGENT, &mut all);
    list(volume::FAMILIES, &mut all);
    list(exchange::FAMILIES, &mut all);
    list(exchange::OF_PEERS, &mut all);
    list(steer::FAMILIES, &mut all);
    list(steer::OF_VMS, &mut all);
    list(disk::FAMILIES, &mut all);
    all
}

fn list<T>(families: &[Family<T>], all: &mut Vec<Described>) {
    for family in families {
        let unit = family.unit.as_ref().map(|unit| format!("_{}", unit.as_str()));
        let total = if matches!(family.kind, MetricType::Counter) { "_total" } else { "" };
        let name = format!("parda_{}{}{total}", family.name, unit.unwrap_or_default());
        all.push(Described { name, kind: family.kind.as_str().to_owned(), help: family.help });
    }
}

#[test]
fn names_follow_the_conventions_and_stand_once() {
    let mut names = std::collections::BTreeSet::new();
    for family in families() {
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(family.name.chars().all(plain), "{}", family.name);
        assert_eq!(family.name.ends_with("_total"), family.kind == "counter", "{}", family.name);
        assert!(!family.name.contains("_ms") && !family.help.is_empty(), "{}", family.name);
        assert!(names.insert(family.name.clone()), "{} stands twice", family.name);
    }
}

#[test]
fn the_page_has_every_family() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    for Described { name, kind, help } in families() {
        let row = format!("| `{name}` | {kind} | {help} |");
        assert!(page.contains(&row), "docs/metrics.md has no line\n{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `parda_")).count();
    assert_eq!(rows, families().len(), "docs/metrics.md has families that are not exposed");
}

#[test]
fn a_distribution_is_counted_between_the_bounds_of_its_values() {
    // 50 µs belong to the first bucket, as bounds are inclusive; 11 s are above all bounds.
    let latency = Latency { buckets: vec![(50_000, 2), (51_000, 1), (11_000_000_000, 4)] };
    let Value::Histogram(buckets, sum) = times(&latency) else { panic!("a histogram") };
    assert_eq!((buckets[0], buckets[1]), ((50e-6, 2), (100e-6, 1)));
    assert_eq!(*buckets.last().unwrap(), (f64::MAX, 4));
    assert_eq!(buckets.iter().map(|bucket| bucket.1).sum::<u64>(), 7);
    assert!((sum - (2.0 * 50e-6 + 51e-6 + 44.0)).abs() < 1e-9);
}

/// A status with two disks of one name, which are found at different addresses.
fn twins() -> Status {
    let disk = |listen: &str| {
        serde_json::json!({
            "name": "vm", "listen": listen, "shares": 1000, "errors": 0, "others": 0,
            "reads": { "ios": 1, "bytes": 4096 }, "writes": { "ios": 0, "bytes": 0 },
            "held": { "buckets": [] }, "device": { "buckets": [] }, "total": { "buckets": [] },
        })
    };
    serde_json::from_value(serde_json::json!({
        "host": "h", "version": "1", "pid": 1, "uptime_s": 1.0, "volumes": [{
            "name": "array", "mode": "parda", "latency_threshold_ms": 30.0,
            "cluster_latency_ms": null, "source": "local", "window": null, "beta": 0.0,
            "shares": 0, "active_shares": 0.0, "outstanding": 0.0, "held": 0, "connections": 0,
            "ticks": 0, "exchange": null, "disks": [disk("unix:a"), disk("unix:b")],
        }],
    }))
    .unwrap()
}

#[test]
fn no_series_stands_twice() {
    let text = Exposition::default().text(twins());
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let mut seen = std::collections::BTreeSet::new();
    for name in series.map(|line| line.rsplit_once(' ').unwrap().0) {
        assert!(seen.insert(name), "{name} stands twice");
    }
    assert!(seen.iter().filter(|name| name.contains("listen=\"unix:b\"")).count() == 56);
}

#[test]
fn the_law_and_the_parts_of_disks_are_seen() {
    let mut status = twins();
    let own = serde_json::json!({
        "name": "h", "liveness": "live", "age_s": 0.0, "window": 8.0, "shares": 1000, "latency_ms": 25.0, "limited_by": "its slice",
    });
    let volume = &mut status.volumes[0];
    volume.own = Some(serde_json::from_value(own).unwrap());
    (volume.beta, volume.disks[0].burst) = (0.5, 16.0);
    // One of a tenant.
    (volume.disks[0].slice, volume.disks[1].slice) = (Some(2.0), Some(8.0));
    let text = Exposition::default().text(status);
    for line in [
        "parda_volume_own_latency_seconds{volume=\"array\"} 0.025",
        "parda_volume_beta_ios{volume=\"array\"} 0.5",
        "parda_volume_limited_by{volume=\"array\",limit=\"nothing\"} 0.0",
        "parda_volume_limited_by{volume=\"array\",limit=\"slices\"} 1.0",
        "parda_volume_window_per_share_ios{volume=\"array\"} 0.008",
        "parda_disk_burst_ios{volume=\"array\",disk=\"vm\",listen=\"unix:a\"} 16.0",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
}

#[test]
fn text_that_is_kept_is_what_would_be_written_anew() {
    let mut kept = Exposition::default();
    let mut status = twins();
    let mut same = |status: &Status, what: &str| {
        let anew = Exposition::default().text(status.clone());
        assert_eq!(kept.text(status.clone()), anew, "{what}");
        anew
    };
    let first = same(&status, "the first look");
    assert_eq!(same(&status, "nothing has changed"), first);
    let disk = &mut status.volumes[0].disks[1];
    (disk.reads.ios, disk.reads.bytes, disk.time_at_device_s) = (2, 8192, 0.25);
    let mut histogram = hdrhistogram::Histogram::new(2).unwrap();
    histogram.record_n(125_000_000, 2).unwrap();
    let histogram = Arc::new(histogram);
    disk.recorded = Some(Recorded { held: Arc::clone(&histogram), device: histogram });
    let labels = "volume=\"array\",disk=\"vm\",listen=\"unix:b\"";
    let busy = same(&status, "a disk has done IOs");
    assert!(busy.contains(&format!("parda_disk_device_seconds_sum{{{labels}}} 0.25\n")), "{busy}");
    assert!(busy.contains(&format!("parda_disk_device_seconds_bucket{{le=\"0.2\",{labels}}} 2\n")));
    status.volumes[0].disks[0].latency_target = Some(TargetStatus {
        target_ms: 10.0,
        asks_ms: None,
        device_ms: None,
        held_ms: None,
        short_of_shares: true,
        rests: false,
    });
    assert!(same(&status, "a family has its first sample").contains("parda_disk_short_of_shares"));
    status.volumes[0].disks.swap(0, 1);
    same(&status, "disks have moved");
    status.volumes[0].disks.pop();
    same(&status, "a disk has gone");
    status.volumes.clear();
    same(&status, "all have gone");
}

#[test]
fn a_status_without_volumes_is_a_document() {
    let status = Status {
        host: "kvm \"1\"\\\n".to_owned(),
        version: "1".to_owned(),
        pid: 1,
        uptime_s: 1.5,
        policy: None,
        http: Vec::new(),
        pages: None,
        tokens_fault: None,
        reload: None,
        volumes: Vec::new(),
    };
    assert_eq!(
        Exposition::default().text(status),
        "# HELP parda_agent_info Host name of the configuration, and version of the agent\n\
         # TYPE parda_agent_info gauge\n\
         parda_agent_info{host=\"kvm \\\"1\\\"\\\\\\n\",version=\"1\"} 1.0\n\
         # HELP parda_agent_uptime_seconds Time since the agent started\n\
         # TYPE parda_agent_uptime_seconds gauge\n\
         # UNIT parda_agent_uptime_seconds seconds\n\
         parda_agent_uptime_seconds 1.5\n\
         # EOF\n"
    );
}

#[test]
fn a_refused_policy_and_an_etcd_that_is_away_are_seen() {
    let volume = |name: &str, fault: Option<&str>| VolumePolicy {
        name: name.to_owned(),
        in_force: Some(6),
        fault: fault.map(str::to_owned),
        unknown: Vec::new(),
    };
    let volumes = vec![volume("good", None), volume("bad", Some("window_max = 4: too small"))];
    let policy = |fault: Option<String>| parda_api::Policy {
        revision: 7,
        by: None,
        at_ms: None,
        fault,
        volumes: volumes.clone(),
    };
    let shown =
        |fault| Exposition::default().text(Status { policy: Some(policy(fault)), ..twins() });
    let text = shown(None);
    for line in [
        "parda_policy_up 1.0\n",
        "parda_policy_refused{volume=\"good\"} 0.0\n",
        "parda_policy_refused{volume=\"bad\"} 1.0\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(shown(Some("no answer in time".to_owned())).contains("parda_policy_up 0.0\n"));
}

#[test]
fn the_source_of_the_threshold_is_that_of_the_state() {
    for (from, name) in [
        (None, "default"),
        (Some(ValueFrom::Configuration), "configuration"),
        (Some(ValueFrom::Policy), "policy"),
        (Some(ValueFrom::Live), "live"),
        (Some(ValueFrom::State), "state"),
    ] {
        let mut status = twins();
        let key = "latency_threshold".to_owned();
        status.volumes[0].settings_from = from.map(|from| (key, from)).into_iter().collect();
        let named = serde_json::to_value(status.volumes[0].threshold_from()).unwrap();
        assert_eq!(named, name, "the API's name");
        let text = Exposition::default().text(status);
        let line = format!(
            "parda_volume_latency_threshold_source{{volume=\"array\",from=\"{name}\"}} 1.0"
        );
        assert!(text.contains(&line), "{line}: {text}");
    }
}
