//! QEMU's monitor (QMP), which adds hardware to a machine and saves its state.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Time for a command, and for loading or saving a state, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval between checks of a state that is being loaded or saved.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Client of the monitor. Events that QEMU sends unasked are ignored.
#[derive(Debug)]
pub struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Client at the other end of a socket, ready for commands.
    ///
    /// # Errors
    ///
    /// If the other end is no monitor, or is silent for a minute.
    pub fn new(stream: UnixStream) -> io::Result<Monitor> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Monitor(BufReader::new(stream));
        // QEMU sends a greeting, and accepts commands after `qmp_capabilities`.
        monitor.read()?;
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Executes a command and returns its answer.
    ///
    /// # Errors
    ///
    /// If QEMU refuses the command, is silent for a minute, or is gone.
    pub fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string() + "\n";
        self.0.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut answer = self.read()?;
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("{command} {arguments}: {error}")));
            }
            if let Some(done) = answer.get_mut("return") {
                return Ok(done.take());
            }
        }
    }

    /// Waits until the machine has loaded its state.
    ///
    /// # Errors
    ///
    /// If it cannot load it, or takes more than a minute.
    pub fn wait_until_loaded(&mut self) -> io::Result<()> {
        self.wait_while("query-status", &["inmigrate"], "paused")
    }

    /// Writes the machine's state to a file. The machine is stopped from then on.
    ///
    /// # Errors
    ///
    /// If it cannot write it, or takes more than a minute.
    pub fn save(&mut self, to: &Path) -> io::Result<()> {
        self.ask("stop", json!({}))?;
        let uri = format!("exec:cat >'{}'", to.display());
        self.ask("migrate", json!({ "uri": uri }))?;
        self.wait_while("query-migrate", &["setup", "active", "device"], "completed")
    }

    fn wait_while(&mut self, query: &str, during: &[&str], then: &str) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(query, json!({}))?;
            // A migration that has not begun has no status.
            let status = answer["status"].as_str().unwrap_or(during[0]);
            if status == then {
                return Ok(());
            }
            if !during.contains(&status) || Instant::now() > deadline {
                return Err(io::Error::other(format!("{query}: {answer}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn read(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A QEMU that sends these lines: the first unasked, the others one for each command.
    fn played(says: &'static [&'static str]) -> Monitor {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut told = BufReader::new(theirs.try_clone().unwrap());
            let mut theirs = theirs;
            theirs.write_all(b"{\"QMP\": {}}\n").unwrap();
            for line in ["{\"return\": {}}"].iter().chain(says) {
                told.read_line(&mut String::new()).unwrap();
                theirs.write_all(format!("{line}\n").as_bytes()).unwrap();
            }
        });
        Monitor::new(ours).unwrap()
    }

    #[test]
    fn an_answer_is_found_among_what_else_is_told() {
        let mut monitor = played(&["{\"event\": \"STOP\"}\n{\"return\": {\"status\": \"x\"}}"]);
        assert_eq!(monitor.ask("query-status", json!({})).unwrap()["status"], "x");
    }

    #[test]
    fn what_it_does_not_do_is_an_error_that_says_what() {
        let mut monitor = played(&["{\"error\": {\"desc\": \"no bus\"}}"]);
        let error = monitor.ask("device_add", json!({ "id": "a" })).unwrap_err().to_string();
        assert!(error.contains("device_add") && error.contains("no bus"), "{error}");
        // The connection is closed then.
        assert!(monitor.ask("cont", json!({})).is_err());
    }

    #[test]
    fn a_state_is_waited_for_until_it_is_there_or_lost() {
        const NONE: &str = "{\"return\": {}}";
        const ACTIVE: &str = "{\"return\": {\"status\": \"active\"}}";
        const COMPLETED: &str = "{\"return\": {\"status\": \"completed\"}}";
        const FAILED: &str = "{\"return\": {\"status\": \"failed\"}}";
        let mut monitor = played(&[NONE, NONE, NONE, ACTIVE, COMPLETED]);
        monitor.save(Path::new("/x")).unwrap();
        let mut monitor = played(&[NONE, NONE, ACTIVE, FAILED]);
        assert!(monitor.save(Path::new("/x")).unwrap_err().to_string().contains("failed"));
    }
}
