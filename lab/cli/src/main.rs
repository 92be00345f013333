//! `parda-lab`: the laboratory of parda, where its law is tried and its servers are measured.

#![forbid(unsafe_code)]

mod answer;
mod array;
mod bench;
mod lab;
mod probe;
mod reproduce;
mod sim;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};
use parda_terminal::{Failure, log, manual, negatives_are_values};
use tracing_subscriber::layer::Identity;

/// The laboratory of parda: emulated disk arrays, scenarios in virtual and in real time, and loads for servers.
///
/// Nothing of it is needed on a host that serves: that is `parda`.
#[derive(Parser)]
#[command(name = "parda-lab", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: log::Options,
}

const EXAMPLES: &str = "\
Examples:
  parda-lab lab scenarios/demo.toml         see it work, on an emulated array
  parda-lab sim scenarios/demo.toml         the same in virtual time, within a second
  parda-lab bench nbd nbd://array/lun0      IOPS and latency of any NBD server
  parda-lab probe model:drive-7200          what parda probe says of a modelled array
  parda-lab reproduce                       the source papers' figures, beside ours

Pages that are named docs/… are in /usr/share/doc/parda, or /usr/local/share/doc/parda (make install).
Exit status: 0 success; 1 a run failed or an expectation was not met; 2 bad usage or a bad scenario.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  parda-lab completions bash > /usr/share/bash-completion/completions/parda-lab
  source <(parda-lab completions zsh)";

const MAN_EXAMPLES: &str = "\
Examples:
  parda-lab man /usr/local/share/man/man1
  parda-lab man /tmp && man /tmp/parda-lab-sim.1";

#[derive(Subcommand)]
enum Command {
    /// Run a scenario in real time: an emulated array, real agents, fio as the VMs
    Lab(lab::Lab),
    /// Run a scenario in virtual time: the same law and the same array model, in seconds
    Sim(sim::Sim),
    /// Serve an emulated disk array over NBD: real data, the timing of modelled drives
    Array(array::Array),
    /// Load a server and measure it: IOPS, latencies, CPU time
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Measure a modelled array as parda probe measures a real one
    #[command(after_help = probe::help())]
    Probe(parda_terminal::probe::Probe),
    /// Run every figure and table of the source papers, and compare our numbers with theirs
    Reproduce(reproduce::Reproduce),
    /// Write the completions of a shell to standard output
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(manual::Completions),
    /// Write the manual pages of all commands to a directory
    #[command(after_help = MAN_EXAMPLES)]
    Man(manual::Man),
}

impl Command {
    fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Lab(command) => command.run(),
            Self::Sim(command) => command.run(),
            Self::Array(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Probe(command) => command.run(probe::open),
            Self::Reproduce(command) => command.run(),
            Self::Completions(command) => command.run(Cli::command()),
            Self::Man(command) => command.run(Cli::command()),
        }
    }
}

fn main() -> ExitCode {
    let matches = negatives_are_values(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    parda_terminal::run("parda-lab", &cli.log, Identity::new(), || cli.command.run())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Message of a refusal, if the arguments are refused.
    fn refusal(arguments: &[&str]) -> Option<String> {
        let all = std::iter::once(&"parda-lab").chain(arguments);
        Cli::try_parse_from(all).err().map(|error| error.to_string())
    }

    #[test]
    fn a_blank_within_a_number_is_refused() {
        for (arguments, option) in [
            (&["bench", "nbd", "nbd://h", "--time"][..], "3s"),
            (&["bench", "nbd", "nbd://h", "--warmup"], "3s"),
            (&["bench", "nbd", "nbd://h", "--patience"], "3s"),
            (&["bench", "nbd", "nbd://h", "--range"], "64MiB"),
        ] {
            let with = |value: &str| refusal(&[arguments, &[value]].concat());
            assert_eq!(with(option), None, "{arguments:?}");
            let (first, rest) = option.split_at(1);
            let broken = format!("{first} 0{rest}");
            let said = with(&broken).unwrap_or_else(|| panic!("{arguments:?} takes {broken:?}"));
            assert!(said.contains(&format!("'{broken}'")), "the value is not named: {said}");
        }
    }

    #[test]
    fn a_size_beyond_what_can_be_counted_is_refused() {
        assert!(refusal(&["bench", "nbd", "nbd://h", "--range", "16EiB"]).is_some());
    }
}
