use parda_api::HistoryQuery;
use parda_http::ApiRefusal;
use serde_json::json;

use super::*;

/// A look at an agent whose disk has done so many reads of a millisecond, and that hears a host.
fn look(reads: u64, liveness: &str) -> Status {
    let volume = json!({
        "name": "array", "mode": "parda", "latency_threshold_ms": 30.0,
        "cluster_latency_ms": 12.0, "source": "cluster", "window": 2.0, "beta": 0.0,
        "shares": 0, "active_shares": 0.0, "outstanding": 4.0, "held": 3, "connections": 0,
        "ticks": 0,
        "exchange": {
            "place": "e", "fault": null, "failures": 0, "ignored": 0, "duplicate_hosts": 0,
            "peers": [{ "name": "b", "liveness": liveness, "age_s": 0.1, "window": 7.0,
                        "shares": 1, "latency_ms": 11.0, "iops": 500.0 }],
        },
        "disks": [{
            "name": "vm", "shares": 1000, "slice": 12.0, "errors": 0, "others": 0,
            "reads": { "ios": reads, "bytes": reads * 4096 },
            "writes": { "ios": 0, "bytes": 0 }, "time_at_device_s": reads as f64 * 1e-3,
            "held": { "buckets": [] }, "device": { "buckets": [] }, "total": { "buckets": [] },
        }],
    });
    serde_json::from_value(json!({
        "host": "a", "version": "1", "pid": 1, "uptime_s": 1.0, "volumes": [volume],
    }))
    .unwrap()
}

/// A history of the last ten seconds, of which one is unknown. The disk did 100 reads in each but the last, in which it was idle.
fn history() -> (History, u64) {
    let history = History::new();
    let end = history.calendar.now() / 1000;
    for (i, second) in (end - 11..end).enumerate() {
        if i != 5 {
            let reads = 100 * (i as u64).min(9);
            history.take(second, 1.0, &look(reads, if i < 8 { "live" } else { "stale" }));
        }
    }
    (history, end)
}

fn of(volume: &str) -> HistoryQuery {
    HistoryQuery { volume: volume.to_owned(), ..HistoryQuery::default() }
}

#[test]
fn each_second_is_told_and_what_is_not_known_is_null() {
    let ten = HistoryQuery { seconds: Some(10), ..of("array") };
    // The test may have crossed into the next second, and on a busy machine into one after that.
    let mut made = (0..60).map(|_| {
        let (history, end) = history();
        let told = history.answer(&ten).unwrap();
        let late = (told.start_ms / 1000 + 10 - end) as usize;
        (told, late)
    });
    let (told, late) = made.find(|(_, late)| *late <= 1).expect("60 answers came late");
    let expected = [100., 100., 100., 100., f64::NAN, 200., 100., 100., 100., 0.];
    let expected: Vec<_> = expected.into_iter().map(|n| Some(n).filter(|n| !n.is_nan())).collect();
    let disk = &told.disks["vm"];
    assert_eq!(
        disk.iops[..10 - late],
        expected[late..],
        "a look after two seconds, if it were one"
    );
    assert_eq!(disk.device_ms[9 - late], None);
    assert_eq!(disk.slice[8 - late..10 - late], [Some(2.0), None], "no more than the window");
    let near = disk.outstanding[8 - late].unwrap();
    assert!((near - 0.1).abs() < 1e-3, "100 IO/s of a millisecond are {near}");
    assert_eq!(told.volume.window[4 - late], None);
    assert!(told.hosts["b"].iops[9 - late].is_none(), "it was silent");
    assert!(told.hosts["b"].iops[6 - late].is_some());
    assert_eq!(disk.iops.len(), told.volume.window.len());
}

#[test]
fn who_reads_on_gets_what_came_since() {
    let (history, _) = history();
    let all = history.answer(&of("array")).unwrap();
    assert_eq!(all.volume.window.len(), 60);
    let since_ms = Some(all.start_ms + 57_000);
    let rest = history.answer(&HistoryQuery { since_ms, ..of("array") }).unwrap();
    assert_eq!(rest.start_ms, all.start_ms + 58_000);
    assert!(rest.volume.window.len() <= 3);
    let ahead = history.answer(&HistoryQuery { since_ms: Some(u64::MAX), ..of("array") }).unwrap();
    assert!(ahead.volume.window.is_empty());
    let long = history.answer(&HistoryQuery { since_ms: Some(0), ..of("array") }).unwrap();
    assert_eq!(long.volume.window.len(), 3600);
}

#[test]
fn a_disk_is_there_from_its_first_second_on() {
    let history = History::new();
    history.take(history.calendar.now() / 1000 - 1, 1.0, &look(0, "live"));
    let of_disk = HistoryQuery { disk: Some(vec!["vm".into()]), seconds: Some(1), ..of("array") };
    assert_eq!(history.answer(&of_disk).unwrap().disks["vm"].iops, [None]);
}

#[test]
fn what_is_not_there_is_named_and_too_much_is_refused() {
    let (history, second) = history();
    let disk = |name: &str| HistoryQuery { disk: Some(vec![name.to_owned()]), ..of("array") };
    for query in
        [of("other"), disk("vm2"), HistoryQuery { host: Some(vec!["c".into()]), ..of("array") }]
    {
        assert!(matches!(history.answer(&query), Err(ApiRefusal::NotFound(_))), "{query:?}");
    }
    assert!(history.answer(&disk("vm")).is_ok());
    let mut many = look(0, "live");
    let one = many.volumes[0].disks[0].clone();
    many.volumes[0].disks = (0..500)
        .map(|i| crate::status::DiskStatus { name: format!("vm{i}"), ..one.clone() })
        .collect();
    history.take(second, 1.0, &many);
    history.take(second + 1, 1.0, &many);
    let query = HistoryQuery { seconds: Some(3600), ..of("array") };
    assert!(matches!(history.answer(&query), Err(ApiRefusal::Invalid(_))));
}

#[test]
fn a_thousand_idle_disks_take_little_memory() {
    let history = History::new();
    let mut status = look(0, "live");
    let one = status.volumes[0].disks[0].clone();
    status.volumes[0].disks = (0..100)
        .map(|i| crate::status::DiskStatus { name: format!("vm{i}"), ..one.clone() })
        .collect();
    let start = history.calendar.now() / 1000;
    (0..4000).for_each(|i| history.take(start + i, 1.0, &status));
    let volumes = locked(&history.volumes);
    assert_eq!(volumes["array"].disks.len(), 100);
    let disk = &volumes["array"].disks["vm7"];
    assert!(disk.bytes() <= 64 * 16, "{}", disk.bytes());
}
