//! The commands `completions` and `man`: what `make install` installs beside the binaries.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::Failure;

/// Arguments of the command `completions`.
#[derive(Args)]
pub struct Completions {
    /// Shell that reads them
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    /// Writes the completions of a program.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn run(&self, mut program: Command) -> Result<(), Failure> {
        let (name, mut text) = (program.get_name().to_owned(), Vec::new());
        clap_complete::generate(self.shell, &mut program, name, &mut text);
        match std::io::stdout().lock().write_all(&text) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("cannot write to standard output: {e}")))
            }
            _ => Ok(()),
        }
    }
}

/// Arguments of the command `man`.
#[derive(Args)]
pub struct Man {
    /// Directory for one page a command; it must be there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    /// Writes the pages of a program.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn run(&self, program: Command) -> Result<(), Failure> {
        clap_mangen::generate_to(program, &self.dir)
            .map_err(|e| Failure::new(format!("cannot write pages to {}: {e}", self.dir.display())))
    }
}
