//! How fast the simulator is, and what it takes of memory, by the size of the cluster; as Markdown.
//!
//! ```sh
//! cargo run --release -p parda-sim --example speed                    # all clusters
//! cargo run --release -p parda-sim --example speed -- reads 64x10     # some of them
//! cargo run --release -p parda-sim --example speed -- --once reads 20 16
//! ```
//!
//! Each cluster runs in a process of its own, so that its memory is its own, and several times, of
//! which the fastest counts, by the time it had of a core: what else the machine does makes a run
//! slower, never faster. `--once` runs one cluster for so many simulated seconds with so many IOs
//! per VM, and prints how many IOs that were, the seconds it took and the memory that it took at
//! most, in KiB.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::error::Error;
use std::process::Command;

use parda_config::Document;
use parda_scenario::Scenario;
use parda_sim::{KeptRuns, run};

/// A cluster of hosts with VMs, on so many drives.
struct Case {
    name: &'static str,
    hosts: u64,
    vms: u64,
    drives: u64,
    level: &'static str,
    workload: &'static str,
    /// Long enough that what it takes to begin and to end does not count.
    seconds: u64,
}

const READS: &str = "read = 100, random = 100";
const MIXED: &str = "read = 67, random = 70";

const fn reads(name: &'static str, hosts: u64, vms: u64, seconds: u64) -> Case {
    Case { name, hosts, vms, drives: hosts, level: "raid0", workload: READS, seconds }
}

const CASES: [Case; 7] = [
    Case { drives: 6, ..reads("reads", 4, 1, 1800) },
    Case { drives: 6, level: "raid5", workload: MIXED, ..reads("mixed", 4, 1, 1800) },
    reads("64x1", 64, 1, 200),
    reads("64x10", 64, 10, 200),
    reads("256x10", 256, 10, 60),
    reads("1000x1", 1000, 1, 40),
    reads("1000x10", 1000, 10, 60),
];

/// IOs that each VM keeps under way.
const OUTSTANDING: u64 = 16;
/// How often each cluster is run,
const RUNS: usize = 3;
/// unless that takes longer, in seconds: so long, and what disturbs it evens out.
const LONG: f64 = 10.0;

/// A front end that does not keep more drives than the preset has from their work.
const WIDE: &str = r#"controller = { io_cost = "100ns", link = "100GB/s" }"#;

type Fallible<T> = Result<T, Box<dyn Error>>;

fn scenario(case: &Case, seconds: u64, outstanding: u64) -> Fallible<Scenario> {
    let Case { name, hosts, vms, drives, level, workload, .. } = case;
    let controller = if *drives > 10 { WIDE } else { "" };
    let vm = |vm| {
        format!(
            "[[host.vm]]\nname = \"v{vm}\"\nshares = 1000\ndisk = \"4GiB\"\nworkload = {{ \
             size = \"16KiB\", {workload}, outstanding = {outstanding} }}\n"
        )
    };
    let vms: String = (0..*vms).map(vm).collect();
    let text = format!(
        "name = \"{name}\"\nduration = \"{seconds}s\"\n\
         [array]\npreset = \"cx3-40-raid0\"\nraid = {{ drives = {drives}, level = \"{level}\" }}\n\
         extent = \"16MiB\"\n{controller}\n\
         [[phase]]\nname = \"all\"\nfrom = \"1s\"\nto = \"{seconds}s\"\n\
         [[host]]\nname = \"h\"\ncount = {hosts}\n{vms}"
    );
    Ok(Scenario::parse(&Document::new(*name, text))?)
}

/// What one run took.
#[derive(Clone, Copy)]
struct Took {
    ios: u64,
    /// CPU time, in seconds.
    seconds: f64,
    /// The most memory that the process ever had, where the kernel says so.
    peak_kib: u64,
}

/// What this process had of a core until now, in seconds.
fn cpu_time() -> Fallible<f64> {
    let times = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds: u64 = times.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Runs a cluster here.
fn once(case: &Case, seconds: u64, outstanding: u64) -> Fallible<Took> {
    let scenario = scenario(case, seconds, outstanding)?;
    let began = cpu_time()?;
    let ios = run(&scenario, KeptRuns::Nothing, |_| ())?.ios;
    let seconds = cpu_time()? - began;
    Ok(Took { ios, seconds, peak_kib: peak_kib().unwrap_or_default() })
}

/// Runs a cluster in another process.
fn elsewhere(case: &Case, outstanding: u64) -> Fallible<Took> {
    let numbers = [case.seconds, outstanding].map(|n| n.to_string());
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.args(["--once", case.name]).args(numbers).output()?;
    let text = String::from_utf8(output.stdout)?;
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [ios, seconds, peak_kib] = fields[..] else {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    };
    Ok(Took { ios: ios.parse()?, seconds: seconds.parse()?, peak_kib: peak_kib.parse()? })
}

fn row(case: &Case) -> Fallible<()> {
    let mut best = elsewhere(case, OUTSTANDING)?;
    for _ in 1..RUNS {
        if best.seconds > LONG {
            break;
        }
        let took = elsewhere(case, OUTSTANDING)?;
        if took.seconds < best.seconds {
            best = took;
        }
    }
    // Nine times as many IOs, for what one of them takes.
    let more = elsewhere(&Case { seconds: 5, ..*case }, 9 * OUTSTANDING)?;
    let less = elsewhere(&Case { seconds: 5, ..*case }, OUTSTANDING)?;
    let ios = (8 * OUTSTANDING * case.hosts * case.vms) as f64;
    println!(
        "| {} × {} | {} | {}, {} | {:.2} M | {:.0} | {:.0} | {:.1} | {} | {:.0} |",
        case.hosts,
        case.vms,
        case.workload,
        case.drives,
        case.level,
        best.ios as f64 / best.seconds / 1e6,
        best.seconds * 1e9 / best.ios as f64,
        case.seconds as f64 / best.seconds,
        best.peak_kib as f64 / 1024.0,
        best.peak_kib / case.hosts,
        more.peak_kib.saturating_sub(less.peak_kib) as f64 * 1024.0 / ios,
    );
    Ok(())
}

fn find(name: &str) -> Fallible<&'static Case> {
    let names = CASES.map(|case| case.name).join(", ");
    let found = CASES.iter().find(|case| case.name == name);
    Ok(found.ok_or_else(|| format!("no cluster is called {name}; there are {names}"))?)
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, seconds, outstanding] = &arguments[..]
        && flag == "--once"
    {
        let took = once(find(name)?, seconds.parse()?, outstanding.parse()?)?;
        println!("{} {} {}", took.ios, took.seconds, took.peak_kib);
        return Ok(());
    }
    println!(
        "| hosts × VMs | workload | drives | IO/s | ns per IO | × real time | peak MiB | \
         KiB per host | B per outstanding IO |"
    );
    println!("| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let all = || CASES.iter().map(|case| case.name.to_owned()).collect();
    let names: Vec<String> = if arguments.is_empty() { all() } else { arguments };
    names.iter().try_for_each(|name| row(find(name)?))
}
