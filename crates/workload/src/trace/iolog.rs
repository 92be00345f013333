//! Reader for fio's IO log: `fio --write_iolog=FILE`.

use super::builder::Builder;
use super::{Format, Trace};

/// Reader for one log, line by line.
#[derive(Debug)]
pub(crate) struct Iolog {
    version: Version,
    /// Sum of the waits so far, in µs.
    waited: u64,
    /// The file that the log is about.
    file: Option<String>,
    ios: Builder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

/// Message for a line of another form.
const SHAPE: &str = "must be a file and what is done to it (add, open, close), or that with an \
                     offset and a length (read, write)";

impl Iolog {
    /// A reader, if a log that begins with this line is fio's.
    pub(crate) fn begins(line: &str) -> Option<Iolog> {
        let version = match line {
            "fio version 2 iolog" => Version::Two,
            "fio version 3 iolog" => Version::Three,
            _ => return None,
        };
        Some(Iolog { version, waited: 0, file: None, ios: Builder::default() })
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let mut words = line.split_ascii_whitespace();
        let began = match self.version {
            Version::Two => None,
            Version::Three => {
                let at = words.next().ok_or(SHAPE)?;
                Some(at.parse::<u64>().map_err(|_| "must begin with a time, in microseconds")?)
            }
        };
        let (Some(file), Some(action)) = (words.next(), words.next()) else { return Err(SHAPE) };
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(SHAPE);
        match action {
            "read" | "write" => {
                let (offset, len) = (number()?, number()?);
                if self.file.get_or_insert_with(|| file.to_owned()) != file {
                    return Err(
                        "is of another file than the reads and writes before it: make it a \
                                trace for each, and a VM",
                    );
                }
                let at = began.unwrap_or(self.waited).checked_mul(1000).ok_or("is too late")?;
                self.ios.push(at, action == "read", offset, len)?;
            }
            "wait" if self.version == Version::Two => {
                self.waited = self.waited.saturating_add(number()?);
            }
            "trim" => self.ios.skip("trims"),
            "sync" | "datasync" => self.ios.skip("flushes"),
            "add" | "open" | "close" => self.ios.skip("files added, opened and closed"),
            _ => return Err(SHAPE),
        }
        Ok(())
    }

    pub(crate) fn trace(self) -> Result<Trace, &'static str> {
        let format = match self.version {
            Version::Two => Format::Iolog2,
            Version::Three => Format::Iolog3,
        };
        self.ios.build(format, None)
    }
}
