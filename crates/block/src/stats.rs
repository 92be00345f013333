//! Counters of a volume since it started, per VM and in sum.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use hdrhistogram::Histogram;
use parda_control::{
    Completed, HeldTimes, Instant, IoKind, ObjectiveState, Outcome, ReservationState, Span, VmPart,
    Window,
};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::disk_id::DiskId;

/// Latencies in nanoseconds. Two significant digits: off by at most 1 %, and 22 KiB each.
pub type Latencies = Histogram<u64>;

/// The longest latency that is told apart, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 1_000_000_000_000;

/// IOs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of IOs that completed without an error.
    pub ios: u64,
    /// Bytes that these IOs moved.
    pub bytes: u64,
}

impl Count {
    /// Difference to `earlier`, a count of the same IOs.
    #[must_use]
    pub fn since(self, earlier: Count) -> Count {
        Count {
            ios: self.ios.saturating_sub(earlier.ios),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// Counters and histograms of one VM.
///
/// A clone shares the histograms: reading the counters of a thousand disks copies none of them on the thread that
/// carries IO. While a clone lives, the next IO of a VM copies that VM's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmStats {
    /// Reads that completed without an error.
    pub reads: Count,
    /// Writes that completed without an error; a flush is none.
    pub writes: Count,
    /// Flushes, trims and zeroes; their bytes are those they were about.
    pub others: Count,
    /// IOs of any kind that failed at the backend.
    pub errors: u64,
    /// Requests of guests that failed by their own fault: invalid, or in memory that is gone.
    pub guest_faults: u64,
    /// Requests of NBD clients that failed by their own fault: invalid, or of an operation that the disk does not have.
    pub client_faults: u64,
    /// IOs that went out of turn, as the VM had been held for `hold_max`.
    pub overdue: u64,
    /// Time that reads and writes were held in the host's queue, all together, by cause. Wraps around.
    pub time_held: HeldTimes,
    /// Time that reads and writes were at the array, all together. Wraps around.
    pub time_at_device: Span,
    /// Its shares, slice and held IOs now.
    pub part: VmPart,
    /// State of its latency objective, if it has one.
    pub standing: Option<ObjectiveState>,
    /// State of its reservation, if it has one.
    pub reservation: Option<ReservationState>,
    /// Number of clients that are connected to it.
    pub clients: usize,
    /// They go through the page cache, whose latencies are not those of the array.
    pub page_cache: bool,
    /// Reason why the NBD server behind it is not found, if it was lost.
    pub away: Option<String>,
    /// The path of its file leads to another one now, or to none.
    pub replaced: bool,
    /// Bytes that the disk had when it was opened and has no more. IOs there fail.
    pub lost: u64,
    /// Time that reads and writes were held in the host's queue.
    pub held: SharedLatencies,
    /// Time that reads and writes were at the array.
    pub device: SharedLatencies,
    /// The sum of both for each read and write.
    pub total: SharedLatencies,
}

/// Latencies that clones share until one of them changes.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedLatencies(pub Arc<Latencies>);

/// Empty histogram. All disks share it until their first IO: a thousand idle disks would have 66 MiB of zeroes.
impl Default for SharedLatencies {
    fn default() -> Self {
        static EMPTY: LazyLock<Arc<Latencies>> = LazyLock::new(|| {
            let empty = Histogram::new_with_bounds(1_000, LONGEST, 2);
            Arc::new(empty.expect("the bounds are constants that fit"))
        });
        Self(Arc::clone(&EMPTY))
    }
}

impl Deref for SharedLatencies {
    type Target = Arc<Latencies>;

    fn deref(&self) -> &Arc<Latencies> {
        &self.0
    }
}

impl VmStats {
    /// Counts requests that failed by the fault of their client.
    pub(crate) fn blame(&mut self, client: Client, requests: u64) {
        *match client {
            Client::Vhost(_) => &mut self.guest_faults,
            _ => &mut self.client_faults,
        } += requests;
    }

    pub(crate) fn record(&mut self, done: &Completed, outcome: Outcome) {
        if outcome == Outcome::Failed {
            self.errors += 1;
            return;
        }
        let count = match done.io.kind {
            IoKind::Read => &mut self.reads,
            IoKind::Write => &mut self.writes,
            IoKind::Discard | IoKind::Other => &mut self.others,
        };
        count.ios += 1;
        // A trim of a large disk, over and over, is more than anybody counts.
        count.bytes = count.bytes.saturating_add(done.io.bytes.0);
        if matches!(done.io.kind, IoKind::Read | IoKind::Write) {
            self.time_held.add(done.held_by, done.held);
            self.time_at_device = plus(self.time_at_device, done.device);
            Arc::make_mut(&mut self.held.0).saturating_record(done.held.0);
            Arc::make_mut(&mut self.device.0).saturating_record(done.device.0);
            Arc::make_mut(&mut self.total.0).saturating_record((done.held + done.device).0);
        }
    }

    /// Adds what another VM did.
    pub fn add(&mut self, other: &VmStats) {
        self.clients += other.clients;
        self.page_cache |= other.page_cache;
        self.replaced |= other.replaced;
        self.lost += other.lost;
        for (sum, part) in [
            (&mut self.reads, other.reads),
            (&mut self.writes, other.writes),
            (&mut self.others, other.others),
        ] {
            sum.ios += part.ios;
            sum.bytes = sum.bytes.saturating_add(part.bytes);
        }
        self.errors += other.errors;
        self.guest_faults += other.guest_faults;
        self.client_faults += other.client_faults;
        self.overdue += other.overdue;
        self.time_held.add_all(&other.time_held);
        self.time_at_device = plus(self.time_at_device, other.time_at_device);
        // All histograms have the same bounds, so that adding cannot fail.
        let added = [
            Arc::make_mut(&mut self.held.0).add(&**other.held),
            Arc::make_mut(&mut self.device.0).add(&**other.device),
            Arc::make_mut(&mut self.total.0).add(&**other.total),
        ];
        debug_assert!(added.iter().all(Result::is_ok));
    }
}

/// Sum of times that begins anew after 584 years: with 256 IOs at a time those are over in two.
fn plus(sum: Span, more: Span) -> Span {
    Span(sum.0.wrapping_add(more.0))
}

/// A volume's memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStats {
    /// In buffers that are in use.
    pub buffers: usize,
    /// In buffers that wait to be used again.
    pub idle: usize,
    /// Granted to requests in flight.
    pub granted: usize,
    /// Granted to connections inside of TLS.
    pub tls: usize,
    /// Most bytes that may be granted.
    pub limit: usize,
    /// Bytes that each connection can have whatever others do.
    pub own: usize,
    /// Connections that wait for memory now.
    pub waiting: usize,
    /// How often a connection had to wait, since the start.
    pub waits: u64,
}

/// Connections that were not left to their clients to close, since the volume started, by the
/// reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Their handshake was not done in time, or made room for another's.
    pub handshake: u64,
    /// They neither took their replies nor finished their requests.
    pub stalled: u64,
    /// They broke the protocol.
    pub protocol: u64,
    /// A limit of connections turned them away.
    pub turned_away: u64,
    /// Connections whose socket failed.
    pub socket: u64,
}

/// Time in a period for which the volume's thread could run and had no processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// All of that time.
    pub total: Span,
    /// The longest at once.
    pub longest: Span,
    /// Length of the period.
    pub period: Span,
    began: Instant,
}

impl Lateness {
    pub(crate) fn add(&mut self, late: Span) {
        self.total += late;
        self.longest = self.longest.max(late);
    }

    /// The period that ends now; the next one begins. None if it has just begun: a thread that was late finds the ends of several periods
    /// at once.
    pub(crate) fn end_period(&mut self, now: Instant) -> Option<Lateness> {
        let period = now.since(self.began);
        let next = Lateness { began: now, ..Lateness::default() };
        (period > Span::ZERO).then(|| Lateness { period, ..std::mem::replace(self, next) })
    }
}

/// A volume at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// When, in nanoseconds since the volume started.
    pub at: Instant,
    /// The window in force.
    pub window: Window,
    /// Whether disks came or went since the last measurement.
    pub vms_changed: bool,
    /// IOs at the array.
    pub outstanding: usize,
    /// IOs held in the host's queue.
    pub held: usize,
    /// IOs that went beyond what the host may have outstanding, as their VMs had been held for
    /// `hold_max`.
    pub overdue: u64,
    /// How late the volume's thread was in the last period, for want of a processor.
    pub lateness: Lateness,
    /// Number of open connections of clients.
    pub connections: usize,
    /// Memory that the volume's clients take.
    pub memory: MemoryStats,
    /// Connections that were given up or turned away.
    pub dropped: Dropped,
    /// The disks that are served, in the order in which measurements have them.
    pub disks: Vec<DiskId>,
    /// Counters of each disk, in the same order.
    pub vms: Vec<VmStats>,
}

impl Stats {
    /// The sum over all VMs.
    #[must_use]
    pub fn total(&self) -> VmStats {
        let mut sum = VmStats::default();
        self.vms.iter().for_each(|vm| sum.add(vm));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::{Bytes, HeldBy, Io, VmId};

    fn read(ms: u64) -> Completed {
        let io = Io { kind: IoKind::Read, bytes: Bytes(4096) };
        let (held, device) = (Span::from_millis(ms), Span::from_millis(2 * ms));
        Completed { vm: VmId(0), token: 0, io, held, held_by: HeldBy::Share, device }
    }

    #[test]
    fn reads_are_counted_with_their_times_and_failures_without() {
        let mut stats = VmStats::default();
        stats.record(&read(10), Outcome::Done);
        stats.record(&read(10), Outcome::Failed);
        assert_eq!((stats.reads, stats.errors), (Count { ios: 1, bytes: 4096 }, 1));
        assert_eq!(stats.total.len(), 1);
        assert_eq!(stats.time_held.total(), Span::from_millis(10));
        assert_eq!(stats.time_held.by(HeldBy::Share), Span::from_millis(10));
        assert_eq!(stats.time_at_device, Span::from_millis(20));
        assert!((stats.total.mean() / 30e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_snapshot_copies_no_histogram_and_keeps_its_own() {
        let mut stats = VmStats::default();
        assert!(Arc::ptr_eq(&stats.held, &VmStats::default().held), "an idle disk has none");
        stats.record(&read(1), Outcome::Done);
        let snapshot = stats.clone();
        assert!(Arc::ptr_eq(&stats.device, &snapshot.device));
        stats.record(&read(1), Outcome::Done);
        assert_eq!((stats.device.len(), snapshot.device.len()), (2, 1));
        drop(snapshot);
        let before = Arc::as_ptr(&stats.device);
        stats.record(&read(1), Outcome::Done);
        assert_eq!(Arc::as_ptr(&stats.device), before, "nobody else has it: nothing is copied");
    }

    #[test]
    fn latencies_are_kept_to_a_hundredth_in_little_memory() {
        let histogram = SharedLatencies::default();
        assert!(histogram.distinct_values() * size_of::<u64>() < 32 << 10);
        let near =
            histogram.highest_equivalent(30_000_000) - histogram.lowest_equivalent(30_000_000);
        assert!(near <= 300_000);
    }

    #[test]
    fn a_latency_beyond_all_bounds_is_counted() {
        let mut stats = VmStats::default();
        stats.record(&read(u64::MAX / 4_000_000), Outcome::Done);
        assert_eq!(stats.device.len(), 1);
    }
}
