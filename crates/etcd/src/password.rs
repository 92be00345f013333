//! The file that holds a password.

use std::path::{Path, PathBuf};

use parda_tls::read_secret;

/// Longer than any password.
const MOST_BYTES: u64 = 4096;

/// Reason why a password file cannot be used. No message shows the password.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", file.display())]
pub struct PasswordError {
    /// Path of the file.
    pub file: PathBuf,
    /// Fault of the file, as text.
    pub fault: String,
}

/// The one line of a password file, without its end.
///
/// # Errors
/// The file cannot be read, is open to all users of the host, or has not exactly one line.
pub fn read(file: &Path) -> Result<String, PasswordError> {
    let wrong = |fault| PasswordError { file: file.to_owned(), fault };
    let unread = |fault| wrong(format!("cannot read the password file: {fault}"));
    let text = read_secret(file, MOST_BYTES).map_err(unread)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains(['\n', '\r', '\0']) {
        return Err(wrong("must hold the password as its one line".to_owned()));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        assert_eq!(with(b"secret\r\n", 0o440).unwrap(), "secret");
        assert!(with(b"secret", 0o644).unwrap_err().contains("chmod 0600"));
        assert!(with(b"", 0o600).unwrap_err().contains("one line"));
        assert!(with(b"a\nb\n", 0o600).unwrap_err().contains("one line"));
        assert!(with(&[b'x'; 5000], 0o600).unwrap_err().contains("4096"));
    }
}
