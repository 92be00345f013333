//! `parda serve` beside other NBD servers: who does how many IOs, how fast, for how much CPU.
//!
//! All servers serve one and the same file to the same client and take turns: A B C A B C.

mod cell;
mod report;
mod sample;
mod server;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use parda_bench::BenchPlan;

use cell::{Cell, Select};
use sample::Sample;
use server::{Fleet, Kind};

const EXAMPLES: &str = "\
A cell is CACHE/TRANSPORT/OPERATION/BLOCK/dDEPTH/cCONNECTIONS, such as page-cache/unix/randread/4k/d16/c1. --only takes
parts of such names, with * for any part: 'page-cache/unix/*/4k/d16/*'. Several --only add up.

A run appends its samples to --results, so that a long matrix can be measured in several runs; the report takes all
samples of a file together. Without --only, a turn takes --seconds and a quarter of a second besides.

Examples:
  matrix run --quick                               12 cells, 3 rounds: about four minutes
  matrix run                                       all cells, 5 rounds: about an hour and a half
  matrix run --only 'direct/unix/*/4k' --rounds 7
  matrix report results.jsonl";

#[derive(Parser)]
#[command(name = "matrix", about = "Measures parda serve beside other NBD servers", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, and print what was measured as Markdown
    Run(Run),
    /// Print samples of earlier runs as Markdown
    Report {
        /// What runs have appended to
        results: PathBuf,
    },
    /// Print the names of all cells
    Cells,
}

#[derive(Args)]
struct Run {
    /// Fewer cells and rounds
    #[arg(long)]
    quick: bool,
    /// Only these cells
    #[arg(long, value_name = "CELLS")]
    only: Vec<Select>,
    /// Only these servers
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SERVER")]
    servers: Vec<Kind>,
    /// Turns of each server in each cell
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Length of a turn, without a warm-up of a fifth of a second
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Size of the file
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    size: u64,
    /// Where the file is: a real disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Append the samples to this file
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// The program under test
    #[arg(long, env = "PARDA", value_name = "PROGRAM", default_value = "target/release/parda")]
    parda: PathBuf,
    /// The bare ring to hold it against
    #[arg(
        long,
        env = "BARE",
        value_name = "PROGRAM",
        default_value = "target/release/examples/bare"
    )]
    bare: PathBuf,
}

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("matrix: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    fn run(self) -> io::Result<()> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::Report { results } => print(&report::markdown(&sample::read(&results)?)),
            Command::Cells => {
                let names: Vec<String> = Cell::all().iter().map(Cell::to_string).collect();
                print(&names.join("\n"))
            }
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

impl Run {
    fn run(&self) -> io::Result<()> {
        let rounds = self.rounds.unwrap_or(if self.quick { 3 } else { 5 });
        let cells: Vec<Cell> = if !self.only.is_empty() {
            Cell::all().into_iter().filter(|c| self.only.iter().any(|o| o.takes(c))).collect()
        } else if self.quick {
            Cell::quick()
        } else {
            Cell::all()
        };
        if cells.is_empty() {
            return Err(io::Error::other("--only names no cell; see `matrix cells`"));
        }
        let dir = Scratch::new(&self.dir)?;
        let data = dir.0.join("data");
        fill(&data, self.size << 20)?;
        // Made by the same writes, not copied: ext4 keeps what was written at once in large folios,
        // and a small write to one of these costs several times as much as to a single page.
        fill(&dir.0.join("copy"), self.size << 20)?;
        let mut results = match &self.results {
            Some(path) => Some(OpenOptions::new().create(true).append(true).open(path)?),
            None => None,
        };
        let mut samples = Vec::new();
        let programs = server::Programs { parda: self.parda.clone(), bare: self.bare.clone() };
        // Cells of one place are measured by the same processes.
        for place in cell::places(&cells) {
            let kinds: Vec<Kind> = Kind::ALL
                .into_iter()
                .filter(|k| {
                    k.serves(place.0) && (self.servers.is_empty() || self.servers.contains(k))
                })
                .collect();
            for cell in cells.iter().filter(|c| (c.cache, c.transport) == place) {
                let fleet = Fleet::start(&kinds, cell, &programs, &dir.0, &data)?;
                // What the cell before has left to write is not this one's.
                let mut files = Vec::new();
                for path in [data.clone(), dir.0.join("copy")].iter().filter(|path| path.exists()) {
                    let file = File::open(path)?;
                    file.sync_all()?;
                    warm(path)?;
                    files.push(file);
                }
                for round in 0..rounds {
                    for server in &fleet.servers {
                        // Nor what the turn before has left. A page that is dirty already is
                        // written to for a fraction of what a clean one costs, and some servers
                        // flush when their client leaves: every turn begins with clean pages.
                        files.iter().try_for_each(File::sync_data)?;
                        let plan = BenchPlan {
                            block: cell.block,
                            depth: cell.depth,
                            connections: cell.connections,
                            warmup: Duration::from_millis(200),
                            time: Duration::from_secs_f64(self.seconds),
                            seed: u64::from(round) + 1,
                            server: vec![server.pid()],
                            ..BenchPlan::new(vec![server.uri.clone()], cell.operation)
                        };
                        let measured = parda_bench::run(&plan).map_err(|e| {
                            io::Error::other(format!("{cell}, {}: {e}", server.kind.name()))
                        })?;
                        let sample = Sample::new(cell, server.kind, round, &measured.summary());
                        if let Some(results) = &mut results {
                            writeln!(results, "{}", serde_json::to_string(&sample)?)?;
                        }
                        samples.push(sample);
                    }
                }
                let mut progress = io::stderr().lock();
                writeln!(progress, "{}", report::line(cell, &samples))?;
            }
        }
        print(&report::markdown(&samples))
    }
}

/// A directory that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(base: &Path) -> io::Result<Self> {
        let dir = base.join(format!("nbd-bench.{}", std::process::id()));
        std::fs::create_dir(&dir)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", dir.display())))?;
        Ok(Self(dir.canonicalize()?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes the file, of bytes that do not compress.
fn fill(path: &Path, len: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut block = vec![0; 1 << 20];
    for _ in 0..len >> 20 {
        rng.fill(&mut block);
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Brings all of the file to the page cache.
fn warm(path: &Path) -> io::Result<()> {
    io::copy(&mut File::open(path)?, &mut io::sink()).map(|_| ())
}
