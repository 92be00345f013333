//! Reads and writes of single values in files of the kernel, with errors that name the file.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

/// Reason why a setting of the kernel or of QEMU could not be read or written. A text that names its file.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct SysError {
    text: String,
    gone: bool,
}

/// Remedy for an error, if rights are missing.
pub(crate) fn rights(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". Steering needs root: sudo, or for the agent's unit the drop-in steer.conf\
             (/usr/share/doc/parda/docs/installing.md)"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            ". In a container /sys is read-only: run parda on the host, or in a privileged container"
        }
        _ => "",
    }
}

impl SysError {
    pub(crate) fn new(file: &Path, why: impl fmt::Display) -> SysError {
        SysError { text: format!("{}: {why}", file.display()), gone: false }
    }

    /// The error of a call: what failed, and the kernel's reason.
    pub(crate) fn of(file: &Path, what: &str, source: &io::Error) -> SysError {
        let code = source.raw_os_error();
        let gone = source.kind() == io::ErrorKind::NotFound
            || code == Some(rustix::io::Errno::NODEV.raw_os_error())
            || code == Some(rustix::io::Errno::NXIO.raw_os_error());
        let error = SysError::new(file, format!("{what}: {source}{}", rights(source)));
        SysError { gone, ..error }
    }

    /// Whether the file went away, and its device with it.
    #[must_use]
    pub fn gone(&self) -> bool {
        self.gone
    }
}

/// Trimmed content of a file.
pub(crate) fn read(file: &Path) -> Result<String, SysError> {
    std::fs::read_to_string(file)
        .map(|text| text.trim().to_owned())
        .map_err(|source| SysError::of(file, "cannot be read", &source))
}

/// Trimmed content of a file that older kernels and other drivers lack.
pub(crate) fn read_any(file: &Path) -> Option<String> {
    read(file).ok().filter(|text| !text.is_empty())
}

/// Number that a file contains.
pub(crate) fn number<T: FromStr>(file: &Path) -> Result<T, SysError> {
    let value = read(file)?;
    let wrong = |_| SysError::new(file, format!("holds {value:?}, which is no number"));
    value.parse().map_err(wrong)
}

/// Writes a value in a single call, as the kernel requires.
pub(crate) fn write(file: &Path, value: &str) -> Result<(), SysError> {
    let fail = |source: io::Error| refused(file, value, &source);
    let mut open =
        std::fs::OpenOptions::new().write(true).truncate(true).open(file).map_err(fail)?;
    io::Write::write_all(&mut open, value.as_bytes()).map_err(fail)
}

/// The error of a value that the kernel does not take.
pub(crate) fn refused(file: &Path, value: &str, source: &io::Error) -> SysError {
    SysError::of(file, &format!("the kernel refuses {value:?}"), source)
}

/// The choice that is in force of those in a file.
pub(crate) fn choice(file: &Path) -> Result<String, SysError> {
    Ok(chosen(&read(file)?).to_owned())
}

/// The choice in brackets, as in `none [mq-deadline] bfq`. A file with a single choice has no
/// brackets.
pub(crate) fn chosen(list: &str) -> &str {
    let inside = list.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(list.trim(), |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_brackets_is_the_chosen_one() {
        assert_eq!(chosen("none [mq-deadline] bfq"), "mq-deadline");
        assert_eq!(chosen("[none] mq-deadline"), "none");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = read(Path::new("/nowhere/nr_requests")).expect_err("there is none");
        assert!(error.gone());
        assert!(error.to_string().starts_with("/nowhere/nr_requests: cannot be read: "), "{error}");
    }
}
