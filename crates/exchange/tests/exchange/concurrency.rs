//! Many hosts writing one real file at once never disturb each other's slots.
use crate::common;

use std::path::Path;
use std::thread;

use common::{exchange, make, publication};
use parda_control::Instant;
use parda_exchange::region::FileRegion;
use parda_exchange::slot::decode;
use parda_exchange::{Content, Exchange as _, RecordCounters, Region, SlotCount, SlotIndex};

const HOSTS: u32 = 8;
const ROUNDS: u32 = 200;

/// A host of its own that publishes as fast as it can. Each must always find in its slot what it
/// wrote last, and never a record of anyone that is not whole.
fn host(path: &Path, slot: u32) {
    let region = FileRegion::new(path, None, SlotCount::new(HOSTS).unwrap()).unwrap();
    let name = format!("host-{slot}");
    let mut exchange = exchange(region, &name, slot);
    let mut own = FileRegion::new(path, None, SlotCount::new(HOSTS).unwrap()).unwrap();
    for round in 0..ROUNDS {
        let heard = exchange.collect(Instant(round.into())).unwrap();
        assert_eq!(heard.events, []);
        let window = match decode(&own.read().unwrap().slots()[slot as usize], SlotIndex(slot)) {
            Content::Record(record) => Some(record.message.body.report.window.0),
            _ => None,
        };
        assert_eq!(window, round.checked_sub(1).map(f64::from));
        exchange.publish(&publication(round.into())).unwrap();
    }
    let counters = exchange.counters();
    assert_eq!(counters, RecordCounters { records: counters.records, ..RecordCounters::default() });
}

#[test]
fn hosts_that_write_at_once_do_not_disturb_each_other() {
    // Beside the test itself, as the usual place for temporary files may lie in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("exchange");
    let reader = make(&path, None, HOSTS);
    thread::scope(|scope| {
        for slot in 0..HOSTS {
            let path = &path;
            scope.spawn(move || host(path, slot));
        }
    });
    let mut reader = exchange(reader, "reader", 0);
    let heard = reader.collect(Instant(0)).unwrap().messages;
    let last: Vec<_> = heard.iter().map(|m| m.body.report.window.0).collect();
    assert_eq!(last, [f64::from(ROUNDS - 1); HOSTS as usize]);
}
