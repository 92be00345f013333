//! What a run takes, counted and not timed: allocations and memory, which are the same each time.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

mod common;

use parda_sim::{KeptRuns, run};

struct Counting;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    allocations: u64,
    bytes: i64,
    peak: i64,
}

thread_local! {
    /// Of each test by itself.
    static COUNT: Cell<Count> = const { Cell::new(Count { allocations: 0, bytes: 0, peak: 0 }) };
}

fn count(allocations: u64, bytes: i64) {
    // A thread that ends is not counted.
    let _ = COUNT.try_with(|cell| {
        let mut count = cell.get();
        count.allocations += allocations;
        count.bytes += bytes;
        count.peak = count.peak.max(count.bytes);
        cell.set(count);
    });
}

// SAFETY: all of it is the system's allocator; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller keeps `alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: `at` came from `alloc` above, so from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What running such a cluster takes: how many IOs that are, allocations, and bytes at most.
fn takes(hosts: u64, vms: u64, outstanding: u64, seconds: u64) -> (u64, u64, i64) {
    let vm = |vm| {
        format!(
            "[[host.vm]]\nname = \"v{vm}\"\nshares = 1000\ndisk = \"1GiB\"\nworkload = {{ size = \
             \"16KiB\", read = 67, random = 70, outstanding = {outstanding} }}\n"
        )
    };
    let vms: String = (0..vms).map(vm).collect();
    let scenario = common::parse(&format!(
        "name = \"effort\"\nduration = \"{seconds}s\"\n\
         [array]\npreset = \"cx3-40-raid5-vms\"\nextent = \"16MiB\"\n\
         [[phase]]\nname = \"all\"\nfrom = \"1s\"\nto = \"{seconds}s\"\n\
         [[host]]\nname = \"h\"\ncount = {hosts}\n{vms}"
    ));
    let before = COUNT.get();
    COUNT.set(Count { peak: before.bytes, ..before });
    let ios = run(&scenario, KeptRuns::Nothing, |_| ()).unwrap().ios;
    let after = COUNT.get();
    (ios, after.allocations - before.allocations, after.peak - before.bytes)
}

#[test]
fn an_io_allocates_nothing_and_a_period_no_more_than_its_message() {
    let (hosts, long) = (4, 200);
    let (ios_before, before, _) = takes(hosts, 1, 16, long);
    let (ios, after, _) = takes(hosts, 1, 16, 2 * long);
    let (ios, more) = (ios - ios_before, after - before);
    assert!(ios > 50_000, "{ios} IOs");
    // A message per host and second; what all did in it; now and then a table that grows.
    let most = long * (hosts + 1) + 300;
    assert!(more <= most, "{more} allocations in {ios} IOs and {long} periods, expected {most}");
}

#[test]
fn a_host_hears_many_hosts_without_copying_what_they_say() {
    let (hosts, long) = (64, 20);
    let (_, before, _) = takes(hosts, 1, 4, long);
    let (_, after, _) = takes(hosts, 1, 4, 2 * long);
    // 64 hosts hear 64 each: 4,096 reports a period.
    let per_period = (after - before) / long;
    assert!(per_period <= 2 * hosts, "{per_period} allocations per period");
}

#[test]
fn memory_does_not_grow_with_time() {
    // In the first minutes the caches fill, and every latency is met that there is.
    let (_, _, short) = takes(4, 2, 16, 600);
    let (_, _, long) = takes(4, 2, 16, 1200);
    // What a phase keeps of each second is four windows, of 16 bytes, and the second itself is
    // planned; both in tables that double.
    let most = 2 * 600 * (4 * 16 + 80);
    assert!(long - short <= most, "{short} bytes became {long}");
}

#[test]
fn an_outstanding_io_takes_little_memory() {
    let (_, _, few) = takes(4, 2, 16, 20);
    let (_, _, many) = takes(4, 2, 1016, 20);
    let each = (many - few) / 8_000;
    assert!(each < 300, "{each} bytes");
}
