use std::path::Path;
use std::sync::Once;

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

/// Runs `log`, and returns the recorder with the events that were logged meanwhile.
pub(crate) fn recorded(log: impl FnOnce()) -> Recorder {
    // A line that a test without a subscriber logs first would be off for all threads. With one for the process, it is not.
    static ALL: Once = Once::new();
    ALL.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap()
    });
    let recorder = Recorder::default();
    let layers = tracing_subscriber::registry().with(recorder.layer());
    tracing::subscriber::with_default(layers, log);
    recorder
}

fn after(recorder: &Recorder, after: u64, limit: usize) -> Events {
    recorder.answer(EventsQuery { after: Some(after), limit: Some(limit) })
}

#[test]
fn a_line_with_a_kind_is_an_event_and_others_are_not() {
    let recorder = recorded(|| {
        tracing::error!(volume = "array", "no event");
        let name = "vm1";
        tracing::warn!(volume = "array", disk = %name, tries = 2, event = "disk_down", "gone: {}", 7);
    });
    let told = recorder.answer(EventsQuery::default());
    let [event] = &told.events[..] else { panic!("{told:?}") };
    assert_eq!(
        (event.id, event.severity, event.kind.as_str()),
        (1, Severity::Warning, "disk_down")
    );
    assert_eq!((event.volume.as_deref(), event.disk.as_deref()), (Some("array"), Some("vm1")));
    assert_eq!((event.message.as_str(), &event.host), ("gone: 7 tries=2", &None));
    assert!(event.at_ms >= told.started_ms);
}

#[test]
fn the_latest_are_kept_and_who_reads_on_learns_what_is_lost() {
    let recorder = recorded(|| {
        for i in 0..KEPT + 10 {
            tracing::info!(event = "disk_up", "{i}");
        }
    });
    let last = (KEPT + 10) as u64;
    let told = recorder.answer(EventsQuery::default());
    assert_eq!((told.events.len(), told.last_id, told.lost), (TOLD, last, 0));
    assert_eq!(told.events.last().unwrap().id, last);
    let told = after(&recorder, 4, 3);
    assert_eq!(told.events.iter().map(|e| e.id).collect::<Vec<_>>(), [11, 12, 13]);
    assert_eq!(told.lost, 6);
    assert_eq!(after(&recorder, last, 3).events, []);
    // Of a run before.
    assert_eq!(after(&recorder, last + 1, 1).events[0].id, 11);
}

#[test]
fn nothing_is_told_before_anything_happened() {
    let told = Recorder::default().answer(EventsQuery { after: Some(5), limit: None });
    assert_eq!((told.events.len(), told.last_id, told.lost), (0, 0, 0));
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let recorder = recorded(|| tracing::info!(event = "disk_up", "{}", "ä".repeat(LONGEST)));
    let message = recorder.answer(EventsQuery::default()).events[0].message.clone();
    assert_eq!(message, "ä".repeat(LONGEST / 2));
}

#[test]
fn the_page_has_every_kind_that_is_logged_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut logged = std::collections::BTreeSet::new();
    let logs = ["crates/agent/src", "crates/block/src", "crates/terminal/src/log"];
    let mut folders = logs.map(|folder| root.join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(path).unwrap();
                let kinds =
                    text.split("event = \"").skip(1).filter_map(|rest| rest.split('"').next());
                logged.extend(kinds.map(str::to_owned));
            }
        }
    }
    let page = std::fs::read_to_string(root.join("docs/api.md")).unwrap();
    let table = page.split("| kind | meaning |\n| --- | --- |\n").nth(1).unwrap();
    let rows = table.lines().take_while(|line| line.starts_with("| `"));
    let table: std::collections::BTreeSet<_> =
        rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect();
    assert_eq!(table, logged, "the page on the left, the log lines on the right");
}
