//! Names of exports.

use std::fmt;

/// The name of an export of an NBD server: at most 4096 bytes, no NUL. May be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExportName(String);

/// A string that cannot name an export: the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an export name {0}")]
pub struct ExportNameError(String);

impl ExportName {
    /// Longest name, in bytes: the longest string that NBD allows.
    pub const MAX_LEN: usize = 4096;

    /// Checks that `name` can be an export's name.
    pub fn new(name: impl Into<String>) -> Result<Self, ExportNameError> {
        let name = name.into();
        if name.len() > ExportName::MAX_LEN {
            let (max, len) = (ExportName::MAX_LEN, name.len());
            return Err(ExportNameError(format!("has at most {max} bytes, this one has {len}")));
        }
        if name.contains('\0') {
            return Err(ExportNameError("must not contain a NUL byte".to_owned()));
        }
        Ok(Self(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
