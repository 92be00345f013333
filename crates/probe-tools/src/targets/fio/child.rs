//! A running fio that writes its counters from time to time.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{self, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::report;
use parda_probe::LoadSnapshot;

/// Interval between checks whether fio has ended.
const POLL: Duration = Duration::from_millis(10);

/// Interval between checks whether to wait for counters any longer.
const LOOK: Duration = Duration::from_millis(200);

/// A fio that runs, killed when dropped.
pub(super) struct Child {
    child: process::Child,
    documents: Receiver<String>,
    /// Lines of its output that are outside the JSON documents.
    said: [Option<JoinHandle<String>>; 2],
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
                // Output that cannot be read is left out of messages.
                let _ = err.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Child { child, documents, said: [reading, errors] })
    }

    /// The counters that fio writes next. They are waited for as long as fio lives, unless `stop` says otherwise: `None`.
    pub(super) fn next(
        &mut self,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<LoadSnapshot>, String> {
        loop {
            match self.documents.recv_timeout(LOOK) {
                Ok(text) => {
                    let snapshot = report::snapshot(&text)
                        .map_err(|error| format!("fio's answer is not understood: {error}"))?;
                    return snapshot.map(Some).ok_or_else(|| self.last_words());
                }
                Err(RecvTimeoutError::Timeout) if stop() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.last_words()),
            }
        }
    }

    /// Tells fio to end, and waits for that unless `stop` says otherwise.
    pub(super) fn stop(mut self, stop: &mut dyn FnMut() -> bool) {
        // A child that was not waited for keeps its process id.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        }
        while matches!(self.child.try_wait(), Ok(None)) && !stop() {
            thread::sleep(POLL);
        }
    }

    /// fio's messages on its end.
    fn last_words(&mut self) -> String {
        self.end();
        let said = self.said.iter_mut().filter_map(Option::take).filter_map(|it| it.join().ok());
        let said: Vec<String> = said.collect();
        let lines = said.iter().flat_map(|text| text.lines()).map(str::trim);
        let mut lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        lines.dedup();
        lines.truncate(3);
        if lines.is_empty() {
            lines.push("it did not say why");
        }
        format!("fio ended: {}", lines.join("; "))
    }

    fn end(&mut self) {
        // An error means that fio has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Passes on each JSON document, which begins and ends with a brace at the beginning of a line. Returns
/// the lines outside the documents.
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
