//! How many IOs per second of computing the model simulates, on one core, and what it allocates
//! meanwhile.
//!
//!     cargo run --release -p parda-array --example speed

#![allow(clippy::print_stdout, reason = "the numbers are the point")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parda_array::{Array, ArrayIo, ArrayParams, Bytes, IoKind, IoTag, LunId, Nanos, Preset};

const IOS: u64 = 5_000_000;
const OUTSTANDING: u64 = 128;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all of it is the system's allocator; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above, so from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Load {
    array: Array,
    random: fastrand::Rng,
    read_percent: u32,
}

impl Load {
    fn submit(&mut self, now: Nanos, id: IoTag) {
        let luns = &self.array.params().layout.luns;
        let lun = self.random.usize(0..luns.len());
        let places = luns[lun].0 / 16_384;
        let read = self.random.u32(0..100) < self.read_percent;
        let io = ArrayIo {
            lun: LunId(lun as u32),
            kind: if read { IoKind::Read } else { IoKind::Write },
            offset: Bytes(self.random.u64(0..places) * 16_384),
            len: Bytes::kib(16),
        };
        self.array.submit(now, id, io).expect("the IO lies on its LUN");
    }

    fn run(&mut self, ios: u64) {
        let mut done = 0;
        while let Some(next) = self.array.next_event().filter(|_| done < ios) {
            self.array.advance(next);
            while let Some((now, id)) = self.array.pop_completion() {
                self.submit(now, id);
                done += 1;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this measures the model from outside")]
fn measure(what: &str, params: ArrayParams, read_percent: u32) {
    let array = Array::new(params).expect("presets are possible");
    let mut load = Load { array, random: fastrand::Rng::with_seed(1), read_percent };
    for id in 0..OUTSTANDING {
        load.submit(Nanos::ZERO, IoTag(id));
    }
    load.run(IOS / 10);
    let (start, allocated) = (Instant::now(), ALLOCATIONS.load(Ordering::Relaxed));
    load.run(IOS);
    let rate = IOS as f64 / start.elapsed().as_secs_f64() / 1e6;
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocated;
    println!("{what:<32} {rate:>6.2} M IO/s   {allocated} allocations in {IOS} IOs");
}

fn main() {
    measure("RAID-0, 10 drives, reads", Preset::Cx340Raid0Vms.params(), 100);
    measure("RAID-0, 10 drives, 67 % reads", Preset::Cx340Raid0Vms.params(), 67);
    measure("RAID-5, 5 drives, 67 % reads", Preset::Cx340Raid5Vms.params(), 67);
}
