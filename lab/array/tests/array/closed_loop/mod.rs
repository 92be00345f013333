//! Clients that each keep a fixed number of IOs outstanding, in virtual time. Shared by the tests
//! and the examples.

use std::collections::VecDeque;

use parda_array::{Array, ArrayIo, Bytes, IoKind, IoTag, LunId, Nanos};

/// One client on one LUN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) lun: LunId,
    pub(crate) outstanding: usize,
    pub(crate) len: Bytes,
    pub(crate) read_percent: u32,
    pub(crate) access: Access,
}

/// Where a client's IOs go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// Anywhere on the LUN, aligned to the IO's length.
    Random,
    /// One stream from the start of the LUN, round and round.
    Sequential,
}

impl Client {
    /// Random reads: the workload of most figures.
    pub(crate) fn random_reads(lun: u32, outstanding: usize, len: Bytes) -> Client {
        Client { lun: LunId(lun), outstanding, len, read_percent: 100, access: Access::Random }
    }
}

/// When to measure: from `warm` for `measure`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) warm: Nanos,
    pub(crate) measure: Nanos,
}

/// What a client, or all of them together, saw inside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) iops: f64,
    pub(crate) mean_ms: f64,
    pub(crate) max_ms: f64,
}

struct Slot {
    client: usize,
    submitted: Nanos,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    done: u64,
    latency: u128,
    max: Nanos,
}

/// Runs the clients until the window is over and everything has come back.
///
/// Holds every run to Little's law: the latencies of all IOs add up, to the nanosecond, to what the
/// array says was outstanding, integrated over time.
pub(crate) fn run(
    array: &mut Array,
    clients: &[Client],
    window: Window,
    seed: u64,
) -> (Seen, Vec<Seen>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut streams = vec![0_u64; clients.len()];
    let luns = array.params().layout.luns.clone();
    let mut slots: Vec<Slot> = clients
        .iter()
        .enumerate()
        .flat_map(|(client, c)| {
            (0..c.outstanding).map(move |_| Slot { client, submitted: Nanos::ZERO })
        })
        .collect();
    let end = window.warm + window.measure;
    let mut tallies = vec![Tally::default(); clients.len()];
    let (mut integral, mut latencies, mut then) = (0_u128, 0_u128, Nanos::ZERO);
    let mut due: VecDeque<(Nanos, usize)> = (0..slots.len()).map(|i| (Nanos::ZERO, i)).collect();
    loop {
        while let Some((now, i)) = due.pop_front() {
            let slot = &mut slots[i];
            let client = &clients[slot.client];
            let places = luns[client.lun.0 as usize].0 / client.len.0;
            let stream = &mut streams[slot.client];
            let place = match client.access {
                Access::Random => random.u64(0..places),
                Access::Sequential => *stream % places,
            };
            *stream = place + 1;
            let read = random.u32(0..100) < client.read_percent;
            let io = ArrayIo {
                lun: client.lun,
                kind: if read { IoKind::Read } else { IoKind::Write },
                offset: Bytes(place * client.len.0),
                len: client.len,
            };
            slot.submitted = now;
            array.submit(now, IoTag(i as u64), io).expect("the IO lies on its LUN");
        }
        let Some(next) = array.next_event() else { break };
        integral += array.outstanding() as u128 * u128::from((next - then).0);
        then = next;
        array.advance(next);
        while let Some((at, id)) = array.pop_completion() {
            assert_eq!(at, next, "fetched at once");
            let i = id.0 as usize;
            let latency = at - slots[i].submitted;
            latencies += u128::from(latency.0);
            if at >= window.warm && at < end {
                let tally = &mut tallies[slots[i].client];
                tally.done += 1;
                tally.latency += u128::from(latency.0);
                tally.max = tally.max.max(latency);
            }
            if at < end {
                due.push_back((at, i));
            }
        }
    }
    assert_eq!(array.outstanding(), 0, "nothing is lost");
    assert_eq!(latencies, integral, "Little's law");
    let seen = |t: &Tally| Seen {
        iops: t.done as f64 / window.measure.secs(),
        mean_ms: t.latency as f64 / t.done.max(1) as f64 / 1e6,
        max_ms: t.max.secs() * 1e3,
    };
    let all = tallies.iter().fold(Tally::default(), |sum, t| Tally {
        done: sum.done + t.done,
        latency: sum.latency + t.latency,
        max: sum.max.max(t.max),
    });
    (seen(&all), tallies.iter().map(seen).collect())
}
