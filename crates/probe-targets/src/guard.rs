//! What may be written to: only what is plainly there to be overwritten.
//!
//! | target | what makes it so |
//! | --- | --- |
//! | file | `--create` made it: it begins with the mark |
//! | device | nobody uses it, nothing is known on it, and its first and last MiB are zeroes, or the mark |
//! | NBD export | the same of what it holds, and its name was typed again: who else uses it cannot be seen |
//!
//! All that is looked at is only read. The mark is written when all of it was good, so that a
//! target that was overwritten once can be again; it stands at the beginning, and the first and last
//! MiB are left out of what is driven.

mod ends;
mod used;

use std::path::{Path, PathBuf};

pub(crate) use ends::{EDGE, MARK, create, mark, unmarked};
pub(crate) use used::{claim, device_in_use, file_in_use};

use parda_probe::Kind;

/// Why a target is not written to.
#[derive(Debug, thiserror::Error)]
#[error("{target} will not be written to: {why}")]
pub struct Refusal {
    /// As it was named.
    pub target: String,
    /// Reason of the refusal.
    #[source]
    pub why: Why,
}

/// Why a target is not written to, without its name.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Why {
    #[error("{what} is mounted at {at}")]
    Mounted { what: String, at: PathBuf },
    #[error("{0} is used for swapping")]
    Swap(String),
    #[error("{what} is used by {holder}, which is built upon it")]
    Held { what: String, holder: String },
    #[error("it has partitions ({0})")]
    Partitions(String),
    #[error("another program has it open for itself")]
    Claimed,
    #[error("it holds {0}")]
    Signature(String),
    #[error(
        "it holds data at byte {at}, and only what begins and ends with a MiB of zeroes is plainly \
         not in use; if none of it is needed, say so with: blkdiscard -z, or dd if=/dev/zero"
    )]
    Data { at: u64 },
    #[error(
        "only a file that parda probe has made is plainly there to be overwritten: make one with \
         --create 1GiB, under a new name"
    )]
    NotOurs,
    #[error("it is the file behind {0}")]
    Backs(String),
    #[error("it is read-only")]
    ReadOnly,
    #[error("it has {0} bytes, and 4 MiB are the least")]
    Small(u64),
    #[error(
        "who else uses an export cannot be seen: say that nobody does, with its name, as in \
         --allow-writes={0}"
    )]
    NotNamed(String),
    #[error("it is not what --allow-writes names, {0}")]
    OtherName(String),
    #[error("cannot look for file systems and partitions on it: {0}")]
    Wipefs(String),
    #[error("cannot look at it: {0}")]
    Io(#[from] std::io::Error),
    #[error("cannot look at it: {0}")]
    Nbd(String),
}

/// Whether there may be writes, as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// None.
    #[default]
    No,
    /// If the target is plainly there to be overwritten.
    Allowed,
    /// The same, of the target of this name.
    To(String),
}

impl Writes {
    /// Whether what was typed is enough for a target of this name and kind.
    pub(crate) fn named(&self, name: &str, kind: Kind) -> Result<(), Why> {
        match self {
            Writes::To(typed) if typed != name => Err(Why::OtherName(typed.clone())),
            Writes::Allowed if kind == Kind::Nbd => Err(Why::NotNamed(name.to_owned())),
            _ => Ok(()),
        }
    }
}

/// File systems, partition tables, volumes and the like that are known to be on a device or in a
/// file.
pub(crate) fn signatures(path: &Path) -> Result<(), Why> {
    let mut wipefs = std::process::Command::new("wipefs");
    wipefs.args(["--no-act", "--noheadings", "--output", "TYPE,OFFSET"]).arg(path);
    let output = wipefs.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Why::Wipefs("there is no wipefs (apt-get install util-linux)".to_owned())
        }
        _ => Why::Wipefs(e.to_string()),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Why::Wipefs(format!("wipefs: {}", said.trim())));
    }
    let found = String::from_utf8_lossy(&output.stdout);
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} (at {})", words.next()?, words.next()?))
    };
    let all: Vec<String> = found.lines().filter_map(one).collect();
    if all.is_empty() { Ok(()) } else { Err(Why::Signature(all.join(", "))) }
}
