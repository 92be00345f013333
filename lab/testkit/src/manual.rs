//! Files of the documentation that tests compare with what the code gives.

use std::path::{Path, PathBuf};

/// The path of a file of `docs/`.
#[must_use]
pub fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file)
}

/// Compares a file of the documentation with what it has to be, or writes it if `PARDA_RENEW` is set.
pub fn is_shown(file: &str, right: &str) {
    if std::env::var_os("PARDA_RENEW").is_some() {
        return std::fs::write(docs(file), right).unwrap();
    }
    let shown = std::fs::read_to_string(docs(file)).unwrap();
    let differ = shown.lines().zip(right.lines()).find(|(shown, right)| shown != right);
    assert!(shown == right, "`make reproduce` renews {file}: {differ:?}");
}
