//! Failed syncs of a disk, remembered until every client was told.
//!
//! Linux reports data that it could not write back once per open file, to whichever sync looks
//! first: an `fdatasync` for one client's FLUSH, or the sync behind another client's write with
//! FUA. All clients of a disk share its one open file, and any of them may have written what was
//! lost. So a failure is told
//!
//! - to every FLUSH and every request with FUA that was under way when it happened,
//! - to the next FLUSH of every other connection that was open then,
//! - and, if a connection that may have lost data had gone by then, or goes before it was told, to
//!   the next FLUSH of every later connection, until one of these has been told. It takes the
//!   place of the one that went: a client that reconnects must not be told that all is well;
//! - while no FLUSH was told of it, to the next FLUSH of each later connection as well: a FLUSH of
//!   one connection covers the writes of all, and Linux tells a new open file the same.
//!
//! It is told once to each. A connection that comes after all were told has lost nothing. When the disk is closed, what is still to be told
//! goes to the next disk on the same data ([`Losses::owes`], [`Losses::inherited`]).

use std::collections::BTreeMap;

use parda_disk::{Errno, Failure, Op};

/// Failed syncs of its disk that one connection was told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witness {
    pub(crate) disk: usize,
    /// The number of failures that it knows of.
    told: u64,
    /// It came after a failure of which it is to be told in the place of one that went.
    heir: bool,
    /// The number of the disk's acknowledged writes up to its own last one.
    acked: u64,
}

/// A sync under way: a FLUSH, or a request with FUA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncId(u64);

#[derive(Clone, Copy, Debug)]
struct Begun {
    failures: u64,
    acked: u64,
}

/// A sync that succeeded and waits for those that were under way beside it.
struct Held<T> {
    begun: Begun,
    /// Syncs before this one must be over.
    until: u64,
    request: T,
}

/// The failed syncs of a disk. `T` is the key of a request whose reply waits for the end of a sync.
pub(crate) struct Losses<T> {
    /// Number of syncs that have failed.
    failures: u64,
    /// Number of writes that were acknowledged before they were durable.
    acked: u64,
    /// Number of these writes that a later sync has made durable.
    durable: u64,
    /// The number of acknowledged writes up to the last one of a connection that has gone.
    left: u64,
    /// A connection went that should have been told.
    owed: bool,
    /// No FLUSH was told of the last failure.
    untold: bool,
    next: u64,
    under_way: BTreeMap<u64, Begun>,
    held: Vec<Held<T>>,
}

impl<T> Default for Losses<T> {
    fn default() -> Self {
        Self {
            failures: 0,
            acked: 0,
            durable: 0,
            left: 0,
            owed: false,
            untold: false,
            next: 0,
            under_way: BTreeMap::new(),
            held: Vec::new(),
        }
    }
}

/// Whether a request makes data durable before it is acknowledged.
pub(crate) fn syncs(op: Op) -> bool {
    op == Op::Flush || op.fua()
}

/// Whether a request may leave data that is not durable yet.
pub(crate) fn changes(op: Op) -> bool {
    !matches!(op, Op::Read(_) | Op::BlockStatus { .. } | Op::Cache(_))
}

/// Whether a failure of this request may have lost data of others. An error of a request with FUA
/// does not say which half failed, the write or the sync; only what is refused beforehand is
/// harmless.
pub(crate) fn loses(op: Op, failure: &Failure) -> bool {
    use Errno::{Inval, NotSup, Overflow, Perm, Shutdown};
    op == Op::Flush || !matches!(failure.errno, Inval | NotSup | Overflow | Perm | Shutdown)
}

impl<T> Losses<T> {
    /// Of a disk whose data was that of another one, which still had to tell clients of a loss.
    pub(crate) fn inherited() -> Self {
        let mut losses = Self::default();
        losses.lost();
        losses
    }

    /// Whether somebody who has no connection now is to be told of a loss.
    pub(crate) fn owes(&self) -> bool {
        self.owed || self.untold
    }

    /// Whether writes were acknowledged that no flush has covered since.
    pub(crate) fn is_dirty(&self) -> bool {
        self.acked > self.durable
    }

    /// What holds between two calls, whatever backends and clients do.
    fn check(&self) {
        assert!(self.durable <= self.acked, "a sync covers what was acknowledged before it");
        assert!(self.left <= self.acked, "who has gone has written no more than all");
        assert!(!self.owes() || self.failures > 0, "nothing is owed before a failure");
        debug_assert!(self.under_way.keys().all(|id| *id < self.next));
        debug_assert!(self.held.iter().all(|held| held.until <= self.next));
    }

    /// Requests whose replies wait for the end of another sync.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len()
    }

    /// Whether every sync has ended and was answered.
    pub(crate) fn is_settled(&self) -> bool {
        self.under_way.is_empty() && self.held.is_empty()
    }

    /// A connection has sent a request.
    pub(crate) fn seen(&self, witness: &mut Option<Witness>, disk: usize) {
        witness.get_or_insert(Witness {
            disk,
            told: self.failures - u64::from(self.owes()),
            heir: self.owed,
            acked: 0,
        });
    }

    /// A write, trim or zeroes without FUA was done.
    pub(crate) fn wrote(&mut self, witness: &mut Option<Witness>) {
        self.acked += 1;
        if let Some(witness) = witness {
            witness.acked = self.acked;
        }
        self.check();
    }

    /// A connection has gone.
    pub(crate) fn left(&mut self, witness: Witness) {
        self.left = self.left.max(witness.acked);
        self.owed |= witness.told < self.failures;
        self.check();
    }

    /// Acknowledged writes may be lost, as the backend has found by itself.
    pub(crate) fn lost(&mut self) {
        self.failures += 1;
        self.untold = true;
        self.owed |= self.left > self.durable;
        self.check();
    }

    /// Number of syncs that have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Notes the begin of a sync.
    pub(crate) fn begin(&mut self) -> SyncId {
        self.begin_after_pieces(self.failures)
    }

    /// The sync behind the last piece of a long request begins. A sync that has failed since the
    /// first piece began may have lost one of the pieces: `failures` is how many had failed then.
    pub(crate) fn begin_after_pieces(&mut self, failures: u64) -> SyncId {
        let id = self.next;
        self.next += 1;
        self.under_way.insert(id, Begun { failures, acked: self.acked });
        SyncId(id)
    }

    /// A sync has ended. The reply to its request waits while another sync under way may be the one that a failure is reported to (`once`:
    /// the backend reports a loss to one sync only). [`Losses::ready`] has the request once it may be replied to.
    pub(crate) fn end(
        &mut self,
        id: SyncId,
        op: Op,
        outcome: &Result<(), Failure>,
        once: bool,
        request: T,
    ) {
        let Some(begun) = self.under_way.remove(&id.0) else {
            unreachable!("a sync that began ends once");
        };
        match outcome {
            Err(failure) if loses(op, failure) => {
                self.lost();
            }
            Ok(()) if op == Op::Flush && begun.failures == self.failures => {
                self.durable = self.durable.max(begun.acked);
            }
            _ => {}
        }
        let until = if once && outcome.is_ok() { self.next } else { 0 };
        self.held.push(Held { begun, until, request });
        self.check();
    }

    /// The next request whose reply waits no more, and whether a sync has failed while it was under way.
    pub(crate) fn ready(&mut self) -> Option<(T, bool)> {
        let oldest = self.under_way.keys().next().copied().unwrap_or(u64::MAX);
        let at = self.held.iter().position(|held| oldest >= held.until)?;
        let Held { begun, request, .. } = self.held.remove(at);
        Some((request, begun.failures < self.failures))
    }

    /// The outcome of a FLUSH or of a request with FUA as its client is told it. `failed`: another
    /// sync has failed while this one was under way.
    pub(crate) fn tell(
        &mut self,
        witness: &mut Option<Witness>,
        op: Op,
        outcome: Result<(), Failure>,
        failed: bool,
    ) -> Result<(), Failure> {
        let lost = || {
            let message = "a sync of this disk has failed: acknowledged writes may be lost";
            Err(Failure::new(Errno::Io, message))
        };
        if op != Op::Flush {
            return if failed { outcome.and_then(|()| lost()) } else { outcome };
        }
        let Some(witness) = witness else { return outcome };
        assert!(witness.told <= self.failures, "nobody is told of a failure before it");
        let unaware = witness.told < self.failures;
        if unaware {
            witness.told = self.failures;
            // Others that came since the failure and are open know that they are to be told.
            self.owed &= !witness.heir;
            self.check();
        }
        let outcome = if unaware || failed { outcome.and_then(|()| lost()) } else { outcome };
        self.untold &= outcome.is_ok();
        outcome
    }
}

#[cfg(test)]
mod tests;
