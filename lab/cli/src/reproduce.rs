//! `parda-lab reproduce`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use parda_report::reproduce::{Value, built_in, in_folder, missed, table, tally, values};
use parda_scenario::Study;
use parda_sim::{KeptRuns, run_all};
use parda_terminal::{Failure, output};
use serde_json::json;

use crate::sim::{Bar, cores};

#[derive(Args)]
#[command(after_help = "\
Each figure and table of the source papers is a scenario that says what was run, when it was measured and
why then, the paper's values, and where the paper contradicts itself. docs/reproduction.md has a run.

Exit status: 1 if a value is out of its tolerance.

Examples:
  parda-lab reproduce
  parda-lab reproduce --json - | jq '.values[] | select(.outcome != \"ok\")'
  parda-lab reproduce --scenarios my/papers")]
pub(crate) struct Reproduce {
    /// Write all values as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
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
        }?;
        output::check([&self.json])?;
        let runs = || studies.iter().flat_map(|study| &study.runs);
        let bar = Bar::new(runs());
        let jobs = self.jobs.map_or_else(cores, usize::from);
        let run = |study: &Study| {
            let done =
                run_all(study, KeptRuns::Nothing, jobs, |_, _| bar.show(|| study.name.clone()));
            done.map(|outcome| outcome.answer)
        };
        let answers = studies.iter().map(run).collect::<Result<Vec<_>, _>>();
        bar.clear();
        let answers = answers.map_err(|e| Failure::new(e.to_string()))?;
        let tally = tally(&answers);
        match &self.json {
            Some(out) => {
                let values: Vec<Value> = values(&answers).collect();
                let summary = json!({
                    "ok": tally.missed == 0,
                    "within": tally.passed,
                    "exempt": tally.exempt,
                    "out": tally.missed,
                    "values": values,
                });
                output::json(out, &summary)?;
                eprint!("{}", missed(&answers));
            }
            None => output::styled(&table(&answers, output::colour())).map(drop)?,
        }
        if tally.missed == 0 { Ok(()) } else { Err(Failure::silent()) }
    }
}
