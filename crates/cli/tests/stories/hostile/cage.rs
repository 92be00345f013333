//! A limit on the memory of a process that kills it when it wants more.

use std::path::PathBuf;

/// Where Linux has the memory controller of cgroups of version 1.
const CONTROLLER: &str = "/sys/fs/cgroup/memory";

/// A command that runs another within so much memory. Private memory beyond it cannot be had,
/// which ends the process. Where this test may make a cgroup, what the kernel keeps for it (full
/// sockets) and the page cache count too, and a process that wants more is killed.
pub(super) struct Cage {
    group: Option<PathBuf>,
    limit: String,
}

impl Cage {
    pub(super) fn new(bytes: u64) -> Cage {
        let group = PathBuf::from(format!("{CONTROLLER}/parda-test-{}", fastrand::u32(..)));
        let made = std::fs::create_dir(&group)
            .and_then(|()| std::fs::write(group.join("memory.limit_in_bytes"), bytes.to_string()));
        Cage { group: made.ok().map(|()| group), limit: format!("--data={bytes}") }
    }

    /// What to start a program with.
    pub(super) fn wrapper(&self) -> Vec<&str> {
        let mut line = Vec::new();
        if let Some(group) = &self.group {
            let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
            line.extend(["sh", "-c", enter, group.to_str().unwrap()]);
        }
        line.extend(["prlimit", &self.limit]);
        line
    }

    /// The most that was ever used, in bytes; unknown without a cgroup.
    pub(super) fn peak(&self) -> Option<u64> {
        let file = self.group.as_ref()?.join("memory.max_usage_in_bytes");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // It can be removed when the process in it is gone; a leftover does no harm.
        let _ = self.group.take().map(std::fs::remove_dir);
    }
}
