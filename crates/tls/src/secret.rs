//! Text files that hold secrets: passwords, tokens, keys that are not PEM.

use std::io::Read;
use std::path::Path;

use parda_input::{InputFault, Pipe};

/// Reason why a file with secrets cannot be used, as a sentence. It shows nothing of what is in the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SecretFault(String);

impl From<std::io::Error> for SecretFault {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Reads a file with secrets of at most `most` bytes. Waits for nobody, whatever the path leads to.
///
/// # Errors
/// The file cannot be read, is no regular file, is open to all users of the host, is too long, or is not UTF-8.
pub fn read_secret(path: &Path, most: u64) -> Result<String, SecretFault> {
    let refuse = |why: String| Err(SecretFault(why));
    let opened = match parda_input::open(path, Pipe::Refused) {
        Ok(opened) => opened,
        Err(InputFault::Io(error)) => return Err(error.into()),
        Err(_) => return refuse("it is not a regular file".to_owned()),
    };
    let mode = opened.mode()? & 0o7777;
    if mode & 0o007 != 0 {
        return refuse(format!(
            "mode {mode:04o} lets every user of this host read or write it: chmod 0600"
        ));
    }
    let mut bytes = Vec::new();
    opened.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return refuse(format!("it has more than {most} bytes"));
    }
    String::from_utf8(bytes).or_else(|_| refuse("it is not text".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::Mode;

    use super::*;

    fn read(text: &[u8], mode: u32) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        read_secret(&file, 10).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_secret_is_text_that_not_every_user_may_read() {
        assert_eq!(read(b"secret \n", 0o600).unwrap(), "secret \n");
        assert_eq!(read(b"0123456789", 0o440).unwrap(), "0123456789");
        for mode in [0o644, 0o604, 0o602, 0o601] {
            let error = read(b"secret", mode).unwrap_err();
            assert!(error.starts_with(&format!("mode {mode:04o}")), "{error}");
            assert!(error.contains("chmod 0600"), "{error}");
        }
        assert_eq!(read(b"0123456789a", 0o600).unwrap_err(), "it has more than 10 bytes");
        assert_eq!(read(&[0xff; 3], 0o600).unwrap_err(), "it is not text");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_hangs_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| read_secret(path, 10).unwrap_err().to_string();
        assert_eq!(error(dir.path()), "it is not a regular file");
        assert!(error(&dir.path().join("none")).contains("No such file"));
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(error(&fifo), "it is not a regular file");
    }
}
