//! Accesses to guest memory that has no memory behind it any more.
//!
//! A front end can truncate the file of its guest's memory at any time, and huge pages can run out. The kernel then
//! ends an access by SIGBUS. Here the region gets anonymous pages in place of the file's, so that the access goes on,
//! and is marked as lost: its guest is served no more.

use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Regions that all guests of this process can have: no fewer than the mappings of a process (`vm.max_map_count`).
const SLOTS: usize = 1 << 16;

struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    /// In bytes; zero in a slot that guards nothing.
    len: AtomicUsize,
    lost: AtomicBool,
}

static ALL: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; SLOTS];

/// An access of this process has found no memory, at some time.
static ANY_LOST: AtomicBool = AtomicBool::new(false);

/// Whether a region was ever lost. Until then nobody has to ask each [`Guard`].
pub(crate) fn any_was_lost() -> bool {
    ANY_LOST.load(Ordering::Acquire)
}

/// The action for SIGBUS before ours.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// A mapped region is guarded until this is dropped, which comes before it is unmapped.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards the mapping of `len` bytes at `start`. `None` if there are too many.
    pub(crate) fn new(start: usize, len: usize) -> Option<Guard> {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let free = |slot: &Slot| !slot.taken.swap(true, Ordering::AcqRel);
        let index = ALL.iter().position(free)?;
        let slot = &ALL[index];
        slot.lost.store(false, Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        slot.len.store(len, Ordering::Release);
        Some(Guard(index))
    }

    /// Whether an access has found no memory.
    pub(crate) fn is_lost(&self) -> bool {
        ALL[self.0].lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let slot = &ALL[self.0];
        slot.len.store(0, Ordering::Release);
        slot.taken.store(false, Ordering::Release);
    }
}

fn install() {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes is a valid sigaction, both pointers are valid for the call, and the handler does nothing that is
    // not allowed in one: it reads atomics and makes system calls.
    let before = unsafe {
        let mut ours = std::mem::zeroed::<libc::sigaction>();
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const ours, before.as_mut_ptr());
        before.assume_init()
    };
    // For as long as the process lives.
    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands a valid siginfo, whose address is set for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &ALL {
        let len = slot.len.load(Ordering::Acquire);
        let start = slot.start.load(Ordering::Relaxed);
        if address.wrapping_sub(start) >= len {
            continue;
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let place = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the region is mapped, as it is guarded, and no Rust reference leads there. Whole regions are replaced:
        // a mapping of huge pages has no smaller parts.
        if unsafe { mmap_anonymous(start as *mut _, len, access, place) }.is_ok() {
            slot.lost.store(true, Ordering::Release);
            ANY_LOST.store(true, Ordering::Release);
            return;
        }
    }
    // Not ours: the access is made again, with the action that was there before.
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: `before` is null or a sigaction that is never freed.
    unsafe {
        if before.is_null() {
            libc::signal(signal, libc::SIG_DFL);
        } else {
            libc::sigaction(signal, before, std::ptr::null_mut());
        }
    }
}
