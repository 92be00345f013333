//! `parda completions` and `parda man`: what `make install` installs beside the binary.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::Failure;

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda completions bash > /usr/share/bash-completion/completions/parda
  source <(parda completions zsh)")]
pub(crate) struct Completions {
    /// Shell that reads them
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, mut cli: Command) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "parda", &mut text);
        match std::io::stdout().lock().write_all(&text) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("cannot write to standard output: {e}")))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda man /usr/local/share/man/man1
  parda man /tmp && man /tmp/parda-serve.1")]
pub(crate) struct Man {
    /// Directory for one page a command; it must be there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, cli: Command) -> Result<(), Failure> {
        clap_mangen::generate_to(cli, &self.dir)
            .map_err(|e| Failure::new(format!("cannot write pages to {}: {e}", self.dir.display())))
    }
}
