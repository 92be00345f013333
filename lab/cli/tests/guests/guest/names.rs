//! Names that people meet in messages about guests.

/// Program that emulates the machines.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Environment variable with the directory of the kit.
pub(crate) const VARIABLE: &str = "PARDA_GUEST";
