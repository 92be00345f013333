//! Measurement by Little's law, for hosts without eBPF. The time integral of the number in flight,
//! divided by the number of completions, is the mean latency of completed IOs.
//!
//! The integral is taken from samples of `inflight`, which counts requests from their issue. The ticks
//! in `stat` begin when a request is made, and so include the wait in the steered queue. They are used
//! for pending IOs only.
//!
//! Two things are unknown. The first is the time of arrivals and departures within a gap between
//! samples: a variance of gap²/12 for each. The second is the age of the IOs in flight at the beginning
//! and at the end of the reading. This error is about a latency times √2 times the root of their
//! number. If there are more at the end, half of the difference comes on top. Both together are the
//! stated error.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parda_control::Span;
use parda_control::latency::Direction;

use super::find::Counts;
use super::{Class, DeviceReading, Histogram, Measure, MeasureError, Method, Watched};
use crate::number::DevNum;

/// Shortest time between samples, which are otherwise a quarter of a latency apart.
const NEAREST: Duration = Duration::from_millis(1);
const FARTHEST: Duration = Duration::from_millis(8);
/// Longest time between samples, while the device is idle. Then the number of samples without IO after
/// which it counts as idle.
const IDLE: Duration = Duration::from_millis(50);
const QUIET: u32 = 100;

/// Meter that uses Little's law.
pub struct Little {
    root: PathBuf,
    shared: Arc<Mutex<State>>,
    sampler: Option<JoinHandle<()>>,
    since: Instant,
    before: DiskCounters,
    at_start: f64,
    because: Option<String>,
}

struct State {
    stop: bool,
    sampled: Vec<Counts>,
    done: Vec<Counts>,
    fault: Option<MeasureError>,
    last: Instant,
    now: [f64; 2],
    quiet: u32,
    apart: Duration,
    /// Time integral of reads and of writes in flight, in IO·s.
    area: [f64; 2],
    /// Sum of the cubes of the gaps, in s³.
    cubes: f64,
}

/// Counters of `stat` since the device exists, of reads and of writes.
#[derive(Clone, Copy, Default)]
struct DiskCounters {
    ios: [u64; 2],
    sectors: [u64; 2],
    /// Time that requests spent, in ms.
    ticks: u64,
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Takes a sample, and adds the trapezium between the previous sample and this one.
    fn sample(&mut self) -> Result<(), MeasureError> {
        let mut found = [0.0; 2];
        for counts in &self.sampled {
            let [reads, writes] = counts.read()?;
            found[0] += reads as f64;
            found[1] += writes as f64;
        }
        let now = Instant::now();
        let gap = (now - self.last).as_secs_f64();
        for (area, (was, is)) in self.area.iter_mut().zip(self.now.iter().zip(&found)) {
            *area += gap * f64::midpoint(*was, *is);
        }
        self.cubes += gap.powi(3);
        self.quiet = if found == [0.0; 2] { self.quiet.saturating_add(1) } else { 0 };
        (self.last, self.now) = (now, found);
        Ok(())
    }

    /// Completions as the fronts count them. A multipath device may hand a request to a full path and
    /// then to another (blk_insert_cloned_request). The paths would count it twice.
    fn done(&self) -> Result<DiskCounters, MeasureError> {
        let mut done = DiskCounters::default();
        for counts in &self.done {
            let [reads, _, read_sectors, reading, writes, _, written_sectors, writing] =
                counts.read()?;
            done.ios = [done.ios[0] + reads, done.ios[1] + writes];
            done.sectors = [done.sectors[0] + read_sectors, done.sectors[1] + written_sectors];
            done.ticks += reading + writing;
        }
        Ok(done)
    }

    /// Time to the next sample, with jitter, so that samples never fall into step with the device.
    fn pause(&self) -> Duration {
        let apart = if self.quiet > QUIET { IDLE } else { self.apart };
        apart.mul_f64(fastrand::f64() + 0.5)
    }
}

fn opened(root: &Path, devices: &[DevNum], file: &str) -> Result<Vec<Counts>, MeasureError> {
    devices.iter().map(|device| Counts::open(root, *device, file)).collect()
}

impl Little {
    /// Begins to sample in a thread of its own. `because` is the reason for not using eBPF.
    ///
    /// # Errors
    ///
    /// The kernel does not count a device's IOs.
    pub fn open(
        root: &Path,
        watched: &Watched,
        because: Option<String>,
    ) -> Result<Little, MeasureError> {
        let state = State {
            stop: false,
            sampled: Vec::new(),
            done: Vec::new(),
            fault: None,
            last: Instant::now(),
            now: [0.0; 2],
            quiet: 0,
            apart: NEAREST,
            area: [0.0; 2],
            cubes: 0.0,
        };
        let mut little = Little {
            root: root.to_owned(),
            shared: Arc::new(Mutex::new(state)),
            sampler: None,
            since: Instant::now(),
            before: DiskCounters::default(),
            at_start: 0.0,
            because,
        };
        little.watch(watched)?;
        let shared = Arc::clone(&little.shared);
        little.sampler = Some(thread::spawn(move || sample(&shared)));
        Ok(little)
    }
}

fn sample(shared: &Mutex<State>) {
    loop {
        let pause = lock(shared).pause();
        thread::park_timeout(pause);
        let mut state = lock(shared);
        if state.stop {
            return;
        }
        if let Err(e) = state.sample() {
            // The next reading reports the fault. Sampling goes on, seldom, as the device may return or
            // others be watched.
            (state.fault, state.quiet) = (Some(e), u32::MAX);
        }
    }
}

impl Drop for Little {
    fn drop(&mut self) {
        lock(&self.shared).stop = true;
        if let Some(sampler) = self.sampler.take() {
            sampler.thread().unpark();
            // A panic of the sampler would have been reported by a reading.
            let _ = sampler.join();
        }
    }
}

impl Measure for Little {
    fn read(&mut self) -> Result<DeviceReading, MeasureError> {
        let mut state = lock(&self.shared);
        if let Some(fault) = state.fault.take() {
            return Err(fault);
        }
        state.sample()?;
        let done = state.done()?;
        let elapsed = state.last - self.since;
        let area = std::mem::take(&mut state.area);
        let cubes = std::mem::take(&mut state.cubes);
        let at_end = state.now[0] + state.now[1];
        let ios = [0, 1].map(|way| done.ios[way].saturating_sub(self.before.ios[way]));
        let total = area[0] + area[1];
        let count = (ios[0] + ios[1]) as f64;
        if count > 0.0 {
            let quarter =
                (total / count / 4.0).clamp(NEAREST.as_secs_f64(), FARTHEST.as_secs_f64());
            state.apart = Duration::from_secs_f64(quarter);
        }
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let mean = total / seconds;
        let error = if count > 0.0 && total > 0.0 {
            let gaps = (count / seconds / 6.0 * cubes).sqrt() / total;
            let ages = (2.0 * mean + ((at_end - self.at_start) / 2.0).powi(2)).sqrt() / count;
            gaps.hypot(ages)
        } else {
            0.0
        };
        let classes = [Direction::Read, Direction::Write].into_iter().filter_map(|direction| {
            let way = direction as usize;
            let bytes = 512 * done.sectors[way].saturating_sub(self.before.sectors[way]);
            (ios[way] > 0).then(|| Class {
                direction,
                bytes_log2: (bytes / ios[way]).checked_ilog2().unwrap_or(0) as u8,
                ios: ios[way],
                bytes,
                latency: Span::from_secs(area[way]),
            })
        });
        let ticks = done.ticks.saturating_sub(self.before.ticks) as f64 / 1e3;
        let reading = DeviceReading {
            elapsed: elapsed.into(),
            method: Method::Little { error },
            classes: classes.collect(),
            reads: Histogram::default(),
            writes: Histogram::default(),
            outstanding: mean,
            pending: mean.max(ticks / seconds),
            requeues: 0,
            groups: Vec::new(),
        };
        (self.since, self.before, self.at_start) = (state.last, done, at_end);
        Ok(reading)
    }

    fn watch(&mut self, watched: &Watched) -> Result<(), MeasureError> {
        let watched = watched.requests(&self.root);
        for device in watched.fronts.iter().chain(&watched.leaves) {
            let counted = Counts::open(&self.root, *device, "queue/iostats")?;
            if counted.read::<1>()? == [0] {
                let file = counted.path.display();
                return Err(MeasureError(format!(
                    "{device}: the kernel does not count its IOs: write 1 to {file}"
                )));
            }
        }
        let sampled = opened(&self.root, &watched.leaves, "inflight")?;
        let done = opened(&self.root, &watched.fronts, "stat")?;
        let mut state = lock(&self.shared);
        (state.sampled, state.done) = (sampled, done);
        (state.fault, state.quiet) = (None, 0);
        // Samples since the previous reading are discarded, as they belong to other devices.
        state.sample()?;
        self.before = state.done()?;
        (state.area, state.cubes) = ([0.0; 2], 0.0);
        (self.since, self.at_start) = (state.last, state.now[0] + state.now[1]);
        Ok(())
    }

    fn because(&self) -> Option<&str> {
        self.because.as_deref()
    }
}
