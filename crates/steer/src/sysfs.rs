//! Reads and writes of single values in files of the kernel, with errors that name the file.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::qemu::QmpError;

/// Reason why a file of the kernel could not be used.
#[derive(Debug, thiserror::Error)]
pub enum SysError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}{}", file.display(), rights(source))]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The content is not a number.
    #[error("{}: holds {value:?}, which is no number", file.display())]
    Content {
        /// Path of the file.
        file: PathBuf,
        /// Content of the file.
        value: String,
    },
    /// The kernel refuses the value.
    #[error("{}: the kernel refuses {value:?}: {source}{}", file.display(), rights(source))]
    Write {
        /// Path of the file.
        file: PathBuf,
        /// Value that was written.
        value: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Limits of a disk of QEMU cannot be set.
    #[error("{}: limits cannot be set again ({value}): {error}", socket.display())]
    Qemu {
        /// Path of the QMP socket.
        socket: PathBuf,
        /// The disk and its limits.
        value: String,
        /// Error of the conversation.
        error: QmpError,
    },
}

/// What to do about an error, if rights are missing.
pub(crate) fn rights(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". Steering needs root: sudo, or for the agent's unit the drop-in steer.conf (docs/installing.md)"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            ". In a container /sys is read-only: run parda on the host, or in a privileged container"
        }
        _ => "",
    }
}

impl SysError {
    /// Whether the file went away, and its device with it.
    #[must_use]
    pub fn gone(&self) -> bool {
        let (SysError::Read { source, .. } | SysError::Write { source, .. }) = self else {
            return false;
        };
        let code = source.raw_os_error();
        source.kind() == io::ErrorKind::NotFound
            || code == Some(rustix::io::Errno::NODEV.raw_os_error())
            || code == Some(rustix::io::Errno::NXIO.raw_os_error())
    }
}

/// Trimmed content of a file.
pub(crate) fn read(file: &Path) -> Result<String, SysError> {
    std::fs::read_to_string(file)
        .map(|text| text.trim().to_owned())
        .map_err(|source| SysError::Read { file: file.to_owned(), source })
}

/// Trimmed content of a file that older kernels and other drivers lack.
pub(crate) fn read_any(file: &Path) -> Option<String> {
    read(file).ok().filter(|text| !text.is_empty())
}

/// Number that a file contains.
pub(crate) fn number<T: FromStr>(file: &Path) -> Result<T, SysError> {
    let value = read(file)?;
    value.parse().map_err(|_| SysError::Content { file: file.to_owned(), value })
}

/// Writes a value in a single call, as the kernel requires.
pub(crate) fn write(file: &Path, value: &str) -> Result<(), SysError> {
    let fail = |source| SysError::Write { file: file.to_owned(), value: value.to_owned(), source };
    let mut open =
        std::fs::OpenOptions::new().write(true).truncate(true).open(file).map_err(fail)?;
    io::Write::write_all(&mut open, value.as_bytes()).map_err(fail)
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
