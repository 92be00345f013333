//! The reason why a disk does no more IOs, classified once for status, API, page and explanation.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Held time as a fraction of latency, above which a disk is limited by its slice or its host's window.
pub const HELD: f64 = 0.05;

/// Fraction of its largest window from which on a host counts as bounded by it: `FULL` of `crates/control/src/governor.rs`, with
/// room for chance.
const FULL: f64 = 0.95;

/// Whether a host with so many slots outstanding in the mean is at its largest window, `window_max`.
#[must_use]
pub fn is_full(outstanding: f64, window_max: f64) -> bool {
    outstanding >= FULL * window_max
}

/// Reason why a disk or a host does no more IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Limit {
    /// No request was done.
    #[serde(rename = "nothing done")]
    Nothing,
    /// Its requests were flushes, trims and the like, no reads or writes.
    #[serde(rename = "flushes, trims")]
    Others,
    /// Its slice of the window: its IOs are held, also where none of them was done.
    #[serde(rename = "its slice")]
    Slice,
    /// Its host's largest window: its IOs are held, independent of its shares.
    #[serde(rename = "window_max")]
    WindowMax,
    /// Its `limit`: it has all that was set for it.
    #[serde(rename = "its limit")]
    Configured,
    /// Its client keeps no more IOs pending.
    #[serde(rename = "its own depth")]
    Depth,
}

/// Requests of a disk in an interval, as numbers or as rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// Reads and writes that were completed.
    pub ios: f64,
    /// Flushes, trims and other requests.
    pub others: f64,
    /// Mean held time of reads and writes, in milliseconds.
    pub held_ms: f64,
    /// The part of that by the disk's `limit`.
    pub limited_ms: f64,
    /// Mean time of reads and writes at the array, in milliseconds.
    pub device_ms: f64,
    /// Whether IOs are held at the end of the interval.
    pub held_now: bool,
    /// Whether most of these are held by the disk's `limit`.
    pub limited_now: bool,
}

impl Limit {
    /// The limit of a disk. `at_window_max`: whether its host is at its largest window ([`is_full`]).
    #[must_use]
    pub fn of(did: &Requests, at_window_max: bool) -> Limit {
        let Requests { ios, others, held_ms, limited_ms, device_ms, held_now, limited_now } = *did;
        match ios > 0.0 {
            false if held_now && limited_now => Limit::Configured,
            false if held_now => Limit::Slice,
            false if others > 0.0 => Limit::Others,
            false => Limit::Nothing,
            true if held_ms <= HELD * (held_ms + device_ms) => Limit::Depth,
            true if limited_ms > 0.5 * held_ms => Limit::Configured,
            true if at_window_max => Limit::WindowMax,
            true => Limit::Slice,
        }
    }

    /// Whether IOs are held.
    #[must_use]
    pub fn is_held(self) -> bool {
        matches!(self, Limit::Slice | Limit::WindowMax)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_limited_by_what_holds_its_ios() {
        let of = |ios, others, held_ms, device_ms, held_now| {
            let did = Requests { ios, others, held_ms, device_ms, held_now, ..Requests::default() };
            [false, true].map(|at_window_max| Limit::of(&did, at_window_max))
        };
        assert_eq!(of(0.0, 0.0, 0.0, 0.0, false), [Limit::Nothing; 2]);
        assert_eq!(of(0.0, 9.0, 0.0, 0.0, false), [Limit::Others; 2]);
        assert_eq!(of(0.0, 9.0, 0.0, 0.0, true), [Limit::Slice; 2]);
        assert_eq!(of(9.0, 0.0, 0.6, 9.4, true), [Limit::Slice, Limit::WindowMax]);
        for (held_ms, device_ms) in [(0.4, 9.6), (0.5, 9.5)] {
            assert_eq!(of(9.0, 0.0, held_ms, device_ms, true), [Limit::Depth; 2]);
        }
    }

    #[test]
    fn a_disk_whose_ios_its_limit_holds_is_limited_by_that() {
        let did = Requests { ios: 9.0, held_ms: 30.0, device_ms: 9.0, ..Requests::default() };
        let of = |limited_ms| Limit::of(&Requests { limited_ms, ..did }, true);
        assert_eq!([29.0, 9.0].map(of), [Limit::Configured, Limit::WindowMax]);
        let none = Requests { held_now: true, limited_now: true, ..Requests::default() };
        assert_eq!(Limit::of(&none, false), Limit::Configured, "where none of them was done");
    }

    #[test]
    fn a_limit_is_shown_as_it_is_written() {
        assert_eq!(format!("{:>10}|", Limit::Slice), " its slice|");
    }
}
