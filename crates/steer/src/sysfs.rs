//! One value from or to one file of the kernel's, with errors that name it.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file of the kernel's that could not be read, written or understood.
#[derive(Debug, thiserror::Error)]
pub enum SysError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It holds something else than it should.
    #[error("{}: holds {value:?}, which is no number", file.display())]
    Content {
        /// Which file.
        file: PathBuf,
        /// What is in it.
        value: String,
    },
    /// The kernel does not take the value.
    #[error("{}: the kernel refuses {value:?}: {source}", file.display())]
    Write {
        /// Which file.
        file: PathBuf,
        /// What was written.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl SysError {
    /// The file went away, and with it its device.
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

/// What a file holds, without the blanks around it.
pub(crate) fn read(file: &Path) -> Result<String, SysError> {
    std::fs::read_to_string(file)
        .map(|text| text.trim().to_owned())
        .map_err(|source| SysError::Read { file: file.to_owned(), source })
}

/// What a file holds, where it may be missing: older kernels, other drivers.
pub(crate) fn read_any(file: &Path) -> Option<String> {
    read(file).ok().filter(|text| !text.is_empty())
}

/// A number.
pub(crate) fn number<T: FromStr>(file: &Path) -> Result<T, SysError> {
    let value = read(file)?;
    value.parse().map_err(|_| SysError::Content { file: file.to_owned(), value })
}

/// Writes a value in one call, as the kernel wants it.
pub(crate) fn write(file: &Path, value: &str) -> Result<(), SysError> {
    let fail = |source| SysError::Write { file: file.to_owned(), value: value.to_owned(), source };
    let mut open =
        std::fs::OpenOptions::new().write(true).truncate(true).open(file).map_err(fail)?;
    io::Write::write_all(&mut open, value.as_bytes()).map_err(fail)
}

/// The name that stands in brackets: `none [mq-deadline] bfq`. A file that offers one thing alone
/// has none.
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
