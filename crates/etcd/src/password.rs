//! The file that holds a password.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Longer than any password.
const MOST_BYTES: u64 = 4096;

/// Reason why a password file cannot be used. No message shows the password.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", file.display())]
pub struct PasswordError {
    /// Path of the file.
    pub file: PathBuf,
    /// Fault of the file.
    pub fault: PasswordFault,
}

/// What is wrong with a password file.
#[derive(Debug, thiserror::Error)]
pub enum PasswordFault {
    /// It cannot be opened or read.
    #[error("cannot read the password file: {0}")]
    Read(#[from] std::io::Error),
    /// It is a directory, a device or the like.
    #[error("is not a regular file")]
    NotAFile,
    /// Anybody on this host could read it.
    #[error("mode {mode:04o} lets every user of this host read or write the password: chmod 0600")]
    Exposed {
        /// Permission bits of the file.
        mode: u32,
    },
    /// It is far too long, or not text.
    #[error("is not text of at most {MOST_BYTES} bytes")]
    NotText,
    /// It holds nothing, or several lines.
    #[error("must hold the password as its one line")]
    NotOneLine,
}

/// The one line of a file that not every user of this host may read.
pub fn read(file: &Path) -> Result<String, PasswordError> {
    try_read(file).map_err(|fault| PasswordError { file: file.to_owned(), fault })
}

fn try_read(file: &Path) -> Result<String, PasswordFault> {
    // Neither a FIFO nor a device may keep the caller waiting.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(file, flags, Mode::empty()).map_err(std::io::Error::from)?;
    let opened = std::fs::File::from(opened);
    let meta = opened.metadata()?;
    if !meta.is_file() {
        return Err(PasswordFault::NotAFile);
    }
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o006 != 0 {
        return Err(PasswordFault::Exposed { mode });
    }
    let mut bytes = Vec::new();
    opened.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| PasswordFault::NotText)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(PasswordFault::NotText);
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains(['\n', '\r', '\0']) {
        return Err(PasswordFault::NotOneLine);
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line_of_a_file_that_is_not_everybodys() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let with = |text: &[u8], mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            read(&file).map_err(|error| error.to_string())
        };
        assert_eq!(with(b"secret \n", 0o600).unwrap(), "secret ");
        assert_eq!(with(b"secret", 0o440).unwrap(), "secret");
        assert!(with(b"secret", 0o644).unwrap_err().contains("chmod 0600"));
        assert!(with(b"", 0o600).unwrap_err().contains("one line"));
        assert!(with(b"a\nb\n", 0o600).unwrap_err().contains("one line"));
        assert!(with(&[0xff; 3], 0o600).unwrap_err().contains("text"));
        assert!(with(&[b'x'; 5000], 0o600).unwrap_err().contains("4096"));
        assert!(read(dir.path()).unwrap_err().to_string().contains("not a regular file"));
        assert!(read(&dir.path().join("none")).unwrap_err().to_string().contains("No such file"));
    }
}
