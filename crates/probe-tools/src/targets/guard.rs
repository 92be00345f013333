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

use std::fmt::Display;
use std::io;
use std::path::Path;

pub(crate) use ends::{EDGE, create, mark, unmarked};
pub(crate) use used::{claim, device_in_use, file_in_use};

use parda_probe::TargetKind;

/// Reason why a target is not written to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// Its size or its ends do not say that it may be overwritten.
    #[error("{0}")]
    Unmarked(String),
    #[error("{0}")]
    Other(String),
}

impl Why {
    pub(crate) fn other(why: impl Into<String>) -> Why {
        Why::Other(why.into())
    }

    pub(crate) fn unread(error: impl Display) -> Why {
        Why::Other(format!("cannot look at it: {error}"))
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Why {
        Why::unread(error)
    }
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
    pub(crate) fn named(&self, name: &str, kind: TargetKind) -> Result<(), Why> {
        match self {
            Writes::To(typed) if typed != name => {
                Err(Why::Other(format!("it is not what --allow-writes names, {typed}")))
            }
            Writes::Allowed if kind == TargetKind::Nbd => Err(Why::Other(format!(
                "who else uses an export cannot be seen: say that nobody does, with its name, as in --allow-writes={name}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Checks that no known format is on a device or in a file. Such are file systems, partition tables, volumes and the like.
pub(crate) fn signatures(path: &Path) -> Result<(), Why> {
    let found = said("wipefs", &["--no-act", "--noheadings", "--output", "TYPE,OFFSET"], path)?;
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} (at {})", words.next()?, words.next()?))
    };
    let all: Vec<String> = found.lines().filter_map(one).collect();
    if all.is_empty() { Ok(()) } else { Err(Why::Other(format!("it holds {}", all.join(", ")))) }
}

/// Output of one of util-linux's programs on a device or a file.
fn said(program: &str, options: &[&str], path: &Path) -> Result<String, Why> {
    let output = std::process::Command::new(program).args(options).arg(path).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let package = if program == "losetup" { "mount" } else { "util-linux" };
            unknown(format!("there is no {program} (apt-get install {package})"))
        }
        _ => unknown(error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(unknown(format!("{program}: {}", errors.trim())))
}

fn unknown(why: impl Display) -> Why {
    Why::Other(format!("cannot look for file systems and partitions on it: {why}"))
}
