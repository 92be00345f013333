//! `parda`: fair sharing of storage among the hosts that share an array.

#![forbid(unsafe_code)]

mod agent;
mod disk;
mod drain;
mod events;
mod exchange;
mod explain;
mod input;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod libvirt;
mod limits;
mod peers;
mod policy;
mod reload;
mod serve;
mod service;
mod set;
mod status;
mod steer;
mod top;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};
use parda_agent::events::Recorder;
use parda_probe_tools::Target;
use parda_terminal::{Failure, log, manual, negatives_are_values, probe};

/// Fair sharing of storage among the hosts that share an array, with no help from the array.
///
/// Each host measures the latency of its IOs, tells the other hosts, and adjusts how many IOs it
/// keeps outstanding, so that the array stays near a latency threshold and every host gets its
/// share.
#[derive(Parser)]
#[command(name = "parda", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: log::Options,
}

const EXAMPLES: &str = "\
Examples:
  parda probe /dev/mapper/san           latency against load, and the threshold to set
  parda exchange init /mnt/array-a/parda.exchange --volume array-a    where hosts meet, once
  parda check /etc/parda.toml           check a configuration without starting
  parda reload                          have the agent read it again
  parda serve -c /etc/parda.toml        serve this host's disks, steer its devices
  parda steer watch /dev/mapper/san     see what a device does, each second
  parda status                          ask the agent of /etc/parda.toml what is now
  parda top                             the same, live
  parda explain db                      why a VM is as slow as it is, and what would help
  parda set vm1 shares=2000             change the shares of a disk while clients use it
  parda policy apply policy.toml        settings of all hosts, from a file in git
  parda disk add vm9 path=/mnt/array-a/vm9.img listen=unix:/run/parda/array-a.sock
  parda drain --wait 60s                no new connections; wait until nobody is connected

Emulated arrays, simulations and loads are commands of parda-lab, a program of its own.
Pages that are named docs/… are in /usr/share/doc/parda, or /usr/local/share/doc/parda (make install).
Exit status: 0 success; 1 a command failed; 2 bad usage or configuration.";

const STEER_EXAMPLES: &str = "\
Examples:
  parda steer watch /dev/mapper/san     latencies, sizes and IOs outstanding, each second
  parda steer show /dev/vg/data         queue depths that can be set, and their bounds
  parda steer restore                   put back all that a crash left set

The agent steers by itself, as a volume with [volume.steer] says: parda serve -c /etc/parda.toml";

const POLICY_EXAMPLES: &str = "\
Examples:
  parda policy diff policy.toml         what the file would change; exit status 1 if anything
  parda policy apply policy.toml        change it, for all hosts
  parda policy get                      the policy, and what each host has in force
  parda policy history                  who changed what, and when

Hosts take their settings from there with [policy] in parda.toml: see docs/policy.md";

const PROBE_TARGETS: &str = "\
TARGET is a file or a block device, past the page cache, or an NBD URI, nbd://HOST/EXPORT or
nbd+unix:///EXPORT?socket=PATH. fio drives it. `parda-lab probe` measures the array model.";

const PROBE_EXAMPLES: &str = "  parda probe /dev/mapper/san --page san.html --json san.json
  parda probe nbd://array.example/lun0 --time 1m --quick
  parda probe /srv/store/scratch --create 4GiB --allow-writes
  parda probe page before.json --out before.html
  parda probe /dev/mapper/san --json - | jq '.points[] | [.outstanding, .all.iops, .all.mean_ms]'";

const DISK_EXAMPLES: &str = "\
Examples:
  parda disk add vm9 path=/mnt/array-a/vm9.img listen=unix:/run/parda/array-a.sock shares=500
  parda disk remove vm9

A configuration file is the place for disks that stay: these commands are for who manages many.";

const LIBVIRT_EXAMPLES: &str = "\
Examples:
  parda libvirt list                                 all disks, and which can be served
  parda libvirt toml --below /mnt/array-a --listen unix:/run/parda/array-a.sock >> /etc/parda.toml
  parda libvirt attach vm1                           what would change in its definition
  parda libvirt attach vm1 --apply                   the change; the definition from before is kept in a file
  parda libvirt detach vm1 --apply                   back to the file or device

It runs virsh, and nothing is changed without --apply: see docs/libvirt.md";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  parda completions bash > /usr/share/bash-completion/completions/parda
  source <(parda completions zsh)";

const MAN_EXAMPLES: &str = "\
Examples:
  parda man /usr/local/share/man/man1
  parda man /tmp && man /tmp/parda-serve.1";

#[derive(Subcommand)]
enum Command {
    /// Run this host's agent: serve its virtual disks over NBD, steer its devices, within its shares
    Serve(serve::Serve),
    /// Check an agent's configuration without starting anything
    Check(serve::Check),
    /// Have a running agent read its configuration again; fails if that has an error
    Reload(reload::Reload),
    /// Ask a running agent for its windows, latencies and peers
    Status(status::Status),
    /// Watch an agent: its volumes, VMs and hosts, live in the terminal
    Top(top::Top),
    /// Explain a VM: where its time goes, what limits it, what other shares or thresholds would give
    Explain(explain::Explain),
    /// Change shares, thresholds and other settings of a running agent
    Set(set::Set),
    /// Shares, thresholds and modes in one place, etcd, for all hosts: show, change, compare, apply
    #[command(subcommand, after_help = POLICY_EXAMPLES)]
    Policy(policy::Policy),
    /// Add a disk to a running agent, or remove one
    #[command(subcommand, after_help = DISK_EXAMPLES)]
    Disk(disk::Disk),
    /// Take no new connections, before an upgrade or a removal
    Drain(drain::Drain),
    /// Show the events of an agent, and new ones as they happen
    Events(events::Events),
    /// Show the hosts of all volumes, as an agent hears them
    Peers(peers::Peers),
    /// List the disks of libvirt's domains, and have domains reach them by the agent
    #[command(subcommand, after_help = LIBVIRT_EXAMPLES)]
    Libvirt(libvirt::Libvirt),
    /// Give pods of this node the shares that their claims and storage classes name
    #[cfg(feature = "kubernetes")]
    Kubernetes(kubernetes::Kubernetes),
    /// Look at, set and put back the queue depth of a block device
    #[command(subcommand, after_help = STEER_EXAMPLES)]
    Steer(steer::Steer),
    /// Make the exchange where the hosts of a volume meet, or show one
    #[command(subcommand)]
    Exchange(exchange::Exchange),
    /// Measure latency against load, find the knee, say which threshold to set
    #[command(after_help = probe::help(PROBE_TARGETS, PROBE_EXAMPLES))]
    Probe(probe::Probe),
    /// Write the completions of a shell to standard output
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(manual::Completions),
    /// Write the manual pages of all commands to a directory
    #[command(after_help = MAN_EXAMPLES)]
    Man(manual::Man),
}

impl Command {
    fn run(&self, events: Recorder) -> Result<(), Failure> {
        match self {
            Self::Serve(command) => command.run(events),
            Self::Check(command) => command.run(),
            Self::Reload(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Top(command) => command.run(),
            Self::Explain(command) => command.run(),
            Self::Set(command) => command.run(),
            Self::Policy(command) => command.run(),
            Self::Disk(command) => command.run(),
            Self::Drain(command) => command.run(),
            Self::Events(command) => command.run(),
            Self::Peers(command) => command.run(),
            Self::Steer(command) => command.run(),
            Self::Exchange(command) => command.run(),
            Self::Libvirt(command) => command.run(),
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(command) => command.run(),
            Self::Probe(command) => command.run(Target::open),
            Self::Completions(command) => command.run(Cli::command()),
            Self::Man(command) => command.run(Cli::command()),
        }
    }
}

/// Commands of `parda-lab`, which were of `parda` once.
const LABORATORY: [&str; 5] = ["array", "bench", "lab", "reproduce", "sim"];

fn main() -> ExitCode {
    let matches = negatives_are_values(Cli::command()).try_get_matches();
    let matches = matches.unwrap_or_else(|error| with_program(error).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let events = Recorder::default();
    parda_terminal::run("parda", &cli.log, events.layer(), || cli.command.run(events))
}

/// The error of a command that is no command, with the program that has it.
fn with_program(mut error: clap::Error) -> clap::Error {
    let named = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if LABORATORY.contains(&&**name) => name.clone(),
        _ => return error,
    };
    let tip = format!("it is a command of another program: parda-lab {named}");
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Message of a refusal, if the arguments are refused.
    fn refusal(arguments: &[&str]) -> Option<String> {
        let all = std::iter::once(&"parda").chain(arguments);
        Cli::try_parse_from(all).err().map(|error| with_program(error).to_string())
    }

    #[test]
    fn a_command_of_the_laboratory_is_refused_with_its_program() {
        for name in LABORATORY {
            let said = refusal(&[name, "scenarios/demo.toml"]).unwrap();
            assert!(said.contains(&format!("parda-lab {name}\n")), "{said}");
            assert_eq!(said.matches("tip: ").count(), 1, "{said}");
        }
        assert!(!refusal(&["seve"]).unwrap().contains("parda-lab"));
    }

    #[test]
    fn a_blank_within_a_number_is_refused() {
        for (arguments, option) in [
            (&["explain", "db", "--threshold"][..], "30ms"),
            (&["explain", "db", "--over"], "30s"),
            (&["status", "--over"], "2s"),
            (&["top", "--every"], "2s"),
            (&["drain", "--wait"], "60s"),
            (&["probe", "f", "--time"], "60s"),
            (&["exchange", "show", "f", "--offset"], "4KiB"),
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
        assert!(refusal(&["exchange", "show", "f", "--offset", "16EiB"]).is_some());
    }
}
