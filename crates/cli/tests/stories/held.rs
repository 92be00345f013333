//! What an agent holds of the system.

use crate::stage::Agent;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) resident_kib: u64,
    /// The most that was ever resident.
    pub(crate) peak_kib: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
}

impl Held {
    pub(crate) fn of(agent: &Agent) -> Held {
        let proc = format!("/proc/{}", agent.process.pid());
        let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
        let kib = |what: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
            line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
        };
        let count = |what: &str| std::fs::read_dir(format!("{proc}/{what}")).unwrap().count();
        Held {
            resident_kib: kib("VmRSS:"),
            peak_kib: kib("VmHWM:"),
            descriptors: count("fd"),
            threads: count("task"),
        }
    }
}
