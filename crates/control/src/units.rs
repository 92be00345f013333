//! The units of the law, one type each, so that no two of them can be mistaken for one another.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time, in nanoseconds since an epoch that the caller chooses and keeps.
///
/// The law reads no clock: the caller passes the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Instant {
    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Instant {
    type Output = Instant;
    fn add(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000))
    }

    /// `us` microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Span {
        Span(us.saturating_mul(1_000))
    }

    /// `s` seconds, which must be finite and not negative to mean anything; others give zero.
    #[must_use]
    pub fn from_secs(s: f64) -> Span {
        // A float to integer cast saturates and maps NaN to zero.
        Span((s * 1e9) as u64)
    }

    /// This length in seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        // Many events share one instant, as a completion lets the next IO go. The division is the slowest step
        // of that path.
        if self.0 == 0 { 0.0 } else { self.0 as f64 / 1e9 }
    }

    /// This length in nanoseconds, if it is less than 292 years. A signed number converts in a third of the
    /// instructions of an unsigned one.
    pub(crate) fn nanos(self) -> f64 {
        self.0 as i64 as f64
    }
}

/// The larger of two numbers, neither of which is NaN: one instruction, where [`f64::max`] takes six.
pub(crate) fn larger(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

/// The smaller of two numbers, neither of which is NaN.
pub(crate) fn smaller(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl From<core::time::Duration> for Span {
    fn from(d: core::time::Duration) -> Span {
        Span(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for core::time::Duration {
    fn from(s: Span) -> core::time::Duration {
        core::time::Duration::from_nanos(s.0)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `k` binary kilobytes.
    #[must_use]
    pub const fn kib(k: u64) -> Bytes {
        Bytes(k * 1024)
    }
}

/// The relative weight of a VM, or of a host as the sum of its VMs' (PARDA §3; SPEED'08 §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shares(pub u32);

/// IOs that a host may keep outstanding at the array. A fraction, because with many hosts a window below one
/// must still count: one IO, then a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Window(pub f64);

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}
