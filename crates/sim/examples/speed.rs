//! How fast the simulator is: simulated IOs per second of real time, by the size of the cluster.
//!
//! ```sh
//! cargo run --release -p parda-sim --example speed
//! ```
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::error::Error;
use std::fmt::Write as _;
use std::time::Instant;

use parda_config::Document;
use parda_scenario::Scenario;
use parda_sim::{SimOptions, run};

/// A cluster of hosts with VMs, on so many drives.
struct Case {
    name: &'static str,
    hosts: usize,
    vms: usize,
    drives: usize,
    level: &'static str,
    workload: &'static str,
    seconds: u32,
}

const READS: &str = r#"size = "16KiB", read = 100, random = 100, outstanding = 16"#;
const MIXED: &str = r#"size = "16KiB", read = 67, random = 70, outstanding = 16"#;

const CASES: [Case; 6] = [
    Case {
        name: "demo",
        hosts: 4,
        vms: 1,
        drives: 6,
        level: "raid0",
        workload: READS,
        seconds: 3600,
    },
    Case {
        name: "mixed",
        hosts: 4,
        vms: 1,
        drives: 6,
        level: "raid5",
        workload: MIXED,
        seconds: 3600,
    },
    Case {
        name: "64x1",
        hosts: 64,
        vms: 1,
        drives: 64,
        level: "raid0",
        workload: READS,
        seconds: 120,
    },
    Case {
        name: "64x10",
        hosts: 64,
        vms: 10,
        drives: 64,
        level: "raid0",
        workload: READS,
        seconds: 120,
    },
    Case {
        name: "256x10",
        hosts: 256,
        vms: 10,
        drives: 256,
        level: "raid0",
        workload: READS,
        seconds: 30,
    },
    Case {
        name: "1000x10",
        hosts: 1000,
        vms: 10,
        drives: 1000,
        level: "raid0",
        workload: READS,
        seconds: 10,
    },
];

/// A front end that does not keep more drives than the preset has from their work.
const WIDE: &str = r#"controller = { io_cost = "100ns", link = "100GB/s" }"#;

fn scenario(case: &Case) -> Result<Scenario, Box<dyn Error>> {
    let Case { name, hosts, vms, drives, level, workload, seconds } = case;
    let controller = if *drives > 10 { WIDE } else { "" };
    let mut text = format!(
        "name = \"{name}\"\nduration = \"{seconds}s\"\n\
         [array]\npreset = \"cx3-40-raid0\"\nraid = {{ drives = {drives}, level = \"{level}\" }}\n\
         extent = \"16MiB\"\n{controller}\n\
         [[phase]]\nname = \"all\"\nfrom = \"1s\"\nto = \"{seconds}s\"\n"
    );
    for host in 0..*hosts {
        write!(text, "[[host]]\nname = \"h{host}\"\n")?;
        for vm in 0..*vms {
            write!(
                text,
                "[[host.vm]]\nname = \"h{host}v{vm}\"\nshares = 1000\ndisk = \"4GiB\"\n\
                 workload = {{ {workload} }}\n"
            )?;
        }
    }
    Ok(Scenario::parse(&Document::new(*name, text))?)
}

/// The most memory that this process ever had, in MiB, where the kernel says so.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 10)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cluster   simulated s   real s   simulated IO/s   times real time   peak MiB");
    for case in &CASES {
        let scenario = scenario(case)?;
        let began = Instant::now();
        let outcome = run(&scenario, &SimOptions::default(), |_| ())?;
        let real = began.elapsed().as_secs_f64();
        println!(
            "{:8} {:12} {real:8.2} {:16.0} {:17.0} {:>10}",
            case.name,
            case.seconds,
            outcome.ios as f64 / real,
            f64::from(case.seconds) / real,
            peak_memory().map_or("-".to_owned(), |mib| mib.to_string()),
        );
    }
    Ok(())
}
