//! File or device behind a loop device, as the kernel knows it. Its path in sysfs may lead to another file by now, mounted over it or made
//! after its deletion.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::ioctl::{Getter, Opcode, ioctl};

/// Asks what a loop device is made of: `LOOP_GET_STATUS64` of linux/loop.h.
const STATUS: Opcode = 0x4C05;

/// As long as `struct loop_info64`, which begins with the fields of [`Behind`].
type Status = [u64; 29];

/// The file or device behind a loop device.
pub(super) struct Behind {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Number of the device that it is; 0 for a file.
    pub(super) number: u64,
}

impl Behind {
    /// Reads the status of an open loop device, or of an open partition of one.
    pub(super) fn of(device: impl AsFd) -> io::Result<Behind> {
        // SAFETY: LOOP_GET_STATUS64 writes a `loop_info64`, for which there is room, or fails. Integers have any bits.
        let [device, inode, number, ..] =
            unsafe { ioctl(device, Getter::<STATUS, Status>::new()) }?;
        Ok(Behind { device, inode, number })
    }
}

/// Opens a file or device only to look at it, without waiting for a peer or a medium.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let careful = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(fs::open(path, careful, Mode::empty())?)
}
