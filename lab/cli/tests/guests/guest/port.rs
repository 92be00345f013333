//! Command port of a guest: a virtio serial port that carries nothing else, such as kernel
//! messages. `tools/guest/init` is its other end.
//!
//! A request is `ID LENGTH\n`, followed by a shell script of that many bytes. The reply, sent when
//! the script has ended, is `ID STATUS OUT ERR\n`, followed by that many bytes of output and of
//! errors. Scripts run side by side. `0 0 0 0` says that the guest is ready.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Result of a command in a guest.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// Exit status, as in shells: 128 and above for signals.
    pub(crate) status: i32,
    /// Bytes written to standard output.
    pub(crate) stdout: Vec<u8>,
    /// Bytes written to standard error.
    pub(crate) stderr: Vec<u8>,
}

impl Output {
    /// Whether the command succeeded: its status is 0.
    #[must_use]
    pub(crate) fn success(&self) -> bool {
        self.status == 0
    }

    /// Standard output as trimmed text.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// Standard error as trimmed text.
    #[must_use]
    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status {}, {:?}, errors {:?}", self.status, self.text(), self.errors())
    }
}

/// Number of a script. 0 is the guest's message that it is ready.
pub(super) type Id = u64;

/// Number of the message that the guest is ready.
pub(super) const READY: Id = 0;

/// This machine's end of the port.
#[derive(Debug)]
pub(super) struct Port {
    stream: UnixStream,
    answers: Arc<Answers>,
    reader: Option<JoinHandle<()>>,
    next: Mutex<Id>,
}

#[derive(Debug, Default)]
struct Answers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answers: HashMap<Id, Output>,
    closed: bool,
}

/// Result of waiting for a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Done(Output),
    /// The script is still running.
    Late,
    /// The guest is gone.
    Gone,
}

impl Port {
    pub(super) fn new(stream: UnixStream) -> io::Result<Port> {
        let answers = Arc::new(Answers::default());
        let (from, to) = (stream.try_clone()?, Arc::clone(&answers));
        let reader =
            std::thread::Builder::new().name("guest port".to_owned()).spawn(move || {
                // Any end of the stream means that the guest is gone. Callers that wait are told.
                let _ = read_all(BufReader::new(from), &to);
                to.lock().closed = true;
                to.changed.notify_all();
            })?;
        Ok(Port { stream, answers, reader: Some(reader), next: Mutex::new(READY + 1) })
    }

    /// Sends a script and returns its number.
    pub(super) fn send(&self, script: &[u8]) -> io::Result<Id> {
        // Locked while writing, so that scripts do not interleave.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *next;
        *next += 1;
        let mut stream = &self.stream;
        // The added newline gives an empty script a length above zero.
        stream.write_all(format!("{id} {}\n", script.len() + 1).as_bytes())?;
        stream.write_all(script)?;
        stream.write_all(b"\n")?;
        Ok(id)
    }

    /// Whether the guest has closed its end.
    pub(super) fn is_closed(&self) -> bool {
        self.answers.lock().closed
    }

    /// Waits for the end of a script.
    pub(super) fn wait(&self, id: Id, at_most: Duration) -> Waited {
        let deadline = Instant::now() + at_most;
        let mut state = self.answers.lock();
        loop {
            if let Some(output) = state.answers.remove(&id) {
                return Waited::Done(output);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match (state.closed, left.is_zero()) {
                (true, _) => return Waited::Gone,
                (_, true) => return Waited::Late,
                _ => {}
            }
            let waited = self.answers.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Ends the reader thread. An error means that the other end is gone.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_all(mut from: impl BufRead, to: &Answers) -> io::Result<()> {
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let wrong = || io::Error::other(format!("no answer: {line:?}"));
        let words: Vec<u64> = line
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| wrong())?;
        let [id, status, out, err] = words.as_slice() else { return Err(wrong()) };
        let mut take = |length: u64| {
            let mut bytes = Vec::new();
            from.by_ref().take(length).read_to_end(&mut bytes).map(|_| bytes)
        };
        let (stdout, stderr) = (take(*out)?, take(*err)?);
        let status = i32::try_from(*status).map_err(|_| wrong())?;
        to.lock().answers.insert(*id, Output { status, stdout, stderr });
        to.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn answers_find_who_asked_in_any_order() {
        let (ours, mut guest) = UnixStream::pair().unwrap();
        let port = Port::new(ours).unwrap();
        let ids = [port.send(b"one").unwrap(), port.send(b"").unwrap()];
        let mut sent = [0; 12];
        guest.read_exact(&mut sent).unwrap();
        assert_eq!(&sent, b"1 4\none\n2 1\n");
        assert_eq!(port.wait(ids[0], Duration::ZERO), Waited::Late);
        guest.write_all(b"2 143 0 4\noops1 0 6 0\n1 2 3\n").unwrap();
        let Waited::Done(first) = port.wait(ids[0], SOON) else { panic!("done") };
        assert_eq!((first.status, first.stdout.as_slice()), (0, &b"1 2 3\n"[..]));
        let Waited::Done(second) = port.wait(ids[1], SOON) else { panic!("done") };
        assert_eq!((second.status, second.errors().as_str()), (143, "oops"));
    }

    #[test]
    fn a_guest_that_is_gone_or_mad_is_waited_for_no_longer() {
        for last in ["", "3 what 1 1\n"] {
            let (ours, mut guest) = UnixStream::pair().unwrap();
            let port = Port::new(ours).unwrap();
            guest.write_all(last.as_bytes()).unwrap();
            if last.is_empty() {
                drop(guest);
            }
            assert_eq!(port.wait(READY, SOON * 100), Waited::Gone);
        }
    }
}
