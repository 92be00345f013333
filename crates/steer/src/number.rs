//! Device numbers, as `/sys/dev/block` and `io.stat` write them.

use std::fmt;
use std::str::FromStr;

/// Number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevNum {
    /// Major number: the driver.
    pub major: u32,
    /// Minor number: the device among the devices of its driver.
    pub minor: u32,
}

/// The text is not of the form `MAJOR:MINOR`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no device number: it must be MAJOR:MINOR")]
pub struct NotANumber(String);

impl DevNum {
    /// The kernel's internal form (`dev_t`): 12 bits of major, 20 of minor.
    #[must_use]
    pub fn kernel(self) -> u32 {
        self.major << 20 | self.minor
    }
}

impl fmt::Display for DevNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DevNum {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<DevNum, NotANumber> {
        let parse = || {
            let (major, minor) = text.trim().split_once(':')?;
            Some(DevNum { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        let fits = |n: &DevNum| n.major < 1 << 12 && n.minor < 1 << 20;
        parse().filter(fits).ok_or_else(|| NotANumber(text.to_owned()))
    }
}

/// The part of a device's line after its number, in a file with a line for each device. `None` if there is no line.
pub(crate) fn line(text: &str, device: DevNum) -> Option<&str> {
    let number = device.to_string();
    text.lines().find_map(|line| line.strip_prefix(&number)?.strip_prefix(' ').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_they_are_written() {
        let sdb = DevNum { major: 8, minor: 16 };
        assert_eq!("8:16\n".parse(), Ok(sdb));
        assert_eq!(sdb.to_string(), "8:16");
        assert_eq!(sdb.kernel(), 0x0080_0010);
        for wrong in ["", "8", "8:", ":16", "8:16:0", "-8:16", "4096:0", "8:1048576"] {
            assert!(wrong.parse::<DevNum>().is_err(), "{wrong}");
        }
    }
}
