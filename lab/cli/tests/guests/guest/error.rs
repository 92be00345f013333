//! Why a guest does not start, or fails.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::names::{QEMU, VARIABLE};
use super::port::Output;

/// Reason why a guest does not start, or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    /// The kit that guests boot from is missing.
    #[error(
        "there is nothing to make guests of{}: `make guest` makes it, and {} says where it is",
        .at.as_ref().map_or(String::new(), |at| format!(" in {}", at.display())), VARIABLE
    )]
    NoKit {
        /// Directory in which the kit was expected.
        at: Option<PathBuf>,
    },
    /// The emulator is missing.
    #[error("guests need {qemu} (Debian, Ubuntu: apt install qemu-system-x86): {0}", qemu = QEMU)]
    NoQemu(io::Error),
    /// The program under test cannot be put on a disk for guests.
    #[error("cannot put {program} on a disk for guests: {source}", program = program.display())]
    Disk {
        /// Path of the program.
        program: PathBuf,
        /// The failure to write the disk.
        source: io::Error,
    },
    /// A program between a guest and the array is missing or failed.
    #[error("{program} (Debian, Ubuntu: apt install {package}): {what}")]
    Helper {
        /// Name of the program.
        program: &'static str,
        /// Debian package of the program.
        package: &'static str,
        /// The fault, as a sentence.
        what: String,
    },
    /// The state of a booted machine cannot be saved.
    #[error("cannot keep guests' states in {dir}: {source}", dir = dir.display())]
    State {
        /// Directory of saved states.
        dir: PathBuf,
        /// The failure to save the state.
        source: io::Error,
    },
    /// The guest's files or port cannot be created or used.
    #[error("guest {name}: {source}")]
    Io {
        /// Name of the guest.
        name: String,
        /// The failure of the file or port.
        source: io::Error,
    },
    /// The guest was not ready in time, or it ended.
    #[error("guest {name} {what}. Its console last said:\n{last}")]
    Gone {
        /// Name of the guest.
        name: String,
        /// What happened, as the end of a sentence.
        what: String,
        /// Last lines of the console.
        last: String,
    },
    /// A command took too long and was killed.
    #[error("guest {name} was not done within {waited:?} with: {command}")]
    Late {
        /// Name of the guest.
        name: String,
        /// The command, a shell script.
        command: String,
        /// Time that the command was given.
        waited: Duration,
    },
    /// A command ended with an error.
    #[error("guest {name}: {command}: {output:?}")]
    Failed {
        /// Name of the guest.
        name: String,
        /// The command, a shell script.
        command: String,
        /// Status and output of the command.
        output: Output,
    },
}
