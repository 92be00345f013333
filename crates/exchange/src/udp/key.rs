//! Keys that sign datagrams, and the key file.

use std::fmt;
use std::path::{Path, PathBuf};

use parda_tls::read_secret;

/// Most keys in a key file: the signing one, and those being introduced or retired.
pub const MOST_KEYS: usize = 8;

/// Hexadecimal digits of a key in the file: 32 bytes.
const DIGITS: usize = 64;

/// Largest size of a key file, far more than [`MOST_KEYS`] lines with comments need.
const MOST_BYTES: u64 = 16 * 1024;

/// Contexts of key derivation (BLAKE3's `derive_key`). They are part of the format and must never change.
const SIGNING: &str = "parda exchange 2026-11 datagram signature";
const NAMING: &str = "parda exchange 2026-11 key name";

/// Input of the public key. Only for loopback addresses.
const PUBLIC: &[u8] = b"loopback";

/// A key that all hosts of an exchange share.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    name: u64,
    signing: [u8; 32],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:016x})", self.name)
    }
}

impl Key {
    fn new(secret: &[u8]) -> Key {
        let name = blake3::derive_key(NAMING, secret);
        let name = u64::from_le_bytes(std::array::from_fn(|i| name[i]));
        Key { name, signing: blake3::derive_key(SIGNING, secret) }
    }

    /// Number by which a receiver finds the key. The key cannot be derived from it.
    pub(super) fn name(&self) -> u64 {
        self.name
    }

    /// Keyed BLAKE3 of `bytes`.
    pub(super) fn sign(&self, bytes: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.signing, bytes)
    }
}

/// The keys of an exchange: the first one signs, all of them verify.
///
/// Replacement of a key without a gap: add the new key as second line on all hosts. Then make it the first line, then remove the old
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Vec<Key>);

/// Reason why a key file cannot be used. No message shows a key.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {fault}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct KeyFileError {
    /// Path of the key file.
    pub file: PathBuf,
    /// Line of the file, if one is wrong.
    pub line: Option<usize>,
    /// Fault of the file or the line, as text.
    pub fault: String,
}

impl Keys {
    /// Reads a key file: one key a line; empty lines and lines that begin with `#` do not count.
    pub fn read(file: &Path) -> Result<Keys, KeyFileError> {
        let wrong = |line, fault| KeyFileError { file: file.to_owned(), line, fault };
        let unread = |fault| wrong(None, format!("cannot read the key file: {fault}"));
        let text = read_secret(file, MOST_BYTES).map_err(unread)?;
        let mut keys: Vec<(usize, Key)> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let secret = secret(text).map_err(|fault| wrong(Some(line), fault))?;
            let key = Key::new(&secret);
            if let Some((first, _)) = keys.iter().find(|(_, known)| *known == key) {
                return Err(wrong(Some(line), format!("repeats the key of line {first}")));
            }
            if keys.len() == MOST_KEYS {
                let why = format!("is one key too many: at most {MOST_KEYS} are checked");
                return Err(wrong(Some(line), why));
            }
            keys.push((line, key));
        }
        if keys.is_empty() {
            let why = "holds no key: write one with `openssl rand -hex 32`".to_owned();
            return Err(wrong(None, why));
        }
        Ok(Keys(keys.into_iter().map(|(_, key)| key).collect()))
    }

    /// The public key. Only for hosts whose addresses are all loopback.
    #[must_use]
    pub fn public() -> Keys {
        Keys(vec![Key::new(PUBLIC)])
    }

    /// Number of keys, at most [`MOST_KEYS`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The key that signs.
    pub(super) fn first(&self) -> &Key {
        &self.0[0]
    }

    pub(super) fn named(&self, name: u64) -> Option<&Key> {
        self.0.iter().find(|key| key.name == name)
    }
}

/// The key of a line. The error does not show the line.
fn secret(text: &str) -> Result<[u8; 32], String> {
    let not_a_key = |found: String| {
        format!(
            "is no key ({found}): a key is {DIGITS} hexadecimal digits, as `openssl rand -hex 32` prints"
        )
    };
    if let Some(at) = text.chars().position(|c| !c.is_ascii_hexdigit()) {
        return Err(not_a_key(format!("character {} is no hexadecimal digit", at + 1)));
    }
    if text.len() != DIGITS {
        return Err(not_a_key(format!("{} digits", text.len())));
    }
    // A key has the digits of a hash: 32 bytes.
    let secret = blake3::Hash::from_hex(text).map_err(|error| not_a_key(error.to_string()))?;
    let secret = *secret.as_bytes();
    if secret.iter().all(|byte| *byte == secret[0]) {
        return Err(not_a_key("one byte 32 times".to_owned()));
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const TWO: &str = "FF0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn keys(text: &str, mode: u32) -> Result<Keys, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Keys::read(&file).map_err(|e| {
            let text = e.to_string();
            text.strip_prefix(&file.display().to_string()).unwrap().to_owned()
        })
    }

    #[test]
    fn one_key_a_line_the_first_signs() {
        let read = keys(&format!("# of all hosts\n{ONE}\n\n  {TWO}  \n"), 0o640).unwrap();
        assert_eq!(read.count(), 2);
        assert_eq!(*read.first(), keys(ONE, 0o600).unwrap().0[0]);
        assert_ne!(read.first().sign(b"x"), keys(TWO, 0o600).unwrap().first().sign(b"x"));
        assert_eq!(read.named(read.0[1].name()), Some(&read.0[1]));
        assert_eq!(read.named(7), None);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let error = keys(ONE, 0o644).unwrap_err();
        assert_eq!(
            error,
            ": cannot read the key file: mode 0644 lets every user of this host read or write it: chmod 0600"
        );
    }

    #[test]
    fn what_is_no_key_is_named_by_its_line_and_not_shown() {
        let many: String = (0..9).map(|i| format!("{i}{}\n", &ONE[1..])).collect();
        for (text, line, says) in [
            (format!("{ONE}\n{}\n", &ONE[1..]), ":2:", "63 digits"),
            (format!("{ONE}\n# x\nsecret\n"), ":3:", "character 1 is no hexadecimal digit"),
            ("0".repeat(64), ":1:", "one byte 32 times"),
            (format!("{ONE}\n{}", ONE.to_uppercase()), ":2:", "repeats the key of line 1"),
            (many, ":9:", "at most 8"),
            ("# nothing\n".to_owned(), ":", "holds no key"),
            ("x".repeat(20_000), ":", "more than 16384 bytes"),
        ] {
            let error = keys(&text, 0o600).unwrap_err();
            assert!(error.starts_with(line) && error.contains(says), "{error}");
            assert!(!error.contains("secret") && !error.contains("0102"), "{error}");
        }
    }

    #[test]
    fn a_key_shows_its_name_and_no_secret() {
        let key = format!("{:?}", keys(ONE, 0o600).unwrap());
        assert!(!key.contains("0102") && key.len() < 40, "{key}");
    }
}
