//! The command `probe`, whose targets its program finds.

mod arguments;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use parda_probe::{
    Effort, LoadMix, OpenQuestion, Point, ProbeDocument, ProbeEnd, ProbeProgress, Purpose,
    TargetKind, Watcher, Wishes,
};
use parda_probe_tools::report;
use parda_probe_tools::{Target, TargetError, Writes};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::{Failure, output, quantity};
use arguments::{depths, experiment, mix, purpose, size};
use quantity::{bytes, percent};

/// Help of the command behind its options. `targets`: what may be measured; `examples`: a line each.
#[must_use]
pub fn help(targets: &str, examples: &str) -> String {
    format!(
        "\
{targets}
docs/probe.md is the manual. `probe page` draws what --json wrote.

It only reads, unless --allow-writes is given together with a target that nobody uses and that begins and ends
with a MiB of zeroes, or that --create made; any other target is refused, with the reason. A probe is load:
other users of the same array wait for it.

Each load is a closed loop. Its warm-up is dropped; the load ends when its throughput and mean latency are
known well enough. A load that never settles is kept and marked.

Ctrl-C ends the probe with what was measured so far; a second Ctrl-C ends it at once.

Exit status: 1 if the target failed, 130 if the probe was stopped; both print what was measured until then.

Examples:
{examples}"
    )
}

/// Time in which at least one load is measured.
const LEAST_TIME: Duration = Duration::from_secs(3);

/// Time without an answer of fio after which that is reported, in seconds.
const SILENT_S: f64 = 10.0;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
/// Arguments of the command `probe`.
pub struct Probe {
    #[command(subcommand)]
    stored: Option<Stored>,
    /// What to measure
    #[arg(value_name = "TARGET", required = true)]
    target: Option<String>,
    /// Time limit of the whole probe; 3 minutes if not given, 1 with --quick. For a model this is
    /// virtual time, unlimited by default
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    time: Option<Duration>,
    /// Measure only what is needed to find the knee, roughly
    #[arg(long)]
    quick: bool,
    /// The size of an IO in the sweep over outstanding
    #[arg(long, value_name = "BYTES", default_value = "4k", value_parser = size)]
    size: u64,
    /// IOs of that sweep that are reads, in percent
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = percent)]
    read: u32,
    /// IOs of that sweep at random offsets, in percent; each other IO follows the one before
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = percent)]
    random: u32,
    /// A mix to sweep in place of --size, --read and --random: size, read % and random %; may be given more than
    /// once. Advice is drawn from the first
    #[arg(
        long,
        value_name = "SIZE,READ,RANDOM",
        value_parser = mix,
        conflicts_with_all = ["size", "read", "random"]
    )]
    mix: Vec<LoadMix>,
    /// Numbers of outstanding IOs to sweep, such as 1-64
    #[arg(long, value_name = "FROM-TO", default_value = "1-256", value_parser = depths)]
    depths: (u32, u32),
    /// Go to the end of --depths, even if throughput stopped growing long before
    #[arg(long)]
    all: bool,
    /// Only some of the questions: depth, size, mix, repeat
    #[arg(long, value_name = "QUESTION", value_delimiter = ',', value_parser = purpose)]
    only: Vec<Purpose>,
    /// A published experiment in place of the sweeps: elling, 4 KiB at random offsets, 1 to 10 outstanding
    /// (docs/elling.md)
    #[arg(
        long,
        value_name = "NAME",
        value_parser = experiment,
        conflicts_with_all = ["quick", "size", "read", "random", "mix", "depths", "all", "only"]
    )]
    experiment: Option<String>,
    /// Write to the target as well, if nobody uses it and it begins and ends with zeroes; an NBD export must be named
    /// again here
    #[arg(long, value_name = "TARGET", num_args = 0..=1, require_equals = true)]
    allow_writes: Option<Option<String>>,
    /// Make TARGET first, a new file of this size that may be overwritten
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    create: Option<u64>,
    /// The seed that offsets and the order of loads follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the answer as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a page with plots for a browser
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Finds the target of a name, as [`Target::open`] does.
pub type Open = fn(&str, &Writes, Option<u64>) -> Result<Target, TargetError>;

/// Subcommands for stored probes. A target of such a name is `./page`.
#[derive(Subcommand)]
enum Stored {
    /// Make the page of a probe that was stored as JSON
    Page {
        /// A document of `parda probe --json`
        #[arg(value_name = "A.json")]
        probe: PathBuf,
        /// File to write the page to; - for standard output
        #[arg(long, value_name = "FILE", default_value = "-")]
        out: PathBuf,
    },
}

impl Probe {
    /// Measures the target, which `open` finds by its name.
    ///
    /// # Errors
    /// The arguments are wrong, the target cannot be probed, or the probe did not come to its end.
    pub fn run(&self, open: Open) -> Result<(), Failure> {
        if let Some(Stored::Page { probe, out }) = &self.stored {
            output::check([&Some(out.clone())])?;
            let stored =
                ProbeDocument::read(probe).map_err(|error| Failure::usage(error.to_string()))?;
            return output::write(out, &report::page(&stored)).map(|_| ());
        }
        if let Some(time) = self.time.filter(|time| *time < LEAST_TIME) {
            let (time, least) =
                (humantime::format_duration(time), humantime::format_duration(LEAST_TIME));
            let message = format!("--time {time}: must be at least {least}: one load takes 2 s");
            return Err(Failure::usage(message));
        }
        output::check([&self.json, &self.page])?;
        let writes = match &self.allow_writes {
            None => Writes::No,
            Some(None) => Writes::Allowed,
            Some(Some(name)) => Writes::To(name.clone()),
        };
        let opened = open(self.target(), &writes, self.create);
        let mut target = opened.map_err(|error| match error {
            TargetError::Failed(error) => Failure::new(error),
            TargetError::Unfit(error) => Failure::usage(error),
        })?;
        let wishes = self.wishes(&target)?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends us: it finds the flag that the first one set.
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .map_err(|e| Failure::new(format!("cannot catch signals: {e}")))?;
        }
        let bar = output::bar("{bar:20} {pos}/{len}  {msg}", 0);
        let mut terminal = Terminal { bar, last: String::new(), stop, silent: false };
        let time = self.time.map(|time| time.as_secs_f64());
        let time = time.or_else(|| self.usual_time(target.info().kind));
        let document = target.probe(wishes, time, self.seed, &mut terminal);
        terminal.bar.finish_and_clear();
        self.answer(&document)?;
        match document.end {
            ProbeEnd::Complete | ProbeEnd::Time if document.points.is_empty() => {
                Err(Failure::new("no load was measured within the time: give it more, by --time"))
            }
            ProbeEnd::Complete | ProbeEnd::Time => Ok(()),
            ProbeEnd::Aborted => Err(Failure::interrupted()),
            ProbeEnd::Failed => Err(Failure::silent()),
        }
    }

    /// There is one: it is required where nothing is done with stored probes.
    fn target(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }

    /// Time limit if none is given: of a model, none.
    fn usual_time(&self, kind: TargetKind) -> Option<f64> {
        let seconds = if self.quick { 60.0 } else { 3.0 * 60.0 };
        (kind != TargetKind::Model).then_some(seconds)
    }

    fn wishes(&self, target: &Target) -> Result<Wishes, Failure> {
        let own = LoadMix { size: self.size, read_percent: self.read, random_percent: self.random };
        let mixes = if self.mix.is_empty() { vec![own] } else { self.mix.clone() };
        let (writes, largest) = (target.may_be_written(), target.driven_bytes());
        let named = |mix: &LoadMix, why: &str| Failure::usage(format!("{mix}: {why}"));
        if let Some(mix) = mixes.iter().find(|mix| mix.read_percent < 100 && !writes) {
            return Err(named(mix, "it is only read, unless --allow-writes is given"));
        }
        if let Some(mix) = mixes.iter().find(|mix| mix.size > largest) {
            return Err(named(mix, &format!("{} has {largest} bytes", self.target())));
        }
        let every = [Purpose::Depth, Purpose::Size, Purpose::Mix, Purpose::Repeat];
        Ok(Wishes {
            mixes,
            outstanding: self.depths.0..=self.depths.1,
            all: self.all,
            purposes: if self.only.is_empty() { every.to_vec() } else { self.only.clone() },
            effort: if self.quick { Effort::Quick } else { Effort::Usual },
            elling: self.experiment.is_some(),
            writes,
            largest,
        })
    }

    fn answer(&self, document: &ProbeDocument) -> Result<(), Failure> {
        let mut said = false;
        if let Some(to) = &self.json {
            said |= output::write(to, &document.json())?;
        }
        if let Some(to) = &self.page {
            said |= output::write(to, &report::page(document))?;
        }
        if said { Ok(()) } else { output::print(&report::table(document)) }
    }
}

/// Progress and notes while the probe runs.
struct Terminal {
    bar: ProgressBar,
    /// Result of the last load.
    last: String,
    stop: Arc<AtomicBool>,
    /// Whether fio's silence has been reported.
    silent: bool,
}

impl Terminal {
    /// Says something above the bar.
    fn say(&self, what: &str) {
        self.bar.suspend(|| eprintln!("parda: {what}"));
    }
}

impl Watcher for Terminal {
    fn progress(&mut self, progress: &ProbeProgress<'_>) -> bool {
        self.bar.set_length((progress.done + progress.left) as u64);
        self.bar.set_position(progress.done as u64);
        let left = progress.left_s.map_or(String::new(), |left| {
            format!("  at most {}:{:02} left", left as u64 / 60, left as u64 % 60)
        });
        let ProbeProgress { load, load_s, .. } = progress;
        self.bar.set_message(format!("{load}, {load_s:.0} s{left}{}", self.last));
        let silent = progress.silent_s >= SILENT_S;
        if silent && !self.silent {
            self.say(&format!(
                "fio has not answered for {SILENT_S} s, as on a busy host: the probe waits for it; Ctrl-C ends the probe"
            ));
        }
        self.silent = silent;
        self.stop.load(Ordering::Relaxed)
    }

    fn measured(&mut self, point: &Point) {
        let all = &point.all;
        self.last = format!("  (last: {:.0} IOPS, {:.2} ms)", all.iops, all.mean_ms);
    }

    fn note(&mut self, note: &OpenQuestion) {
        self.say(&report::unknown(note));
    }
}
