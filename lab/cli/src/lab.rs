//! The command `lab`: scenarios with real processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use parda_config::Document;
use parda_lab::error::LabRefusal;
use parda_lab::{Dashboards, LabOptions, LabProgress};
use parda_scenario::set::{Setting, with_settings};
use parda_scenario::{Engine, Run, Scenario, Study};
use parda_terminal::{Failure, output};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::answer::{self, is_no_configuration};
use crate::sim::variants;

#[derive(Args)]
#[command(after_help = "\
A scenario names an array, hosts with their VMs, what happens to them, what is measured and what is
expected: see docs/scenarios.md. The scenario is run with real processes: an emulated array, one agent
per host, one fio per VM. All of them end with the run, also on Ctrl-C.

Exit status: 1 if an expectation was not met.

Examples:
  parda-lab lab scenarios/demo.toml
  parda-lab lab scenarios/kill-agent.toml --json - | jq '.phases[].total'
  parda-lab lab scenarios/demo.toml --live        # a dashboard for each host, until Ctrl-C
  parda-lab lab scenarios/demo.toml --exchange udp        # hosts meet over UDP, on loopback")]
pub(crate) struct Lab {
    /// The scenario file to run
    #[arg(value_name = "FILE")]
    scenario: PathBuf,
    /// Write the answer as JSON to a file as well; - for standard output, in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Keep the configurations and logs of all processes, and print their directory
    #[arg(long)]
    keep_logs: bool,
    /// Run only this variant of the scenario; may be given more than once
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// Serve a web dashboard for each host, and go on after the timeline until Ctrl-C
    #[arg(long)]
    live: bool,
    /// How hosts meet, in place of the scenario's own transport
    #[arg(long, value_name = "TRANSPORT")]
    exchange: Option<Transport>,
    /// Run agents of this other parda binary until their host is killed and started: an upgrade
    #[arg(long, value_name = "PROGRAM", conflicts_with = "live")]
    before: Option<PathBuf>,
    /// Check the scenario without running it
    #[arg(long)]
    check: bool,
}

/// Transport of the exchange.
#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    /// A file on the array
    File,
    /// Datagrams between the hosts
    Udp,
    /// A real etcd, which is started
    Etcd,
}

impl Lab {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let document = self.document()?;
        let study = Study::parse(&document)?;
        let study = variants(study, &self.scenario, &self.variant)?;
        for run in &study.runs {
            parda_lab::limits::check(&run.scenario, false)
                .map_err(|refusal| Failure::usage(placed(&document, run, &refusal).to_string()))?;
        }
        if self.live && study.runs.len() > 1 {
            let message = "--live keeps one variant until Ctrl-C: name it with --variant";
            return Err(Failure::usage(message.to_owned()));
        }
        self.before.as_deref().map_or(Ok(()), is_parda)?;
        if self.check {
            return output::print(&format!("{}: good", self.scenario.display()));
        }
        output::check([&self.json])?;
        let interrupt = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt))
                .map_err(|e| Failure::new(format!("cannot catch signals: {e}")))?;
        }
        let parda_lab = std::env::current_exe()
            .map_err(|e| Failure::new(format!("cannot find the file of parda-lab: {e}")))?;
        let mut options = LabOptions {
            before: self.before.clone(),
            parda: parda_beside(&parda_lab)?,
            parda_lab,
            scenario: self.scenario.clone(),
            variant: None,
            keep_logs: self.keep_logs,
            live: None,
            guests: None,
            interrupt,
        };
        // One after the other: each has the machine to itself.
        let mut measured = Vec::with_capacity(study.runs.len());
        for (i, run) in study.runs.iter().enumerate() {
            options.variant.clone_from(&run.variant);
            if let Some(variant) = &run.variant {
                eprintln!("{variant}: {} of {}", i + 1, study.runs.len());
            }
            if self.live {
                options.live = Some(dashboards(&run.scenario)?);
            }
            let bar = answer::seconds(run.scenario.duration.as_secs());
            let answer = parda_lab::run(&run.scenario, &options, |progress| show(&bar, &progress));
            bar.finish_and_clear();
            measured.push(answer.map_err(|e| Failure::new(e.to_string()))?.phases);
        }
        answer::print(&study.answer(Engine::Lab, measured), self.json.as_deref())
    }

    /// The scenario file, with the transport of the command line in place of its own.
    fn document(&self) -> Result<Document, Failure> {
        let document = Document::read(&self.scenario)?;
        is_no_configuration(&document)?;
        let Some(value) = self.exchange.as_ref().and_then(ValueEnum::to_possible_value) else {
            return Ok(document);
        };
        let wrong = |e: String| Failure::usage(format!("--exchange {}: {e}", value.get_name()));
        let transport: Setting =
            format!("exchange.transport={}", value.get_name()).parse().map_err(wrong)?;
        with_settings(&document, &[transport]).map_err(wrong)
    }
}

/// A refusal of a run, at the first of its places that the run's variant or the document sets.
fn placed(document: &Document, run: &Run, refusal: &LabRefusal) -> parda_config::Error {
    let set = refusal.paths.iter().find_map(|path| {
        let file = || document.has(path).then(|| path.split('.').collect());
        run.place_of(path).or_else(file)
    });
    let nowhere = || refusal.paths.first().map_or_else(Vec::new, |path| path.split('.').collect());
    let message = match &run.variant {
        Some(variant) => format!("in variant {variant}: {refusal}"),
        None => refusal.to_string(),
    };
    document.error_at(&set.unwrap_or_else(nowhere), message)
}

/// Checks that a program is a parda, by its answer to `--version`.
fn is_parda(program: &Path) -> Result<(), Failure> {
    let wrong = |why: String| Failure::usage(format!("--before {}: {why}", program.display()));
    let answer = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let answer = answer.map_err(|e| wrong(format!("cannot be run: {e}")))?;
    match answer.stdout.starts_with(b"parda ") {
        true => Ok(()),
        false => Err(wrong("is no parda: --version says something else".to_owned())),
    }
}

/// The program of agents: a host's, of the same build or the same packages.
fn parda_beside(parda_lab: &Path) -> Result<PathBuf, Failure> {
    let parda = parda_lab.with_file_name("parda");
    match parda.is_file() {
        true => Ok(parda),
        false => Err(Failure::usage(format!(
            "{}: the program of agents is not there: build or install parda beside parda-lab",
            parda.display()
        ))),
    }
}

/// Chooses where dashboards are, and says so.
fn dashboards(scenario: &Scenario) -> Result<Dashboards, Failure> {
    let chosen = Dashboards::choose(scenario)
        .map_err(|e| Failure::new(format!("cannot serve dashboards: {e}")))?;
    for (host, url) in chosen.urls(scenario) {
        eprintln!("{host}: {url}");
    }
    eprintln!("token for changes: {}", chosen.token());
    Ok(chosen)
}

/// Progress of the run: a bar on a terminal, a line per five seconds elsewhere.
fn show(bar: &ProgressBar, progress: &LabProgress<'_>) {
    let message = format!(
        "{:7.0} IOPS  {:>6} ms  {}",
        progress.iops,
        output::number(progress.device_latency_ms, 1),
        progress.phase.unwrap_or("settling"),
    );
    let at = progress.at.as_secs();
    if bar.is_hidden() && at.is_multiple_of(5) {
        eprintln!("{at:4}/{} s {message}", bar.length().unwrap_or_default());
    }
    bar.set_position(at);
    bar.set_message(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refusal of the first run that the laboratory cannot do.
    fn refused(more: &str) -> String {
        let text = format!(
            "name = \"t\"\nduration = \"9s\"\n[array]\npreset = \"cx3-40-raid5-vms\"\n\
             [[host]]\nname = \"a\"\nexchange = {{ delay = \"0s\" }}\n[[host.vm]]\nname = \"db\"\nshares = 1\ndisk = \"1GiB\"\n\
             workload = {{ size = \"4KiB\", read = 100, random = 100, outstanding = 8 }}\n\
             [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n{more}"
        );
        let document = Document::new("t.toml", text);
        let study = Study::parse(&document).unwrap();
        let refusal = |run: &Run| {
            let refusal = parda_lab::limits::check(&run.scenario, false).err()?;
            Some(placed(&document, run, &refusal).to_string())
        };
        study.runs.iter().find_map(refusal).unwrap()
    }

    #[test]
    fn what_a_variant_sets_is_refused_at_its_own_line() {
        let says = "exchange.delay is beyond the laboratory: parda-lab sim can do it";
        assert_eq!(
            refused(
                "[[variant]]\nname = \"near\"\n[[variant]]\nname = \"far\"\nset = { host.0.exchange.delay = \"1s\" }\n"
            ),
            format!("t.toml:21:33: delay = \"1s\": in variant far: {says}")
        );
        assert_eq!(
            refused("[[sweep]]\nkey = \"host.*.exchange.delay\"\nvalues = [\"0s\", \"2s\"]\n"),
            format!("t.toml:19:17: values = \"2s\": in variant delay=2s: {says}")
        );
    }
}
