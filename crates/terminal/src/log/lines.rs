//! Writer of the log: each event as one line. Lines that cannot be written, as on a full disk, are counted. The count is logged when
//! writing works again.

use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parda_input::escaped;

/// Lines that could not be written since the last report.
#[derive(Default)]
pub(super) struct Unwritten(Mutex<State>);

#[derive(Default)]
struct State {
    /// Number of lines, and why the last one of them was not written.
    lines: u64,
    why: String,
    /// Whether a line was written after the last of them.
    works: bool,
    /// Number of these lines that are the report's own.
    own: u64,
}

/// Writes each event as one line. Names and messages of clients, servers and files may hold any character. Line breaks and escape sequences
/// are escaped for the reader. Lines that cannot be written are counted, and the log continues.
pub(super) struct Lines<W> {
    to: W,
    /// Leaves our own colours.
    colours: bool,
    unwritten: Arc<Unwritten>,
    /// A part of a line was written, without its end.
    torn: bool,
}

impl Unwritten {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs that lines are lost, and how many were when lines can be written again. Each call until then logs a line, to see whether it
    /// is written.
    pub(super) fn report(&self) {
        let mut state = self.state();
        if state.lines == 0 {
            return;
        }
        if state.works {
            let lost = std::mem::take(&mut *state);
            drop(state);
            let lines = lost.lines.saturating_sub(lost.own);
            tracing::warn!(
                lines,
                event = "log_written",
                "the log can be written again, and lines of it were lost: {}",
                lost.why
            );
            return;
        }
        let (first, why) = (state.own == 0, state.why.clone());
        state.own += 1;
        drop(state);
        if first {
            tracing::error!(event = "log_lost", "lines of this log cannot be written: {why}");
        } else {
            tracing::error!("lines of this log could not be written: {why}");
        }
    }
}

impl<W: Write> Lines<W> {
    pub(super) fn new(to: W, colours: bool, unwritten: Arc<Unwritten>) -> Lines<W> {
        Lines { to, colours, unwritten, torn: false }
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.to.write_all(b"\n")?;
            self.torn = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.torn = !rest.is_empty();
        }
        Ok(())
    }
}

impl<W: Write> Write for Lines<W> {
    /// Takes an event, whether or not it could be written.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = escape(&String::from_utf8_lossy(event), self.colours);
        let written = self.put(line.as_bytes());
        let mut state = self.unwritten.state();
        state.works = written.is_ok();
        if let Err(error) = written {
            state.lines += 1;
            state.why = error.to_string();
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The event as one line, without control characters but the last. With `colours` escape
/// characters stay: those in names and messages are escaped by `tracing-subscriber` before.
fn escape(event: &str, colours: bool) -> String {
    let body = event.strip_suffix('\n').unwrap_or(event);
    escaped(body, |c| colours && c == '\u{1b}') + "\n"
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use parda_agent::events::Recorder;

    /// A disk with limited room, in bytes.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Disk {
        fn room(&self, bytes: usize) {
            self.0.lock().unwrap().0 = bytes;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().1.clone()).unwrap()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (room, text) = &mut *self.0.lock().unwrap();
            if *room == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let fits = bytes.len().min(*room);
            *room -= fits;
            text.extend(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        assert_eq!(escape("plain é\n", false), "plain é\n");
        assert_eq!(
            escape("a\nb\r\u{1b}[31m\u{9b}\0\n", false),
            "a\\nb\\r\\u001b[31m\\u009b\\u0000\n"
        );
        assert_eq!(escape("a\u{202e}b\n", false), "a\\u202eb\n");
        assert_eq!(escape("\u{1b}[31m\n\n", true), "\u{1b}[31m\\n\n");
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_said_and_the_next_is_whole() {
        let (disk, unwritten) = (Disk::default(), Arc::new(Unwritten::default()));
        let mut log = Lines::new(disk.clone(), false, Arc::clone(&unwritten));
        let recorder = Recorder::default();
        let layers = tracing_subscriber::registry().with(recorder.layer());
        let said = || {
            let events = recorder.answer(parda_api::EventsQuery::default()).events;
            events.into_iter().map(|event| (event.kind, event.message)).collect::<Vec<_>>()
        };
        tracing::subscriber::with_default(layers, || {
            disk.room(14);
            for line in ["first\n", "half of the second\n", "third\n"] {
                log.write_all(line.as_bytes()).unwrap();
            }
            unwritten.report();
            // The line of each report is lost as well, which is not counted.
            log.write_all(b"lost\n").unwrap();
            unwritten.report();
            log.write_all(b"lost\n").unwrap();
            assert_eq!(said().len(), 1, "{:?}", said());
            disk.room(1000);
            log.write_all(b"fourth\n").unwrap();
            unwritten.report();
            unwritten.report();
        });
        assert_eq!(disk.text(), "first\nhalf of \nfourth\n");
        let [lost, written] = &said()[..] else { panic!("{:?}", said()) };
        assert!(lost.0 == "log_lost" && lost.1.contains("no storage space"), "{lost:?}");
        assert!(written.0 == "log_written" && written.1.ends_with(" lines=2"), "{written:?}");
    }
}
