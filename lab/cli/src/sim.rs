//! `parda-lab sim`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use parda_config::Document;
use parda_report::pictures::{WriteError, folder, pictures, write};
use parda_scenario::set::{Setting, with_settings};
use parda_scenario::study::Sweep;
use parda_scenario::{Run, Study};
use parda_sim::{KeptRuns, RunOutcome, SimProgress, StudyOutcome};
use parda_terminal::{Failure, output};

use crate::answer::{self, is_no_configuration};

#[derive(Args)]
#[command(after_help = "\
A scenario names an array, hosts with their VMs, what happens to them, what is measured and what is
expected: see docs/scenarios.md. The scenario is run in virtual time, with the control code of parda serve
and the array of parda-lab array: see docs/simulator.md. The same scenario with the same seed gives
the same answer. Variants of a scenario run side by side.

Exit status: 1 if an expectation was not met.

Examples:
  parda-lab sim scenarios/demo.toml
  parda-lab sim scenarios/demo.toml --set control.latency_threshold=30ms --set host.3.vm.0.shares=2000
  parda-lab sim scenarios/demo.toml --plot plots
  parda-lab sim scenarios/demo.toml --sweep control.latency_threshold=20ms,30ms,50ms --plot plots
  parda-lab sim scenarios/demo.toml --seed 7 --json - | jq '.phases[].total'")]
pub(crate) struct Sim {
    /// The scenario file to simulate
    #[arg(value_name = "FILE")]
    scenario: PathBuf,
    /// Write the answer as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write windows, β, latencies and throughput of each host, second by second, as JSON to a
    /// file; with variants, an object with an entry for each
    #[arg(long, value_name = "OUT")]
    series: Option<PathBuf>,
    /// The seed that all randomness follows from, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A value in place of the scenario's, named by its keys and its index in lists, counted from 0; * is every index
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Several values in place of the scenario's, each in a run of its own; more than once: all combinations. A value
    /// with commas in it stands between quotes
    #[arg(long, value_name = "KEY=VALUE,VALUE...")]
    sweep: Vec<String>,
    /// Draw the scenario's plots, as SVG, into a folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Run only this variant of the scenario; may be given more than once
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// How many variants to run at a time; as many as there are cores if not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Check the scenario without running it
    #[arg(long)]
    check: bool,
}

impl Sim {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let study = self.study()?;
        if self.check {
            return output::print(&format!("{}: good", self.scenario.display()));
        }
        // Better now than after all the work.
        let failed = |e: WriteError| Failure::new(e.to_string());
        self.plot.as_deref().map_or(Ok(()), folder).map_err(failed)?;
        output::check([&self.json, &self.series])?;
        let kept = match (&self.series, &self.plot) {
            (Some(_), _) => KeptRuns::All,
            (None, Some(_)) => KeptRuns::Plotted,
            (None, None) => KeptRuns::Nothing,
        };
        let bar = Bar::new(study.runs.iter());
        let jobs = self.jobs.map_or_else(cores, usize::from);
        let outcome = parda_sim::run_all(&study, kept, jobs, |_, progress| {
            bar.show(|| told(&study, &progress));
        });
        bar.clear();
        let outcome = outcome.map_err(|e| Failure::new(e.to_string()))?;
        if let Some(out) = &self.series {
            output::json(out, &series(&study, &outcome))?;
        }
        if let Some(dir) = &self.plot {
            let pictures = pictures(&study, &outcome, "expected");
            for file in write(dir, &pictures).map_err(failed)? {
                eprintln!("wrote {}", file.display());
            }
        }
        answer::print(&outcome.answer, self.json.as_deref())
    }

    /// Study to run: the file, with the settings of the command line in place of its own.
    fn study(&self) -> Result<Study, Failure> {
        let mut document = Document::read(&self.scenario)?;
        is_no_configuration(&document)?;
        for text in &self.set {
            let wrong = |e| Failure::usage(format!("--set {text}: {e}"));
            let setting: Setting = text.parse().map_err(wrong)?;
            document = with_settings(&document, &[setting]).map_err(wrong)?;
        }
        let sweep = |text: &String| {
            text.parse().map_err(|e| Failure::usage(format!("--sweep {text}: {e}")))
        };
        let sweeps: Vec<Sweep> = self.sweep.iter().map(sweep).collect::<Result<_, _>>()?;
        let study = Study::parse_swept(&document, &sweeps).map_err(|error| {
            let settings: Vec<String> = self.set.iter().map(|s| format!(" --set {s}")).collect();
            let with = if settings.is_empty() { "" } else { "; with" };
            Failure::usage(format!("{error}{with}{}", settings.concat()))
        })?;
        let mut study = variants(study, &self.scenario, &self.variant)?;
        if let Some(seed) = self.seed {
            study.set_seed(seed);
        }
        Ok(study)
    }
}

/// The named variants of a study; all, if none is named.
pub(crate) fn variants(study: Study, file: &Path, names: &[String]) -> Result<Study, Failure> {
    if names.is_empty() {
        return Ok(study);
    }
    study.pick(names).map_err(|e| Failure::usage(format!("{}: {e}", file.display())))
}

/// Number of runs at a time.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The series of the one run, or those of all variants by their names.
fn series(study: &Study, outcome: &StudyOutcome) -> serde_json::Value {
    let of = |outcome: &RunOutcome| serde_json::to_value(&outcome.series).unwrap_or_default();
    let named = study.runs.iter().zip(&outcome.runs);
    let by_name: serde_json::Map<String, serde_json::Value> =
        named.filter_map(|(run, outcome)| Some((run.variant.clone()?, of(outcome)))).collect();
    match outcome.runs.as_slice() {
        [only] if by_name.is_empty() => of(only),
        _ => by_name.into(),
    }
}

/// Progress of one run, or the number of several.
fn told(study: &Study, progress: &SimProgress) -> String {
    if study.runs.len() > 1 {
        return format!("of {} variants", study.runs.len());
    }
    let latency = output::number(progress.device_latency_ms, 1);
    format!("{:7.0} IOPS  {latency:>6} ms", progress.iops)
}

/// Progress of runs: a bar on a terminal, once it takes longer than [`PATIENCE`].
pub(crate) struct Bar {
    bar: ProgressBar,
    /// Simulated seconds that are done.
    done: AtomicU64,
}

/// Time after which a run shows its progress.
const PATIENCE: Duration = Duration::from_secs(2);

impl Bar {
    pub(crate) fn new<'a>(runs: impl Iterator<Item = &'a Run>) -> Bar {
        let seconds = runs.map(|run| run.scenario.duration.as_secs()).sum();
        Bar { bar: answer::seconds(seconds), done: AtomicU64::new(0) }
    }

    /// Counts another simulated second of a run, and draws the bar.
    pub(crate) fn show(&self, message: impl Fn() -> String) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.bar.elapsed() >= PATIENCE {
            self.bar.set_position(done);
            self.bar.set_message(message());
        }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
