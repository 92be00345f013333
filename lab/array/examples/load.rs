//! Throughput and latency against the number of outstanding IOs: 16 KiB random reads, six LUNs of
//! 16 GiB, interleaved, on RAID-0 groups of several sizes and queue depths.
//!
//!     cargo run --release -p parda-array --example load

#![allow(clippy::print_stdout, reason = "the table is the point")]

#[path = "../tests/array/closed_loop/mod.rs"]
#[expect(dead_code, reason = "shared with the tests, which also stream")]
mod closed_loop;

use closed_loop::{Client, Seen, Window, run};
use parda_array::{Array, Bytes, Nanos, Placement, Preset};

const OUTSTANDING: [usize; 9] = [8, 16, 24, 32, 48, 64, 96, 128, 224];
const LUNS: usize = 6;
const WINDOW: Window =
    Window { warm: Nanos::from_millis(10_000), measure: Nanos::from_millis(300_000) };

fn measure(drives: u32, queue_depth: u32, outstanding: usize) -> Seen {
    let mut params = Preset::Cx340Raid0.params();
    params.raid.drives = drives;
    *params.drive.queue_depth_mut() = queue_depth;
    params.layout.placement = Placement::Interleaved { extent: Bytes::mib(256) };
    params.layout.luns = vec![Bytes::gib(16); LUNS];
    let clients: Vec<Client> = (0..LUNS)
        .map(|lun| {
            let share = outstanding / LUNS + usize::from(lun < outstanding % LUNS);
            Client::random_reads(lun as u32, share, Bytes::kib(16))
        })
        .collect();
    run(&mut Array::new(params).expect("a possible array"), &clients, WINDOW, 1).0
}

fn main() {
    println!("drives  depth  outstanding    IOPS  of most   mean ms    max ms");
    for drives in [4, 5, 6] {
        for depth in [4, 8, 10] {
            let rows: Vec<Seen> = OUTSTANDING.map(|n| measure(drives, depth, n)).into();
            let most = rows.iter().map(|row| row.iops).fold(0.0, f64::max);
            for (n, row) in OUTSTANDING.iter().zip(&rows) {
                let Seen { iops, mean_ms, max_ms } = row;
                let part = 100.0 * iops / most;
                println!(
                    "{drives:>6} {depth:>6} {n:>12} {iops:>7.0} {part:>7.1}% {mean_ms:>9.1} {max_ms:>9.1}"
                );
            }
            println!();
        }
    }
}
