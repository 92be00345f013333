//! The guard against overwriting data: a probe writes only to targets that pass these checks.
//!
//! | target | condition |
//! | --- | --- |
//! | file | it begins with the mark, so `--create` made it |
//! | device | nobody uses it, no known format is found on it, and its first and last MiB are zeroes or have the mark |
//! | NBD export | no known format, and zeroes or the mark, as for a device; and its name is given again, as other users of an export cannot be seen |
//!
//! All checks only read. The mark is written after all checks have passed, so that the target passes again
//! next time. The mark is at the beginning, and loads leave out the first and last
//! MiB.

mod ends;
mod used;

use std::path::{Path, PathBuf};

pub(crate) use ends::{EDGE, create, mark, unmarked};
pub(crate) use used::{claim, device_in_use, file_in_use};

use parda_probe::Kind;

/// Reason why a target is not written to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
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
    Tool(String),
    #[error("cannot look at it: {0}")]
    Io(#[from] std::io::Error),
    #[error("cannot look at it: {0}")]
    Nbd(String),
}

/// The user's permission to write to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Writes are not allowed.
    #[default]
    No,
    /// Writes are allowed if the target passes the checks of this module.
    Allowed,
    /// Writes are allowed if the target passes the checks and has this name.
    To(String),
}

impl Writes {
    /// Checks that the permission covers a target of this name and kind.
    pub(crate) fn named(&self, name: &str, kind: Kind) -> Result<(), Why> {
        match self {
            Writes::To(typed) if typed != name => Err(Why::OtherName(typed.clone())),
            Writes::Allowed if kind == Kind::Nbd => Err(Why::NotNamed(name.to_owned())),
            _ => Ok(()),
        }
    }
}

/// Checks that no known format is on a device or in a file: no file system, partition table, volume or the
/// like.
pub(crate) fn signatures(path: &Path) -> Result<(), Why> {
    let found = said("wipefs", &["--no-act", "--noheadings", "--output", "TYPE,OFFSET"], path)?;
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} (at {})", words.next()?, words.next()?))
    };
    let all: Vec<String> = found.lines().filter_map(one).collect();
    if all.is_empty() { Ok(()) } else { Err(Why::Signature(all.join(", "))) }
}

/// Output of one of util-linux's programs on a device or a file.
fn said(program: &str, options: &[&str], path: &Path) -> Result<String, Why> {
    let output = std::process::Command::new(program).args(options).arg(path).output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let package = if program == "losetup" { "mount" } else { "util-linux" };
            Why::Tool(format!("there is no {program} (apt-get install {package})"))
        }
        _ => Why::Tool(error.to_string()),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Why::Tool(format!("{program}: {}", errors.trim())))
}
