//! `parda workload`.

use std::fs::File;
use std::io::{BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use parda_config::Document;
use parda_control::Bytes;
use parda_scenario::{Scenario, Study, Vm, VmId};
use parda_workload::fio::{
    ExportedClient, Imported, Job, JobTarget, import, iolog, job_file, job_names, log_name,
    sections,
};
use parda_workload::trace::{self, Replay, Summary, Trace};
use parda_workload::{ClientLoad, spell};

use crate::sim::variants;
use crate::{Failure, output};

#[derive(Subcommand)]
pub(crate) enum Workload {
    /// Write the workloads of a scenario, or the points of a probe, as a job file of fio
    Export(Export),
    /// Print the jobs of a job file of fio as workloads of a scenario
    Import(Import),
    /// Describe a trace: a log of fio's, or the text of blkparse
    Describe(Describe),
}

#[derive(Args)]
#[command(after_help = "\
Each VM is a job of its name, from its first start to its first stop. Events, hosts and the array
are the scenario's: the jobs have only the load. fio is started with `fio FILE`.

Beware: jobs that write overwrite what is on their target. A VM that replays a trace needs the log
NAME.iolog, which is written beside --out.

Examples:
  parda workload export scenarios/demo.toml
  parda workload export scenarios/demo.toml --host host-1 --out host-1.fio
  parda workload export scenarios/demo.toml --vm db --target /dev/mapper/test --out db.fio
  parda workload export probe.json --target /dev/mapper/test
  parda workload export scenarios/demo.toml --target 'nbd+unix:///{vm}?socket=/run/parda/a.sock'")]
pub(crate) struct Export {
    /// The scenario; or the document of a probe, NAME.json
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Only the VMs of this host; may be given more than once
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Only this VM; may be given more than once
    #[arg(long, value_name = "NAME")]
    vm: Vec<String>,
    /// Take this variant of the scenario
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Where the disk of each VM is: a file, a block device or an NBD URI; {vm} stands for its name
    #[arg(long, value_name = "TARGET", default_value = "{vm}.disk")]
    target: String,
    /// Write to a file; standard output if not given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "\
Options that do not describe the load (filename, direct, runtime, reporting) are ignored; options that
do, and have no counterpart in a workload, are refused, with their line. docs/workloads.md has the list. A
scenario can also name the job itself: workload = { fio = \"db.fio\", job = \"oltp\" }

Examples:
  parda workload import db.fio
  parda workload import db.fio --job oltp")]
pub(crate) struct Import {
    /// The fio job file to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take only the job of this name
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
A trace is an IO log of fio (fio --write_iolog=FILE), or the text of blkparse from a trace of the kernel's
block layer (blktrace -d /dev/sda -w 60 -o - | blkparse -i - > FILE). The format is recognised from the
beginning of the file. A scenario replays a trace: workload = { trace = \"FILE\" }, docs/workloads.md.

Examples:
  parda workload describe db.trace
  parda workload describe db.trace --json - | jq .arrivals")]
pub(crate) struct Describe {
    /// The trace file to read
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Write the description as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

impl Workload {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Workload::Export(export) => export.run(),
            Workload::Import(import) => import.run(),
            Workload::Describe(describe) => describe.run(),
        }
    }
}

impl Export {
    fn run(&self) -> Result<(), Failure> {
        output::check([&self.out])?;
        if self.scenario.extension().is_some_and(|kind| kind == "json") {
            return self.probe();
        }
        let file = self.scenario.display();
        let study = Study::parse(&Document::read(&self.scenario)?)?;
        let study = variants(study, &self.scenario, self.variant.as_slice())?;
        let [run] = study.runs.as_slice() else {
            let names: Vec<&str> = study.runs.iter().map(|run| run.name()).collect();
            let names = names.join(", ");
            return Err(Failure::usage(format!(
                "{file}: has variants: --variant NAME, of {names}"
            )));
        };
        let scenario = &run.scenario;
        let clients: Vec<ExportedClient<'_>> =
            self.vms(scenario)?.into_iter().map(|id| scenario.client(id)).collect();
        let target = |vm: &str| self.target.replace("{vm}", vm);
        let text = job_file(&clients, target)
            .map_err(|(vm, error)| Failure::usage(format!("{file}: {vm}: {error}")))?;
        self.write(&format!("What the VMs of {} do", scenario.name), &text)?;
        self.logs(scenario, &clients)
    }

    fn write(&self, what: &str, jobs: &str) -> Result<(), Failure> {
        let text = format!("# {what}. By `parda workload export`, for fio.\n\n{jobs}");
        match &self.out {
            None => output::print(&text),
            Some(out) => std::fs::write(out, text).map_err(|e| cannot_write(out, &e)),
        }
    }

    /// The points of a probe, one after the other.
    fn probe(&self) -> Result<(), Failure> {
        let file = self.scenario.display();
        if !(self.host.is_empty() && self.vm.is_empty() && self.variant.is_none()) {
            let message = "is a probe, which has points and no VMs, hosts and variants";
            return Err(Failure::usage(format!("{file}: {message}")));
        }
        let probe = parda_probe::ProbeDocument::read(&self.scenario)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let target = self.target.replace("{vm}", "probe");
        let job = |(number, point): (usize, &parda_probe::Point)| {
            let parda_probe::Load { mix, outstanding } = point.load;
            let mut job = Job::new(format!("{number:03}: {mix}, {outstanding} outstanding"));
            job.target(JobTarget::of(&target));
            let said =
                job.load(&parda_probe_tools::workload(&point.load), Bytes(probe.target.bytes));
            said.map_err(|error| (job.name().to_owned(), error))?;
            job.set("time_based", 1);
            job.set("ramp_time", format!("{:.0}ms", 1e3 * point.warmup_s));
            job.set("runtime", format!("{:.0}ms", (1e3 * point.measured_s).max(1.0)));
            job.set("randseed", probe.seed & 0xffff_ffff);
            // Each after the one before.
            job.set("stonewall", 1);
            Ok(job)
        };
        let text = (1..).zip(&probe.points).map(job).collect::<Result<Vec<_>, _>>();
        let text = text.and_then(|jobs| sections(&jobs));
        let text =
            text.map_err(|(job, error)| Failure::usage(format!("{file}: {job}: {error}")))?;
        self.write(&format!("What a probe of {} did", probe.target.name), &text)
    }

    fn vms(&self, scenario: &Scenario) -> Result<Vec<VmId>, Failure> {
        let hosts: Vec<&str> = scenario.hosts.iter().map(|host| host.name.as_str()).collect();
        let vms: Vec<&str> = scenario.vm_ids().map(|(_, vm)| vm.name.as_str()).collect();
        for (what, wanted, known) in [("host", &self.host, hosts), ("VM", &self.vm, vms)] {
            if let Some(name) = wanted.iter().find(|name| !known.contains(&name.as_str())) {
                let (file, known) = (self.scenario.display(), known.join(", "));
                let message = format!("{file}: there is no {what} `{name}`; there is {known}");
                return Err(Failure::usage(message));
            }
        }
        let any = |wanted: &[String], name: &String| wanted.is_empty() || wanted.contains(name);
        let chosen = |(id, vm): (VmId, &Vm)| {
            let host = scenario.host(id.host);
            let chosen = host.present && any(&self.host, &host.name) && any(&self.vm, &vm.name);
            chosen.then_some(id)
        };
        let vms: Vec<VmId> = scenario.vm_ids().filter_map(chosen).collect();
        if vms.is_empty() {
            let file = self.scenario.display();
            return Err(Failure::usage(format!(
                "{file}: no VM matches --host and --vm, on a host that is there from the start"
            )));
        }
        Ok(vms)
    }

    /// Writes the logs that VMs replay, beside the job file.
    fn logs(&self, scenario: &Scenario, clients: &[ExportedClient<'_>]) -> Result<(), Failure> {
        let replays = clients.iter().filter_map(|client| match client.load {
            ClientLoad::Replayed(replay) => Some((client, replay)),
            ClientLoad::Drawn(_) => None,
        });
        let replays: Vec<(&ExportedClient<'_>, &Replay)> = replays.collect();
        if replays.is_empty() {
            return Ok(());
        }
        let Some(out) = &self.out else {
            let message = "VMs that replay a trace need logs beside the job file: say --out FILE";
            return Err(Failure::usage(message));
        };
        let folder = out.parent().unwrap_or(Path::new(""));
        for (client, replay) in replays {
            let path = folder.join(log_name(client.name));
            // As each host has a place of its own in the simulator, though not the same.
            let chance = client.seed as f64 / (1_u64 << 32) as f64;
            let written = File::create(&path).and_then(|file| {
                iolog(replay, client, scenario.duration, chance, &mut BufWriter::new(file))
            });
            written.map_err(|e| cannot_write(&path, &e))?;
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

impl Import {
    fn run(&self) -> Result<(), Failure> {
        let document = Document::read(&self.file)?;
        let names = match &self.job {
            Some(job) => vec![job.clone()],
            None => job_names(&document)?,
        };
        let text = |name: &String| {
            let Imported { job, workload, disk } = import(&document, Some(name))?;
            let disk =
                disk.map_or_else(String::new, |d| format!("disk = \"{}\"\n", spell::size(d)));
            Ok(format!("# {job}\n{disk}workload = {}\n", workload.toml()))
        };
        let texts: Vec<String> = names.iter().map(text).collect::<Result<_, Failure>>()?;
        output::print(&texts.join("\n"))
    }
}

impl Describe {
    fn run(&self) -> Result<(), Failure> {
        output::check([&self.json])?;
        let trace = read(&self.trace)?;
        match &self.json {
            Some(out) => output::json(out, &trace.summary()),
            None => output::print(&table(&trace)),
        }
    }
}

/// Reads a trace, with a bar if it takes longer than one likes to wait without.
fn read(path: &Path) -> Result<Trace, Failure> {
    let began = Instant::now();
    let size = std::fs::metadata(path).map_or(0, |file| file.len());
    let mut bar = None;
    let trace = trace::read(path, |bytes| {
        if began.elapsed() > Duration::from_secs(1) && std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}  {eta} left");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.get_or_insert_with(|| ProgressBar::new(size).with_style(style)).set_position(bytes);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(trace?)
}

/// Number of sizes that are shown; the rest are only counted.
const SIZES: usize = 8;

fn table(trace: &Trace) -> String {
    let summary = trace.summary();
    let Summary { ios, read_percent, random_percent, bytes, disk, .. } = summary;
    let mut table = output::plain(["", ""]);
    let mut row = |name: &str, value: String| {
        table.add_row([name, &value]);
    };
    row("format", summary.format);
    row("IOs", format!("{ios}, {} altogether", size(bytes)));
    row("reads", format!("{read_percent:.1} %"));
    row("random", format!("{random_percent:.1} % do not follow the last of their direction"));
    let mut sizes = summary.sizes.clone();
    sizes.sort_by_key(|part| std::cmp::Reverse(part.ios));
    let mean = bytes as f64 / ios as f64;
    row("size", format!("{} on average", size(mean as u64)));
    for part in sizes.iter().take(SIZES) {
        row("", format!("{} {:.1} %", size(part.size), 100.0 * part.ios as f64 / ios as f64));
    }
    if sizes.len() > SIZES {
        row("", format!("and {} other sizes", sizes.len() - SIZES));
    }
    row("disk", format!("{} at least", size(disk)));
    match summary.arrivals {
        None => row("arrivals", "the trace has no times: it cannot be replayed".to_owned()),
        Some(arrivals) => {
            row("lasts", format!("{:.3} s", arrivals.seconds));
            let (iops, peak) = (arrivals.iops, arrivals.peak_iops);
            row("arrivals", format!("{iops:.1} a second, {peak} in the fullest"));
            let dispersion = arrivals.dispersion;
            let says = "variance over mean in 100 ms; 1 of a Poisson process";
            row("burstiness", format!("{dispersion:.2} ({says})"));
        }
    }
    if let Some(under_way) = summary.under_way {
        let (mean, most, latency) = (under_way.mean, under_way.most, under_way.latency_ms);
        row(
            "was outstanding",
            format!("{mean:.2} on average, {most} at most, {latency:.3} ms each"),
        );
    }
    for (what, lines) in summary.skipped {
        row("passed over", format!("{lines} {what}"));
    }
    // Without its header of blanks, and the blank before each line.
    let text = table.to_string();
    let lines = text.lines().skip(1).map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// A size for people.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, bits)| bytes >= 1 << bits) {
        None => format!("{bytes} B"),
        Some((unit, bits)) => {
            let number = bytes as f64 / (1_u64 << bits) as f64;
            // Not `4.0 KiB`.
            let whole = bytes.is_multiple_of(1 << bits);
            if whole { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
        }
    }
}
