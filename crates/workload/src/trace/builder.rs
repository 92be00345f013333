//! Collects the IOs of a trace, whatever its format.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_control::Bytes;

use super::{Format, Trace, TraceIo, UnderWay};

/// Size of a sector in bytes.
const SECTOR: u64 = 512;

/// Upper bound on offsets, in bytes: no disk is larger.
const FURTHEST: u64 = 1 << 62;

/// Collector of the IOs of a trace.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    ios: Vec<TraceIo>,
    skipped: BTreeMap<&'static str, u64>,
}

impl Builder {
    /// Counts a line that is neither a read nor a write.
    pub(crate) fn skip(&mut self, what: &'static str) {
        *self.skipped.entry(what).or_default() += 1;
    }

    /// Adds a read or write, widened to whole sectors.
    pub(crate) fn push(
        &mut self,
        at: u64,
        read: bool,
        offset: u64,
        len: u64,
    ) -> Result<(), &'static str> {
        if len == 0 {
            self.skip("without data");
            return Ok(());
        }
        let end = offset.checked_add(len).filter(|end| *end <= FURTHEST);
        let end = end.ok_or("lies beyond what any disk has")?.next_multiple_of(SECTOR);
        let offset = offset / SECTOR * SECTOR;
        let len = u32::try_from(end - offset).map_err(|_| "is larger than 4 GiB")?;
        self.ios.push(TraceIo { at, offset, len, read });
        Ok(())
    }

    /// Discards all collected IOs.
    pub(crate) fn forget(&mut self) {
        self.ios = Vec::new();
    }

    /// The finished trace.
    ///
    /// # Errors
    /// No IOs were collected, as a message.
    pub(crate) fn build(
        mut self,
        format: Format,
        under_way: Option<UnderWay>,
    ) -> Result<Trace, &'static str> {
        // Events of several CPUs may be slightly out of order.
        if !self.ios.is_sorted_by_key(|io| io.at) {
            self.ios.sort_by_key(|io| io.at);
        }
        self.ios.shrink_to_fit();
        let first = self.ios.first().ok_or("has neither reads nor writes")?.at;
        self.ios.iter_mut().for_each(|io| io.at -= first);
        let last = self.ios.last().map_or(0, |io| io.at);
        let gap = match self.ios.len() as u64 {
            1 => 1_000_000_000,
            n => last / (n - 1),
        };
        let end = self.ios.iter().map(|io| io.offset + u64::from(io.len)).max();
        let largest = self.ios.iter().map(|io| io.len).max();
        Ok(Trace {
            length: Duration::from_nanos(last.saturating_add(gap.max(1))),
            end: Bytes(end.unwrap_or(0)),
            largest: Bytes(largest.unwrap_or(0).into()),
            format,
            skipped: self.skipped,
            under_way,
            ios: self.ios,
        })
    }
}

/// Number of outstanding IOs over time.
#[derive(Debug, Default)]
pub(crate) struct Depth {
    now: u64,
    most: u64,
    done: u64,
    /// Time integral of the number of outstanding IOs, in IO·ns.
    lived: f64,
    first: Option<u64>,
    last: u64,
}

impl Depth {
    fn pass(&mut self, at: u64) {
        self.first.get_or_insert(at);
        self.lived += self.now as f64 * at.saturating_sub(self.last) as f64;
        self.last = self.last.max(at);
    }

    /// An IO begins at `at`, in ns.
    pub(crate) fn begin(&mut self, at: u64) {
        self.pass(at);
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    /// An IO completes at `at`. If none is outstanding, it began before the trace did.
    pub(crate) fn end(&mut self, at: u64) {
        self.pass(at);
        if self.now > 0 {
            self.now -= 1;
            self.done += 1;
        }
    }

    /// An IO is merged into another, or is returned to the queue.
    pub(crate) fn join(&mut self, at: u64) {
        self.pass(at);
        self.now = self.now.saturating_sub(1);
    }

    /// The statistics; `None` if no IO completed.
    pub(crate) fn under_way(&self) -> Option<UnderWay> {
        let span = self.last.checked_sub(self.first?).filter(|span| *span > 0)?;
        (self.done > 0).then(|| UnderWay {
            mean: self.lived / span as f64,
            most: self.most,
            latency_ms: self.lived / self.done as f64 / 1e6,
        })
    }
}
