//! The runs of a study, on any number of cores, and the one answer of all runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use parda_scenario::{Engine, RunAnswer, Study};

use crate::error::SimError;
use crate::run::{KeptRuns, RunOutcome, SimProgress, run};

/// Results of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyOutcome {
    /// Answer over all runs, with its verdicts.
    pub answer: RunAnswer,
    /// Results of each run, in the order of [`Study::runs`]. Their answers contain neither variants
    /// nor verdicts.
    pub runs: Vec<RunOutcome>,
}

/// Runs a whole study, `jobs` runs at a time. The answer does not depend on `jobs`. `progress`
/// receives each run by its index in [`Study::runs`], from several threads.
///
/// # Errors
/// As [`run`]: the error of the first run, in the order of the study, that gave no answer.
///
/// # Panics
/// As [`run`].
pub fn run_all(
    study: &Study,
    keep: KeptRuns,
    jobs: usize,
    progress: impl Fn(usize, SimProgress) + Sync,
) -> Result<StudyOutcome, SimError> {
    let outcomes = Mutex::new(Vec::with_capacity(study.runs.len()));
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(of) = study.runs.get(index) else { return };
            let kept =
                keep == KeptRuns::All || keep == KeptRuns::Plotted && study.plots_over_time(of);
            let keep = if kept { KeptRuns::All } else { KeptRuns::Nothing };
            let outcome = run(&of.scenario, keep, |at| progress(index, at));
            if outcome.is_err() {
                // The study has failed: the remaining runs are skipped.
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
    // Runs that never began come after a run that failed.
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    let runs = outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Result<Vec<_>, _>>()?;
    let phases = runs.iter().map(|outcome| outcome.answer.phases.clone()).collect();
    Ok(StudyOutcome { answer: study.answer(Engine::Sim, phases), runs })
}
