//! Run of a probe, from its first load to its document.

use std::time::{Instant, SystemTime};

use crate::analysis;
use crate::document::{FORMAT, ProbeDocument, ProbeEnd, TargetInfo, TargetKind};
use crate::driver::{Driven, LoadDriver, Moment, TimeAllowance, Watch};
use crate::load::{ProbeLoad, Purpose};
use crate::plan::ProbePlan;
use crate::point::Point;
use crate::reasons::OpenQuestion;

/// Shortest run of a load, in seconds.
pub const LEAST_PER_LOAD_S: f64 = 2.0;

/// Precision of throughput and mean latency at which a load may end. Half the width of the 95 % confidence interval, relative to
/// the value.
const PRECISION: f64 = 0.03;
const PRECISION_OF_MODELS: f64 = 0.01;
/// Precision of a model's sweep. Where a curve is flat, an error of the throughput moves the knee by ten times as much. Virtual
/// time is cheap.
const PRECISION_OF_MODELS_SWEPT: f64 = 0.002;

/// Shortest and longest run of a load, over its equal part of the time that is left.
const LEAST_OF_SHARE: f64 = 0.4;
const MOST_OF_SHARE: f64 = 1.5;

/// Time reserved for each load still to come, over its shortest run.
const ROOM: f64 = 1.1;

/// Progress of a probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbeProgress<'a> {
    /// The load that is being run.
    pub load: &'a ProbeLoad,
    /// Number of loads that have been run.
    pub done: usize,
    /// Largest number of loads still to run, this one included.
    pub left: usize,
    /// Time for which this load has run, in seconds of the target's own clock.
    pub load_s: f64,
    /// Time since the program that drives the load last answered, in seconds.
    pub silent_s: f64,
    /// Longest time until the end of the probe, in seconds. `None` if it is not bounded.
    pub left_s: Option<f64>,
}

/// Receiver of a probe's progress.
pub trait Watcher {
    /// Takes in the progress, several times a second. Returns whether to stop the probe.
    fn progress(&mut self, _: &ProbeProgress<'_>) -> bool {
        false
    }
    /// Takes in the point of a load that was measured.
    fn measured(&mut self, _: &Point) {}
    /// Takes in a question that the probe will not answer, as soon as that is known.
    fn note(&mut self, _: &OpenQuestion) {}
}

/// A watcher that ignores all and stops nothing.
impl Watcher for () {}

/// A probe that has not run yet.
pub struct Probe<'a> {
    /// Name, kind and size of the target.
    pub target: TargetInfo,
    /// Driver of the target.
    pub driver: &'a mut dyn LoadDriver,
    /// Plan of the loads to run.
    pub plan: ProbePlan,
    /// Bound on its time, in seconds of the target's own clock. `None`: unbounded.
    pub time: Option<f64>,
    /// Seed of offsets and kinds of IOs.
    pub seed: u64,
}

impl Probe<'_> {
    /// Runs the probe to its end, or until the watcher stops it, or the target fails.
    pub fn run(mut self, watcher: &mut dyn Watcher) -> ProbeDocument {
        let begun = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut notes = Vec::new();
        if let Some(time) = self.time {
            let left_out = self.plan.shrink((time / LEAST_PER_LOAD_S) as usize);
            if !left_out.is_empty() {
                notes.push(OpenQuestion::LeftOut { time_s: time, what: left_out });
            }
        }
        notes.iter().for_each(|note| watcher.note(note));
        let mut points = Vec::new();
        let mut clock = Clock { began: Instant::now(), virtual_s: None, silent_s: 0.0 };
        if self.target.kind == TargetKind::Model {
            clock.virtual_s = Some(0.0);
        }
        let end = loop {
            let left = self.plan.left(&points);
            let time_left = self.time.map(|time| time - clock.now());
            if time_left.is_some_and(|time| time < LEAST_PER_LOAD_S) && left > 0 {
                notes.push(OpenQuestion::TimeUp);
                break ProbeEnd::Time;
            }
            let Some((load, purpose)) = self.plan.next(&points) else { break ProbeEnd::Complete };
            let mut stop = false;
            let mut watch = |moment: Moment| {
                let Moment { load_s, silent_s } = moment;
                let left_s = time_left.map(|time| (time - load_s).max(0.0));
                let done = points.len();
                let progress = ProbeProgress { load: &load, done, left, load_s, silent_s, left_s };
                stop = watcher.progress(&progress);
                stop
            };
            let of = (&load, purpose);
            let driven = match self.drive(of, points.len(), time_left, left, &mut watch) {
                Ok(driven) => driven,
                Err(error) => {
                    notes.push(OpenQuestion::TargetFailed { load, error });
                    watcher.note(&notes[notes.len() - 1]);
                    break ProbeEnd::Failed;
                }
            };
            clock.pass(driven.recording.seconds(), driven.silent_s);
            if let Some(point) = driven.recording.point(load, purpose, driven.verdict) {
                watcher.measured(&point);
                points.push(point);
            }
            if stop {
                break ProbeEnd::Aborted;
            }
        };
        self.target.writes = points.iter().any(|point| point.writes.is_some());
        let mut findings = analysis::findings(&points, &self.target);
        findings.unknown.extend(notes);
        ProbeDocument {
            format: FORMAT,
            begun,
            took_s: clock.now(),
            target: self.target,
            seed: self.seed,
            end,
            points,
            findings,
        }
    }

    fn drive(
        &mut self,
        (load, purpose): (&ProbeLoad, Purpose),
        number: usize,
        time_left: Option<f64>,
        left: usize,
        watch: Watch<'_>,
    ) -> Result<Driven, String> {
        let swept = self.plan.sweeps() && matches!(purpose, Purpose::Depth | Purpose::Repeat);
        let precision = match self.target.kind {
            TargetKind::Model if swept => PRECISION_OF_MODELS_SWEPT,
            TargetKind::Model => PRECISION_OF_MODELS,
            _ => PRECISION,
        };
        let allowance = match time_left {
            None => TimeAllowance { least_s: 0.0, most_s: f64::INFINITY, precision },
            Some(time) => {
                let share = time / left.max(1) as f64;
                // Each load still to come keeps its shortest run, and time to begin and end it.
                let others = ROOM * LEAST_PER_LOAD_S * (left.max(1) - 1) as f64;
                let most_s = (MOST_OF_SHARE * share).min(time - others).max(LEAST_PER_LOAD_S);
                let least_s = (LEAST_OF_SHARE * share).max(LEAST_PER_LOAD_S).min(most_s);
                TimeAllowance { least_s, most_s, precision }
            }
        };
        // Loads need different seeds, by any mixing. fio takes 32 bits.
        let mixed = (self.seed ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let seed = (mixed >> 32) ^ (mixed & 0xffff_ffff);
        self.driver.drive(load, seed, &allowance, watch)
    }
}

/// The target's own clock: real time, or virtual time of a model.
struct Clock {
    began: Instant,
    /// Virtual time of a model, in seconds; `None` for a real target.
    virtual_s: Option<f64>,
    /// Time in seconds in which the target's tool had no processor. Not counted as time of the load.
    silent_s: f64,
}

impl Clock {
    fn now(&self) -> f64 {
        self.virtual_s.unwrap_or_else(|| self.began.elapsed().as_secs_f64() - self.silent_s)
    }

    fn pass(&mut self, seconds: f64, silent_s: f64) {
        if let Some(now) = &mut self.virtual_s {
            *now += seconds;
        }
        self.silent_s += silent_s;
    }
}
