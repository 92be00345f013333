//! Patterns that have no VM, and VMs that have no pattern.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pattern of a steered device, or of QEMUs, that has no VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PatternWithoutVm {
    /// Name that the configuration gives the VM.
    pub vm: String,
    /// Configured pattern of cgroups; for a VM by its QEMU the pattern of sockets.
    pub cgroup: String,
    /// Reason why it has none.
    pub why: String,
}

impl fmt::Display for PatternWithoutVm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PatternWithoutVm { vm, cgroup, why } = self;
        write!(f, "VM {vm}: {cgroup:?} {why}")
    }
}

/// A cgroup that looks like a VM of a steered device, and has neither shares nor a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmWithoutPattern {
    /// Path of the cgroup. Bytes that are no UTF-8 are `\xNN`.
    pub cgroup: String,
    /// Name that its platform gives the VM.
    pub name: Option<String>,
    /// Reason, if it is not that no pattern matches.
    pub why: Option<String>,
}

impl fmt::Display for VmWithoutPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" (VM {name})"));
        let why = self.why.as_deref().unwrap_or("no pattern matches it");
        write!(f, "cgroup {}{name} has neither shares nor a limit: {why}", self.cgroup)
    }
}

/// Texts of the first eight, and the number left out: a host may have hundreds of patterns or VMs.
#[must_use]
pub fn first(all: &[impl ToString]) -> Vec<String> {
    const MOST: usize = 8;
    let mut texts: Vec<_> = all.iter().take(MOST).map(ToString::to_string).collect();
    if all.len() > MOST {
        texts.push(format!("{} more like the last: parda status --json", all.len() - MOST));
    }
    texts
}
