//! Limits of the system on the threads of this process.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// What to do when no thread could be started, with the limits that are known.
#[must_use]
pub fn threads_help() -> String {
    let user =
        getrlimit(Resource::Nproc).current.map(|n| format!("RLIMIT_NPROC ({n} for the user)"));
    let group = most_tasks().map(|n| format!("TasksMax= ({n} for the unit)"));
    let limits: Vec<String> = user.into_iter().chain(group).collect();
    let limits =
        if limits.is_empty() { "sysctl kernel.threads-max".to_owned() } else { limits.join(", ") };
    format!(". A limit of threads or memory is reached: raise that of {limits}")
}

/// The least `pids.max` of the cgroups of this process; none if nothing bounds them.
fn most_tasks() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let below = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = Path::new("/sys/fs/cgroup").join(below);
    let limit =
        |dir: &Path| std::fs::read_to_string(dir.join("pids.max")).ok()?.trim().parse().ok();
    group.ancestors().take_while(|dir| dir.starts_with("/sys/fs/cgroup")).filter_map(limit).min()
}
