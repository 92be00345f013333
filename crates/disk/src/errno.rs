//! Errors of requests.

use std::fmt;

/// Error of a request: one of those that every protocol has a number for. The numbers are Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// EPERM: the operation is not permitted.
    Perm = 1,
    /// EIO: the input or output failed.
    Io = 5,
    /// ENOMEM: memory cannot be allocated.
    NoMem = 12,
    /// EINVAL: an argument is invalid.
    Inval = 22,
    /// No space left on device.
    NoSpc = 28,
    /// EOVERFLOW: a value is too large.
    Overflow = 75,
    /// ENOTSUP: the operation is not supported.
    NotSup = 95,
    /// Server is in the process of being shut down.
    Shutdown = 108,
}

impl Errno {
    /// Its number on Linux, which is the one that NBD sends.
    #[must_use]
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The error of this number, if it is one of these.
    #[must_use]
    pub fn of_code(code: u32) -> Option<Self> {
        use Errno::{Inval, Io, NoMem, NoSpc, NotSup, Overflow, Perm, Shutdown};
        let all = [Perm, Io, NoMem, Inval, NoSpc, Overflow, NotSup, Shutdown];
        all.into_iter().find(|errno| errno.code() == code)
    }

    /// The error of a Linux `errno`. Any other is EIO.
    #[must_use]
    pub fn from_os(errno: i32) -> Self {
        match errno {
            // EACCES, EROFS
            13 | 30 => Self::Perm,
            // EFBIG, EDQUOT
            27 | 122 => Self::NoSpc,
            _ => Self::of_code(errno.cast_unsigned()).unwrap_or(Self::Io),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{}", format!("{self:?}").to_uppercase())
    }
}
