//! A small sweep over outstanding reads of one file or device.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use parda_probe::{
    Bucket, Document, End, FORMAT, Kind, Load, Measured, Mix, Point, Purpose, Slice, TargetInfo,
    analysis,
};
use rustix::fs::OFlags;

/// What is read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// A file or a block device.
    pub(crate) path: PathBuf,
    /// Which part of it, in bytes; all of it if `None`.
    pub(crate) region: Option<Range<u64>>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// How it is read.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// So many at a time, one after the other: each by a thread of its own.
    pub(crate) outstanding: Vec<u32>,
    /// For so long each, and before it is measured.
    pub(crate) measure: Duration,
    pub(crate) warm_up: Duration,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            outstanding: vec![1, 2, 4, 8, 16, 32, 64],
            measure: Duration::from_secs(4),
            warm_up: Duration::from_secs(1),
        }
    }
}

/// The size of a read, and what it is aligned to.
const SIZE: u64 = 16 << 10;
const ALIGNED: usize = 4096;
/// Into how many pieces the time is cut.
const SLICES: u32 = 8;

/// Reads, and says what came of it; `None` if it was stopped. `busy` is asked every `look`.
pub(crate) fn run(
    target: &Target,
    plan: &Plan,
    look: Duration,
    busy: &dyn Fn() -> bool,
) -> std::io::Result<Option<Document>> {
    let (begun, started) = (SystemTime::now(), Instant::now());
    // Past the page cache, which would answer in place of the array.
    let direct = OFlags::DIRECT.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(direct).open(&target.path)?;
    let end = file.seek(SeekFrom::End(0))?;
    let region = target.region.clone().unwrap_or(0..end);
    let blocks = region.end.min(end).saturating_sub(region.start) / SIZE;
    if blocks == 0 {
        return Err(std::io::Error::other("there is nothing to read"));
    }
    let mut points = Vec::new();
    for &outstanding in &plan.outstanding {
        let reader = Reader { file: &file, start: region.start, blocks, outstanding };
        match reader.point(plan, look, busy)? {
            Some(point) => points.push(point),
            None => return Ok(None),
        }
    }
    let device = target.path.metadata()?.file_type();
    let device = std::os::unix::fs::FileTypeExt::is_block_device(&device);
    let target = TargetInfo {
        name: target.to_string(),
        kind: if device { Kind::Device } else { Kind::File },
        bytes: end,
        writes: false,
        about: vec!["read by the agent while the volume was idle".to_owned()],
    };
    Ok(Some(Document {
        format: FORMAT,
        begun: humantime::format_rfc3339_seconds(begun).to_string(),
        took_s: started.elapsed().as_secs_f64(),
        seed: 1,
        end: End::Complete,
        findings: analysis::findings(&points, &target),
        target,
        points,
    }))
}

struct Reader<'a> {
    file: &'a File,
    start: u64,
    blocks: u64,
    outstanding: u32,
}

/// When it was done, after the beginning of what is measured, and how long it took.
type Done = (Duration, Duration);

impl Reader<'_> {
    /// One load; `None` if it was stopped.
    fn point(
        &self,
        plan: &Plan,
        look: Duration,
        busy: &dyn Fn() -> bool,
    ) -> std::io::Result<Option<Point>> {
        let stop = AtomicBool::new(false);
        let from = Instant::now() + plan.warm_up;
        let to = from + plan.measure;
        let done = Mutex::new(Vec::new());
        let failed = Mutex::new(None);
        let stopped = std::thread::scope(|scope| {
            for reader in 0..self.outstanding {
                let (stop, done, failed) = (&stop, &done, &failed);
                scope.spawn(move || {
                    let seed = u64::from(self.outstanding) << 32 | u64::from(reader);
                    let read = self.read_until(seed, from, to, stop);
                    match read {
                        Ok(read) => done.lock().unwrap_or_else(|e| e.into_inner()).extend(read),
                        Err(e) => *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(e),
                    }
                });
            }
            let mut stopped = false;
            while Instant::now() < to && !stopped {
                std::thread::sleep(look);
                stopped = busy();
            }
            stop.store(true, Ordering::Relaxed);
            stopped
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(error);
        }
        let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok((!stopped).then(|| self.describe(plan, &done)))
    }

    /// One of them: one read after another.
    fn read_until(
        &self,
        seed: u64,
        from: Instant,
        to: Instant,
        stop: &AtomicBool,
    ) -> std::io::Result<Vec<Done>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut room = vec![0; SIZE as usize + ALIGNED];
        let aligned = room.as_ptr().align_offset(ALIGNED);
        let buffer = &mut room[aligned..aligned + SIZE as usize];
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            self.file.read_exact_at(buffer, self.start + SIZE * random.u64(0..self.blocks))?;
            let now = Instant::now();
            if now >= from && now < to {
                done.push((now - from, now - begun));
            }
        }
        Ok(done)
    }

    fn describe(&self, plan: &Plan, done: &[Done]) -> Point {
        let secs = plan.measure.as_secs_f64();
        let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).ok();
        for (_, took) in done {
            if let Some(all) = &mut all {
                all.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        let at = |q: f64| all.as_ref().map_or(0.0, |all| ms(all.value_at_quantile(q)));
        let total: f64 = done.iter().map(|(_, took)| took.as_secs_f64()).sum();
        let bucket = |v: hdrhistogram::iterators::IterationValue<u64>| Bucket {
            up_to_ms: ms(v.value_iterated_to()),
            ios: v.count_at_value(),
        };
        let measured = Measured {
            ios: done.len() as u64,
            iops: done.len() as f64 / secs,
            bytes_per_s: done.len() as f64 * SIZE as f64 / secs,
            mean_ms: total * 1e3 / (done.len() as f64).max(1.0),
            stddev_ms: all.as_ref().map_or(0.0, |all| all.stdev() / 1e6),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p99_9_ms: at(0.999),
            max_ms: all.as_ref().map_or(0.0, |all| ms(all.max())),
            histogram: all.iter().flat_map(|all| all.iter_recorded().map(bucket)).collect(),
        };
        let slice = plan.measure / SLICES;
        let slices = (0..SLICES).map(|i| {
            let within = |(at, _): &&Done| *at >= slice * i && *at < slice * (i + 1);
            let (ios, took) = done
                .iter()
                .filter(within)
                .fold((0_u32, 0.0), |(n, sum), (_, took)| (n + 1, sum + took.as_secs_f64() * 1e3));
            Slice {
                seconds: slice.as_secs_f64(),
                iops: f64::from(ios) / slice.as_secs_f64(),
                mean_ms: (ios > 0).then(|| took / f64::from(ios)),
            }
        });
        let outstanding = total / secs;
        Point {
            load: Load {
                mix: Mix { size: SIZE, read_percent: 100, random_percent: 100 },
                outstanding: self.outstanding,
            },
            purpose: Purpose::Depth,
            warmup_s: plan.warm_up.as_secs_f64(),
            measured_s: secs,
            settled: true,
            outstanding_measured: outstanding,
            little_error: outstanding / f64::from(self.outstanding) - 1.0,
            reads: Some(measured.clone()),
            all: measured,
            writes: None,
            slices: slices.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(dir: &std::path::Path) -> Target {
        let path = dir.join("disk");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        Target { path, region: None }
    }

    /// Where O_DIRECT works: not on every file system that temporary files lie on.
    fn place() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn a_sweep_reads_and_leaves_all_as_it_was() {
        let dir = place();
        let target = target(dir.path());
        let plan = Plan {
            outstanding: vec![1, 4],
            measure: Duration::from_millis(200),
            warm_up: Duration::from_millis(50),
        };
        let document = run(&target, &plan, Duration::from_millis(5), &|| false).unwrap().unwrap();
        assert!(std::fs::read(&target.path).unwrap().iter().all(|byte| *byte == 7));
        assert!(!document.target.writes);
        let [one, four] = document.points.as_slice() else { panic!("{:?}", document.points) };
        assert!(one.all.ios > 0 && four.all.ios > 0);
        assert!((0.3..1.1).contains(&one.outstanding_measured), "{}", one.outstanding_measured);
        assert_eq!(four.all.histogram.iter().map(|b| b.ios).sum::<u64>(), four.all.ios);
        let text = serde_json::to_string(&document).unwrap();
        assert_eq!(serde_json::from_str::<Document>(&text).unwrap().points.len(), 2);
    }

    #[test]
    fn it_ends_within_milliseconds_of_somebody_elses_io() {
        let dir = place();
        let began = Instant::now();
        let busy = || began.elapsed() > Duration::from_millis(300);
        let ended = run(&target(dir.path()), &Plan::default(), Duration::from_millis(5), &busy);
        assert!(ended.unwrap().is_none());
        // 300 ms, one look, and the read that is under way; with room for a busy machine.
        assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let target = Target { path: "/nonexistent/disk".into(), region: None };
        assert!(run(&target, &Plan::default(), Duration::from_millis(5), &|| false).is_err());
    }
}
