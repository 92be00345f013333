//! Requests as front ends hand them to the engine, and their results as they come back.

use parda_address::ExportName;
use parda_disk::status::Descriptor;
use parda_disk::{Errno, Failure, Geometry, Op};

use crate::buffer::Buffer;

/// Client of a front end: a connection, or a guest's device. Keys are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Nbd(usize),
    Vhost(usize),
    /// The volume itself, before it closes a disk: it is told no result.
    Volume,
    #[cfg(test)]
    Local(usize),
}

/// Number that a front end gave a request, by which it knows what to reply to. It means nothing to
/// anybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHandle(pub(crate) u64);

/// A request that has arrived complete.
pub(crate) struct Arrival {
    pub(crate) client: Client,
    pub(crate) disk: usize,
    pub(crate) reply: ReplyHandle,
    pub(crate) op: Op,
    /// The payload of a write. Of a read: where its data is to go, or `None` for memory of the pool.
    pub(crate) buffer: Option<Buffer>,
}

/// Requests that clients brought.
#[derive(Default)]
pub(crate) struct Arrivals {
    pub(crate) requests: Vec<Arrival>,
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

/// Result of a request that succeeded.
pub(crate) enum Body {
    /// The operation succeeded, and returned no data.
    Done,
    /// The data of a read.
    Data(Buffer),
    /// The answer to a request for block status.
    Status(Vec<Descriptor>),
}

/// Failure of a request whose client is gone: nobody will hear of it, and it was not promised to anybody.
pub(crate) fn gone() -> Failure {
    Failure::new(Errno::Shutdown, "the client is gone")
}

/// A disk as clients see it.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub(crate) name: ExportName,
    pub(crate) description: String,
    pub(crate) geometry: Geometry,
    /// Alignment in bytes of memory and ranges with which the backend moves data of a guest's memory. `None`: it does
    /// not, and data is copied.
    pub(crate) direct: Option<u32>,
}
