//! Answers go to standard output, everything else to standard error.

use std::fs::OpenOptions;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use parda_input::escaped;
use serde::Serialize;

use crate::Failure;

/// Prints an answer, without the trailing blanks of tables and without control sequences. A reader that stops reading (`| head`) is no
/// error.
pub fn print(text: &str) -> Result<(), Failure> {
    tell(text).map(|_| ())
}

/// Prints one answer of many, as [`print()`] does. Returns whether the reader still reads.
pub fn tell(text: &str) -> Result<bool, Failure> {
    styled(&lines(text))
}

/// Prints an answer with the colours that it has. Returns whether the reader still reads.
pub fn styled(text: &str) -> Result<bool, Failure> {
    let trimmed: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    match writeln!(std::io::stdout().lock(), "{}", trimmed.join("\n")) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::new(format!("cannot write to standard output: {e}"))),
    }
}

/// A name or a message from outside on one line, with control characters escaped.
pub fn line(text: &str) -> String {
    escaped(text, |_| false)
}

/// As [`line()`], with line breaks kept.
pub fn lines(text: &str) -> String {
    escaped(text, |c| c == '\n')
}

/// A number with the name of what is counted: `1 disk`, `2 disks`.
pub fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// The end of the year 9999, in milliseconds since 1970.
const LAST_MS: u64 = 253_402_300_799_999;

/// Date and time in UTC, from a number of others as milliseconds since 1970.
pub fn date(at_ms: u64) -> String {
    // Later years have five digits, which the format does not have.
    let at = UNIX_EPOCH + Duration::from_millis(at_ms.min(LAST_MS));
    humantime::format_rfc3339_seconds(at).to_string()
}

/// A table without lines. `head`: its headings, with `|` between them.
pub fn plain<const N: usize>(head: &str, rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head.split('|')).add_rows(rows);
    table
}

/// Such a table with numbers: names to the left, numbers to the right.
pub fn numbers<const N: usize>(head: &str, rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = plain(head, rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Checks that these files can be written, before the work whose answer goes there. A file that is not there is left so.
pub fn check<'a>(files: impl IntoIterator<Item = &'a Option<PathBuf>>) -> Result<(), Failure> {
    for to in files.into_iter().flatten().filter(|to| to.as_os_str() != "-") {
        writable(to).map_err(|error| unwritten(to, &error))?;
    }
    Ok(())
}

fn writable(to: &Path) -> std::io::Result<()> {
    let refused = |why| Err(std::io::Error::other(why));
    match (std::fs::metadata(to), std::fs::symlink_metadata(to)) {
        (Ok(about), _) if about.is_file() || about.is_dir() => {
            OpenOptions::new().append(true).open(to).map(drop)
        }
        (Ok(about), _) if about.file_type().is_socket() => refused("it is a socket"),
        // The reader of a pipe would take the check for the answer.
        (Ok(_), _) => Ok(()),
        (Err(_), Ok(_)) => refused("it is a symbolic link that leads nowhere"),
        (Err(_), Err(_)) => {
            OpenOptions::new().write(true).create_new(true).open(to)?;
            std::fs::remove_file(to)
        }
    }
}

/// Writes a text to a file, or to standard output for `-`. Returns whether it went to standard output.
pub fn write(to: &Path, text: &str) -> Result<bool, Failure> {
    if to.as_os_str() == "-" {
        return print(text).map(|()| true);
    }
    std::fs::write(to, text).map(|()| false).map_err(|error| unwritten(to, &error))
}

/// The failure of a file that cannot be written.
pub fn unwritten(to: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", to.display()))
}

/// Writes an answer as JSON to a file, or to standard output for `-`.
pub fn json(to: &Path, answer: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(answer)
        .map_err(|e| Failure::new(format!("cannot write the answer as JSON: {e}")))?;
    text.push('\n');
    write(to, &text).map(|_| ())
}

/// Writes an answer as JSON to `out`, or as text to standard output.
pub fn either<T: Serialize>(
    out: Option<&Path>,
    answer: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    match out {
        Some(out) => json(out, answer),
        None => print(&text(answer)),
    }
}

/// Writes an answer to standard output, as JSON where a command has that option, or as text.
pub fn tell_as<T: Serialize>(
    as_json: bool,
    answer: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    either(as_json.then_some(Path::new("-")), answer, text)
}

/// A number, or a dash.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Whether standard output may be coloured: on a terminal, unless NO_COLOR is set.
pub fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// A progress bar up to `length`, invisible without a terminal.
pub fn bar(template: &str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_forges_no_line_and_no_command_of_a_terminal() {
        assert_eq!(line("é\n\u{1b}[2J\u{9b}"), "é\\n\\u001b[2J\\u009b");
        assert_eq!(lines("a\nb\r\u{1b}[2J"), "a\nb\\r\\u001b[2J");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_found_before_the_work() {
        let dir = tempfile::tempdir().unwrap();
        let says = |name: &str| check(&[Some(dir.path().join(name))]).err().map(|f| f.message);
        std::fs::write(dir.path().join("old"), "as it was").unwrap();
        assert_eq!((says("new"), says("old")), (None, None));
        assert!(!dir.path().join("new").exists());
        assert_eq!(std::fs::read_to_string(dir.path().join("old")).unwrap(), "as it was");
        for wrong in ["no/where", "old/x", ""] {
            assert!(says(wrong).unwrap().starts_with("cannot write "), "{wrong}");
        }
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        std::os::unix::fs::symlink("no/where", dir.path().join("link")).unwrap();
        assert!(says("socket").unwrap().ends_with("socket: it is a socket"));
        assert!(says("link").unwrap().ends_with("link: it is a symbolic link that leads nowhere"));
        assert!(check(&[Some("-".into()), Some("/dev/null".into()), None]).is_ok());
    }

    #[test]
    fn a_date_beyond_the_format_is_shown_as_the_last_one() {
        assert_eq!(date(1_000), "1970-01-01T00:00:01Z");
        assert_eq!(date(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|n| count(n, "disk")), ["0 disks", "1 disk", "2 disks"]);
    }
}
