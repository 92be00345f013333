//! The error for a parameter that describes no possible array.

use alloc::string::{String, ToString};
use core::fmt;

/// A parameter that describes no possible array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("array parameter {name} = {value}: it must {must}")]
pub struct ParamError {
    /// The parameter's path, as in `drive.seek.base`.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Requirement on the value.
    pub must: &'static str,
}

/// Returns an error with the name, value and requirement if `possible` is false.
pub(crate) fn check(
    possible: bool,
    name: &'static str,
    value: impl fmt::Display,
    must: &'static str,
) -> Result<(), ParamError> {
    if possible { Ok(()) } else { Err(ParamError { name, value: value.to_string(), must }) }
}
