//! A fio that runs, and can be asked how it stands.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{self, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::report;
use parda_probe::Snapshot;

/// How often it is looked whether fio can be asked already.
const POLL: Duration = Duration::from_millis(10);

/// Why nothing more comes from fio.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// By itself, with what it said.
    #[error("fio ended: {0}")]
    Itself(String),
    /// It does not answer.
    #[error("fio does not answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// What it says is not what is known of fio.
    #[error("fio's answer is not understood: {0}")]
    Answer(#[from] report::ReportError),
}

/// Its engines, one a line.
pub(super) fn engines() -> io::Result<String> {
    let output = Command::new("fio").arg("--enghelp").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A fio that runs, killed when dropped.
pub(super) struct Child {
    child: process::Child,
    documents: Receiver<String>,
    /// What it says beside its documents.
    said: [Option<JoinHandle<String>>; 2],
    /// It has begun to listen to what it is asked.
    listens: bool,
}

impl Child {
    pub(super) fn start(arguments: Vec<String>) -> io::Result<Child> {
        let mut child = Command::new("fio")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (send, documents) = channel();
        let reading = child.stdout.take().map(|out| {
            thread::spawn(move || split(BufReader::new(out), |text| send.send(text).is_ok()))
        });
        let errors = child.stderr.take().map(|mut err| {
            thread::spawn(move || {
                let mut text = Vec::new();
                // What cannot be read is not there to be told.
                let _ = err.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Child { child, documents, said: [reading, errors], listens: false })
    }

    /// Asks it at a moment how it stands then. `None` if it does not listen yet.
    pub(super) fn ask_at(
        &mut self,
        at: Instant,
        patience: Duration,
    ) -> Result<Option<Snapshot>, Ended> {
        // If it ends before, that shows at once.
        let wait = at.saturating_duration_since(Instant::now());
        match self.documents.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            // What it says unasked is its last word.
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return Err(self.last_words()),
        }
        if !self.listens {
            self.listens = self.catches_usr1();
            if !self.listens {
                thread::sleep(POLL);
                return Ok(None);
            }
        }
        self.signal(Signal::USR1);
        match self.documents.recv_timeout(patience) {
            Ok(text) => match report::snapshot(&text)? {
                report::Report { error: 0, snapshot } => Ok(Some(snapshot)),
                _ => Err(self.last_words()),
            },
            Err(RecvTimeoutError::Timeout) => Err(Ended::Silent(patience)),
            Err(RecvTimeoutError::Disconnected) => Err(self.last_words()),
        }
    }

    /// Tells it to end, and waits until it has; but not for longer than this. Whether it has by itself.
    pub(super) fn stop(mut self, patience: Duration) -> bool {
        self.signal(Signal::INT);
        let began = Instant::now();
        while began.elapsed() < patience && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Whether it would survive being asked: until it catches the signal, that would kill it.
    fn catches_usr1(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let mask = status.ok().and_then(|status| {
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            u64::from_str_radix(caught.trim(), 16).ok()
        });
        mask.is_some_and(|mask| mask >> (Signal::USR1.as_raw() - 1) & 1 == 1)
    }

    fn signal(&mut self, signal: Signal) {
        // It is our child and was not waited for, so its id is not another's.
        if matches!(self.child.try_wait(), Ok(None))
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// What it said of its end.
    fn last_words(&mut self) -> Ended {
        self.end();
        let said = self.said.iter_mut().filter_map(Option::take).filter_map(|it| it.join().ok());
        let said: Vec<String> = said.collect();
        let lines = said.iter().flat_map(|text| text.lines()).map(str::trim);
        let mut lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        lines.dedup();
        lines.truncate(3);
        let nothing = "it did not say why".to_owned();
        Ended::Itself(if lines.is_empty() { nothing } else { lines.join("; ") })
    }

    fn end(&mut self) {
        // Errors would mean that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Hands on each document, which begins and ends with a brace at the beginning of a line, and
/// returns what stands between them.
fn split(out: impl BufRead, mut found: impl FnMut(String) -> bool) -> String {
    let (mut document, mut between) = (None::<String>, String::new());
    for line in out.lines().map_while(Result::ok) {
        match &mut document {
            None if line.starts_with('{') => document = Some(line),
            None => between = between + &line + "\n",
            Some(text) => {
                text.push('\n');
                text.push_str(&line);
                if line.starts_with('}') && !document.take().is_none_or(&mut found) {
                    break;
                }
            }
        }
    }
    between
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_told_from_what_stands_between_them() {
        let text = "{\n \"a\" : {\n }\n}\n\nfio: terminating on signal 2\n{\n}\n{\n half";
        let mut documents = Vec::new();
        let between = split(text.as_bytes(), |document| {
            documents.push(document);
            true
        });
        assert_eq!(documents, ["{\n \"a\" : {\n }\n}", "{\n}"]);
        assert_eq!(between.trim(), "fio: terminating on signal 2");
    }
}
