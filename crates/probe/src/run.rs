//! A probe from its first load to its document.

use std::time::{Instant, SystemTime};

use crate::analysis;
use crate::document::{End, FORMAT, Kind, ProbeDocument, TargetInfo};
use crate::driver::{Allowance, DriveError, Driven, Driver};
use crate::load::{Load, Purpose};
use crate::plan::Plan;
use crate::point::Point;
use crate::reasons::Unknown;

/// No load is worth running for less, in seconds.
pub const LEAST_PER_LOAD_S: f64 = 2.0;

/// How well throughput and mean latency should be known, half of where they lie with 95 %
/// confidence, relative to them.
const PRECISION: f64 = 0.03;
const PRECISION_OF_MODELS: f64 = 0.01;
/// Where a curve is flat, its knee moves ten times as far as its throughput; and virtual time is cheap.
const PRECISION_OF_MODELS_SWEPT: f64 = 0.002;

/// A load may end before its share of the time is over, and may take more than that.
const LEAST_OF_SHARE: f64 = 0.4;
const MOST_OF_SHARE: f64 = 1.5;

/// Time that is kept for a load that is still to come, over the least that it runs.
const ROOM: f64 = 1.1;

/// How far a probe has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What is being run.
    pub load: &'a Load,
    /// Purpose of the load.
    pub purpose: Purpose,
    /// How many loads have been run.
    pub done: usize,
    /// How many are left at most, this one included.
    pub left: usize,
    /// For how long this one has run, in the target's own time, in seconds.
    pub load_s: f64,
    /// The time since the probe began, in the target's own time, in seconds.
    pub took_s: f64,
    /// How long it will take from now on at most, if that is bounded.
    pub left_s: Option<f64>,
}

/// Who is told how a probe goes.
pub trait Watcher {
    /// How far it has come; whether to stop.
    fn progress(&mut self, progress: &Progress<'_>) -> bool;
    /// A load was measured.
    fn measured(&mut self, point: &Point);
    /// Something that the probe will not tell, as soon as that is known.
    fn note(&mut self, note: &Unknown);
}

/// Nobody watches.
impl Watcher for () {
    fn progress(&mut self, _: &Progress<'_>) -> bool {
        false
    }
    fn measured(&mut self, _: &Point) {}
    fn note(&mut self, _: &Unknown) {}
}

/// A probe that has not run yet.
pub struct Probe<'a> {
    /// What is probed.
    pub target: TargetInfo,
    /// What drives it.
    pub driver: &'a mut dyn Driver,
    /// Which loads it runs.
    pub plan: Plan,
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
                notes.push(Unknown::LeftOut { time_s: time, what: left_out });
            }
        }
        notes.iter().for_each(|note| watcher.note(note));
        let mut points = Vec::new();
        let mut clock = Clock { began: Instant::now(), virtual_s: None };
        if self.target.kind == Kind::Model {
            clock.virtual_s = Some(0.0);
        }
        let end = loop {
            let left = self.plan.left(&points);
            let time_left = self.time.map(|time| time - clock.now());
            if time_left.is_some_and(|time| time < LEAST_PER_LOAD_S) && left > 0 {
                notes.push(Unknown::TimeUp);
                break End::Time;
            }
            let Some((load, purpose)) = self.plan.next(&points) else { break End::Complete };
            let mut stop = false;
            let driven =
                self.drive((&load, purpose), points.len(), time_left, left, &mut |load_s| {
                    let progress = Progress {
                        load: &load,
                        purpose,
                        done: points.len(),
                        left,
                        load_s,
                        took_s: clock.now() + clock.virtual_s.map_or(0.0, |_| load_s),
                        left_s: time_left.map(|time| (time - load_s).max(0.0)),
                    };
                    stop = watcher.progress(&progress);
                    stop
                });
            let driven = match driven {
                Ok(driven) => driven,
                Err(error) => {
                    notes.push(Unknown::TargetFailed { load, error: error.to_string() });
                    watcher.note(&notes[notes.len() - 1]);
                    break End::Failed;
                }
            };
            clock.pass(driven.recording.seconds());
            if let Some(point) = driven.recording.point(load, purpose, driven.verdict) {
                watcher.measured(&point);
                points.push(point);
            }
            if stop {
                break End::Aborted;
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
        (load, purpose): (&Load, Purpose),
        number: usize,
        time_left: Option<f64>,
        left: usize,
        told: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Driven, DriveError> {
        let swept = self.plan.sweeps() && matches!(purpose, Purpose::Depth | Purpose::Repeat);
        let precision = match self.target.kind {
            Kind::Model if swept => PRECISION_OF_MODELS_SWEPT,
            Kind::Model => PRECISION_OF_MODELS,
            _ => PRECISION,
        };
        let allowance = match time_left {
            None => Allowance { least_s: 0.0, most_s: f64::INFINITY, precision },
            Some(time) => {
                let share = time / left.max(1) as f64;
                // Every other load must have its least, and what it takes to begin and to end one.
                let others = ROOM * LEAST_PER_LOAD_S * (left.max(1) - 1) as f64;
                let most_s = (MOST_OF_SHARE * share).min(time - others).max(LEAST_PER_LOAD_S);
                let least_s = (LEAST_OF_SHARE * share).max(LEAST_PER_LOAD_S).min(most_s);
                Allowance { least_s, most_s, precision }
            }
        };
        // Any mixing will do that tells loads apart; 32 bits are what fio takes.
        let mixed = (self.seed ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let seed = (mixed >> 32) ^ (mixed & 0xffff_ffff);
        self.driver.drive(load, seed, &allowance, &mut |recording| told(recording.seconds()))
    }
}

/// The target's own time.
struct Clock {
    began: Instant,
    /// Of a model.
    virtual_s: Option<f64>,
}

impl Clock {
    fn now(&self) -> f64 {
        self.virtual_s.unwrap_or_else(|| self.began.elapsed().as_secs_f64())
    }

    fn pass(&mut self, seconds: f64) {
        if let Some(now) = &mut self.virtual_s {
            *now += seconds;
        }
    }
}
