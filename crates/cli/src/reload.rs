//! `parda reload`: the agent reads its configuration again, and the command fails if that is refused.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use parda_agent::status::{ReloadStatus, Status};
use parda_terminal::{Failure, output};
use rustix::process::{Pid, Signal, kill_process};

use crate::agent::{Named, ask};

/// Time that a reload may take: a file system that does not answer delays it by some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda check && parda reload
  parda reload --socket /run/parda/status.sock

Exit status 0: the configuration is in force. A file with an error changes nothing: exit status 2, and parda status, the
dashboard and the metric parda_reload_refused say so until a reload succeeds.")]
pub(crate) struct Reload {
    #[command(flatten)]
    agent: Named,
    /// The agent's process, as systemd knows it: it is told also where the configuration no longer names its socket
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
}

impl Reload {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let socket = match self.agent.socket() {
            Ok(socket) => socket,
            // The agent refuses the same file, and reports it from then on.
            Err(wrong) => {
                self.pid.map_or(Ok(()), tell)?;
                return Err(wrong);
            }
        };
        let before = ask(&socket);
        let (pid, begun) = match (&before, self.pid) {
            (Ok(status), _) => {
                let pid = i32::try_from(status.pid).ok();
                (pid.ok_or_else(|| Failure::new("the agent has no process id"))?, begun(status))
            }
            // The configuration may name another socket from now on, where the agent answers once it is in force.
            (Err(_), Some(pid)) => (pid, Some(0)),
            (Err(_), None) => return before.map(drop),
        };
        tell(pid)?;
        let Some(begun) = begun else {
            return output::print(
                "the agent is of an older version: its log says whether the configuration is in force",
            );
        };
        let until = Instant::now() + PATIENCE;
        loop {
            match ask(&socket) {
                Ok(Status { reload: Some(reload), tokens_fault, .. }) if reload.done > begun => {
                    return over(&socket, reload, tokens_fault);
                }
                Err(error) if Instant::now() > until => return Err(error),
                Ok(_) if Instant::now() > until => {
                    let name = socket.display();
                    return Err(Failure::new(format!(
                        "{name}: the agent was told and has not read its configuration within {PATIENCE:?}: a file system that it names \
                         does not answer; parda status says when it has"
                    )));
                }
                _ => std::thread::sleep(LOOK),
            }
        }
    }
}

/// Number of reloads that have begun. `None` of an agent that does not say.
fn begun(status: &Status) -> Option<u64> {
    status.reload.as_ref().map(|reload| reload.begun)
}

/// Makes an agent read its configuration again.
fn tell(pid: i32) -> Result<(), Failure> {
    let process = Pid::from_raw(pid).ok_or_else(|| Failure::usage("--pid: must be 1 or more"))?;
    kill_process(process, Signal::HUP)
        .map_err(|error| Failure::new(format!("cannot signal the agent, process {pid}: {error}")))
}

/// The result of a reload.
fn over(socket: &Path, reload: ReloadStatus, tokens: Option<String>) -> Result<(), Failure> {
    if let Some(refused) = reload.refused {
        let refused = output::line(&refused);
        return Err(Failure::usage(format!("configuration not changed: {refused}")));
    }
    if let Some(tokens) = tokens {
        let tokens = output::line(&tokens);
        return Err(Failure::usage(format!(
            "in force, but for tokens, which are as before: {tokens}"
        )));
    }
    let mut text = format!("{}: the configuration is in force", socket.display());
    text.extend(reload.not_taken.iter().map(|what| format!("\n  note: {}", output::line(what))));
    output::print(&text)
}
