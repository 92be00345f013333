//! Keeping what others say from looking like a line of ours.

use std::io::{self, Write};

use parda_agent::escaped;
use tracing_appender::non_blocking::NonBlocking;
use tracing_subscriber::fmt::MakeWriter;

/// Writes each event as one line: names and messages of clients, servers and files may hold any
/// character, and a line break or an escape sequence among them must not reach the reader as such.
pub(super) struct Escaping {
    queue: NonBlocking,
    /// Leaves our own colours.
    colours: bool,
}

/// One event on its way to the queue.
pub(super) struct Line<'a>(&'a Escaping);

impl Escaping {
    pub(super) fn new(queue: NonBlocking, colours: bool) -> Escaping {
        Escaping { queue, colours }
    }
}

impl<'a> MakeWriter<'a> for Escaping {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        self.0.queue.clone().write_all(escape(&text, self.0.colours).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        assert_eq!(escape("plain é\n", false), "plain é\n");
        assert_eq!(
            escape("a\nb\r\u{1b}[31m\u{9b}\0\n", false),
            "a\\nb\\r\\u{1b}[31m\\u{9b}\\u{0}\n"
        );
        assert_eq!(escape("a\u{202e}b\n", false), "a\\u{202e}b\n");
        assert_eq!(escape("\u{1b}[31m\n\n", true), "\u{1b}[31m\\n\n");
    }
}
