//! Units of the model, one type each, so that the compiler keeps them apart.
//!
//! Parameters are also written as text: a number and a unit, `"35.6us"`, `"64KiB"`, `"81.2MB/s"`.
//! Printed values read back as the same value.

use core::fmt;
use core::ops::{Add, Sub};
use core::str::FromStr;

use crate::text::{Scale, UnitError};

/// A point in time since an epoch of the caller's choice, or a length of time; in nanoseconds. Sums
/// saturate at the largest value, which is [never](Nanos::NEVER).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A number of bytes: a size, or a distance from the start of a LUN or a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A transfer rate, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

/// The caller's identifier of an IO. The array returns it with the completion and does not
/// interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoTag(pub u64);

/// A LUN of the array, counted from zero in the order of
/// [`LayoutParams::luns`](crate::LayoutParams::luns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LunId(pub u32);

impl Nanos {
    /// A duration of 0.
    pub const ZERO: Nanos = Nanos(0);

    /// A time that is never reached, 584 years after the epoch.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// `us` microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// The time in seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Nearest nanosecond; negative and undefined values are zero.
    pub(crate) fn round(ns: f64) -> Nanos {
        Nanos((ns + 0.5) as u64)
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    /// The time from `other` until `self`; zero if `other` is later.
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Bytes {
    /// `k` binary kilobytes.
    #[must_use]
    pub const fn kib(k: u64) -> Bytes {
        Bytes(k.saturating_mul(1 << 10))
    }

    /// `m` binary megabytes.
    #[must_use]
    pub const fn mib(m: u64) -> Bytes {
        Bytes(m.saturating_mul(1 << 20))
    }

    /// `g` binary gigabytes.
    #[must_use]
    pub const fn gib(g: u64) -> Bytes {
        Bytes(g.saturating_mul(1 << 30))
    }

    /// `g` decimal gigabytes, as drive makers count.
    #[must_use]
    pub const fn gb(g: u64) -> Bytes {
        Bytes(g.saturating_mul(1_000_000_000))
    }
}

impl Rate {
    /// `m` decimal megabytes per second.
    #[must_use]
    pub const fn mb_per_s(m: u64) -> Rate {
        Rate(m.saturating_mul(1_000_000))
    }

    /// Transfer time of `bytes`.
    pub(crate) fn time(self, bytes: Bytes) -> Nanos {
        Nanos::round(bytes.0 as f64 * 1e9 / self.0 as f64)
    }
}

const TIME: Scale = Scale {
    units: &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)],
    example: "35.6us",
};

const SIZE: Scale = Scale {
    units: &[
        ("TiB", 1 << 40),
        ("TB", 1_000_000_000_000),
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("KB", 1_000),
        ("B", 1),
    ],
    example: "64KiB",
};

const RATE: Scale = Scale {
    units: &[
        ("GB/s", 1_000_000_000),
        ("MiB/s", 1 << 20),
        ("MB/s", 1_000_000),
        ("KB/s", 1_000),
        ("B/s", 1),
    ],
    example: "81.2MB/s",
};

macro_rules! text {
    ($unit:ident, $scale:ident) => {
        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $scale.write(self.0, f)
            }
        }

        impl FromStr for $unit {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                $scale.read(text).map($unit)
            }
        }

        impl serde::Serialize for $unit {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $unit {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <alloc::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text!(Nanos, TIME);
text!(Bytes, SIZE);
text!(Rate, RATE);
