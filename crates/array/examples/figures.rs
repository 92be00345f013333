//! The model's answers to the figures of the source documents that it covers.
//!
//!     cargo run --release -p parda-array --example figures

#![allow(clippy::print_stdout, reason = "the table is the point")]

#[path = "../tests/closed_loop/mod.rs"]
mod closed_loop;

use closed_loop::{Access, Client, Seen, Window, run};
use parda_array::{Array, ArrayParams, Bytes, LunId, Nanos, Preset, Scheduling};

const WINDOW: Window =
    Window { warm: Nanos::from_millis(10_000), measure: Nanos::from_millis(600_000) };

fn measure(params: ArrayParams, clients: &[Client]) -> (Seen, Vec<Seen>) {
    run(&mut Array::new(params).expect("a possible array"), clients, WINDOW, 1)
}

fn row(what: &str, seen: &Seen, source: &str) {
    let Seen { iops, mean_ms, max_ms } = seen;
    println!("{what:<34} {iops:>7.1} IOPS {mean_ms:>7.1} ms {max_ms:>8.1} ms max   {source}");
}

fn one_drive() {
    println!("Elling'12: one drive, full-stroke 4 KiB random reads");
    for outstanding in [1, 2, 4, 6, 8, 10] {
        let source = match outstanding {
            1 => "80 IOPS, 12.5 ms",
            10 => "137 IOPS, 73 ms",
            _ => "",
        };
        let client = Client::random_reads(0, outstanding, Bytes::kib(4));
        let (all, _) = measure(Preset::Drive7200.params(), &[client]);
        row(&format!("  {outstanding} outstanding"), &all, source);
    }
    for scheduling in [Scheduling::Fcfs, Scheduling::Elevator] {
        let mut params = Preset::Drive7200.params();
        params.drive.scheduling = scheduling;
        let (all, _) = measure(params, &[Client::random_reads(0, 10, Bytes::kib(4))]);
        row(&format!("  10 outstanding, {scheduling:?}"), &all, "");
    }
    println!("\nOne drive, one stream of 64 KiB reads, from the outer edge");
    let client = Client {
        lun: LunId(0),
        outstanding: 1,
        len: Bytes::kib(64),
        read_percent: 100,
        access: Access::Sequential,
    };
    let (all, _) = measure(Preset::Drive7200.params(), &[client]);
    row("  1 outstanding", &all, &format!("{:.1} MB/s", all.iops * 0.065_536));
}

fn hosts(what: &str, luns: usize, sources: &[&str]) {
    println!("\n{what}: 16 KiB random reads, 32 outstanding each, RAID-0 of 10 drives, no control");
    let mut params = Preset::Cx340Raid0Vms.params();
    params.layout.luns = vec![Bytes::gib(16); luns];
    let clients: Vec<Client> =
        (0..luns).map(|lun| Client::random_reads(lun as u32, 32, Bytes::kib(16))).collect();
    let (all, hosts) = measure(params, &clients);
    for (i, (host, source)) in hosts.iter().zip(sources).enumerate() {
        row(&format!("  host {}", i + 1), host, source);
    }
    row("  all", &all, sources.last().unwrap_or(&""));
}

fn main() {
    one_drive();
    hosts(
        "PARDA §4, figure 3",
        4,
        &["780, 40.0 ms", "910, 34.5 ms", "920, 35.0 ms", "800, 39.5 ms", "3410"],
    );
    hosts(
        "PARDA §5.4, table 4",
        6,
        &[
            "525, 59 ms",
            "570, 55 ms",
            "570, 55 ms",
            "560, 57 ms",
            "430, 77 ms",
            "500, 62 ms",
            "3130, 60 ms; the rows add up to 3155",
        ],
    );
}
