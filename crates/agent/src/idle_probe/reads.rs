//! A driver of random reads past the page cache: one thread for each outstanding read.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parda_awake::Instant;
use parda_probe::{
    Counter, Driven, KindTotals, LoadDriver, LoadSnapshot, Moment, ProbeLoad, Recording,
    TargetInfo, TargetKind, TimeAllowance, Watch,
};
use rustix::fs::OFlags;

use crate::config::Target;
use crate::locked::locked;

/// Size of a read, in bytes.
pub(super) const SIZE: u64 = 16 << 10;
/// Alignment that O_DIRECT asks of memory.
const ALIGNED: usize = 4096;
/// Interval at which a reader of the recording asks whether to stop.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two snapshots.
const SLICE: Duration = Duration::from_millis(100);
/// Connections to drives and their caches warm up for at least this long, in seconds.
const LEAST_WARMUP_S: f64 = 0.3;

/// A file or block device that is open for reads.
#[derive(Debug)]
pub(super) struct Reads {
    file: File,
    start: u64,
    blocks: u64,
}

impl Reads {
    /// Opens the target, and describes it.
    ///
    /// # Errors
    /// The target cannot be opened with O_DIRECT, or its region is smaller than one read.
    pub(super) fn open(target: &Target) -> std::io::Result<(Reads, TargetInfo)> {
        let direct = OFlags::DIRECT.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).custom_flags(direct).open(&target.path)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let region = target.region.clone().unwrap_or(0..bytes);
        let blocks = region.end.min(bytes).saturating_sub(region.start) / SIZE;
        if blocks == 0 {
            return Err(std::io::Error::other("there is nothing to read"));
        }
        let device = file.metadata()?.file_type().is_block_device();
        let info = TargetInfo {
            name: target.to_string(),
            kind: if device { TargetKind::Device } else { TargetKind::File },
            bytes,
            writes: false,
            about: vec!["read by the agent while the volume was idle".to_owned()],
        };
        Ok((Reads { file, start: region.start, blocks }, info))
    }

    /// One read after another, until the stop flag is set.
    fn read(&self, seed: u64, count: &Mutex<Counter>, stop: &AtomicBool) -> std::io::Result<()> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut room = vec![0; SIZE as usize + ALIGNED];
        let aligned = room.as_ptr().align_offset(ALIGNED);
        let buffer = &mut room[aligned..aligned + SIZE as usize];
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            self.file.read_exact_at(buffer, self.start + SIZE * random.u64(0..self.blocks))?;
            let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            locked(count).record(took);
        }
        Ok(())
    }
}

impl LoadDriver for Reads {
    /// Every load is taken for random reads of [`SIZE`].
    fn drive(
        &mut self,
        load: &ProbeLoad,
        seed: u64,
        allowance: &TimeAllowance,
        watch: Watch<'_>,
    ) -> Result<Driven, String> {
        let (stop, failed) = (AtomicBool::new(false), Mutex::new(None));
        let count = Mutex::new(Counter::new());
        let driven = std::thread::scope(|scope| {
            for reader in 0..load.outstanding {
                let (reads, count, stop, failed) = (&*self, &count, &stop, &failed);
                let seed = seed ^ u64::from(reader) << 32;
                scope.spawn(move || {
                    if let Err(error) = reads.read(seed, count, stop) {
                        *locked(failed) = Some(error);
                        stop.store(true, Ordering::Relaxed);
                    }
                });
            }
            let driven = record(&count, &stop, allowance, watch);
            stop.store(true, Ordering::Relaxed);
            driven
        });
        match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(error) => Err(error.to_string()),
            None => Ok(driven),
        }
    }
}

/// Takes snapshots until the load is known well enough, its time is up, or it is stopped.
fn record(
    count: &Mutex<Counter>,
    stop: &AtomicBool,
    allowance: &TimeAllowance,
    watch: Watch<'_>,
) -> Driven {
    let begun = Instant::now();
    let mut recording = Recording::default();
    let mut next = SLICE;
    loop {
        std::thread::sleep(LOOK);
        let now = begun.elapsed();
        let taken = now >= next;
        if taken {
            next = now + SLICE;
            let reads = locked(count).totals();
            let (at_s, writes) = (now.as_secs_f64(), KindTotals::default());
            recording.push(LoadSnapshot { at_s, reads, writes, unwritten: 0 });
        }
        let stopped = stop.load(Ordering::Relaxed)
            || watch(Moment { load_s: recording.seconds(), silent_s: 0.0 });
        if !taken && !stopped {
            continue;
        }
        let verdict = recording.steadiness(LEAST_WARMUP_S);
        let known = verdict.steady && verdict.precision <= allowance.precision;
        let seconds = recording.seconds();
        let enough = (known && seconds >= allowance.least_s) || seconds >= allowance.most_s;
        if stopped || enough {
            return Driven { recording, verdict, silent_s: 0.0 };
        }
    }
}
