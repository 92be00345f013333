//! Where the knee of a model truly is: every number outstanding from 1 to 256, a million random reads
//! of 4 KiB each. What `tests/accuracy.rs` holds the probe to comes from here.
//!
//!     cargo run --release -p parda-probe-tools --example exhaustive

#![allow(clippy::print_stdout, reason = "the table is the point")]

#[path = "../tests/truth/mod.rs"]
mod truth;

use parda_array::Preset;
use truth::{Truth, peak, reaches, truth};

const PRESETS: [Preset; 4] =
    [Preset::Drive7200, Preset::Cx340Raid5Vms, Preset::FlashSata, Preset::FlashNvme];

fn main() {
    let all = std::env::args().any(|argument| argument == "--all");
    println!("preset            peak IOPS  95 % at  outstanding  90 % at  99 % at (ms)");
    for preset in PRESETS {
        let sweep: Vec<Truth> =
            (1..=256).map(|outstanding| truth(preset, outstanding, 1_000_000, 1)).collect();
        if all {
            for Truth { outstanding, iops, mean_ms, .. } in &sweep {
                println!("{preset},{outstanding},{iops:.2},{mean_ms:.5}");
            }
        }
        let (outstanding, ms) = reaches(&sweep, 0.95);
        let [less, more] = [0.9, 0.99].map(|part| reaches(&sweep, part).1);
        println!(
            "{preset:<16} {:>10.1} {ms:>8.4} {outstanding:>12.2} {less:>8.4} {more:>8.4}",
            peak(&sweep)
        );
    }
}
