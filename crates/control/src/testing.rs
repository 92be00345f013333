//! Helpers for the unit tests of several modules.

use crate::cluster::{Bounded, Governed, Report, Source, Tuning};
use crate::latency::{Interval, Sample};
use crate::units::{Bytes, Shares, Span, Window};

/// Report of a governed and backlogged host that completed `ios` reads of 4 KiB in a second, at the threshold.
pub(crate) fn report(ios: u64) -> Report {
    let latency = Span::from_millis(30 * ios);
    let reads = Sample { ios, bytes: Bytes(4096 * ios), latency, ..Sample::default() };
    Report {
        elapsed: Span::from_millis(1000),
        interval: Interval { reads, ..Interval::default() },
        outstanding: 10.0,
        window: Window(10.0),
        shares: Shares(1000),
        active: 1000.0,
        bounded: Bounded::Slices,
        governed: Governed::Yes,
        source: Source::Cluster,
        threshold: Span::from_millis(30),
        tuning: Tuning::Pinned,
        ..Report::default()
    }
}
