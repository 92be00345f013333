//! Requests that are longer than what is done at once.
//!
//! With extended headers a trim or zeroes may be as long as the disk. Such a request is done in pieces, one after the other. Each piece
//! waits for its turn in the fair queue and takes slots of the window by itself ([`parda_control::io`]). So it costs its VM as much as the
//! pieces would cost a client without extended headers. No VM can hold slots of the window for hours.

use parda_control::{Instant, Outcome, Span};
use parda_disk::Extent;

use super::disks::Disk;
use super::{Engine, taken_back};
use crate::backend::file::Step;
use crate::backend::{Request, Rest, io_of};

/// Cuts a request that has just arrived down to its first piece, if it is too long.
pub(super) fn cut(request: &mut Request, disk: &Disk) {
    let Extent { offset, len } = request.op.extent();
    // A length of 32 bits is done at once everywhere.
    if u32::try_from(len).is_ok() {
        return;
    }
    let unit = disk.backend.at_once(request.op);
    let first = piece(offset, len, unit);
    // Else the answer may end before the range does, or it is only advice.
    if request.op.changes() {
        let ours = request.op.fua() && !disk.backend.syncs_each();
        let failures = ours.then(|| disk.losses.failures());
        request.rest = Rest { len: len - first, unit, failures };
    }
    narrow(request, offset, first);
}

/// The length of the piece at `offset`, with `len` bytes to go.
fn piece(offset: u64, len: u64, unit: u64) -> u64 {
    len.min(unit - offset % unit)
}

/// Has a request be about this piece of it.
fn narrow(request: &mut Request, offset: u64, len: u64) {
    let extent = Extent { offset, len };
    // If the last sync covers all, the others are left out.
    let syncs = request.rest.failures.is_none() || request.rest.len == 0;
    request.part = extent;
    let op = request.asked.at(extent);
    request.op = if syncs { op } else { op.without_fua() };
}

impl Request {
    /// Whether a piece is done, and another is to follow.
    pub(super) fn goes_on(&self) -> bool {
        self.rest.len > 0 && matches!(self.outcome, Some(Ok(())))
    }

    /// The number of failed syncs that its sync is compared with, if its pieces began earlier.
    pub(super) fn failures_before(&self) -> Option<u64> {
        self.rest.failures
    }

    fn next_piece(&mut self) {
        let Extent { offset, len } = self.op.extent();
        let offset = offset + len;
        let next = piece(offset, self.rest.len, self.rest.unit);
        self.rest.len -= next;
        narrow(self, offset, next);
        (self.step, self.outcome, self.delayed) = (Step::Transfer(0), None, false);
        self.took = Span::ZERO;
    }
}

impl Engine {
    /// Goes on with requests of which a piece was done in an earlier turn. Not in the same turn: a
    /// backend that is done at once would have it to itself.
    pub(super) fn go_on(&mut self, now: Instant) {
        for key in std::mem::take(&mut self.pieces) {
            let device = self.device_time(now, &self.work.requests[key]);
            let request = &mut self.work.requests[key];
            let disk = &mut self.disks[request.disk];
            let (done, delayed) = (request.id.take(), request.delayed);
            request.next_piece();
            // Before the last piece is over: a VM of which nothing is left may be forgotten.
            self.host.submit(now, disk.vm_id, io_of(request.op), key as u64);
            let heard = if delayed { Outcome::Failed } else { Outcome::Done };
            if let Some(id) = done {
                let done = taken_back(self.host.complete_after(now, id, heard, device), key);
                disk.stats.record(&done, Outcome::Done);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    #[test]
    fn pieces_end_at_multiples_and_cover_all() {
        for (offset, len, unit, expected) in [
            (0, 10 * G, 4 * G, vec![4 * G, 4 * G, 2 * G]),
            (1, 5 * G, 4 * G, vec![4 * G - 1, G + 1]),
            (3 * G, 5 * G, 4 * G, vec![G, 4 * G]),
            (7, 1 << 62, u64::MAX, vec![1 << 62]),
        ] {
            let (mut at, mut rest, mut pieces) = (offset, len, Vec::new());
            while rest > 0 {
                let piece = piece(at, rest, unit);
                (at, rest) = (at + piece, rest - piece);
                pieces.push(piece);
            }
            assert_eq!(pieces, expected);
        }
    }
}
