//! The runs of a study, on as many cores as one likes, and the one answer of all of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use parda_scenario::{Answer, Engine, Study};

use crate::error::SimError;
use crate::run::{Keep, Progress, RunOutcome, run};

/// What came of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyOutcome {
    /// Answer over all runs, with its verdicts.
    pub answer: Answer,
    /// Each run, in the order of [`Study::runs`]. Their own answers know nothing of variants and
    /// judge nothing.
    pub runs: Vec<RunOutcome>,
}

/// Runs all of a study, `jobs` at a time, and answers. The answer does not depend on `jobs`.
/// `progress` is told of each run by its place in [`Study::runs`], from several threads.
///
/// # Errors
/// As [`run`]: that of the first run, in the order of the study, which gave no answer.
///
/// # Panics
/// As [`run`].
pub fn run_all(
    study: &Study,
    keep: Keep,
    jobs: usize,
    progress: impl Fn(usize, Progress) + Sync,
) -> Result<StudyOutcome, SimError> {
    let outcomes = Mutex::new(Vec::with_capacity(study.runs.len()));
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(of) = study.runs.get(index) else { return };
            let kept = keep == Keep::All || keep == Keep::Plotted && study.plots_over_time(of);
            let keep = if kept { Keep::All } else { Keep::Nothing };
            let outcome = run(&of.scenario, keep, |at| progress(index, at));
            if outcome.is_err() {
                // The rest is for nothing.
                next.store(study.runs.len(), Ordering::Relaxed);
            }
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, study.runs.len()) {
            scope.spawn(work);
        }
        work();
    });
    // One that was never begun follows one that failed.
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    let runs = outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Result<Vec<_>, _>>()?;
    let phases = runs.iter().map(|outcome| outcome.answer.phases.clone()).collect();
    Ok(StudyOutcome { answer: study.answer(Engine::Sim, phases), runs })
}
