#![forbid(unsafe_code)]
//! The commands' side of both programs, `parda` and `parda-lab`.
//!
//! | module | subject |
//! | --- | --- |
//! | [`log`] | what is logged, on standard error |
//! | [`output`] | answers, on standard output or as files |
//! | [`quantity`] | values of options: durations, sizes, percentages, names |
//! | [`manual`] | manual pages and completions, made from the commands |
//! | [`probe`] | the command `probe`, by any driver |
//! | [`Failure`] | why a command failed, and its exit status |

mod failure;
pub mod log;
pub mod manual;
pub mod output;
pub mod probe;
pub mod quantity;

use std::process::ExitCode;
use std::time::Duration;

use tracing_subscriber::{Layer, Registry};

pub use failure::Failure;

/// Time that a program waits at its end for peers with TLS to take the bytes that they were sent.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A command to which `--slots -1` is a wrong number, and no option `-1`.
#[must_use]
pub fn negatives_are_values(command: clap::Command) -> clap::Command {
    let values = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(values).mut_subcommands(negatives_are_values)
}

/// Runs a command within the log of its process. `events` sees what is logged as well, whatever the filter hides.
pub fn run(
    program: &str,
    log: &log::Options,
    events: impl Layer<Registry> + Send + Sync,
    command: impl FnOnce() -> Result<(), Failure>,
) -> ExitCode {
    let done = match log::start(log, events) {
        Err(message) => Err(Failure::usage(message)),
        Ok(log) => {
            let done = command();
            // What was said last within TLS is still to be sent.
            parda_tls::settle(LAST_WORDS);
            // What was logged is written then.
            drop(log);
            done
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                let message = output::lines(&failure.message);
                eprintln!("{}{program}: {message}", log::error_prefix());
            }
            ExitCode::from(failure.code)
        }
    }
}
