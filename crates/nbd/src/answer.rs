//! The reply to one request, from its first piece to its last: what of a read was covered, and
//! whether it failed.
//!
//! A server may split the reply to a read into pieces and send them in any order, but pieces must
//! not overlap (spec, "Structured reply chunk types"). A client that only counts bytes takes a
//! piece that came twice for the whole, and hands out memory that nobody wrote. Hence every range
//! is kept.

use parda_disk::{Errno, Extent, Failure};

use crate::client::{Expected, Reply, ReplyError};

/// Ranges that may be apart from each other at one time. Servers that send pieces out of order have
/// a handful.
const MAX_RANGES: usize = 256;

/// Pieces of a reply beyond those of 512 bytes each that the spec asks servers for.
const SPARE_PIECES: u64 = 256;

/// Reply to one request, as far as it has arrived. Its memory is bounded whatever the server sends.
#[derive(Clone, Debug)]
pub struct ReplyParts {
    expected: Expected,
    /// Ranges within the request that were covered: in order, none empty, none touching another.
    covered: Vec<(u64, u64)>,
    pieces: u64,
    /// Block status has come.
    status: bool,
    error: Option<Failure>,
}

impl ReplyParts {
    /// The reply to a request of which nothing has arrived.
    #[must_use]
    pub fn new(expected: Expected) -> Self {
        Self { expected, covered: Vec::new(), pieces: 0, status: false, error: None }
    }

    /// Kind of reply that the request waits for.
    #[must_use]
    pub fn expected(&self) -> Expected {
        self.expected
    }

    /// Takes note of a piece. Its data may be stored only if this succeeds.
    ///
    /// # Errors
    /// When the server broke the protocol: the piece overlaps another, or there are too many.
    pub fn take(&mut self, reply: &Reply) -> Result<(), ReplyError> {
        let limit = match self.expected {
            Expected::Data(asked) => asked.len / 512 + SPARE_PIECES,
            Expected::Status { .. } | Expected::Outcome => SPARE_PIECES,
        };
        if self.pieces >= limit {
            return Err(ReplyError::TooManyPieces);
        }
        self.pieces += 1;
        match reply {
            Reply::Done => Ok(()),
            Reply::Data { extent, .. } | Reply::Hole { extent, .. } => self.cover(*extent),
            Reply::Status { .. } if std::mem::replace(&mut self.status, true) => {
                Err(ReplyError::Overlap)
            }
            Reply::Status { .. } => Ok(()),
            Reply::Error { errno, message, at, .. } => {
                let failed = || Failure { at: *at, ..Failure::new(*errno, message.clone()) };
                self.error.get_or_insert_with(failed);
                Ok(())
            }
        }
    }

    fn cover(&mut self, extent: Extent) -> Result<(), ReplyError> {
        let Expected::Data(asked) = self.expected else { return Err(ReplyError::OutsideRequest) };
        let range = extent.offset.checked_sub(asked.offset).and_then(|from| {
            let to = from.checked_add(extent.len)?;
            (to <= asked.len).then_some((from, to))
        });
        let (from, to) = range.ok_or(ReplyError::OutsideRequest)?;
        let after = self.covered.partition_point(|&(start, _)| start < from);
        let before = after.checked_sub(1).map(|i| self.covered[i]);
        let next = self.covered.get(after).copied();
        if before.is_some_and(|(_, end)| end > from) || next.is_some_and(|(start, _)| start < to) {
            return Err(ReplyError::Overlap);
        }
        let joins_before = before.is_some_and(|(_, end)| end == from);
        let joins_next = next.is_some_and(|(start, _)| start == to);
        match (joins_before, joins_next) {
            (true, true) => self.covered[after - 1].1 = self.covered.remove(after).1,
            (true, false) => self.covered[after - 1].1 = to,
            (false, true) => self.covered[after].0 = from,
            (false, false) if self.covered.len() < MAX_RANGES => {
                self.covered.insert(after, (from, to));
            }
            (false, false) => return Err(ReplyError::TooManyPieces),
        }
        Ok(())
    }

    /// How the request ended, after its last piece. A read succeeds only if every byte of it was
    /// covered.
    ///
    /// # Errors
    /// What the server said first; EIO if it left out a part of a read.
    pub fn outcome(self) -> Result<(), Failure> {
        if let Some(error) = self.error {
            return Err(error);
        }
        match self.expected {
            Expected::Data(asked) if self.covered != [(0, asked.len)] => {
                Err(Failure::new(Errno::Io, "the server sent less data than was asked for"))
            }
            Expected::Status { .. } if !self.status => {
                Err(Failure::new(Errno::Io, "the server told nothing of the range"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 1 << 40;

    fn data(from: u64, to: u64) -> Reply {
        let extent = Extent { offset: BASE + from, len: to - from };
        Reply::Data { extent, last: false }
    }

    fn read(len: u64) -> ReplyParts {
        ReplyParts::new(Expected::Data(Extent { offset: BASE, len }))
    }

    proptest! {
        /// The oracle marks every byte on its own.
        #[test]
        fn coverage_agrees_with_a_map_of_bytes(
            pieces in prop::collection::vec((0u64..64, 1u64..24), 0..40),
        ) {
            let mut answer = read(64);
            let mut bytes = [false; 64];
            for (from, len) in pieces {
                let to = (from + len).min(64);
                let marked = &mut bytes[from as usize..to as usize];
                let overlaps = marked.iter().any(|b| *b);
                let verdict = answer.take(&data(from, to));
                prop_assert_eq!(verdict, if overlaps { Err(ReplyError::Overlap) } else { Ok(()) });
                if overlaps {
                    break;
                }
                marked.fill(true);
            }
            let ranges = answer.covered.clone();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0));
            prop_assert_eq!(answer.outcome().is_ok(), bytes.iter().all(|b| *b));
        }
    }

    #[test]
    fn pieces_and_ranges_are_bounded() {
        let len = 32 << 20;
        let mut scattered = read(len);
        let taken = (0..len / 2).take_while(|i| scattered.take(&data(2 * i, 2 * i + 1)).is_ok());
        assert_eq!(taken.count(), MAX_RANGES);
        let mut joined = read(4096);
        let taken = (0..4096).take_while(|i| joined.take(&data(*i, i + 1)).is_ok());
        assert_eq!(taken.count() as u64, 4096 / 512 + SPARE_PIECES);
        let error = Reply::Error { errno: Errno::Io, message: "x".into(), at: None, last: false };
        let mut errors = ReplyParts::new(Expected::Outcome);
        assert_eq!((0..u32::MAX).take_while(|_| errors.take(&error).is_ok()).count(), 256);
    }

    #[test]
    fn the_first_error_counts_whatever_data_follows() {
        let mut answer = read(10);
        for errno in [Errno::NoMem, Errno::Io] {
            answer
                .take(&Reply::Error { errno, message: "no".into(), at: None, last: false })
                .unwrap();
        }
        answer.take(&data(0, 10)).unwrap();
        assert_eq!(answer.outcome().unwrap_err().errno, Errno::NoMem);
    }
}
