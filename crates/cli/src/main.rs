//! `parda`: fair sharing of storage among the hosts that share an array.

#![forbid(unsafe_code)]

mod agent;
mod array;
mod bench;
mod disk;
mod drain;
mod events;
mod exchange;
mod explain;
mod failure;
mod input;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod lab;
mod libvirt;
mod limits;
mod log;
mod manual;
mod output;
mod peers;
mod policy;
mod probe;
mod quantity;
mod reload;
mod reproduce;
mod serve;
mod service;
mod set;
mod sim;
mod status;
mod steer;
mod top;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

pub(crate) use failure::Failure;

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
    /// What to log: a level (error, warn, info, debug) or a filter such as parda_block=debug
    #[arg(long, global = true, env = "PARDA_LOG", default_value = log::DEFAULT, value_name = "FILTER")]
    log: String,
    /// How to write the log: text or JSON
    #[arg(long, global = true, value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: log::Format,
}

const EXAMPLES: &str = "\
Examples:
  parda lab scenarios/demo.toml         see it work, on an emulated array
  parda sim scenarios/demo.toml         the same in virtual time, within a second
  parda probe /dev/mapper/san           latency against load, and the threshold to set
  parda bench nbd nbd://array/lun0      IOPS and latency of any NBD server
  parda reproduce                       the source papers' figures, beside ours
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

Pages that are named docs/… are in /usr/share/doc/parda, or /usr/local/share/doc/parda (make install).
Exit status: 0 success; 1 a run failed or an expectation was not met; 2 bad usage or configuration.";

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
    /// Serve an emulated disk array over NBD: real data, the timing of modelled drives
    Array(array::Array),
    /// Run a scenario in real time: an emulated array, real agents, fio as the VMs
    Lab(lab::Lab),
    /// Run a scenario in virtual time: the same law and the same array model, in seconds
    Sim(sim::Sim),
    /// Measure latency against load, find the knee, say which threshold to set
    Probe(probe::Probe),
    /// Load a server and measure it: IOPS, latencies, CPU time
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run every figure and table of the source papers, and compare our numbers with theirs
    Reproduce(reproduce::Reproduce),
    /// Write the completions of a shell to standard output
    Completions(manual::Completions),
    /// Write the manual pages of all commands to a directory
    Man(manual::Man),
}

/// Time that the process waits at its end for peers with TLS to take the bytes that they were sent.
const LAST_WORDS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let matches = negatives_are_values(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // Dropped last: the drop writes the queued lines.
    let events = parda_agent::events::Recorder::default();
    let log = match log::start(&cli.log, cli.log_format, &events) {
        Ok(log) => log,
        Err(message) => return end(Err(Failure::usage(message))),
    };
    let done = match &cli.command {
        Command::Serve(command) => command.run(events),
        Command::Check(command) => command.run(),
        Command::Reload(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Set(command) => command.run(),
        Command::Policy(command) => command.run(),
        Command::Disk(command) => command.run(),
        Command::Drain(command) => command.run(),
        Command::Events(command) => command.run(),
        Command::Peers(command) => command.run(),
        Command::Steer(command) => command.run(),
        Command::Exchange(command) => command.run(),
        Command::Array(command) => command.run(),
        Command::Libvirt(command) => command.run(),
        #[cfg(feature = "kubernetes")]
        Command::Kubernetes(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Sim(command) => command.run(),
        Command::Probe(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Reproduce(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    };
    // The last TLS messages are still to be sent.
    parda_tls::settle(LAST_WORDS);
    drop(log);
    end(done)
}

/// A command to which `--slots -1` is a wrong number, and no option `-1`.
fn negatives_are_values(command: clap::Command) -> clap::Command {
    let values = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(values).mut_subcommands(negatives_are_values)
}

fn end(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("{}parda: {}", log::error_prefix(), output::lines(&failure.message));
            }
            ExitCode::from(failure.code)
        }
    }
}
