//! What of a file is written and not yet on the medium.

use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Linux's cachestat, since 6.5.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages of a file that a power failure would lose.
pub(crate) fn unwritten_pages(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    // From the beginning to the end.
    let range = [0u64; 2];
    let mut stat = CacheStat::default();
    // SAFETY: both pointers are to live memory of the layout that the call is documented to have.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), &mut stat, 0) };
    assert_eq!(result, 0, "cachestat, which Linux has since 6.5: {}", Error::last_os_error());
    stat.dirty + stat.writeback
}
