//! Requests of clients, as backends have them.

use parda_control::{Bytes, Io, IoId, IoKind, Span};
use parda_disk::status::Descriptor;
use parda_disk::{Extent, Failure, Op};
use slab::Slab;

use super::file;
use crate::buffer::{Buffer, Pool};
use crate::client::{Client, ReplyHandle};
use crate::losses::SyncId;
use crate::reactor::Reactor;

/// Rest of a request behind the piece that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// Its length in bytes.
    pub(crate) len: u64,
    /// Pieces end at multiples of this.
    pub(crate) unit: u64,
    /// Number of failed syncs of the disk when the first piece came.
    /// Present if the sync behind the last piece is to make all pieces durable.
    pub(crate) failures: Option<u64>,
}

/// A client's request, from its arrival to its reply.
pub(crate) struct Request {
    pub(crate) client: Client,
    pub(crate) disk: usize,
    pub(crate) reply: ReplyHandle,
    /// Operation that the client asked for.
    pub(crate) asked: Op,
    /// The piece of it that is done now; as a rule all of it.
    pub(crate) op: Op,
    pub(crate) rest: Rest,
    /// The payload of a write; the memory for the data of a read, `None` for memory of the pool. Absent while the kernel has it.
    pub(crate) buffer: Option<Buffer>,
    /// The answer to a request for block status.
    pub(crate) status: Vec<Descriptor>,
    /// Set when it was dispatched.
    pub(crate) id: Option<IoId>,
    /// The backend's current step of the request.
    pub(crate) step: file::Step,
    /// Range of the step, where that is not the request's.
    pub(crate) part: Extent,
    /// Of a write: its payload, while the blocks at its edges are read and written.
    /// Of a read: a guest's memory, while the data goes elsewhere.
    pub(crate) aside: Option<Buffer>,
    /// The request as a change of its file, while other changes of the same blocks have to wait for it.
    pub(crate) change: Option<file::unaligned::ChangeId>,
    /// An error that came before the last piece of its reply.
    pub(crate) error: Option<Failure>,
    /// Set when the backend is done with it.
    pub(crate) outcome: Option<Result<(), Failure>>,
    /// The model of the array is not done with it.
    pub(crate) modelled: bool,
    /// Set when it was dispatched, if it makes data durable.
    pub(crate) sync: Option<SyncId>,
    /// Its latency is not the array's: it waited for a lost server or for an overlapping change.
    pub(crate) delayed: bool,
    /// Time from its dispatch until the volume's thread handed it to the kernel, if that was long.
    pub(crate) begun_late: Span,
    /// Number of times that the kernel had no worker for it.
    pub(crate) attempts: u16,
    /// Time that a file has taken for its steps.
    pub(crate) took: Span,
}

impl Request {
    /// A request that has arrived complete.
    pub(crate) fn new(
        client: Client,
        disk: usize,
        reply: ReplyHandle,
        op: Op,
        buffer: Option<Buffer>,
    ) -> Self {
        Self {
            client,
            disk,
            reply,
            asked: op,
            op,
            rest: Rest::default(),
            buffer,
            status: Vec::new(),
            id: None,
            step: file::Step::Transfer(0),
            part: op.extent(),
            aside: None,
            change: None,
            error: None,
            outcome: None,
            modelled: false,
            sync: None,
            delayed: false,
            begun_late: Span::ZERO,
            attempts: 0,
            took: Span::ZERO,
        }
    }

    /// Gives it memory of the pool in place of a guest's, for a backend that cannot use that.
    pub(crate) fn move_to_pool(&mut self, pool: &mut Pool) {
        let Some(lent) = self.buffer.take_if(|buffer| buffer.is_lent()) else { return };
        if matches!(self.op, Op::Read(_)) {
            self.aside = Some(lent);
            return;
        }
        let len = self.extent().len as usize;
        let mut copy = pool.take(len);
        copy.copy_from(&lent, 0, len);
        self.buffer = Some(copy);
    }

    /// Moves what was read, from byte `from` of its buffer on, to the guest's memory that was taken away.
    pub(crate) fn move_from_pool(&mut self, pool: &mut Pool, from: usize) {
        if let (Op::Read(extent), Some(buffer)) = (self.op, &mut self.buffer)
            && let Some(mut lent) = self.aside.take()
        {
            lent.copy_from(buffer, from, extent.len as usize);
            pool.put(std::mem::replace(buffer, lent));
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.op.extent()
    }
}

/// Requests that clients brought.
#[derive(Default)]
pub(crate) struct Arrivals {
    pub(crate) requests: Vec<Request>,
    /// Clients with requests that are none for their disk, with the disk and the number of these requests.
    pub(crate) faults: Vec<(Client, usize, u64)>,
    /// Disks that have their first client.
    pub(crate) begun: Vec<usize>,
}

impl Arrivals {
    /// Takes over the number of a client's requests that are none for its disk.
    pub(crate) fn take_faults(&mut self, client: Client, disk: usize, faults: &mut u64) {
        if *faults > 0 {
            self.faults.push((client, disk, std::mem::take(faults)));
        }
    }
}

/// What a volume shares with its backends.
pub(crate) struct Work {
    pub(crate) io: Reactor,
    pub(crate) requests: Slab<Request>,
    /// Requests that a backend is done with, and how they ended.
    pub(crate) finished: Vec<(usize, Result<(), Failure>)>,
}

/// IO of a request, as the law sees it.
pub(crate) fn io_of(op: Op) -> Io {
    let bytes = Bytes(op.extent().len);
    let kind = match op {
        Op::Read(_) => IoKind::Read,
        Op::Write { .. } => IoKind::Write,
        Op::Trim { .. } | Op::WriteZeroes { .. } => IoKind::Discard,
        Op::Flush | Op::BlockStatus { .. } | Op::Cache(_) => IoKind::Other,
    };
    Io { kind, bytes }
}
