//! `parda sim`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use parda_config::Document;
use parda_scenario::Scenario;
use parda_scenario::set::{Setting, with_settings};
use parda_sim::{Progress, SimOptions};

use crate::{Failure, output};

#[derive(Args)]
#[command(after_help = "\
A scenario names an array, hosts with their VMs, what happens to them, what is measured and what is
expected: see docs/scenarios.md. It is run in virtual time, with the control code of parda serve
and the array of parda array: see docs/simulator.md. The same scenario with the same seed gives
the same answer.

Exit status: 1 if an expectation was not met.

Examples:
  parda sim scenarios/demo.toml
  parda sim scenarios/demo.toml --set control.latency_threshold=30ms --set host.3.vm.0.shares=2000
  parda sim scenarios/demo.toml --seed 7 --json - | jq '.phases[].total'")]
pub(crate) struct Sim {
    /// The scenario
    #[arg(value_name = "FILE")]
    scenario: PathBuf,
    /// Write the answer as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write windows, β, latencies and throughput of each host, second by second, as JSON to a file
    #[arg(long, value_name = "OUT")]
    series: Option<PathBuf>,
    /// The seed that all randomness follows from, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A value in place of the scenario's, by its keys and its place in lists, counted from 0
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the scenario without running it
    #[arg(long)]
    check: bool,
}

impl Sim {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let scenario = self.scenario()?;
        if self.check {
            return output::print(&format!("{}: good", self.scenario.display()));
        }
        let options = SimOptions { series: self.series.is_some(), ..SimOptions::default() };
        let mut bar = Bar::new(&scenario);
        let outcome = parda_sim::run(&scenario, &options, |progress| bar.show(&progress));
        bar.clear();
        let outcome = outcome.map_err(|e| Failure::new(e.to_string()))?;
        if let (Some(out), Some(series)) = (&self.series, &outcome.series) {
            output::json(out, series)?;
        }
        output::answer(&outcome.answer, self.json.as_deref())
    }

    /// The scenario, with what the command line says in place of what the file does.
    fn scenario(&self) -> Result<Scenario, Failure> {
        let mut document = Document::read(&self.scenario)?;
        for text in &self.set {
            let wrong = |e| Failure::usage(format!("--set {text}: {e}"));
            let setting: Setting = text.parse().map_err(wrong)?;
            document = with_settings(&document, &[setting]).map_err(wrong)?;
        }
        let mut scenario = Scenario::parse(&document).map_err(|error| {
            let settings: Vec<String> = self.set.iter().map(|s| format!(" --set {s}")).collect();
            let with = if settings.is_empty() { "" } else { "; with" };
            Failure::usage(format!("{error}{with}{}", settings.concat()))
        })?;
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        Ok(scenario)
    }
}

/// How it goes: a bar on a terminal, if it takes longer than one likes to wait without.
struct Bar {
    began: Instant,
    seconds: u64,
    bar: Option<ProgressBar>,
}

/// How long one likes to wait without a word.
const PATIENCE: Duration = Duration::from_secs(2);

impl Bar {
    fn new(scenario: &Scenario) -> Bar {
        Bar { began: Instant::now(), seconds: scenario.duration.as_secs(), bar: None }
    }

    fn show(&mut self, progress: &Progress) {
        if self.bar.is_none() && self.began.elapsed() > PATIENCE {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            // On what is no terminal it draws nothing.
            self.bar = Some(ProgressBar::new(self.seconds).with_style(style));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.at.as_secs());
            let latency = progress.device_latency_ms.map_or("-".to_owned(), |l| format!("{l:.1}"));
            bar.set_message(format!("{:7.0} IOPS  {latency:>6} ms", progress.iops));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
