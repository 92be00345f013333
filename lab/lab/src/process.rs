//! A child process that never outlives the laboratory. The process ends with the run, on an error,
//! and when the laboratory is killed with SIGKILL.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

/// Number of last lines of the log that an error quotes.
const LAST_LINES: usize = 8;

/// A running child, killed when dropped.
///
/// The kernel kills it when the *thread* ends that started it. Start it from a thread that lives as
/// long as the child should.
#[derive(Debug)]
pub struct Process {
    who: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a program whose output is appended to a log file.
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be run.
    pub fn start(who: String, log: PathBuf, mut command: Command) -> io::Result<Process> {
        let output = File::options().create(true).append(true).open(&log)?;
        let parent = getpid();
        // A process group of its own, so that Ctrl-C reaches the laboratory alone, which ends its
        // children in order.
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        // SAFETY: between fork and exec only system calls are made, which are safe there: no
        // allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // The laboratory may have died before the signal was set.
                if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
            });
        }
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("{program}: {error}"))
        })?;
        Ok(Process { who, log, child })
    }

    /// Description of the process, for people.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }

    /// Exit status, if the child has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // An error means that the child was waited for already.
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal. A child that has ended gets none.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            // The child may have ended in between. Its id is not reused before it is waited for.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the child and waits for its end.
    pub fn kill(mut self) {
        self.end();
    }

    /// Time that the child's threads ran, and time that they were ready to run but waited for a
    /// processor.
    #[must_use]
    pub fn ran_and_waited(&self) -> (Duration, Duration) {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        // A thread that has just ended is left out.
        let of = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let mut numbers = text.split_whitespace().map(|n| n.parse().map(Duration::from_nanos));
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        };
        let threads = threads.into_iter().flatten().flatten().filter_map(of);
        threads
            .fold((Duration::ZERO, Duration::ZERO), |(ran, waited), (r, w)| (ran + r, waited + w))
    }

    /// Last lines of the log.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_lines(&self.log)
    }

    fn end(&mut self) {
        // Errors mean that the child is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Last lines of a log.
#[must_use]
pub fn last_lines(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "  (nothing)".to_owned();
    }
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    last.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(script: &str, log: &Path) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("a shell".to_owned(), log.to_owned(), command).unwrap()
    }

    #[test]
    fn what_it_said_last_is_known_after_it_died() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut process = shell("for i in 1 2 3 4 5 6 7 8 9; do echo line $i; done; exit 3", &log);
        let status = process.child.wait().unwrap();
        assert_eq!((status.code(), process.ended()), (Some(3), Some(status)));
        let words = process.last_words();
        assert!(!words.contains("line 1") && words.ends_with("line 9"), "{words}");
    }

    #[test]
    fn it_is_known_how_long_it_ran() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell("while :; do :; done", &dir.path().join("log"));
        let began = Instant::now();
        while process.ran_and_waited().0 < Duration::from_millis(50) {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(process.ran_and_waited().0 <= began.elapsed() + Duration::from_millis(50));
    }

    #[test]
    fn dropped_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell("exec sleep 600", &dir.path().join("log"));
        let pid = Pid::from_raw(process.child.id() as i32).unwrap();
        assert!(rustix::process::test_kill_process(pid).is_ok());
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn the_end_of_its_thread_is_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut process = std::thread::spawn(move || shell("exec sleep 600", &log)).join().unwrap();
        assert_eq!(process.child.wait().unwrap().code(), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let command = Command::new(dir.path().join("nothing"));
        let started = Process::start("it".to_owned(), dir.path().join("log"), command);
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
