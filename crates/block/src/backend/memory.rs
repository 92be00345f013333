//! Memory as a backend: a file without a file system, read and written on the spot.
//!
//! Not through the ring: tmpfs cannot promise not to block. io_uring would hand every IO to a
//! worker thread, which costs many times the copy.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parda_control::Bytes;
use parda_disk::{BlockSizes, Failure, Geometry, Op};
use rustix::fs::{self, FallocateFlags, MemfdFlags};
use rustix::io;

use super::{OpenError, Request};
use crate::buffer::Pool;

/// Memory that is served.
pub(crate) struct Memory {
    fd: Arc<OwnedFd>,
    size: Bytes,
    base: u64,
}

/// Memory in which the disk begins at `base`. Reserves nothing yet: a page is taken when it is first written.
pub(crate) fn open(size: Bytes, base: Bytes) -> Result<Memory, OpenError> {
    let fail = |e| OpenError::Refused(format!("cannot get {} bytes of memory: {e}", size.0));
    let fd = Arc::new(fs::memfd_create(c"parda-disk", MemfdFlags::CLOEXEC).map_err(fail)?);
    fs::ftruncate(&fd, size.0).map_err(fail)?;
    Ok(Memory { fd, size, base: base.0 })
}

impl Memory {
    pub(crate) fn geometry(&self) -> Geometry {
        let plain = Geometry::new(self.size.0, BlockSizes::DEFAULT);
        Geometry { trim: true, write_zeroes: true, fast_zero: true, ..plain }
    }

    /// Its memory as a file.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Performs a request at once.
    pub(crate) fn perform(&self, pool: &mut Pool, request: &mut Request) -> Result<(), Failure> {
        let extent = request.extent();
        let (start, len) = (self.base + extent.offset, extent.len as usize);
        let result = match request.op {
            Op::Read(_) => {
                let buffer = request.buffer.get_or_insert_with(|| pool.take(len));
                whole(len, |done| {
                    let part = buffer.slices_mut(done..len).next().unwrap_or_default();
                    io::pread(&self.fd, part, start + done as u64)
                })
            }
            Op::Write { .. } => {
                let Some(buffer) = &request.buffer else { return Ok(()) };
                whole(len, |done| {
                    let part = buffer.slices(done..len).next().unwrap_or_default();
                    io::pwrite(&self.fd, part, start + done as u64)
                })
            }
            // Even if no hole is wanted: memory that was given back is not reserved in any way.
            Op::Trim { .. } | Op::WriteZeroes { .. } => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fs::fallocate(&self.fd, hole, start, extent.len)
            }
            // The engine answers BLOCK_STATUS, and there is no other memory to fetch this into.
            Op::Flush | Op::Cache(_) | Op::BlockStatus { .. } => Ok(()),
        };
        result.map_err(|e| Failure::from_os(e.raw_os_error()))
    }
}

/// Repeats a transfer until all `len` bytes are through.
fn whole(len: usize, mut transfer: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match transfer(done) {
            Ok(0) => return Err(io::Errno::IO),
            Ok(n) => done += n,
            Err(io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
