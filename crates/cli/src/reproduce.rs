//! `parda reproduce`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use parda_report::pictures::WriteError;
use parda_report::reproduce::{
    MARK, Value, built_in, in_folder, missed, renewed, reproduce, table, write_pictures,
};
use parda_scenario::Study;
use serde_json::json;

use crate::sim::cores;
use crate::{Failure, output};

#[derive(Args)]
#[command(after_help = "\
Each figure and table of the source papers is a scenario that says what was run, when it was measured and
why then, the paper's values, and where the paper contradicts itself. docs/reproduction.md has a run.

Exit status: 1 if a value is out of its tolerance.

Examples:
  parda reproduce
  parda reproduce --json - | jq '.values[] | select(.outcome != \"ok\")'
  parda reproduce --scenarios my/papers")]
pub(crate) struct Reproduce {
    /// Write all values as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Renew the tables in a Markdown page such as docs/reproduction.md, and its pictures in the
    /// folder of the same name
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// The scenarios of this folder, in place of those that are built in
    #[arg(long, value_name = "DIR")]
    scenarios: Option<PathBuf>,
    /// Number of runs at a time; the number of cores if not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl Reproduce {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let studies = match &self.scenarios {
            None => built_in(),
            Some(folder) => in_folder(folder),
        };
        let studies = studies.map_err(|e| Failure::usage(e.to_string()))?;
        output::check([&self.json])?;
        let bar = Bar::new(&studies);
        let jobs = self.jobs.map_or_else(cores, usize::from);
        let drawn = self.page.is_some();
        let reproduction = reproduce(studies, drawn, jobs, |scenario| bar.show(scenario));
        bar.bar.finish_and_clear();
        let reproduction = reproduction.map_err(|e| Failure::new(e.to_string()))?;
        let failed = |e: WriteError| Failure::new(e.to_string());
        if let Some(file) = &self.page {
            let wrong = |e| Failure::new(format!("{}: {e}", file.display()));
            let old = std::fs::read_to_string(file).map_err(wrong)?;
            let folder = file.file_stem().unwrap_or_default().to_string_lossy();
            let new = renewed(&old, &reproduction, &folder).ok_or_else(|| {
                Failure::usage(format!("{}: has no line `{}`", file.display(), MARK))
            })?;
            write_pictures(&file.with_extension(""), &reproduction).map_err(failed)?;
            std::fs::write(file, new).map_err(wrong)?;
        }
        let tally = reproduction.tally();
        match &self.json {
            Some(out) => {
                let values: Vec<Value> = reproduction.values().collect();
                let summary = json!({
                    "ok": tally.missed == 0,
                    "within": tally.passed,
                    "exempt": tally.exempt,
                    "out": tally.missed,
                    "values": values,
                });
                output::json(out, &summary)?;
                eprint!("{}", missed(&reproduction));
            }
            None => output::styled(&table(&reproduction, output::colour())).map(drop)?,
        }
        if tally.missed == 0 { Ok(()) } else { Err(Failure::silent()) }
    }
}

/// Progress of the run: a bar on a terminal.
struct Bar {
    bar: ProgressBar,
    done: AtomicU64,
}

impl Bar {
    fn new(studies: &[Study]) -> Bar {
        let runs = studies.iter().flat_map(|study| &study.runs);
        let seconds = runs.map(|run| run.scenario.duration.as_secs()).sum();
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // On what is no terminal it draws nothing.
        let bar = ProgressBar::new(seconds).with_style(style);
        Bar { bar, done: AtomicU64::new(0) }
    }

    /// Another second of a run of this scenario is done.
    fn show(&self, scenario: &str) {
        self.bar.set_position(self.done.fetch_add(1, Ordering::Relaxed) + 1);
        self.bar.set_message(scenario.to_owned());
    }
}
