//! A program without an operating system that uses the core.

#![no_std]

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};

struct NoMemory;

// SAFETY: it never hands out memory.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Keeps both crates linked.
#[unsafe(no_mangle)]
pub extern "C" fn core_is_linked() -> bool {
    let config = parda_control::Config::default();
    let Ok(period) = parda_control::Period::new(config) else { return false };
    let host = parda_control::Host::new(parda_control::Instant(0), period.decision());
    host.held() == 0 && core::mem::size_of::<parda_array::Array>() > 0
}
