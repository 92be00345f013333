//! fio, as the driver of real targets.
//!
//! Each load has a fio of its own, with one thread. At every slice fio writes its counters since the start as JSON. So warm-up
//! and steady state are recognised while fio runs. SIGINT stops fio when the load is known precisely enough.

mod child;
mod report;

use std::io::ErrorKind;
use std::time::Duration;

use parda_awake::Instant;
use parda_control::Bytes;
use parda_workload::fio::{Job, JobTarget, UnsupportedByFio, has_engine};
use parda_workload::{ArrivalRule, SizePart, Workload};

use child::Child;
use parda_probe::{
    Driven, LoadDriver, LoadMix, LoadSnapshot, Moment, ProbeLoad, Recording, TimeAllowance, Watch,
};

/// Number of slices of a load, as far as their length stays within these bounds.
const SLICES: f64 = 40.0;
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 1.0;

/// Least warm-up: connections are made and queues fill.
const LEAST_WARMUP_S: f64 = 0.3;

/// Time without a completed IO, beyond the longest expected one, after which the target has failed. Counted only once fio has
/// begun the load.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for which fio may be stopped, by its own clock, before it ends by itself. Without a reader of its answers it ends as
/// well.
const LONGEST_STOP: Duration = Duration::from_secs(600);

/// Time for fio to end after the user has stopped the probe.
const POLITE: Duration = Duration::from_secs(2);

/// A real target in fio's terms.
#[derive(Clone, Debug)]
pub(crate) struct Fio {
    /// An NBD URI, or else a path.
    pub(crate) nbd: bool,
    pub(crate) name: String,
    /// Start of the range that is driven, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Whether there may be writes.
    pub(crate) writes: bool,
}

impl Fio {
    /// Checks that fio is installed and has the engine for the target.
    pub(crate) fn check(&self) -> Result<(), String> {
        let engine = if self.nbd { "nbd" } else { "libaio" };
        match has_engine(engine) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!(
                "this fio was built without its engine `{engine}`; Debian's has it (apt-get install fio)"
            )),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err("fio is not installed (apt-get install fio)".to_owned())
            }
            Err(error) => Err(format!("cannot run fio: {error}")),
        }
    }

    /// The job of a load, which runs for `most` at most.
    pub(crate) fn job(
        &self,
        load: &ProbeLoad,
        seed: u64,
        most: Duration,
    ) -> Result<Job, UnsupportedByFio> {
        let mut job = Job::new("probe");
        job.target(if self.nbd { JobTarget::Nbd(&self.name) } else { JobTarget::Path(&self.name) });
        job.load(&workload(load), Bytes(self.bytes))?;
        if self.offset > 0 {
            job.set("offset", self.offset);
        }
        job.set("allow_file_create", 0);
        job.bound(most, seed);
        // Latency is measured from submission to completion.
        job.set("lat_percentiles", 1);
        job.set("clat_percentiles", 0);
        job.set("slat_percentiles", 0);
        Ok(job)
    }

    fn arguments(&self, job: &Job, slice: Duration) -> Vec<String> {
        let mut arguments = vec![
            "--output-format=json+".to_owned(),
            "--eta=never".to_owned(),
            format!("--status-interval={}ms", slice.as_millis()),
        ];
        if !self.writes {
            arguments.push("--readonly".to_owned());
        }
        arguments.extend(job.arguments());
        arguments
    }
}

impl LoadDriver for Fio {
    fn drive(
        &mut self,
        load: &ProbeLoad,
        seed: u64,
        allowance: &TimeAllowance,
        watch: Watch<'_>,
    ) -> Result<Driven, String> {
        // fio is stopped earlier. The bound ends it if this process dies.
        let bound = Duration::from_secs_f64(allowance.most_s) + LONGEST_STOP;
        let job = self.job(load, seed, bound).map_err(|error| error.to_string())?;
        let slice = (allowance.most_s / SLICES).clamp(SHORTEST, LONGEST);
        let mut running = Running::new(Duration::from_secs_f64(slice));
        let arguments = self.arguments(&job, running.slice);
        let mut fio = Child::start(arguments).map_err(|error| error.to_string())?;
        loop {
            match fio.next(&mut || watch(running.moment())) {
                Ok(Some(snapshot)) => running.take(snapshot),
                // The user has stopped the probe.
                Ok(None) => {}
                // A terminal sends Ctrl-C to fio as well.
                Err(_) if watch(running.moment()) => return Ok(running.driven()),
                Err(error) => return Err(error),
            }
            let enough = running.enough(allowance);
            if watch(running.moment()) {
                // Outstanding IOs are not waited for.
                let stopped = Instant::now();
                fio.stop(&mut || stopped.elapsed() > POLITE);
                return Ok(running.driven());
            }
            if enough {
                fio.stop(&mut || watch(running.moment()));
                return Ok(running.driven());
            }
            if running.begun.is_some() && running.heard.elapsed() > PATIENCE {
                let (ios, seconds) = (load.outstanding, PATIENCE.as_secs());
                return Err(format!("none of {ios} IOs came back within {seconds} s"));
            }
        }
    }
}

/// A load that fio runs, and its recording so far.
struct Running {
    recording: Recording,
    /// Time between two snapshots.
    slice: Duration,
    /// Start of the load, which on a busy machine is later than the start of fio.
    begun: Option<Instant>,
    /// Time of fio's last answer, or of its start.
    answered: Instant,
    /// Time at which an IO was last seen to complete.
    heard: Instant,
    /// Time without an answer in which fio had no processor.
    silent: Duration,
}

impl Running {
    fn new(slice: Duration) -> Running {
        let now = Instant::now();
        let silent = Duration::ZERO;
        let recording = Recording::default();
        Running { recording, slice, begun: None, answered: now, heard: now, silent }
    }

    fn moment(&self) -> Moment {
        let silent_s = self.answered.elapsed().as_secs_f64();
        Moment { load_s: self.recording.seconds(), silent_s }
    }

    fn take(&mut self, snapshot: LoadSnapshot) {
        let now = Instant::now();
        // A machine that gave fio no time to answer gave its IOs none.
        let gap = now - self.answered;
        let late = self.begun.is_none() || gap > PATIENCE;
        if gap > PATIENCE {
            // The load begins anew: its results of the gap tell nothing of the target.
            self.silent += gap;
            self.recording = Recording::default();
            self.begun = None;
        }
        if late || snapshot.reads.ios + snapshot.writes.ios > self.recording.ios() {
            self.heard = now;
        }
        self.begun.get_or_insert(now.checked_sub(self.slice).unwrap_or(now));
        self.answered = now;
        self.recording.push(snapshot);
    }

    /// Whether the load is known precisely enough, or its time is up.
    fn enough(&self, allowance: &TimeAllowance) -> bool {
        let verdict = self.recording.steadiness(LEAST_WARMUP_S);
        let took_s = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        let known = verdict.steady && verdict.precision <= allowance.precision;
        // A load without a completed IO may be stuck. The load goes on until `PATIENCE` is over.
        let over = took_s >= allowance.most_s && self.recording.is_measured(verdict);
        known && took_s >= allowance.least_s || over
    }

    fn driven(self) -> Driven {
        Driven {
            verdict: self.recording.steadiness(LEAST_WARMUP_S),
            recording: self.recording,
            silent_s: self.silent.as_secs_f64(),
        }
    }
}

/// A load as a workload of a scenario: a closed loop of the same mix.
#[must_use]
pub fn workload(load: &ProbeLoad) -> Workload {
    let LoadMix { size, read_percent, random_percent } = load.mix;
    Workload {
        sizes: vec![SizePart { size: Bytes(size), percent: 100 }],
        read_percent: f64::from(read_percent),
        random_percent: f64::from(random_percent),
        one_stream: false,
        trim_percent: 0.0,
        hot: None,
        demand: ArrivalRule::Closed { outstanding: load.outstanding },
        bursts: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_probe::LoadMix;

    fn fio(writes: bool) -> Fio {
        Fio { nbd: false, name: "/dev/sdx".to_owned(), offset: 0, bytes: 1 << 30, writes }
    }

    fn told(fio: &Fio, read_percent: u32) -> Vec<String> {
        let mix = LoadMix { size: 8192, read_percent, random_percent: 70 };
        let load = ProbeLoad { mix, outstanding: 12 };
        let job = fio.job(&load, 7, Duration::from_secs(5)).unwrap();
        fio.arguments(&job, Duration::from_millis(200))
    }

    fn has(told: &[String], wanted: &[&str]) {
        for want in wanted {
            assert!(told.iter().any(|a| a == want), "{want}: {told:?}");
        }
    }

    #[test]
    fn fio_is_told_the_load_and_not_to_write_unless_it_may() {
        let reads = told(&fio(false), 100);
        has(&reads, &["--readonly", "--rw=randread", "--bs=8192", "--iodepth=12", "--direct=1"]);
        has(&reads, &["--percentage_random=70", "--randseed=7", "--runtime=5"]);
        has(&reads, &["--status-interval=200ms"]);
        let writes = told(&Fio { offset: 1 << 20, ..fio(true) }, 50);
        has(&writes, &["--rw=randrw", "--rwmixread=50", "--offset=1048576"]);
        assert!(!writes.iter().any(|a| a == "--readonly"));
        let uri = "nbd+unix:///lun0?socket=/run/a".to_owned();
        let nbd = told(&Fio { nbd: true, name: uri, ..fio(false) }, 100);
        has(&nbd, &["--ioengine=nbd", "--uri=nbd+unix:///lun0?socket=/run/a"]);
    }
}
